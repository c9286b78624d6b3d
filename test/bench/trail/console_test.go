package trail

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/browser"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
)

// consoleVariable is the number of rows of the log in TestConsole: 1000000 for docs/console.md.
const consoleVariable = "BENCH_CONSOLE_ROWS"

// The number of other objects.
const (
	consolePrincipals = 100_000
	consolePeers      = 200
)

// TestConsole measures how long each view of the console takes in a real browser if there are many objects.
func TestConsole(t *testing.T) {
	rows, err := strconv.ParseInt(os.Getenv(consoleVariable), 10, 64)
	if err != nil {
		t.Skipf("a measurement: give the number of rows as %s", consoleVariable)
	}
	chromium := browser.Chromium(t)
	b := &bench{T: t, dir: filepath.Join(t.TempDir(), "data")}
	b.cfg = sqlstore.Config{Dir: b.dir}
	var crowd, key string
	b.serve("first start", func(s *program.Server) { crowd, key = b.createOriginals(s) })
	b.say("load", func() string { return b.load(rows) })
	b.say("principals and peers", func() string { b.createPrincipals(crowd); return "" })
	b.serve("the console", func(s *program.Server) {
		t.Chdir("../../console") // the script uses its packages
		dir := node.Install(t, "../bench/trail/views.mjs")
		secret, err := s.Password()
		rig.Must(t, err)
		answer := node.Run(t, dir, []string{
			"RIG_CHROMIUM=" + chromium, "KEYSERVER_URL=https://" + s.Address, "KEYSERVER_PASSWORD=" + secret, "KEYSERVER_KEY=" + key,
		}, "node", "views.mjs")
		var views []struct {
			View          string
			Median, Worst float64 // ms
		}
		rig.Must(t, json.Unmarshal([]byte(answer), &views))
		for _, v := range views {
			b.Logf("%-60s %5.0f ms, at worst %5.0f ms", v.View, v.Median, v.Worst)
		}
	}, "--console")
}

// createOriginals creates the objects that people copies: a group that may use a key, and a peer.
func (b *bench) createOriginals(s *program.Server) (crowd, key string) {
	b.Helper()
	c := s.Admin(b.T, program.NoRetries)
	group, err := c.CreateGroup(b.Context(), schema.CreateGroupRequest{Name: "everybody"})
	rig.Must(b.T, err)
	minted, err := c.MintKey(b.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(b.T, err)
	_, err = c.GrantACL(b.Context(), schema.ACLChangeRequest{
		TTag: minted.TTag, SystemID: group.Principal.SystemID, PrincipalID: group.Principal.PrincipalID, Rights: schema.RightNamed("READ"),
	})
	rig.Must(b.T, err)
	peer, err := built.Serve(filepath.Join(b.TempDir(), "peer"), "--system-id", "2", "--server-name", "127.0.0.3", "--external-listen", "127.0.0.3:0")
	rig.Must(b.T, err)
	defer peer.Kill()
	b.register(c, peer.Admin(b.T, program.NoRetries))
	return group.Principal.ID.String(), minted.TTag.String()
}

func (b *bench) register(c, peer *client.Client) {
	b.Helper()
	own, err := peer.ListAuthorities(b.Context())
	rig.Must(b.T, err)
	_, err = c.AddTrustedCA(b.Context(), schema.AddTrustedCARequest{Certificate: own.Authorities[0].Certificate})
	rig.Must(b.T, err)
	info, err := peer.GetLocalTrustInfo(b.Context())
	rig.Must(b.T, err)
	_, err = c.AddTrustedServer(b.Context(), schema.AddTrustedServerRequest{TrustBlob: *info.TrustBlob, FriendlyName: "Peer 0"})
	rig.Must(b.T, err)
}

// createPrincipals makes the other objects by SQL, and the MACs of all rows.
func (b *bench) createPrincipals(crowd string) {
	b.Helper()
	at := func(kind int) string { return fmt.Sprintf(`unhex(printf('%%016x', i * 8796093022208 + %d))`, kind) }
	series := func(n int) string {
		return fmt.Sprintf(`(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i FROM n) n`, n)
	}
	all := []string{
		`INSERT INTO principals (id, system_id, type, name, flags) SELECT ` + at(5) + `, 1, 'ldap', printf('user-%06d', i), 1 FROM ` + series(consolePrincipals),
		`INSERT INTO principal_roles (principal_id, role_id) SELECT ` + at(5) + `, x'` + keyserver.RoleExchanger.Hex() + `' FROM ` + series(consolePrincipals),
		`INSERT INTO group_members (group_id, member_id) SELECT x'` + crowd + `', ` + at(5) + ` FROM ` + series(consolePrincipals),
		`INSERT INTO principal_trusts (id, principal_id, system_id, flag) SELECT ` + at(6) + `, ` + at(5) + `, 2, (SELECT 1) FROM ` + series(consolePeers),
	}
	for i := 1; i < consolePeers; i++ {
		transport := fmt.Sprintf(`x'%016x'`, 7_000_000+i)
		all = append(all,
			copyOf("principals", `id = (SELECT transport_id FROM trusted_servers WHERE system_id = 2)`, fmt.Sprintf(`id = %s, name = name || '%d'`, transport, i)),
			copyOf("trusted_servers", `system_id = 2`, fmt.Sprintf(
				`system_id = %d, transport_id = %s, cert_id = randomblob(length(cert_id)), friendly_name = 'Peer %d'`, 1000+i, transport, i)))
	}
	b.exec(strings.Join(all, ";\n"))
	store, err := sqlstore.Open(b.Context(), b.cfg)
	rig.Must(b.T, err)
	defer func() { rig.Must(b.T, store.Close()) }()
	_, err = store.SealRows(b.Context(), b.ring(store).RowKey(), func(*sqlstore.Tx) (bool, error) { return true, nil })
	rig.Must(b.T, err)
}

// copyOf returns the statements that copy a row of a table with some columns changed.
func copyOf(table, row, set string) string {
	//nolint:unqueryvet // a copy has every column
	return fmt.Sprintf(`CREATE TEMP TABLE one AS SELECT * FROM %[1]s WHERE %[2]s; UPDATE one SET %[3]s; INSERT INTO %[1]s SELECT * FROM one; DROP TABLE one`, table, row, set)
}
