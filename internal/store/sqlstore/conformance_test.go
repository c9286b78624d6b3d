package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// deadline is much longer than any wait here.
const deadline = 20 * time.Second

// database is the configuration of a store, with direct access to the database.
type database struct {
	config sqlstore.Config
	driver string // of database/sql
	source string
}

type newDatabase func(t testing.TB) database

func inDirectory(t testing.TB) database { return ofDirectory(t.TempDir()) }

func onServer(t testing.TB) database { return ofServer(pgtest.Database(t)) }

func ofDirectory(dir string) database {
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(dir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
	return database{config: sqlstore.Config{Dir: dir}, driver: "sqlite", source: file.String()}
}

func ofServer(u string) database {
	return database{config: sqlstore.Config{URL: u}, driver: "pgx", source: u}
}

// kinds create empty databases. migratedKinds create databases with the newest schema, because
// migrations take longer than most tests.
var (
	kinds         = map[string]newDatabase{"SQLite": inDirectory, "PostgreSQL": onServer}
	migratedKinds = map[string]newDatabase{
		"SQLite":     func(t testing.TB) database { return ofDirectory(migrated.Dir(t)) },
		"PostgreSQL": func(t testing.TB) database { return ofServer(migrated.Database(t)) },
	}
)

// onEach runs tests on databases of each kind, both kinds in parallel.
func onEach(t *testing.T, kinds map[string]newDatabase, tests map[string]func(*testing.T, newDatabase)) {
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, test := range tests {
				t.Run(name, func(t *testing.T) { test(t, make) })
			}
		})
	}
}

// copy copies a database without open connections.
func (d database) copy(t testing.TB) database {
	t.Helper()
	if d.driver != "sqlite" {
		return ofServer(pgtest.CopyOf(t, d.source))
	}
	c := inDirectory(t)
	if err := os.CopyFS(c.config.Dir, os.DirFS(d.config.Dir)); err != nil {
		t.Fatal(err)
	}
	return c
}

// tamper changes the database without a store.
func (d database) tamper(t testing.TB, statements ...string) {
	t.Helper()
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // settings of the connection apply to all statements
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func (d database) open(t testing.TB) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), d.config)
	if err != nil {
		t.Fatal(err)
	}
	s.UseRowKey(rowKey(t))
	return s
}

