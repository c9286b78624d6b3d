package crash

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

var (
	rewrapKeys  = flag.Int("rewrap-keys", 3000, "keys that are wrapped anew while the server is killed")
	rewrapKills = flag.Int("rewrap-kills", 6, "how often the server is killed meanwhile, per database")
)

const rewrapSystem = 1

func rewrapMaterial(n int) []byte {
	id := rewrapID(n)
	return bytes.Repeat(id[:], 4)
}

func rewrapID(n int) keyserver.ID { return values.IDFromUint64(uint64(n) + 1<<50) }

// inside opens the database of a stopped server.
func (s site) inside(t *testing.T) (*sqlstore.Store, *keyring.Keyring) {
	t.Helper()
	config := sqlstore.Config{Dir: s.dir}
	if len(s.state) > 0 {
		config = sqlstore.Config{URL: s.state[1]}
	}
	store, err := sqlstore.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	url, err := keyring.FileKey(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := keyring.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.New(t.Context(), keeper, store)
	if err != nil {
		t.Fatal(err)
	}
	store.UseRowKey(ring.RowKey())
	return store, ring
}

// fill makes keys that admin may use.
func (s site) fill(t *testing.T, n int) {
	t.Helper()
	store, ring := s.inside(t)
	admin, err := store.PrincipalByName(t.Context(), keyserver.PasswordPrincipal, "admin")
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < n; from += 1000 {
		err := store.Update(t.Context(), func(tx *sqlstore.Tx) error {
			for i := from; i < min(n, from+1000); i++ {
				wrapped, err := ring.Wrap(rewrapID(i), rewrapSystem, rewrapMaterial(i))
				if err != nil {
					return err
				}
				key := sqlstore.KeyRecord{ID: rewrapID(i), Algorithm: keyserver.HMACSHA384, KeyBytes: 32, Wrapped: wrapped, ACL: rewrapID(i + 1<<30), CreatedAt: time.UnixMicro(1)}
				entry := keyserver.ACLEntry{ID: rewrapID(i + 1<<31), Principal: admin.Ref(), Rights: keyserver.AllRights, MaxUsage: keyserver.NoUsageLimit}
				if err := tx.InsertKey(t.Context(), key, entry); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// whole unwraps every key that fill created, with only the data of the database.
func (s site) whole(t *testing.T, n int) {
	t.Helper()
	store, ring := s.inside(t)
	for i := range n {
		record, err := store.Key(t.Context(), rewrapID(i))
		if err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
		plain, err := ring.Unwrap(rewrapID(i), rewrapSystem, record.Wrapped)
		if err != nil || !bytes.Equal(plain, rewrapMaterial(i)) {
			t.Fatalf("key %d: %v", i, err)
		}
	}
	rows, err := store.CheckRows(t.Context(), func(f rowmac.Finding) error { t.Error(f); return nil })
	if err != nil || rows < n {
		t.Errorf("%d rows, %v", rows, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNoKeyIsLostWhenItIsWrappedAnew kills the server at random moments while keys are rewrapped with a
// new data key and are in use. It ends after enough kills, when all keys are under the last data key.
func TestNoKeyIsLostWhenItIsWrappedAnew(t *testing.T) {
	for name, at := range map[string]func(*testing.T) site{"SQLite": onSQLite, "PostgreSQL": onPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			r, s := dice(t), at(t)
			server := s.serve(t)
			if err := server.Stop(); err != nil {
				t.Fatal(err)
			}
			s.fill(t, *rewrapKeys)
			began, rotations, working := time.Now(), 0, 0
			for kill := range *rewrapKills {
				server = s.serve(t)
				admin := server.Admin(t, 5)
				if retiring(t, admin) {
					working++
				} else {
					rotate(t, admin)
					rotations++
				}
				useUntil(t, admin, r, kill, time.Now().Add(upTo(r, 300*time.Millisecond)))
				server.Kill()
			}
			server = s.serve(t)
			admin := server.Admin(t, 5)
			var end schema.Custody
			rig.Within(t, 10*time.Minute, "everything is under the last data key", func() bool {
				end = custodyOf(t, admin)
				return end.Rewrap.Done == end.Rewrap.Total && end.DataKeys[len(end.DataKeys)-2].State == "retired"
			})
			t.Logf("%d keys, %d kills (%d of them in the middle of a re-wrap), %d data keys made, in %s", *rewrapKeys, *rewrapKills, working, rotations, time.Since(began).Round(time.Second))
			if err := server.Stop(); err != nil {
				t.Fatal(err)
			}
			s.whole(t, *rewrapKeys)
			s.verifyTrail(t)
		})
	}
}

func custodyOf(t *testing.T, admin *client.Client) schema.Custody {
	t.Helper()
	c, err := admin.GetCustody(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func retiring(t *testing.T, admin *client.Client) bool {
	t.Helper()
	for _, k := range custodyOf(t, admin).DataKeys {
		if k.State == "retiring" {
			return true
		}
	}
	return false
}

func rotate(t *testing.T, admin *client.Client) {
	t.Helper()
	if _, err := admin.RotateDataKey(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// useUntil uses keys until a time. No use may fail, under any data key.
func useUntil(t *testing.T, admin *client.Client, r *rand.Rand, kill int, end time.Time) {
	t.Helper()
	for time.Now().Before(end) {
		i := r.IntN(*rewrapKeys)
		answer, err := admin.HMAC(t.Context(), schema.HiddenLink(values.NewHiddenLink(rewrapSystem, rewrapID(i))), strings.NewReader("message"))
		if err != nil {
			t.Fatalf("round %d, key %d: %v", kill, i, err)
		}
		if !bytes.Equal(answer.MAC, ledger.MAC(rewrapMaterial(i), "message")) {
			t.Fatalf("round %d, key %d: another MAC", kill, i)
		}
	}
}
