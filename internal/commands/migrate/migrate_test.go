package migrate_test

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/migrate"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const otherKEK = "base64key://smGbjm71Nxd1Ig5FS0wj9SlbzAIrnolCz9bQQ6uAhl4="

// house is a stopped key server with some data in an embedded database.
type house struct {
	*testserver.Server
	dir     string
	link    schema.HiddenLink
	mac     []byte
	session schema.HexID // public id of a session that was open
	cursor  int64        // position in the change feed
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{}
	h.Server = testserver.Start(t, func(c *server.Config) {
		c.CheckpointInterval = 20 * time.Millisecond
		h.dir = c.DataDir
	})
	c := h.Client(t, testserver.AdminName, testserver.AdminPassword)
	key, err := c.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	h.link, h.mac = key.TTag, macOf(t, c, key.TTag)
	_, err = c.CreateRole(t.Context(), schema.CreateRoleRequest{Name: "Über alles"})
	rig.Must(t, err)
	session, err := c.GetCurrentSession(t.Context())
	rig.Must(t, err)
	h.session = session.ID
	changes, err := c.ListChanges(t.Context(), schema.ChangesQuery{})
	rig.Must(t, err)
	h.cursor = changes.Cursor
	h.Stop(t)
	// Names whose order in a locale differs from their byte order.
	h.alter(t, `INSERT INTO leases (name, until) VALUES ('alpha', 0), ('Beta', 0), ('ärger', 0), ('zeta', 0)`)
	return h
}

// copied returns a copy that a test may damage.
func (h *house) copied(t *testing.T) *house {
	t.Helper()
	other := *h
	other.dir = filepath.Join(t.TempDir(), "data")
	rig.Must(t, os.CopyFS(other.dir, os.DirFS(h.dir)))
	rig.Must(t, os.Chmod(filepath.Join(other.dir, keyring.KeyFile), 0o600))
	return &other
}

func macOf(t *testing.T, c *client.Client, link schema.HiddenLink) []byte {
	t.Helper()
	mac, err := c.HMAC(t.Context(), link, strings.NewReader("message"))
	rig.Must(t, err)
	return mac.MAC
}

// alter changes the source database directly.
func (h *house) alter(t *testing.T, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.dir, sqlite.DatabaseFile))
	rig.Must(t, err)
	_, err = db.ExecContext(t.Context(), text)
	rig.Must(t, errors.Join(err, db.Close()))
}

