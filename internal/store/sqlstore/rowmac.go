package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// RecordingReads are reads that collect each row with a MAC that they read.
type RecordingReads struct {
	reads
	Rows []*rowmac.Row
}

// Recording returns a copy of r that collects the rows in Rows.
func (r reads) Recording() *RecordingReads {
	seen := &RecordingReads{}
	seen.reads = r.visiting(func(row *rowmac.Row, mac []byte) error {
		if err := r.sql.CheckMAC(row, mac); err != nil {
			return err
		}
		seen.Rows = append(seen.Rows, row)
		return nil
	})
	return seen
}

// coveredTable describes how the rows of a table with MACs are read: first a page of keys, and
// then the rows of each key.
type coveredTable struct {
	name  string
	from  string // the FROM clause for the keys; default: the table
	key   string
	first any // a value that sorts before every key
	read  func(ctx context.Context, r reads, key any) error
}

// readTogether reads up to sqldb.LookupSize keys of a table in one statement. It is only for
// tables with very many rows.
var readTogether = map[string]func(ctx context.Context, r reads, keys []any) error{"stored_keys": readKeys}

// coveredTables reach every row that has a MAC. Members are read with their template, even if the
// template is missing. Policy and CRL of an issuer are read together.
var coveredTables = []coveredTable{
	{"settings", "", "name", "", func(ctx context.Context, r reads, key any) error { return drop(r.Setting(ctx, textOf(key))) }},
	{"roles", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.Role(ctx, idOf(key))) }},
	{"principals", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.Principal(ctx, idOf(key))) }},
	{"stored_keys", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.Key(ctx, idOf(key))) }},
	{"key_rotations", "", "lineage", []byte{}, func(ctx context.Context, r reads, key any) error {
		return drop(r.KeyRotation(ctx, idOf(key)))
	}},
	{"trusted_cas", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.TrustedCA(ctx, idOf(key))) }},
	{"certificates", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.CertificateByID(ctx, idOf(key))) }},
	{"trusted_servers", "", "system_id", int64(-1), func(ctx context.Context, r reads, key any) error {
		n, _ := key.(int64)
		return drop(r.TrustedServer(ctx, keyserver.SystemID(n)))
	}},
	{"principal_trusts", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error {
		id := idOf(key)
		return drop(r.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{ID: &id}))
	}},
	{"revocation_policies", trustrows.IssuersWithRevocation, "issuer_digest", "", func(ctx context.Context, r reads, key any) error {
		_, _, err := r.Revocation(ctx, textOf(key))
		return err
	}},
	{"acl_templates", `(SELECT id FROM acl_templates UNION SELECT template_id FROM acl_template_members) t`, "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.ACLTemplate(ctx, idOf(key))) }},
	{"templated_directories", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error {
		return drop(r.TemplatedDirectory(ctx, idOf(key)))
	}},
	{"approvals", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.Approval(ctx, idOf(key))) }},
	{"authorities", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.Authority(ctx, idOf(key))) }},
	{"peer_authorities", `(SELECT DISTINCT system_id FROM peer_authorities) p`, "system_id", int64(-1), func(ctx context.Context, r reads, key any) error {
		n, _ := key.(int64)
		return drop(r.PeerAuthoritiesOf(ctx, keyserver.SystemID(n)))
	}},
	{"witnessed_logs", "", "origin", "", func(ctx context.Context, r reads, key any) error { return drop(r.WitnessedLog(ctx, textOf(key))) }},
	{"owners", `(SELECT DISTINCT kind FROM owners) o`, "kind", "", func(ctx context.Context, r reads, key any) error {
		return r.ownersOfKind(ctx, keyserver.ChangeKind(textOf(key)))
	}},
	{"sessions", "", "id", []byte{}, func(ctx context.Context, r reads, key any) error { return drop(r.SessionByID(ctx, idOf(key))) }},
}

// drop returns the error of a read and discards the result.
func drop[T any](_ T, err error) error { return err }

// idOf returns an id. For a value that is not an id, it returns the zero id, which no row has.
func idOf(key any) (id keyserver.ID) {
	_ = sqldb.IntoID(&id).Scan(key)
	return id
}

func textOf(key any) string {
	s, _ := key.(string)
	return s
}