// rowKey returns the key of row MACs for all tests.
func rowKey(t testing.TB) *rowmac.Key {
	t.Helper()
	key, err := rowmac.Derive(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func openStore(t testing.TB, make newDatabase) *sqlstore.Store {
	t.Helper()
	s := make(t).open(t)
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

// closeStore closes a store. It first checks that every row that the test has written agrees
// with its MAC.
func closeStore(t testing.TB, s *sqlstore.Store) {
	t.Helper()
	if !t.Failed() {
		if _, err := s.CheckRows(context.Background(), func(f rowmac.Finding) error {
			t.Errorf("a writer has forgotten the MAC: %v", f)
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestConformance checks that SQLite and PostgreSQL behave the same.
func TestConformance(t *testing.T) {
	onEach(t, migratedKinds, map[string]func(*testing.T, newDatabase){
		"Refusals":           testRefusals,
		"FailedTransaction":  testFailedTransaction,
		"OtherVersions":      testOtherVersions,
		"Settings":           testSettings,
		"Principals":         testPrincipals,
		"Roles":              testRoles,
		"Keys":               testKeys,
		"Encryptions":        testEncryptions,
		"Successors":         testSuccessors,
		"ACLs":               testACLs,
		"UsageLimit":         testUsageLimit,
		"UsageLimitOfALine":  testUsageLimitOfALine,
		"TrustedCAs":         testTrustedCAs,
		"Sessions":           testSessions,
		"DerivedSessions":    testDerivedSessions,
		"Changes":            testChanges,
		"ChangesInOrder":     testChangesInOrder,
		"ChangesPruned":      testChangesPruned,
		"AuditFilters":       testAuditFilters,
		"AuditPaging":        testAuditPaging,
		"AuditTampering":     testAuditTampering,
		"AuditWhileServing":  testAuditWhileServing,
		"AuditOneOwner":      testAuditChains,
		"SurvivesReopening":  testReopen,
		"ConcurrentFirstUse": testEnsureSetting,
	})
}

// TestEmptyConformance is the part of TestConformance that begins with an empty database.
func TestEmptyConformance(t *testing.T) {
	onEach(t, kinds, map[string]func(*testing.T, newDatabase){
		"ForeignDatabase": testForeignDatabase,
		"ReadOnly":        testReadOnly,
	})
}

// Objects to store.

func id(n uint64) keyserver.ID { return values.IDFromUint64(n) }

func ids(numbers ...uint64) []keyserver.ID {
	list := []keyserver.ID{}
	for _, n := range numbers {
		list = append(list, id(n))
	}
	return list
}

func ref(n uint64) keyserver.PrincipalRef { return keyserver.PrincipalRef{System: 1, ID: id(n)} }

func at(microseconds int64) time.Time {
	return time.UnixMicro(1_800_000_000_000_000 + microseconds).UTC()
}

func principal(n uint64, name string) keyserver.Principal {
	return keyserver.Principal{
		ID: id(n), System: 4294967295, Type: keyserver.PasswordPrincipal, Name: name,
		Flags: keyserver.FlagEnable | 1<<31, Roles: ids(), Groups: ids(),
	}
}

func role(n uint64, name string, operations ...uint64) keyserver.Role {
	return keyserver.Role{ID: id(n), Name: name, Operations: ids(operations...)}
}

func key(n uint64) sqlstore.KeyRecord {
	return sqlstore.KeyRecord{
		ID: id(n), Algorithm: keyserver.HMACSHA384, KeyBytes: 48, Wrapped: []byte{0, 1, 0xff}, ACL: id(n + 1000), CreatedAt: at(7),
		Life: keyserver.FirstLife(id(n)),
	}
}

func entry(n uint64, who uint64) keyserver.ACLEntry {
	return keyserver.ACLEntry{
		ID: id(n), Principal: ref(who), Rights: keyserver.AllRights, MaxUsage: keyserver.NoUsageLimit, UserRight: -3,
		Start: keyserver.Stamp{1}, End: keyserver.Stamp{255, 254, 0, 0, 0, 0, 0, 1},
	}
}

func ca(n uint64, der string) keyserver.Certificate {
	return keyserver.Certificate{
		ID: id(n), Status: keyserver.StatusCA, Subject: "/CN=ü", Issuer: "/CN=ü", KeyType: "EC P-384", Serial: []byte{0, 9},
		NotBefore: at(0), NotAfter: at(1), DER: []byte(der),
	}
}

func session(n uint64) sessionrows.SessionRecord {
	return sessionrows.SessionRecord{
		ID: id(n), Hash: [32]byte{byte(n), 31: 1}, Principal: ref(9), Kind: keyserver.PasswordSession,
		CreatedAt: at(0), LastUsedAt: at(0), ExpiresAt: at(1000), BoundKey: "thumbprint", BoundCertificate: []byte("of the certificate"),
	}
}

func update(t testing.TB, s *sqlstore.Store, writes ...func(context.Context, *sqlstore.Tx) error) {
	t.Helper()
	if err := tryUpdate(t, s, writes...); err != nil {
		t.Fatal(err)
	}
}

func tryUpdate(t testing.TB, s *sqlstore.Store, writes ...func(context.Context, *sqlstore.Tx) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	return s.Update(ctx, func(tx *sqlstore.Tx) error {
		for _, write := range writes {
			if err := write(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}

type write = func(context.Context, *sqlstore.Tx) error

func insertPrincipal(p keyserver.Principal, hash string) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertPrincipal(ctx, p, hash) }
}

func insertRole(r keyserver.Role) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertRole(ctx, r) }
}

func insertKey(k sqlstore.KeyRecord, owner keyserver.ACLEntry) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertKey(ctx, k, owner) }
}

func insertCA(c keyserver.Certificate) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertTrustedCA(ctx, c) }
}

func endSession(id keyserver.ID) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error {
		_, err := tx.DeleteSession(ctx, id)
		return err
	}
}

func insertSession(s sessionrows.SessionRecord) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertSession(ctx, s) }
}

