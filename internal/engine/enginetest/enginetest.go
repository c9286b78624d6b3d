// Package enginetest provides tests with a real key server on a real database.
package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password/passwordtest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/rewrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// AdminPassword is the first password of admin.
const AdminPassword = "correct horse battery staple"

// Databases are the kinds of database that the tests of an engine run on.
var Databases = map[string]func(testing.TB) sqlstore.Config{
	"SQLite":     func(t testing.TB) sqlstore.Config { return sqlstore.Config{Dir: migrated.Dir(t)} },
	"PostgreSQL": func(t testing.TB) sqlstore.Config { return sqlstore.Config{URL: migrated.Database(t)} },
}

// OnEach runs a test on each kind of database, with a new key server.
func OnEach(t *testing.T, test func(t *testing.T, f *Fixture)) {
	t.Helper()
	for name, database := range Databases {
		t.Run(name, func(t *testing.T) { test(t, New(t, database(t))) })
	}
}

// Clock is a clock that moves only when a test advances it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Fixture is a key server after its first start, for tests.
type Fixture struct {
	*engine.Engine
	Store     *sqlstore.Store
	Keyring   *keyring.Keyring
	Rows      *audit.Writer
	Clock     *Clock
	Prepared  bootstrap.Prepared
	CAManager *ca.Manager
	Log       *bytes.Buffer
	// Hosts are the host names that the key server can resolve.
	Hosts Hosts
	// Admin is the first administrator, with a session.
	Admin keyserver.Caller
	// Config is the configuration of the engine.
	Config engine.Config
}

// New starts a key server on a new database. It is closed at the end of the test.
func New(t testing.TB, database sqlstore.Config) *Fixture {
	t.Helper()
	kek, err := keyring.EnsureFileKey(t.TempDir())
	fatal(t, err)
	return NewUnder(t, database, kek)
}

// NewUnder is New with a given key-encryption key. The database may already exist.
func NewUnder(t testing.TB, database sqlstore.Config, kek string) *Fixture {
	t.Helper()
	ctx := context.Background()
	f := &Fixture{Clock: &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}, Log: &bytes.Buffer{}}
	logger := slog.New(slog.NewTextHandler(&lockedWriter{w: f.Log}, nil))
	database.Clock, database.Logger = time.Now, logger // replication delay is measured in real time
	var err error
	if f.Store, err = sqlstore.Open(ctx, database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, f.Store.Close()) })
	keeper, err := keyring.Open(ctx, kek)
	fatal(t, err)
	t.Cleanup(func() { closing(t, keeper.Close()) })
	ring, err := keyring.New(ctx, keeper, f.Store)
	fatal(t, err)
	f.Keyring = ring
	f.Prepared, err = bootstrap.Run(ctx, bootstrap.Config{
		Store: f.Store, Keyring: ring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
		AdminPassword: func() (string, error) { return AdminPassword, nil }, PasswordCost: passwordtest.Cost, Clock: f.Clock.Now, Random: rand.Reader,
	})
	fatal(t, err)
	f.Rows, err = audit.NewWriter(ctx, f.Store, audit.Options{Clock: f.Clock.Now, Logger: logger})
	fatal(t, err)
	t.Cleanup(func() { closing(t, f.Rows.Close()) })
	f.CAManager = ca.New(ca.Config{
		Store: f.Store, Keyring: ring, System: f.Prepared.System, ServerName: "test", Clock: f.Clock.Now, Random: rand.Reader,
	})
	f.Config = engine.Config{
		Store: f.Store, Keyring: ring, Auditor: f.Rows, System: f.Prepared.System, Self: f.self(),
		Clock: f.Clock.Now, Random: rand.Reader, Logger: logger,
		Parts: engine.Parts{
			DataKeys:  rewrap.New(rewrap.Config{Store: f.Store, Keyring: ring, System: f.Prepared.System}),
			CAManager: f.CAManager, Build: keyserver.Version{Banner: "test"}, PasswordCost: passwordtest.Cost,
		},
	}
	f.Engine = engine.New(f.Config)
	f.Admin = f.Caller(t, keyserver.PasswordPrincipal, bootstrap.AdminName)
	return f
}

// Caller returns an existing principal as the caller of operations, with a session.
func (f *Fixture) Caller(t testing.TB, kind keyserver.PrincipalType, name string) keyserver.Caller {
	t.Helper()
	p, err := f.Store.PrincipalByName(context.Background(), kind, name)
	fatal(t, err)
	c := keyserver.Caller{Principal: p.Ref(), Name: p.Name, Type: p.Type, Kind: keyserver.PasswordSession, RequestID: "test"}
	if kind == keyserver.CertificatePrincipal {
		c.Kind, c.Certificate = keyserver.CertificateSession, f.certificateOf(t, p.ID)
	}
	return c
}

// Add stores a principal with the given roles and groups. It returns the principal as a caller. A certificate principal
// also gets a certificate.
func (f *Fixture) Add(t testing.TB, kind keyserver.PrincipalType, name string, roles, groups []keyserver.ID) keyserver.Caller {
	t.Helper()
	ctx := context.Background()
	id, err := values.NewID(rand.Reader)
	fatal(t, err)
	fatal(t, f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		p := keyserver.Principal{ID: id, System: f.Prepared.System, Type: kind, Name: name, Flags: keyserver.FlagEnable, Roles: roles}
		if err := tx.InsertPrincipal(ctx, p, ""); err != nil {
			return err
		}
		for _, g := range groups {
			if err := tx.AddGroupMember(ctx, g, id); err != nil {
				return err
			}
		}
		return nil
	}))
	if c := f.Caller(t, kind, name); kind == keyserver.CertificatePrincipal {
		f.certify(t, c)
	}
	return f.Caller(t, kind, name)
}

// LastRow returns the newest row of the audit log.
func (f *Fixture) LastRow(t testing.TB) keyserver.AuditEntry {
	t.Helper()
	rows := f.AllRows(t)
	if len(rows) == 0 {
		t.Fatal("the audit log is empty")
	}
	return rows[len(rows)-1]
}

// AllRows returns all rows of the audit log.
func (f *Fixture) AllRows(t testing.TB) []keyserver.AuditEntry {
	t.Helper()
	var rows []keyserver.AuditEntry
	filter := keyserver.AuditFilter{Limit: 1000}
	for {
		page, err := f.Store.AuditRows(context.Background(), filter)
		fatal(t, err)
		rows = append(rows, page.Entries...)
		if page.Next == 0 {
			return rows
		}
		filter.After = page.Next
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func closing(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("close: %v", err)
	}
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
