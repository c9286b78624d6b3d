package witness

import (
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// peer starts a key server with a listener for peers. If its system id is n, its address is 127.0.0.n.
func peer(t testing.TB, system int, options ...testserver.Option) *site {
	t.Helper()
	host := "127.0.0." + strconv.Itoa(system)
	external := rig.FreeAddress(t, host)
	return open(t, append([]testserver.Option{func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = uint32(system), host, external
	}}, options...)...)
}

// trust registers another site as a peer, and configures both to witness each other.
func (s *site) trust(t testing.TB, other *site) {
	t.Helper()
	_, err := s.Admin(t).AddTrustedCA(t.Context(), schema.AddTrustedCARequest{Certificate: issuer(t, other)})
	rig.Must(t, err)
	s.register(t, other)
}

func (s *site) register(t testing.TB, other *site) {
	t.Helper()
	info, err := other.Admin(t).GetLocalTrustInfo(t.Context())
	rig.Must(t, err)
	_, err = s.Admin(t).AddTrustedServer(t.Context(), schema.AddTrustedServerRequest{TrustBlob: *info.TrustBlob, FriendlyName: fmt.Sprint("site ", other.at.SystemID), Witness: true})
	rig.Must(t, err)
}

// seen returns a site's record of the audit log of another site.
func (s *site) seen(t testing.TB, other *site) schema.WitnessedLog {
	t.Helper()
	w, err := s.Admin(t).GetWitness(t.Context())
	rig.Must(t, err)
	for _, l := range w.Logs {
		if l.SystemID != nil && uint32(*l.SystemID) == other.at.SystemID {
			return l
		}
	}
	return schema.WitnessedLog{}
}

// found waits until a conflict is known and has its audit row.
func (s *site) found(t testing.TB, of *site, kinds ...string) {
	t.Helper()
	var l schema.WitnessedLog
	until(t, fmt.Sprintf("conflict %v of site %d", kinds, of.at.SystemID), func() bool {
		l = s.seen(t, of)
		return l.Conflict != ""
	})
	named := false
	for _, kind := range kinds {
		named = named || l.Conflict == kind
	}
	if !named {
		t.Errorf("it is called %s instead of one of %v", l.Conflict, kinds)
	}
	until(t, "the row about it", func() bool {
		page, err := s.Admin(t).ListAuditEntries(t.Context(), schema.AuditQuery{Operation: "witness"})
		rig.Must(t, err)
		for _, e := range page.Entries {
			if e.Reason == l.Conflict && e.Object == l.Origin && e.Outcome == "refused" && uint32(e.SystemID) == of.at.SystemID {
				return true
			}
		}
		return false
	})
}

// pair starts two sites that witness each other. It waits until each has cosigned the other's log.
func pair(t testing.TB, database func(testing.TB) testserver.Option) (liar, watcher *site) {
	t.Helper()
	liar, watcher = peer(t, 2, database(t)), peer(t, 3, database(t))
	liar.trust(t, watcher)
	watcher.trust(t, liar)
	liar.write(t, 5)
	db := liar.database(t)
	until(t, "the first cosignature", func() bool {
		size, checkpoint := head(t, db, "cosigned")
		return size > 0 && signed(t, checkpoint, watcher.WitnessKey())
	})
	return liar, watcher
}

// TestPeersWitnessEachOther checks that peers witness each other without further configuration.
func TestPeersWitnessEachOther(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, database)
			for _, s := range [][2]*site{{a, b}, {b, a}} {
				s[0].write(t, 2)
				until(t, "both directions", func() bool { l := s[1].seen(t, s[0]); return l.Size > 0 && l.Conflict == "" })
			}
		})
	}
}

// copyOf copies the data directory of a stopped server.
func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", dir, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// TestPlanted plants violations of a log's rules in a running federation. The peer has to report each kind.
func TestPlanted(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(t *testing.T, liar, watcher *site)
		kinds []string
	}{
		"a fork": {func(t *testing.T, liar, _ *site) {
			liar.Stop(t)
			dir := copyOf(t, liar.at.DataDir)
			liar.Restart(t)
			other := open(t, func(c *server.Config) {
				own, clock, logger := c.Listen, c.Clock, c.Logger
				*c = liar.at
				c.Listen, c.Clock, c.Logger, c.DataDir = own, clock, logger, dir
				c.ExternalListen = rig.FreeAddress(t, "127.0.0.4")
			})
			liar.write(t, 5)
			other.write(t, 4)
		}, []string{"logForked", "logRolledBack"}},
		"put back": {func(t *testing.T, liar, watcher *site) { putBack(t, liar, watcher, 50) }, []string{"logRolledBack"}},
		"put back and grown beyond": {func(t *testing.T, liar, watcher *site) {
			putBack(t, liar, watcher, 5)
			liar.write(t, 50)
		}, []string{"logForked", "logRolledBack"}},
	} {
		t.Run(name, func(t *testing.T) {
			liar, watcher := pair(t, databases["SQLite"])
			c.plant(t, liar, watcher)
			watcher.found(t, liar, c.kinds...)
		})
	}
}

// TestARestoredLogIsTakenUpAgain restores an older database of a log on purpose. After the peer is removed and
// registered again, it cosigns the current log, although it had cosigned a longer log.
func TestARestoredLogIsTakenUpAgain(t *testing.T) {
	liar, watcher := pair(t, databases["SQLite"])
	liar.Stop(t)
	dir := copyOf(t, liar.at.DataDir)
	liar.Restart(t)
	liar.write(t, 200)
	grown(t, liar, watcher)
	liar.Stop(t)
	rig.Must(t, os.RemoveAll(liar.at.DataDir))
	rig.Must(t, os.Rename(dir, liar.at.DataDir))
	liar.Restart(t)
	watcher.found(t, liar, "logRolledBack")
	_, err := watcher.Admin(t).RemoveTrustedServer(t.Context(), schema.BySystemID{SystemID: schema.SystemID(liar.at.SystemID)})
	rig.Must(t, err)
	watcher.register(t, liar)
	grown(t, liar, watcher)
	if l := watcher.seen(t, liar); l.Conflict != "" {
		t.Errorf("registered anew, and in conflict: %+v", l)
	}
}

// grown waits until the watcher has cosigned the newest checkpoint.
func grown(t testing.TB, liar, watcher *site) {
	t.Helper()
	db := liar.database(t)
	defer func() { _ = db.Close() }()
	until(t, "the newest head is cosigned", func() bool {
		_, checkpoint := head(t, db, "newest")
		return signed(t, checkpoint, watcher.WitnessKey())
	})
}

func issuer(t testing.TB, s *site) schema.Base64 {
	t.Helper()
	block, _ := pem.Decode(s.CA(t))
	if block == nil {
		t.Fatal("the CA is no PEM")
	}
	return block.Bytes
}

// putBack removes the last rows of a log, which the watcher has already cosigned.
func putBack(t *testing.T, liar, watcher *site, rows int) {
	t.Helper()
	liar.Stop(t)
	dir := copyOf(t, liar.at.DataDir)
	liar.Restart(t)
	liar.write(t, rows)
	grown(t, liar, watcher)
	liar.Stop(t)
	rig.Must(t, os.RemoveAll(liar.at.DataDir))
	rig.Must(t, os.Rename(dir, liar.at.DataDir))
	liar.Restart(t)
}