func testRefusals(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	update(t, s,
		insertRole(role(10, "operators", 1)),
		insertPrincipal(principal(20, "alice"), "hash"),
		insertPrincipal(keyserver.Principal{ID: id(21), Type: keyserver.GroupPrincipal, Name: "group", Groups: ids()}, ""),
		insertKey(key(30), entry(40, 20)),
		insertCA(ca(50, "der")),
		insertSession(session(60)),
		func(ctx context.Context, tx *sqlstore.Tx) error { return tx.AddGroupMember(ctx, id(21), id(20)) },
	)
	name := "operators"
	writes := map[string]struct {
		reason string
		write  write
		want   error
	}{
		"PrincipalID":    {"an id names one principal", insertPrincipal(principal(20, "bob"), ""), sqlstore.ErrDuplicate},
		"PrincipalName":  {"a name is taken within its type", insertPrincipal(principal(22, "alice"), ""), sqlstore.ErrDuplicate},
		"PrincipalRole":  {"a principal cannot hold a role that is not there", insertPrincipal(keyserver.Principal{ID: id(22), Name: "bob", Roles: ids(11)}, ""), sqlstore.ErrNotFound},
		"PrincipalGroup": {"nor be in a group that is not there", insertPrincipal(keyserver.Principal{ID: id(22), Name: "bob", Groups: ids(11)}, ""), sqlstore.ErrNotFound},
		"RolesOfNobody": {"roles belong to somebody", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.SetPrincipalRoles(ctx, id(99), ids(10))
		}, sqlstore.ErrNotFound},
		"MissingRole": {"a principal cannot be given a role that is not there", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.SetPrincipalRoles(ctx, id(20), ids(99))
		}, sqlstore.ErrNotFound},
		"FlagsOfNobody": {"flags belong to somebody", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.SetPrincipalFlags(ctx, id(99), 1)
		}, sqlstore.ErrNotFound},
		"MemberTwice": {"a member is in a group once", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.AddGroupMember(ctx, id(21), id(20))
		}, sqlstore.ErrDuplicate},
		"MissingMember": {"a member exists", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.AddGroupMember(ctx, id(21), id(99))
		}, sqlstore.ErrNotFound},
		"NoMember": {"only a member can leave", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.RemoveGroupMember(ctx, id(20), id(21))
		}, sqlstore.ErrNotFound},
		"RoleID":   {"an id names one role", insertRole(role(10, "others")), sqlstore.ErrDuplicate},
		"RoleName": {"a role's name is taken", insertRole(role(11, "operators")), sqlstore.ErrDuplicate},
		"RoleRenamed": {"also for another role", func(ctx context.Context, tx *sqlstore.Tx) error {
			if err := tx.InsertRole(ctx, role(11, "others")); err != nil {
				return err
			}
			return tx.UpdateRole(ctx, keyserver.RoleChange{ID: id(11), Name: &name})
		}, sqlstore.ErrDuplicate},
		"RoleMissing": {"only a role can change", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.UpdateRole(ctx, keyserver.RoleChange{ID: id(99)})
		}, sqlstore.ErrNotFound},
		"RoleGone": {"only a role can go", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteRole(ctx, id(99)) }, sqlstore.ErrNotFound},
		"KeyID":    {"an id names one key", insertKey(key(30), entry(41, 20)), sqlstore.ErrDuplicate},
		"EntryOfNoList": {"an entry is in a list", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.PutACLEntry(ctx, entry(41, 20))
		}, sqlstore.ErrNotFound},
		"EntryMissing": {"only an entry can go", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.DeleteACLEntry(ctx, key(30).ACL, ref(99))
		}, sqlstore.ErrNotFound},
		"EntryListMissing": {"and only from a list", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.DeleteACLEntry(ctx, id(99), ref(20))
		}, sqlstore.ErrNotFound},
		"EntryUnused": {"only an entry can be used", func(ctx context.Context, tx *sqlstore.Tx) error {
			_, err := tx.UseACLEntry(ctx, id(99))
			return err
		}, sqlstore.ErrNotFound},
		"CAID":      {"an id names one CA", insertCA(ca(50, "other")), sqlstore.ErrDuplicate},
		"CATwice":   {"a certificate is trusted once", insertCA(ca(51, "der")), sqlstore.ErrDuplicate},
		"CAMissing": {"only a CA can go", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTrustedCA(ctx, id(99)) }, sqlstore.ErrNotFound},
		"SessionID": {"an id names one session", insertSession(sessionrows.SessionRecord{ID: id(60), Hash: [32]byte{9}}), sqlstore.ErrDuplicate},
		"SessionHash": {"so does a hash", insertSession(sessionrows.SessionRecord{ID: id(61), Hash: session(60).Hash}),
			sqlstore.ErrDuplicate},
		"SessionMissing": {"only a session can end", endSession(id(99)), sqlstore.ErrNotFound},
	}
	before, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range writes {
		if err := tryUpdate(t, s, tc.write); !errors.Is(err, tc.want) {
			t.Errorf("%s: %s: got %v, want %v", name, tc.reason, err, tc.want)
		}
	}
	if after, err := s.ChangeHead(t.Context()); err != nil || after != before {
		t.Errorf("refused writes must leave no change: head went from %d to %d, %v", before, after, err)
	}

	ctx := t.Context()
	reads := map[string]func() error{
		"Setting":         func() error { _, err := s.Setting(ctx, "none"); return err },
		"Principal":       func() error { _, err := s.Principal(ctx, id(99)); return err },
		"PrincipalByName": func() error { _, err := s.PrincipalByName(ctx, keyserver.GroupPrincipal, "alice"); return err },
		"PasswordHash":    func() error { _, err := s.PasswordHash(ctx, id(99)); return err },
		"NoPassword":      func() error { _, err := s.PasswordHash(ctx, id(21)); return err },
		"Role":            func() error { _, err := s.Role(ctx, id(99)); return err },
		"Key":             func() error { _, err := s.Key(ctx, id(99)); return err },
		"ACL":             func() error { _, err := s.ACL(ctx, id(99)); return err },
		"TrustedCA":       func() error { _, err := s.TrustedCA(ctx, id(99)); return err },
		"Session":         func() error { _, err := s.Session(ctx, [32]byte{99}); return err },
	}
	for name, read := range reads {
		if err := read(); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", name, err)
		}
	}
}