func keeper(t *testing.T, url string) *keyring.Provider {
	t.Helper()
	k, err := keyring.Open(t.Context(), url)
	rig.Must(t, err)
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// own returns the key-encryption key of the source.
func (h *house) own(t *testing.T) *keyring.Provider {
	t.Helper()
	url, err := keyring.FileKey(h.dir)
	rig.Must(t, err)
	return keeper(t, url)
}

func (h *house) options(t *testing.T, url string) migrate.Options {
	t.Helper()
	return migrate.Options{
		From: sqlstore.Config{Dir: h.dir}, To: sqlstore.Config{URL: url}, Provider: h.own(t),
		Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

// files returns the hash of each file of the source.
func (h *house) files(t *testing.T) map[string][32]byte {
	t.Helper()
	all := map[string][32]byte{}
	entries, err := os.ReadDir(h.dir)
	rig.Must(t, err)
	for _, e := range entries {
		if e.Type().IsRegular() {
			content, err := os.ReadFile(filepath.Join(h.dir, e.Name()))
			rig.Must(t, err)
			all[e.Name()] = sha256.Sum256(content)
		}
	}
	return all
}

func exec(t *testing.T, url string, texts ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	rig.Must(t, err)
	for _, text := range texts {
		_, err = conn.Exec(t.Context(), text)
		rig.Must(t, err)
	}
	rig.Must(t, conn.Close(t.Context()))
}

// relations counts the tables, indexes and other relations of a database.
func relations(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	rig.Must(t, err)
	rig.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace`).Scan(&n))
	rig.Must(t, conn.Close(t.Context()))
	return n
}

// TestWhatIsRefused checks that a rejected move changes neither the source nor the target.
func TestWhatIsRefused(t *testing.T) {
	whole := newHouse(t)
	for reason, tc := range map[string]struct {
		says    string
		prepare func(t *testing.T, h *house, o *migrate.Options)
	}{
		"no database": {"holds no database", func(t *testing.T, _ *house, o *migrate.Options) { o.From.Dir = t.TempDir() }},
		"a server runs on the source": {"in use by another process", func(t *testing.T, h *house, _ *migrate.Options) {
			store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: h.dir})
			rig.Must(t, err)
			t.Cleanup(func() { _ = store.Close() })
		}},
		"an older version": {"start the server once to migrate it", func(t *testing.T, h *house, _ *migrate.Options) {
			h.alter(t, `DELETE FROM keyserver_schema WHERE version_id = (SELECT max(version_id) FROM keyserver_schema)`)
		}},
		"a newer version": {"to move it, use the program of the newer release", func(t *testing.T, h *house, _ *migrate.Options) {
			h.alter(t, `INSERT INTO keyserver_schema (version_id, is_applied) SELECT max(version_id) + 1, 1 FROM keyserver_schema`)
		}},
		"another key-encryption key": {"does not open this database's data key", func(t *testing.T, _ *house, o *migrate.Options) { o.Provider = keeper(t, otherKEK) }},
		"two other key-encryption keys": {"neither --kek nor --kek-previous", func(t *testing.T, _ *house, o *migrate.Options) {
			o.Provider, o.Previous = keeper(t, otherKEK), keeper(t, otherKEK)
		}},
		"a row of somebody else's": {"not written by the key server", func(t *testing.T, h *house, _ *migrate.Options) {
			h.alter(t, `UPDATE roles SET name = 'Everything' WHERE name = 'Über alles'`)
		}},
		"a trail that was changed": {"audit log is not intact", func(t *testing.T, h *house, _ *migrate.Options) {
			h.alter(t, `UPDATE audit SET object = 'nothing' WHERE seq = 2`)
		}},
		"nobody is there": {"cannot be reached", func(_ *testing.T, _ *house, o *migrate.Options) {
			o.To.URL = "postgres://keyserver@127.0.0.1:1/nothing"
		}},
		"tables of others":   {"has tables", func(t *testing.T, _ *house, o *migrate.Options) { exec(t, o.To.URL, `CREATE TABLE notes (note TEXT)`) }},
		"a read-only target": {"read-only", func(t *testing.T, _ *house, o *migrate.Options) { o.To.URL += "&default_transaction_read_only=on" }},
		"a key server's database": {"has tables", func(t *testing.T, _ *house, o *migrate.Options) {
			other, err := sqlstore.Open(t.Context(), o.To)
			rig.Must(t, err)
			rig.Must(t, other.Close())
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			h := whole.copied(t)
			o := h.options(t, pgtest.Database(t))
			url := o.To.URL
			tc.prepare(t, h, &o)
			before, had := h.files(t), relations(t, url)
			_, err := migrate.Run(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("want a sentence with %q, got: %v", tc.says, err)
			}
			for name, content := range h.files(t) {
				if was, there := before[name]; !there || was != content {
					t.Errorf("%s is another one", name)
				}
			}
			if has := relations(t, url); has != had {
				t.Errorf("the target has %d relations, and had %d", has, had)
			}
		})
	}
}

// TestADifferenceIsFound checks that any difference in the target stops the move.
func TestADifferenceIsFound(t *testing.T) {
	h := newHouse(t)
	for reason, tc := range map[string]struct{ text, says string }{
		"a column":           {`UPDATE leases SET until = 1 WHERE name = 'Beta'`, "the copy of the table leases differs from the original: row 1 in sort order differs in until"},
		"a row less":         {`DELETE FROM leases WHERE name = 'ärger'`, "fewer rows"},
		"a row more":         {`INSERT INTO leases (name, until) VALUES ('über', 0)`, "more rows"},
		"a byte of a key":    {`UPDATE stored_keys SET wrapped = overlay(wrapped PLACING '\x00'::bytea FROM 20)`, "stored_keys"},
		"a MAC":              {`UPDATE roles SET mac = NULL`, "differs in mac"},
		"a row of the trail": {`UPDATE audit SET object = '' WHERE seq = 2`, "the copy of the table audit differs from the original: row 2"},
		"a number":           {`UPDATE sequences SET value = value + 1 WHERE name = 'changes'`, "sequences"},
	} {
		t.Run(reason, func(t *testing.T) {
			url := pgtest.Database(t)
			_, err := migrate.Run(t.Context(), h.options(t, url).Tampered(func() error { exec(t, url, tc.text); return nil }))
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("want one sentence with %q, got: %v", tc.says, err)
			}
			if where, err := sqlite.Moved(h.dir); where != "" || err != nil {
				t.Errorf("the source says that it was moved to %s, %v", where, err)
			}
			if n := relations(t, url); n > 0 {
				t.Errorf("%d relations are left", n)
			}
		})
	}
}

// TestWhatIsMovedServes checks that the key server continues with its keys, sessions, change feed, audit log
// and tree.
func TestWhatIsMovedServes(t *testing.T) {
	h := newHouse(t)
	url := pgtest.Database(t)
	before := h.files(t)
	// The database sorts names by another locale.
	done, err := migrate.Run(t.Context(), h.options(t, url).Tampered(func() error {
		exec(t, url, `ALTER TABLE leases ALTER COLUMN name TYPE text COLLATE "en-x-icu"`)
		return nil
	}))
	rig.Must(t, err)
	if done.Rows == 0 || done.Tables < 20 || done.Tree == 0 || done.Tree > done.Last {
		t.Errorf("what was moved: %+v", done)
	}
	target := sqlstore.Config{URL: url}
	rig.Must(t, looks(t, target, func() (string, error) { return keyring.FileKey(h.dir) }))
	for name, content := range h.files(t) {
		if name != sqlite.MovedFile && before[name] != content {
			t.Errorf("%s is another one", name)
		}
	}

	// No server starts with the source any more, but it can be read.
	if _, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: h.dir}); !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), "was moved to the PostgreSQL database") {
		t.Errorf("the source: %v", err)
	}
	rig.Must(t, looks(t, sqlstore.Config{Dir: h.dir}, func() (string, error) { return keyring.FileKey(h.dir) }))
	if _, err := migrate.Run(t.Context(), h.options(t, url)); err == nil || !strings.Contains(err.Error(), "has tables") || !strings.Contains(err.Error(), "was moved to") {
		t.Errorf("a second time: %v", err)
	}

	h.Restart(t, func(c *server.Config) { c.DatabaseURL = url })
	c := h.Client(t, testserver.AdminName, testserver.AdminPassword)
	if mac := macOf(t, c, h.link); !bytes.Equal(mac, h.mac) {
		t.Errorf("another MAC: %x, want %x", mac, h.mac)
	}
	sessions, err := c.ListSessions(t.Context(), schema.SessionQuery{})
	rig.Must(t, err)
	open := false
	for _, s := range sessions.Sessions {
		open = open || s.ID == h.session
	}
	if !open {
		t.Error("sessions have ended")
	}
	changes, err := c.ListChanges(t.Context(), schema.ChangesQuery{After: &h.cursor})
	rig.Must(t, err)
	if changes.Reset {
		t.Error("the change feed goes on elsewhere")
	}
	page, err := c.ListAuditEntries(t.Context(), schema.AuditQuery{Operation: "migrate"})
	rig.Must(t, err)
	if len(page.Entries) != 1 || page.Entries[0].Seq != done.Last+1 || page.Entries[0].SystemID != 1 {
		t.Errorf("what the trail says of it: %+v", page.Entries)
	}
	rig.Succeeds(t, func() error { // the tree continues after the signed rows
		text, err := c.GetAuditCheckpoint(t.Context())
		if err == nil && !strings.Contains(string(text), "/audit/1\n") {
			err = errors.New("another log")
		}
		return err
	})

	// A move can be undone if the later writes are not needed.
	h.Stop(t)
	rig.Must(t, os.Remove(filepath.Join(h.dir, sqlite.MovedFile)))
	h.Restart(t, func(c *server.Config) { c.DatabaseURL = "" })
	if mac := macOf(t, h.Client(t, testserver.AdminName, testserver.AdminPassword), h.link); !bytes.Equal(mac, h.mac) {
		t.Errorf("the source computes another MAC: %x, want %x", mac, h.mac)
	}
}

// TestAnotherKEKOnTheWay checks that a move can change the key-encryption key, and that the source keeps its key.
func TestAnotherKEKOnTheWay(t *testing.T) {
	h := newHouse(t)
	o := h.options(t, pgtest.Database(t))
	o.Provider, o.Previous = keeper(t, otherKEK), o.Provider
	done, err := migrate.Run(t.Context(), o)
	rig.Must(t, err)
	if done.KEK.PreviousNeeded == nil || *done.KEK.PreviousNeeded {
		t.Error("the former key is needed still")
	}
	rig.Must(t, looks(t, o.To, func() (string, error) { return otherKEK, nil }))
	if err := looks(t, o.To, func() (string, error) { return keyring.FileKey(h.dir) }); err == nil {
		t.Error("the former key opens the target")
	}
	rig.Must(t, looks(t, o.From, func() (string, error) { return keyring.FileKey(h.dir) }))
}

// looks returns the findings of doctor as an error.
func looks(t *testing.T, cfg sqlstore.Config, kek func() (string, error)) error {
	t.Helper()
	store, err := sqlstore.OpenReadOnly(t.Context(), cfg)
	if err != nil {
		return err
	}
	defer store.Close()
	return doctor.Run(t.Context(), io.Discard, storecheck.Database(store, kek))
}
