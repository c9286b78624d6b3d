package rewrap_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gocloud.dev/secrets/localsecrets"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password/passwordtest"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/rewrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// keys is the number of stored keys, more than one batch.
const keys = 600

// own is the number of the key server's own private keys: the keys in settings, and the key of its CA.
var own = int64(len(sqlstore.WrappedSettings) + 1)

// world is a database with keys. outside writes to it without the store.
type world struct {
	config  sqlstore.Config
	kek     string
	replica replica
	outside *sql.DB
}

// replica is one process on the database.
type replica struct {
	store  *sqlstore.Store
	ring   *keyring.Keyring
	system keyserver.SystemID
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func onEach(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, database := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, database(t), nil))
		})
	}
}

// newWorld creates a database. dataKey is the data key in the settings of an older version, or nil.
func newWorld(t testing.TB, config sqlstore.Config, dataKey []byte) *world {
	t.Helper()
	w := &world{config: config, kek: "base64key://" + base64.StdEncoding.EncodeToString(make([]byte, 32))}
	store, err := sqlstore.Open(context.Background(), config)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	if dataKey != nil {
		must(t, store.Update(t.Context(), func(tx *sqlstore.Tx) error { return tx.PutSetting(t.Context(), rowmac.DataKeySetting, dataKey) }))
	}
	w.replica = w.serve(t, store)
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(config.Dir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
	driver, source := "sqlite", file.String()
	if config.URL != "" {
		driver, source = "pgx", config.URL
	}
	w.outside, err = sql.Open(driver, source)
	must(t, err)
	t.Cleanup(func() { must(t, w.outside.Close()) })
	must(t, store.Update(t.Context(), func(tx *sqlstore.Tx) error {
		for i := range keys {
			if err := w.replica.mint(t.Context(), tx, uint64(1000+i)); err != nil {
				return err
			}
		}
		return nil
	}))
	return w
}

// serve starts a process on the database.
func (w *world) serve(t testing.TB, store *sqlstore.Store) replica {
	t.Helper()
	keeper, err := keyring.Open(t.Context(), w.kek)
	must(t, err)
	ring, err := keyring.New(t.Context(), keeper, store)
	must(t, err)
	clock := &enginetest.Clock{}
	p, err := bootstrap.Run(t.Context(), bootstrap.Config{
		Store: store, Keyring: ring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
		AdminPassword: func() (string, error) { return enginetest.AdminPassword, nil }, PasswordCost: passwordtest.Cost, Clock: clock.Now, Random: strings.NewReader(strings.Repeat("random", 10_000)),
	})
	must(t, err)
	return replica{store, ring, p.System}
}

func material(n uint64) []byte { return bytes.Repeat([]byte{byte(n), byte(n >> 8)}, 16) }

func (r replica) mint(ctx context.Context, tx *sqlstore.Tx, n uint64) error {
	id := values.IDFromUint64(n)
	wrapped, err := r.ring.Wrap(id, r.system, material(n))
	if err != nil {
		return err
	}
	return tx.InsertKey(ctx, sqlstore.KeyRecord{ID: id, Algorithm: "HMAC-SHA384", KeyBytes: 32, Wrapped: wrapped, ACL: values.IDFromUint64(n + 1<<40), CreatedAt: time.UnixMicro(0)},
		keyserver.ACLEntry{ID: values.IDFromUint64(n + 1<<41), Principal: keyserver.PrincipalRef{System: 1, ID: id}, Rights: keyserver.AllRights, MaxUsage: keyserver.NoUsageLimit})
}

func (r replica) worker() *rewrap.Worker {
	return rewrap.New(rewrap.Config{Store: r.store, Keyring: r.ring, System: r.system, Share: 1})
}

// work runs a worker until done returns true.
func (r replica) work(t testing.TB, done func(keyserver.Custody) bool) keyserver.Custody {
	t.Helper()
	w := r.worker()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := w.Custody(t.Context())
		must(t, err)
		if done(c) {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("it does not end: %+v", c)
		}
	}
}

func retired(c keyserver.Custody) bool {
	return len(c.DataKeys) > 1 && c.DataKeys[len(c.DataKeys)-2].State == keyserver.DataKeyRetired
}

// whole checks that all n keys and all rows can be read.
func (r replica) whole(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		id := values.IDFromUint64(uint64(1000 + i))
		record, err := r.store.Key(t.Context(), id)
		must(t, err)
		plain, err := r.ring.Unwrap(id, r.system, record.Wrapped)
		if err != nil || !bytes.Equal(plain, material(uint64(1000+i))) {
			t.Fatalf("key %d: %x, %v", i, plain, err)
		}
	}
	rows, err := r.store.CheckRows(t.Context(), func(f rowmac.Finding) error { t.Error(f); return nil })
	if err != nil || rows < n {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// TestRewrap checks that all values are wrapped with the new data key, and that the old data key is erased.
func TestRewrap(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		if _, err := w.replica.ring.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := w.replica.work(t, retired)
		if c.DataKeys[0].Wrapped != 0 || c.DataKeys[1].Wrapped != keys+own || c.Rewrap != (keyserver.Rewrap{Done: keys + own, Total: keys + own}) {
			t.Errorf("got %+v", c)
		}
		w.replica.whole(t, keys)
		w.replica.store.UseRowKey(nil)
		w.serve(t, w.replica.store).whole(t, keys) // in a new process
	})
}