func testFailedTransaction(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	boom := errors.New("boom")
	cancelled, cancel := context.WithCancel(t.Context())
	cases := map[string]struct {
		reason string
		run    func() error
		want   error
	}{
		"Error": {"what fn refuses is undone", func() error {
			return s.Update(t.Context(), func(tx *sqlstore.Tx) error {
				return errors.Join(tx.InsertRole(t.Context(), role(1, "a")), boom)
			})
		}, boom},
		"Swallowed": {"a failed statement cannot be passed over", func() error {
			return s.Update(t.Context(), func(tx *sqlstore.Tx) error {
				_ = tx.InsertRole(t.Context(), role(1, "a"))
				_ = tx.InsertRole(t.Context(), role(1, "b"))
				return nil
			})
		}, sqlstore.ErrDuplicate},
		"Panic": {"a panic is no commit", func() (err error) {
			defer func() {
				if recover() != nil {
					err = boom
				}
			}()
			return s.Update(t.Context(), func(tx *sqlstore.Tx) error {
				_ = tx.InsertRole(t.Context(), role(1, "a"))
				panic("boom")
			})
		}, boom},
		"Cancelled": {"nor is a context that ended within", func() error {
			return s.Update(cancelled, func(tx *sqlstore.Tx) error {
				err := tx.InsertRole(cancelled, role(1, "a"))
				cancel()
				return err
			})
		}, context.Canceled},
		"Before": {"or before", func() error {
			return s.Update(cancelled, func(tx *sqlstore.Tx) error { return tx.InsertRole(cancelled, role(1, "a")) })
		}, context.Canceled},
	}
	for _, name := range []string{"Error", "Swallowed", "Panic", "Cancelled", "Before"} {
		tc := cases[name]
		if err := tc.run(); !errors.Is(err, tc.want) {
			t.Errorf("%s: %s: got %v, want %v", name, tc.reason, err, tc.want)
		}
		if _, err := s.Role(t.Context(), id(1)); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("%s: %s: the write is there (%v)", name, tc.reason, err)
		}
	}
	update(t, s, insertRole(role(1, "a"))) // the store still works
}

// testOtherVersions checks that a newer database is rejected if its schema floor is missing or
// above the schema of this program. Otherwise it is opened, with a NewerWarning.
func testOtherVersions(t *testing.T, make newDatabase) {
	const newer = `INSERT INTO keyserver_schema (version_id, is_applied) VALUES (999, true)`
	const signed = `UPDATE schema_floor SET version = 999, release = '9.9.0'`
	cases := map[string]struct {
		reason string
		tamper []string
		want   error
		ro     error
		says   string // in the error or the NewerWarning
	}{
		"TooNew": {
			"it says that this program is too old", []string{newer, signed + `, floor = 998, floor_release = '9.8.0'`},
			sqlstore.ErrNewerVersion, sqlstore.ErrNewerVersion, "has schema 999 of release 9.9.0, but this program, release " + version.String() + ", knows schemas up to",
		},
		"NotSigned": {
			"the newer program died before it said who it is", []string{newer, `UPDATE schema_floor SET floor = 998`},
			sqlstore.ErrNewerVersion, sqlstore.ErrNewerVersion, "use the release that wrote it",
		},
		"WithinTheFloor": {"what was added is no concern of an older program", []string{newer, signed}, nil, nil, "of release 9.9.0"},
		"Older": {
			"reading alone does not migrate", []string{`DROP TABLE schema_floor`, `DELETE FROM keyserver_schema WHERE version_id >= 34`},
			nil, sqlstore.ErrOlderVersion, "",
		},
	}
	for name, tc := range cases {
		d := make(t)
		closeStore(t, d.open(t))
		d.tamper(t, tc.tamper...)
		for how, open := range map[string]struct {
			do   func(context.Context, sqlstore.Config) (*sqlstore.Store, error)
			want error
		}{"reading only": {sqlstore.OpenReadOnly, tc.ro}, "to serve": {sqlstore.Open, tc.want}} {
			if name == "Older" && open.want == nil {
				continue // Open would migrate it
			}
			s, err := open.do(t.Context(), d.config)
			if !errors.Is(err, open.want) {
				t.Errorf("%s: %s: %s: got %v, want %v", name, tc.reason, how, err, open.want)
			}
			said := fmt.Sprint(err)
			if err == nil {
				said = s.NewerWarning()
				s.UseRowKey(rowKey(t))
				closeStore(t, s)
			}
			if !strings.Contains(said, tc.says) || strings.Contains(said, "\n") {
				t.Errorf("%s: %s: %q does not say %q", name, how, said, tc.says)
			}
		}
	}
	d := make(t)
	for range 2 {
		s := d.open(t)
		if s.NewerWarning() != "" {
			t.Errorf("a database of this version is said to be newer: %s", s.NewerWarning())
		}
		closeStore(t, s)
	}
}

func testForeignDatabase(t *testing.T, make newDatabase) {
	d := make(t)
	if d.driver == "sqlite" {
		d.tamper(t, `CREATE TABLE theirs (n INTEGER)`)
	} else {
		d.tamper(t, `CREATE TABLE theirs (n INTEGER)`, `CREATE TABLE goose_db_version (n INTEGER)`)
	}
	if _, err := sqlstore.Open(t.Context(), d.config); !errors.Is(err, sqlstore.ErrForeign) {
		t.Errorf("got %v, want ErrForeign", err)
	}
	if _, err := sqlstore.OpenReadOnly(t.Context(), d.config); !errors.Is(err, sqlstore.ErrForeign) {
		t.Errorf("reading only: got %v, want ErrForeign", err)
	}
	d.tamper(t, `INSERT INTO theirs VALUES (1)`)
}