func readKeys(ctx context.Context, r reads, keys []any) error {
	ids := make([]keyserver.ID, len(keys))
	for i, key := range keys {
		ids[i] = idOf(key)
	}
	return drop(r.storedKeys(ctx, storedKeysByID, sqldb.Lookup(ids)...))
}

// rowPage is the number of keys that are read at a time.
const rowPage = 512

// visitRows calls visit for every row that has a MAC. It calls done after the rows of each key of a coveredTable. If
// the rows of a key cannot be read, it calls unread instead of done.
func (r reads) visitRows(ctx context.Context, visit func(*rowmac.Row, []byte) error, done func() error, unread func(rowmac.Finding, error) error) error {
	r = r.visiting(visit)
	for _, t := range coveredTables {
		for after := t.first; ; {
			keys, err := r.keysAfter(ctx, t, after, rowPage)
			if err != nil {
				return err
			}
			for _, key := range keys {
				after = key
				err := t.read(ctx, r, key)
				if err != nil && !errors.Is(err, sqldb.ErrNotFound) { // the row may have been removed just now
					err = unread(rowmac.Finding{Table: t.name, ID: nameOf(key), Problem: "it cannot be read"}, err)
				} else {
					err = done()
				}
				if err != nil {
					return err
				}
			}
			if len(keys) < rowPage {
				break
			}
		}
	}
	return nil
}

func (r reads) keysAfter(ctx context.Context, t coveredTable, after any, limit int) ([]any, error) {
	var keys []any
	err := r.sql.Each(ctx, `SELECT `+t.key+` FROM `+cmp.Or(t.from, t.name)+` WHERE `+t.key+` > $1 ORDER BY `+t.key+` LIMIT `+strconv.Itoa(limit), []any{after},
		func(row sqldb.Scanner) error {
			var key any
			if err := row.Scan(&key); err != nil {
				return err
			}
			keys = append(keys, key)
			return nil
		})
	return keys, err
}

func nameOf(key any) string {
	if b, ok := key.([]byte); ok {
		return fmt.Sprintf("%x", b)
	}
	return fmt.Sprint(key)
}

// CheckRows calls found for every row that does not agree with its MAC or cannot be read. It
// returns the number of checked rows.
func (s *Store) CheckRows(ctx context.Context, found func(rowmac.Finding) error) (rows int, err error) {
	key := s.sql.Key()
	if key == nil {
		return 0, sqldb.ErrNoRowKey
	}
	visit := func(row *rowmac.Row, mac []byte) error {
		rows++
		if key.Matches(row, mac) {
			return nil
		}
		return found(sqldb.FindingOf(row, mac))
	}
	err = s.visitRows(ctx, visit, func() error { return nil }, func(f rowmac.Finding, err error) error {
		if ctx.Err() != nil || fault.CodeOf(err) == fault.StoreUnavailable {
			return err
		}
		rows++
		return found(f)
	})
	return rows, err
}

// SealRows computes the MAC of every row. It runs once, on a database of a version without MACs, and trusts the content
// of that database. In the same transaction it calls mark. mark records that SealRows has run, or returns false if
// SealRows has run before.
func (s *Store) SealRows(ctx context.Context, key *rowmac.Key, mark func(tx *Tx) (bool, error)) (rows int, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		first, err := mark(tx)
		if err != nil || !first {
			return err
		}
		var read []*rowmac.Row
		visit := func(row *rowmac.Row, _ []byte) error {
			read = append(read, row)
			return nil
		}
		seal := func() error {
			rows += len(read)
			for _, row := range read {
				if err := tx.setMAC(ctx, row, key.Sum(row)); err != nil {
					return err
				}
			}
			read = read[:0]
			return nil
		}
		return tx.visitRows(ctx, visit, seal, func(_ rowmac.Finding, err error) error { return err })
	})
	return rows, err
}

func (tx *Tx) setMAC(ctx context.Context, row *rowmac.Row, mac []byte) error {
	columns, values := row.Place()
	conditions := make([]string, len(columns))
	for i, column := range columns {
		conditions[i] = column + " = $" + strconv.Itoa(i+2)
	}
	return tx.sql.ExecOne(ctx, `UPDATE `+row.Table+` SET mac = $1 WHERE `+strings.Join(conditions, " AND "), append([]any{mac}, values...)...)
}
