package sqlstore_test

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha512"
	"database/sql"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gocloud.dev/secrets/localsecrets"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Versions of the schema that introduced the present form of some data.
const (
	trailSince       = 2
	templatesSince   = 6
	macsSince        = 17 // rows have MACs, and the data key records it
	authoritiesSince = 26 // a table has the server's own CA
	treeSince        = 29
	witnessSince     = 32
)

// seeded are the tables whose rows migrations create.
var seeded = []string{"keyserver_schema", "schema_floor", "sequences", "leases", "audit_extent", "audit_journal"}

// former is a key server whose database has the data of the first release: only one
// data key, and the CA in settings, too.
type former struct {
	database
	kek      string
	dataKey  []byte // in the form before macsSince
	shape    shape
	rowsOf   *sql.DB // the source of fill
	link     keyserver.HiddenLink
	material []byte
	template string
	rows     int // of the audit log
}

func newFormer(t *testing.T, make newDatabase) *former {
	t.Helper()
	ctx := t.Context()
	f := &former{database: make(t), kek: "base64key://" + base64.StdEncoding.EncodeToString(slices.Repeat([]byte{0}, 32)), material: []byte("of the first release"), template: "t"}
	keeper := localsecrets.NewKeeper([32]byte{})
	defer keeper.Close()
	key := slices.Repeat([]byte("k"), 32)
	var err error
	if f.dataKey, err = keeper.Encrypt(ctx, key); err != nil {
		t.Fatal(err)
	}
	sealed, err := keeper.Encrypt(ctx, append([]byte{1}, key...))
	if err != nil {
		t.Fatal(err)
	}
	empty, err := sqlstore.Open(ctx, f.config)
	if err == nil {
		err = empty.Update(ctx, func(tx *sqlstore.Tx) error { return tx.PutSetting(ctx, rowmac.DataKeySetting, sealed) })
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("made", func(t *testing.T) { f.populate(t) }) // the store is closed at the end of this subtest
	f.shape = shapeOf(t, f.database)
	if f.rowsOf, err = sql.Open(f.driver, f.source); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.rowsOf.Close() })
	return f
}

func (f *former) populate(t *testing.T) {
	ctx := t.Context()
	s := enginetest.NewUnder(t, f.config, f.kek)
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := s.MintKey(ctx, s.Admin, keyserver.NewKey{Algorithm: keyserver.HMACSHA384, Material: f.material})
	fatal(err)
	f.link = key.Link
	role, err := s.CreateRole(ctx, s.Admin, keyserver.NewRole{Name: "mac", Operations: []keyserver.ID{keyserver.OpHMAC.ID}})
	fatal(err)
	group := s.Add(t, keyserver.GroupPrincipal, "team", []keyserver.ID{role}, nil)
	user := s.Add(t, keyserver.PasswordPrincipal, "user", nil, []keyserver.ID{group.Principal.ID})
	fatal(s.GrantACL(ctx, s.Admin, keyserver.ACLChange{Link: f.link, Principal: user.Principal, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}))
	ca, err := pki.NewCA("trusted", s.Clock.Now(), rand.Reader)
	fatal(err)
	_, err = s.AddTrustedCA(ctx, s.Admin, ca.Certificate.Raw)
	fatal(err)
	_, err = s.CreateACLTemplate(ctx, s.Admin, f.template)
	fatal(err)
	plain, err := s.Prepared.CA.MarshalKey()
	fatal(err)
	wrapped, err := s.Keyring.Wrap(values.IDFromUint64(1), s.Prepared.System, plain)
	fatal(err)
	fatal(s.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		if err := tx.PutSetting(ctx, "caCertificate", s.Prepared.CA.Certificate.Raw); err != nil {
			return err
		}
		return tx.PutSetting(ctx, "caKey", wrapped)
	}))
	f.rows = len(s.AllRows(t))
}