func testReadOnly(t *testing.T, make newDatabase) {
	d := make(t)
	if _, err := sqlstore.OpenReadOnly(t.Context(), d.config); err == nil {
		t.Error("there is nothing to read yet")
	}
	s := d.open(t)
	defer closeStore(t, s)
	update(t, s, insertRole(role(1, "a", 7)))
	ro, err := sqlstore.OpenReadOnly(t.Context(), d.config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ro.Role(t.Context(), id(1)); err == nil {
		t.Error("a row was read that could not be checked")
	}
	ro.UseRowKey(rowKey(t))
	defer closeStore(t, ro)
	if got, err := ro.Role(t.Context(), id(1)); err != nil || got.Name != "a" {
		t.Errorf("beside a server: got %v, %v", got, err)
	}
	if err := ro.Update(t.Context(), func(*sqlstore.Tx) error { return nil }); err == nil {
		t.Error("Update must be refused")
	}
	if _, err := ro.ClaimChain(t.Context()); err == nil {
		t.Error("ClaimChain must be refused")
	}
}

func testSettings(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	for _, want := range [][]byte{{1, 0, 2}, {}, {3}} {
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.PutSetting(ctx, "a", want) })
		got, err := s.Setting(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func testEnsureSetting(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	var wg sync.WaitGroup
	var got [8][]byte
	for i := range got {
		wg.Go(func() {
			var err error
			got[i], err = s.EnsureSetting(t.Context(), "a", func(context.Context) ([]byte, error) { return []byte{byte(i)}, nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, value := range got {
		if diff := cmp.Diff(got[0], value); diff != "" {
			t.Errorf("all must get the value that one of them made: %s", diff)
		}
	}
}

func testPrincipals(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	alice := principal(20, "alice")
	update(t, s,
		insertRole(role(10, "a")), insertRole(role(11, "b")),
		insertPrincipal(keyserver.Principal{ID: id(30), Type: keyserver.GroupPrincipal, Name: "alice"}, ""),
		insertPrincipal(keyserver.Principal{ID: id(31), Type: keyserver.GroupPrincipal, Name: "g2"}, ""),
	)
	alice.Roles, alice.Groups = ids(11, 10, 10), ids(31)
	update(t, s, insertPrincipal(alice, "the hash"))
	alice.Roles = ids(10, 11) // sorted, once
	check := func(reason string) {
		t.Helper()
		byID, err := s.Principal(t.Context(), alice.ID)
		if err != nil {
			t.Fatal(err)
		}
		byName, err := s.PrincipalByName(t.Context(), keyserver.PasswordPrincipal, "alice")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(alice, byID); diff != "" {
			t.Errorf("%s: by id: %s", reason, diff)
		}
		if diff := cmp.Diff(alice, byName); diff != "" {
			t.Errorf("%s: by name: %s", reason, diff)
		}
	}
	check("as inserted")
	if hash, err := s.PasswordHash(t.Context(), alice.ID); err != nil || hash != "the hash" {
		t.Errorf("password hash: got %q, %v", hash, err)
	}
	alice.Roles, alice.Groups, alice.Flags = ids(), ids(30, 31), 0
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		err := errors.Join(tx.SetPrincipalRoles(ctx, alice.ID, nil), tx.SetPrincipalFlags(ctx, alice.ID, 0),
			tx.AddGroupMember(ctx, id(30), alice.ID))
		inside, readErr := tx.Principal(ctx, alice.ID)
		if diff := cmp.Diff(alice, inside); diff != "" {
			t.Errorf("a transaction sees its own writes: %s", diff)
		}
		return errors.Join(err, readErr)
	})
	check("as changed")
	alice.Groups = ids(31)
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.RemoveGroupMember(ctx, id(30), alice.ID) })
	check("out of a group")
}

func testRoles(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	builtIn := role(1, "Administrator", 0x101, 0xffff_ffff_ffff_ffff)
	builtIn.BuiltIn = true
	holder, other := principal(20, "holder"), principal(21, "other")
	holder.Roles, other.Roles = ids(2), ids(1)
	update(t, s, insertRole(role(2, "empty")), insertRole(builtIn), insertPrincipal(holder, ""), insertPrincipal(other, ""))
	want := []keyserver.Role{builtIn, role(2, "empty")}
	check := func(reason string) {
		t.Helper()
		got, err := s.Roles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
		for _, r := range want {
			one, err := s.Role(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r, one); diff != "" {
				t.Errorf("%s: %s", reason, diff)
			}
		}
	}
	check("as inserted")
	for reason, tc := range map[string]struct {
		filter keyserver.RoleFilter
		want   []keyserver.Role
	}{
		"by id":          {keyserver.RoleFilter{ID: id(2)}, want[1:]},
		"by name":        {keyserver.RoleFilter{Name: "Administrator"}, want[:1]},
		"one each":       {keyserver.RoleFilter{ID: id(2), Name: "Administrator"}, want},
		"the same twice": {keyserver.RoleFilter{ID: id(1), Name: "Administrator"}, want[:1]},
		"neither":        {keyserver.RoleFilter{ID: id(3), Name: "administrator"}, want[:0]},
		"nothing":        {keyserver.RoleFilter{}, want[:0]},
	} {
		if got, err := s.FindRoles(t.Context(), tc.filter); err != nil || !cmp.Equal(got, tc.want) {
			t.Errorf("%s: %v, %s", reason, err, cmp.Diff(tc.want, got))
		}
	}
	all, err := s.Principals(t.Context(), keyserver.PrincipalFilter{Type: holder.Type, Limit: 10})
	holders := slices.DeleteFunc(slices.Clone(all), func(p keyserver.Principal) bool { return !slices.Contains(p.Roles, id(2)) })
	if len(all) != 2 || len(holders) != 1 || err != nil {
		t.Errorf("holders: got %d of %d, %v", len(holders), len(all), err)
	}
	name := "renamed"
	want[1] = role(2, name, 5, 6)
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		return errors.Join(tx.UpdateRole(ctx, keyserver.RoleChange{ID: id(2), Operations: ids(6, 5, 6)}),
			tx.UpdateRole(ctx, keyserver.RoleChange{ID: id(2), Name: &name}))
	})
	check("each part alone")
	want[1] = role(2, name)
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		return tx.UpdateRole(ctx, keyserver.RoleChange{ID: id(2), Operations: ids()})
	})
	check("an empty set removes every operation")

	before, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want = want[:1]
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteRole(ctx, id(2)) })
	check("deleted")
	if p, err := s.Principal(t.Context(), holder.ID); err != nil || len(p.Roles) != 0 {
		t.Errorf("a deleted role is taken from its holders: %v, %v", p, err)
	}
	page, err := s.Changes(t.Context(), before, 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]keyserver.Change{
		{Seq: before + 1, Kind: keyserver.ChangeRole, ID: id(2), Action: keyserver.Deleted},
		{Seq: before + 2, Kind: keyserver.ChangePrincipal, ID: holder.ID, Action: keyserver.Updated},
	}, page.Changes); diff != "" {
		t.Errorf("the role and each holder changed, and nobody else: %s", diff)
	}
}

