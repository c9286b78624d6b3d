package scale

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The ids of loaded objects are spread evenly, and the last digits are the kind of object. So the kinds are interleaved
// like random ids, and each id can be computed.
const (
	step = 1 << 43 // a million times step fits a signed 64-bit number

	keyID = iota
	aclID
	entryID
	principalID
	groupEntryID
)

func spread(kind, n int) keyserver.ID {
	return values.IDFromUint64(uint64(n)*step + uint64(kind))
}

// dialect has the SQL that differs between the databases.
type dialect struct {
	driver, source string
	series         string // table expression n with the numbers i from 1 to $1
	id             func(expr string) string
	bytes          string // about as many bytes as a wrapped key
	name           string
	before, after  []string
}

func dialectOf(c sqlstore.Config) dialect {
	if c.Dir != "" {
		file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(c.Dir, "keyserver.db"), RawQuery: "_busy_timeout=10000&_synchronous=OFF"}
		return dialect{
			driver: "sqlite", source: file.String(),
			series: `(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) SELECT i FROM n) n`,
			id:     func(expr string) string { return `unhex(printf('%016x', ` + expr + `))` },
			bytes:  `randomblob(96)`, name: `printf('user-%06d', i)`,
			after: []string{`PRAGMA wal_checkpoint(TRUNCATE)`},
		}
	}
	return dialect{
		driver: "pgx", source: c.URL,
		series: `generate_series(1::bigint, $1::bigint) n(i)`,
		id: func(expr string) string {
			return `int8send(((` + expr + `)::numeric - 9223372036854775808)::bigint # (-9223372036854775808)::bigint)`
		},
		bytes: `decode(repeat(md5(i::text), 6), 'hex')`, name: `'user-' || lpad(i::text, 6, '0')`,
		before: []string{`SET session_replication_role = replica`, `SET synchronous_commit = off`}, // the rows satisfy the foreign keys
		after:  []string{`VACUUM ANALYZE`},
	}
}

// load fills the store by SQL: a million verified writes would take an hour.
func load(b *testing.B, config sqlstore.Config, group keyserver.ID, principals, keys int) {
	b.Helper()
	d := dialectOf(config)
	db, err := sql.Open(d.driver, d.source)
	rig.Must(b, err)
	defer db.Close()
	db.SetMaxOpenConns(1) // the settings above apply to all statements
	for _, s := range d.before {
		_, err := db.ExecContext(ctx, s)
		rig.Must(b, err)
	}
	fill := func(table string, rows int, columns ...string) {
		b.Helper()
		_, err := db.ExecContext(ctx, `INSERT INTO `+table+` SELECT `+strings.Join(columns, ", ")+` FROM `+d.series, rows)
		rig.Must(b, err)
	}
	at := func(kind int, i string) string {
		return d.id(`(` + i + `) * ` + strconv.Itoa(step) + ` + ` + strconv.Itoa(kind))
	}
	fixed := func(id keyserver.ID) string { return d.id(id.Decimal()) }
	stamp := d.id("0")

	fill(`principals (id, system_id, type, name, flags)`, principals, at(principalID, "i"), `1`, `'ldap'`, d.name, `1`)
	fill(`principal_roles (principal_id, role_id)`, principals, at(principalID, "i"), fixed(keyserver.RoleExchanger))
	_, err = db.ExecContext(ctx, `INSERT INTO group_members (group_id, member_id) SELECT $1, id FROM principals WHERE type = 'ldap'`, group[:])
	rig.Must(b, err)
	fill(`stored_keys (id, algorithm, key_bytes, wrapped, acl_id, created_at)`, keys,
		at(keyID, "i"), `'HMAC-SHA384'`, `48`, d.bytes, at(aclID, "i"), `0`)
	fill(`acl_entries (id, acl_id, system_id, principal_id, rights, max_usage, used, user_right, start_stamp, end_stamp)`, keys,
		at(entryID, "i"), at(aclID, "i"), `1`, at(principalID, "1 + i % "+strconv.Itoa(principals)), `7`, `-1`, `0`, `0`, stamp, stamp)
	fill(`acl_entries (id, acl_id, system_id, principal_id, rights, max_usage, used, user_right, start_stamp, end_stamp)`, keys,
		at(groupEntryID, "i"), at(aclID, "i"), `1`, fixed(group), `1`, `-1`, `0`, `0`, stamp, stamp)
	for _, s := range d.after {
		_, err := db.ExecContext(ctx, s)
		rig.Must(b, err)
	}
}