// TestRewrapOfBefore checks the rewrap of a database whose version had only one data key.
func TestRewrapOfBefore(t *testing.T) {
	keeper := localsecrets.NewKeeper([32]byte{})
	defer keeper.Close()
	alone, err := keeper.Encrypt(t.Context(), append([]byte{1}, strings.Repeat("k", 32)...))
	must(t, err)
	for name, database := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, database(t), alone)
			if _, err := w.replica.ring.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c := w.replica.work(t, retired); !c.DataKeys[0].ID.IsZero() || c.DataKeys[1].Wrapped != keys+own {
				t.Errorf("got %+v", c)
			}
			w.replica.whole(t, keys)
		})
	}
}

// TestRewrapGoesOn checks that another process completes an interrupted rewrap. Meanwhile keys are created, rights are
// granted and the data key is rotated again.
func TestRewrapGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		if _, err := w.replica.ring.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := keys
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%7)*time.Millisecond)
			w.replica.worker().Run(ctx)
			cancel()
			must(t, w.replica.store.Update(t.Context(), func(tx *sqlstore.Tx) error {
				return w.replica.mint(t.Context(), tx, uint64(1000+n))
			}))
			n++
		}
		w.replica.work(t, retired)
		w.replica.whole(t, n)
	})
}

// TestReplicas checks that a replica uses the data key that another replica created, even without notifications, and
// never an erased one.
func TestReplicas(t *testing.T) {
	w := newWorld(t, enginetest.Databases["PostgreSQL"](t), nil)
	store, err := sqlstore.Open(t.Context(), w.config)
	must(t, err)
	defer func() { must(t, store.Close()) }()
	other := w.serve(t, store)
	n := keys
	for range 3 {
		if _, err := w.replica.ring.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.replica.work(t, func(c keyserver.Custody) bool {
			must(t, other.store.Update(t.Context(), func(tx *sqlstore.Tx) error {
				return other.mint(t.Context(), tx, uint64(1000+n))
			}))
			n++
			return retired(c)
		})
	}
	other.whole(t, n)
	w.replica.whole(t, n)
}

// TestTamperedMeanwhile checks that a row with an invalid MAC gets no new MAC. The old data key is kept until an
// administrator has checked the row.
func TestTamperedMeanwhile(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		tampered := values.IDFromUint64(1007)
		bytesOf := func(column string) (value any) {
			must(t, w.outside.QueryRowContext(t.Context(), `SELECT `+column+` FROM stored_keys WHERE id = $1`, tampered[:]).Scan(&value))
			return value
		}
		set := func(statement string, args ...any) {
			_, err := w.outside.ExecContext(t.Context(), statement, args...)
			must(t, err)
		}
		before := bytesOf("mac")
		set(`UPDATE stored_keys SET algorithm = 'HMAC-SHA512' WHERE id = $1`, tampered[:])
		set(`UPDATE roles SET name = 'Tampered' WHERE name = 'Encryptor'`)
		if _, err := w.replica.ring.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := w.replica.work(t, func(c keyserver.Custody) bool { return c.Rewrap.Refused == 2 })
		if c.DataKeys[0].State != keyserver.DataKeyRetiring || c.DataKeys[0].Wrapped != 1 || c.Rewrap.Done != keys+own-1 {
			t.Errorf("got %+v", c)
		}
		if _, err := w.replica.store.Key(t.Context(), tampered); fault.CodeOf(err) != fault.StoreTampered {
			t.Errorf("the tampered key: %v", err)
		}
		set(`UPDATE stored_keys SET algorithm = 'HMAC-SHA384' WHERE id = $1`, tampered[:])
		set(`UPDATE roles SET name = 'Encryptor' WHERE name = 'Tampered'`)
		w.replica.work(t, retired)
		w.replica.whole(t, keys)

		// A valid MAC of the former data key is not accepted any more.
		after := bytesOf("mac")
		set(`UPDATE stored_keys SET mac = $1 WHERE id = $2`, before, tampered[:])
		if _, err := w.replica.store.Key(t.Context(), tampered); fault.CodeOf(err) != fault.StoreTampered {
			t.Errorf("an old MAC was put back: %v", err)
		}
		set(`UPDATE stored_keys SET mac = $1 WHERE id = $2`, after, tampered[:])
	})
}