func testKeys(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	want := key(30)
	update(t, s, insertKey(want, entry(40, 20)))
	got, err := s.Key(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, got); text != "key "+want.ID.Hex()+" (HMAC-SHA384)" {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}

func testACLs(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	owner, second, third := entry(40, 20), entry(41, 5), entry(42, 5)
	third.Principal.System = 0
	update(t, s, insertKey(key(30), owner), insertKey(key(31), entry(43, 20)))
	owner.ACL, second.ACL, third.ACL = key(30).ACL, key(30).ACL, key(30).ACL
	want := keyserver.ACL{ID: key(30).ACL, Entries: []keyserver.ACLEntry{third, second, owner}}
	put := func(e keyserver.ACLEntry) write {
		return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.PutACLEntry(ctx, e) }
	}
	update(t, s, put(second), put(third))
	check := func(reason string) {
		t.Helper()
		got, err := s.ACL(t.Context(), id(30))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
	check("sorted by principal")
	replaced := second
	replaced.ID, replaced.Rights, replaced.MaxUsage, replaced.Start, replaced.End = id(49), keyserver.Read, 3, keyserver.Stamp{}, keyserver.Stamp{}
	update(t, s, put(replaced))
	replaced.ID = second.ID
	want.Entries[1] = replaced
	check("replaced, its id kept")
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		return errors.Join(tx.DeleteACLEntry(ctx, want.ID, third.Principal), tx.DeleteACLEntry(ctx, want.ID, owner.Principal),
			tx.DeleteACLEntry(ctx, want.ID, second.Principal))
	})
	want.Entries = []keyserver.ACLEntry{}
	check("a list may be empty")
}

func testUsageLimit(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	limited := entry(40, 20)
	limited.MaxUsage = 7
	update(t, s, insertKey(key(30), limited), insertKey(key(31), entry(41, 20)))
	before, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := tryUpdate(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
				ok, err := tx.UseACLEntry(ctx, id(40))
				if ok {
					allowed.Add(1)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := allowed.Load(); n != 7 {
		t.Errorf("an entry good for 7 grants gave %d", n)
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		if ok, err := tx.UseACLEntry(ctx, id(41)); !ok || err != nil {
			return fmt.Errorf("an entry without a limit is always good: %v, %w", ok, err)
		}
		return nil
	})
	acl, err := s.ACL(t.Context(), id(31))
	if err != nil || acl.Entries[0].Used != 0 {
		t.Errorf("it is not counted: %+v, %v", acl, err)
	}
	page, err := s.Changes(t.Context(), before, 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]keyserver.Change{{Seq: before + 1, Kind: keyserver.ChangeKey, ID: id(30), Action: keyserver.Updated}}, page.Changes); diff != "" {
		t.Errorf("only the grant that uses the entry up is a change: %s", diff)
	}
}