// fill copies the rows and columns that exist in a version of the schema into the
// database d.
func (f *former) fill(t *testing.T, d database, version int64) {
	t.Helper()
	ctx := t.Context()
	target, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	target.SetMaxOpenConns(1)
	to := shapeIn(t, d.driver, target)
	run := func(statement string, args ...any) {
		t.Helper()
		if _, err := target.ExecContext(ctx, statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	parts := map[string]bool{}
	if d.driver != "sqlite" {
		run(`SET session_replication_role = replica`) // the order of the tables does not matter
		names, err := target.QueryContext(ctx, `SELECT relname FROM pg_class WHERE relispartition`)
		if err != nil {
			t.Fatal(err)
		}
		defer names.Close()
		for names.Next() {
			var name string
			if err := names.Scan(&name); err != nil {
				t.Fatal(err)
			}
			parts[name] = true
		}
		if err := names.Err(); err != nil {
			t.Fatal(err)
		}
	}
	for table, columns := range to.columns {
		if slices.Contains(seeded, table) || parts[table] {
			continue
		}
		var both []string
		for name := range columns {
			if _, ok := f.shape.columns[table][name]; ok {
				both = append(both, name)
			}
		}
		if len(both) == 0 {
			continue
		}
		places := make([]string, len(both))
		for i := range both {
			places[i] = "$" + strconv.Itoa(i+1)
		}
		for _, values := range allRows(t, f.rowsOf, `SELECT `+strings.Join(both, ", ")+` FROM `+table, len(both)) {
			run(`INSERT INTO `+table+` (`+strings.Join(both, ", ")+`) VALUES (`+strings.Join(places, ", ")+`)`, values...)
		}
	}
	for _, name := range []string{"changes", "audit"} {
		var value int64
		if err := f.rowsOf.QueryRowContext(ctx, `SELECT value FROM sequences WHERE name = $1`, name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		if name == "changes" || version >= trailSince {
			run(`UPDATE sequences SET value = $1 WHERE name = $2`, value, name)
		}
	}
	if version < macsSince {
		run(`UPDATE settings SET value = $1 WHERE name = $2`, f.dataKey, rowmac.DataKeySetting)
	}
	gone := map[string]bool{"caCertificate": version >= authoritiesSince, "caKey": version >= authoritiesSince, "auditKey": version < treeSince, "witnessKey": version < witnessSince}
	for name, is := range gone {
		if is {
			run(`DELETE FROM settings WHERE name = $1`, name)
		}
	}
}

// TestEverySchema starts a server on a database of every version of the schema. After
// the migration, the schema is the newest, keys make the same MACs, principals have the
// same rights, every row has a valid MAC, and the audit log is intact.
func TestEverySchema(t *testing.T) {
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, migrated := newFormer(t, make), make(t)
			for _, version := range sqlstore.Versions() {
				t.Run(fmt.Sprint(version), func(t *testing.T) {
					if err := sqlstore.MigrateTo(t.Context(), migrated.config, version); err != nil {
						t.Fatal(err)
					}
					d := migrated.copy(t)
					f.fill(t, d, version)
					f.holds(t, d, version)
				})
			}
		})
	}
}

func (f *former) holds(t *testing.T, d database, version int64) {
	t.Helper()
	ctx := context.Background()
	s := enginetest.NewUnder(t, d.config, f.kek)
	if s.Prepared.First {
		t.Fatal("the database was taken for an empty one")
	}
	want := hmac.New(sha512.New384, f.material)
	want.Write([]byte("m"))
	for _, who := range []keyserver.Caller{s.Admin, s.Caller(t, keyserver.PasswordPrincipal, "user")} {
		got, err := s.HMAC(ctx, who, keyserver.HMACRequest{Link: f.link, Message: strings.NewReader("m")})
		if err != nil || !hmac.Equal(got[:], want.Sum(nil)) {
			t.Errorf("%s uses the key: %v", who.Name, err)
		}
	}
	if list, err := s.TrustedCAs(ctx, s.Admin); err != nil || len(list) != 1 {
		t.Errorf("%d CAs are trusted, %v", len(list), err)
	}
	if list, err := s.ACLTemplates(ctx, s.Admin, keyserver.ACLTemplateQuery{}); err != nil || (len(list) == 1) != (version >= templatesSince) {
		t.Errorf("%d templates are there, %v", len(list), err)
	}
	if rows := s.AllRows(t); len(rows) <= f.rows && version >= trailSince {
		t.Errorf("%d of %d rows of the audit trail are there", len(rows), f.rows)
	}
	if report, err := audit.Verify(ctx, s.Store); err != nil || report.Total > 0 {
		t.Errorf("the audit trail: %+v, %v", report, err)
	}
	var out strings.Builder
	beside, err := sqlstore.OpenReadOnly(ctx, d.config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := beside.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := doctor.Run(ctx, &out, storecheck.Database(beside, func() (string, error) { return f.kek, nil })); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if now := shapeOf(t, d); !maps.EqualFunc(now.columns, f.shape.columns, maps.Equal[map[string]column, map[string]column]) {
		t.Error("its tables are not those of a new database")
	}
}

func allRows(t *testing.T, db *sql.DB, query string, n int) (all [][]any) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		values, into := make([]any, n), make([]any, n)
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for i, value := range values {
			if b, ok := value.([]byte); ok && b == nil { // an empty value of SQLite's driver, which writes nil as NULL
				values[i] = []byte{}
			}
		}
		all = append(all, values)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