// testUsageLimitOfALine checks that a use counts in all ACL entries of the principal in the key lineage. Each of these
// entries has its own limit.
func testUsageLimitOfALine(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	successor := func(n uint64, generation int) sqlstore.KeyRecord {
		k := key(n)
		k.Life.Lineage, k.Life.Generation = id(30), generation
		return k
	}
	limited := func(n, who uint64, most, used int64) keyserver.ACLEntry {
		e := entry(n, who)
		e.MaxUsage, e.Used = most, used
		return e
	}
	insert := func(k sqlstore.KeyRecord, entries ...keyserver.ACLEntry) write {
		return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertKey(ctx, k, entries...) }
	}
	update(t, s, // as if they were counted separately: 3 uses are spent
		insert(key(30), limited(40, 20, 5, 3), limited(41, 21, 5, 1)),
		insert(successor(31, 2), limited(42, 20, 5, 2), limited(43, 21, 5, 0)),
		insert(successor(32, 3), limited(44, 20, 6, 0), entry(45, 21)),
		insert(key(33), limited(46, 20, 5, 0))) // of another lineage
	use := func(n uint64, want bool) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
			if ok, err := tx.UseACLEntry(ctx, id(n)); ok != want || err != nil {
				t.Errorf("entry %d: %t, %v", n, ok, err)
			}
			return nil
		})
	}
	used := func(want map[uint64][]int64) {
		t.Helper()
		for k, want := range want {
			acl, err := s.ACL(t.Context(), id(k))
			var got []int64
			for _, e := range acl.Entries {
				got = append(got, e.Used)
			}
			if !slices.Equal(got, want) || err != nil {
				t.Errorf("the list of key %d says %v, %v, want %v", k, got, err, want)
			}
		}
	}
	changed := func(what func(), want ...uint64) {
		t.Helper()
		before, err := s.ChangeHead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		what()
		page, err := s.Changes(t.Context(), before, 10)
		var got []keyserver.ID
		for _, c := range page.Changes {
			got = append(got, c.ID)
		}
		if want := ids(want...); !slices.Equal(keyserver.NormalizeIDs(got), keyserver.NormalizeIDs(want)) || err != nil {
			t.Errorf("changes of the keys %v, %v, want %v", got, err, want)
		}
	}
	changed(func() { use(42, true) })
	used(map[uint64][]int64{30: {4, 1}, 31: {4, 0}, 32: {4, 0}, 33: {0}})
	changed(func() { use(44, true) }, 30, 31) // their entries are exhausted
	changed(func() { use(40, false); use(42, false) })
	changed(func() { use(44, true) }, 32)
	changed(func() { use(44, false); use(45, true); use(41, true) }) // entries of another principal
	used(map[uint64][]int64{30: {6, 2}, 31: {6, 2}, 32: {6, 0}, 33: {0}})
	changed(func() {
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.RestartUses(ctx, id(42)) })
	}, 30, 31, 32)
	used(map[uint64][]int64{30: {0, 2}, 31: {0, 2}, 32: {0, 0}, 33: {0}})
	use(40, true)
	used(map[uint64][]int64{30: {1, 2}, 31: {1, 2}, 32: {1, 0}, 33: {0}})
}

func testTrustedCAs(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	// PostgreSQL cannot index a value as long as this.
	long := string(noise(16384))
	want := []keyserver.Certificate{ca(50, "a"), ca(51, long)}
	update(t, s, insertCA(want[1]), insertCA(want[0]))
	got, err := s.TrustedCAs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	one, err := s.TrustedCA(t.Context(), id(51))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[1], one); diff != "" {
		t.Error(diff)
	}
	remove := func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTrustedCA(ctx, id(50)) }
	update(t, s, remove, insertCA(ca(52, "a"))) // it was removed, so it can be inserted again
	if err := tryUpdate(t, s, remove); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
}

// noise returns bytes that compress badly.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

func testSessions(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	want := session(60)
	expired, idle := session(61), session(62)
	expired.ExpiresAt = at(500)
	idle.LastUsedAt = at(-1000)
	update(t, s, insertSession(want), insertSession(expired), insertSession(idle))
	check := func(reason string) {
		t.Helper()
		got, err := s.Session(t.Context(), want.Hash)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
	check("as inserted")
	if text := fmt.Sprintf("%+v", want); text != "session "+want.ID.Hex()+" of 1/9" {
		t.Errorf("a session shows %s", text)
	}
	touch := func(when time.Time) write {
		return func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.TouchSessions(ctx, map[keyserver.ID]time.Time{want.ID: when, id(99): when})
		}
	}
	want.LastUsedAt = at(400)
	update(t, s, touch(at(400)))
	check("touched")
	update(t, s, touch(at(300)))
	check("never back in time")

	now, window := at(500), 600*time.Microsecond
	if n, err := s.SessionCount(t.Context(), now, window); n != 1 || err != nil {
		t.Errorf("alive are those neither expired nor idle: got %d, %v", n, err)
	}
	for _, step := range []int{1, 1, 0} {
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
			n, err := tx.DeleteExpiredSessions(ctx, now, window, 1)
			if n != step {
				t.Errorf("removed %d, want %d", n, step)
			}
			return err
		})
	}
	check("the one that is alive stays")
	before, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, endSession(want.ID))
	page, err := s.Changes(t.Context(), before, 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]keyserver.Change{{Seq: 1, Kind: keyserver.ChangeSession, ID: want.ID, Action: keyserver.Deleted}}, page.Changes); diff != "" {
		t.Errorf("of sessions, only an end that comes early is a change: %s", diff)
	}
}

func testDerivedSessions(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	now, window := at(500), 600*time.Microsecond
	derive := func(n, from uint64, kind keyserver.SessionKind) sessionrows.SessionRecord {
		r := session(n)
		r.Kind, r.Parent = kind, id(from)
		return r
	}
	root, other := session(70), session(71)
	lent, lentScope, scope := derive(72, 70, keyserver.DelegatedSession), derive(73, 72, keyserver.ScopedSession), derive(74, 70, keyserver.ScopedSession)
	lent.Principal, lent.Actor = ref(8), ref(9)
	lentScope.Principal, lentScope.Actor, lentScope.Scope = ref(8), ref(9), []keyserver.HiddenLink{"a", "bc"}
	scope.Scope = []keyserver.HiddenLink{"d"}
	lentScope.ScopeOperations, lentScope.MayGrant = []keyserver.ID{keyserver.OpHMAC.ID, keyserver.OpAmendACL.ID}, keyserver.Read|keyserver.Write
	update(t, s, insertSession(root), insertSession(other), insertSession(lent), insertSession(lentScope), insertSession(scope))

	got, err := s.SessionByID(t.Context(), lentScope.ID)
	want := lentScope
	want.Hash = [32]byte{}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("as inserted: %s %v", diff, err)
	}
	counts := func(p keyserver.PrincipalRef, want int) {
		t.Helper()
		if n, err := s.SessionCountOf(t.Context(), p, now, window); n != want || err != nil {
			t.Errorf("sessions of %s: got %d, %v, want %d", p, n, err, want)
		}
	}
	counts(ref(9), 2) // logins only
	counts(ref(8), 0)
	acting := func(p keyserver.PrincipalRef, want int) {
		t.Helper()
		if n, err := s.SessionCountBy(t.Context(), p, now, window); n != want || err != nil {
			t.Errorf("sessions in which %s acts: got %d, %v, want %d", p, n, err, want)
		}
	}
	acting(ref(9), 5)
	acting(ref(8), 0)
	for parent, want := range map[uint64]int{70: 2, 72: 1, 71: 0} {
		if n, err := s.SessionCountFrom(t.Context(), id(parent), now, window); n != want || err != nil {
			t.Errorf("made from session %d: got %d, %v, want %d", parent, n, err, want)
		}
	}

	update(t, s, endSession(other.ID))
	counts(ref(9), 1)
	boom := errors.New("boom")
	for idle, want := range map[keyserver.ID]struct{ alive, byParent, removed int }{
		{}:       {4, 2, 0},
		root.ID:  {0, 0, 2}, // sessions without children are deleted first
		lent.ID:  {2, 1, 1},
		scope.ID: {4, 2, 0},
	} {
		err := s.Update(t.Context(), func(tx *sqlstore.Tx) error {
			used := map[keyserver.ID]time.Time{root.ID: at(900), lent.ID: at(900)}
			delete(used, idle)
			if err := tx.TouchSessions(t.Context(), used); err != nil {
				return err
			}
			alive, err := tx.SessionCount(t.Context(), at(999), window)
			made, err2 := tx.SessionCountFrom(t.Context(), root.ID, at(999), window)
			listed, err3 := tx.Sessions(t.Context(), sessionrows.SessionFilter{Limit: 10, Now: at(999), Idle: window})
			removed, err4 := tx.DeleteExpiredSessions(t.Context(), at(999), window, 10)
			if alive != want.alive || len(listed) != alive || made != want.byParent || removed != want.removed {
				t.Errorf("%s idle: %d alive, %d listed, %d of the first session, %d removed, want %+v", idle, alive, len(listed), made, removed, want)
			}
			return errors.Join(err, err2, err3, err4, boom)
		})
		if !errors.Is(err, boom) || strings.Count(err.Error(), "\n") > 0 {
			t.Error(err)
		}
	}
	before, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, endSession(root.ID))
	counts(ref(9), 0)
	page, err := s.Changes(t.Context(), before, 10)
	if err != nil || len(page.Changes) != 4 {
		t.Errorf("each end is a change: got %v, %v", page.Changes, err)
	}

	update(t, s, insertSession(lent), insertSession(root))
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		n, err := tx.DeleteSessionsOf(ctx, ref(9))
		if n != 2 {
			t.Errorf("%d sessions ended, want that of the principal's own and the one in which it acts", n)
		}
		return err
	})
}

func testReopen(t *testing.T, make newDatabase) {
	d := make(t)
	s := d.open(t)
	update(t, s, insertRole(role(1, "a")))
	closeStore(t, s)
	s = d.open(t)
	defer closeStore(t, s)
	if _, err := s.Role(t.Context(), id(1)); err != nil {
		t.Error(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Current(t.Context()); err != nil {
		t.Error(err)
	}
}
