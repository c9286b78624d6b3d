package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// TestRowMACs checks that changes by another program in the database are
// detected.
func TestRowMACs(t *testing.T) {
	for name, make := range migratedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, database, *sqlstore.Store, outside){
				"EveryColumn": testEveryColumn, "EveryRow": testEveryRow, "Moved": testMovedMACs, "Refused": testTamperedRowsRefused,
				"NotLaundered": testNotLaundered, "Sealed": testSealRows, "KeyGone": testDataKeyGone, "OthersServe": testSealBesideOthers,
			} {
				t.Run(name, func(t *testing.T) {
					d := make(t)
					s := d.open(t)
					defer func() {
						if err := s.Close(); err != nil {
							t.Error(err)
						}
					}()
					populate(t, s)
					if found := findings(t, s); len(found) > 0 {
						t.Fatalf("before anything was tampered with: %v", found)
					}
					test(t, d, s, openOutside(t, d))
				})
			}
		})
	}
}

const oneIssuer = "AB"

func populate(t *testing.T, s *sqlstore.Store) {
	t.Helper()
	member := keyserver.TemplateMember{Principal: ref(20), Rights: keyserver.AllRights, MaxUsage: keyserver.NoUsageLimit}
	alice := principal(20, "alice")
	alice.Identity = &keyserver.Identity{Issuer: "https://issuer.example", Subject: "alice", Audiences: []string{"web"}}
	peer := entry(41, 7)
	peer.Principal.System = 9
	crl := keyserver.CRLFacts{Number: []byte{3}, ThisUpdate: at(0), NextUpdate: at(1), ImportedAt: at(0), Revoked: 1}
	update(t, s,
		insertRole(role(10, "operators", 1)),
		insertPrincipal(alice, "hash"),
		insertPrincipal(keyserver.Principal{ID: id(21), Type: keyserver.GroupPrincipal, Name: "group"}, ""),
		insertPrincipal(keyserver.Principal{ID: id(22), Type: keyserver.CertificatePrincipal, Name: "peer"}, ""),
		insertKey(key(30), entry(40, 20)),
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.PutKeyRotation(ctx, sqlstore.KeyRotation{Lineage: id(30), KeyRotation: keyserver.KeyRotation{Every: 90, VerifyOnly: 30, DestroyAfter: 7}, DueAt: at(5)})
		},
		insertCA(ca(50, "der")),
		insertCertificate(certificate("leaf", "/CN=leaf")),
		insertSession(sessionrows.SessionRecord{
			ID: id(60), Hash: [32]byte{1}, Principal: ref(20), Kind: keyserver.ScopedSession, CreatedAt: at(0), ExpiresAt: at(9), LastUsedAt: at(1),
			Certificate: id(61), Actor: ref(62), Scope: []keyserver.HiddenLink{"ab"}, Parent: id(63), ScopeOperations: ids(1), Address: "192.0.2.1", BoundCertificate: []byte{1},
		}),
		insertPeer(keyserver.TrustedServer{System: 9, Name: "peer.example", Port: 1, Transport: id(22), Chain: []byte("chain"), Certificate: ca(70, "peer")}),
		insertTrust(80, 20, 9, keyserver.Restrict),
		insertTemplate(keyserver.ACLTemplate{ID: id(90), Name: "template", Members: []keyserver.TemplateMember{member}}),
		insertDirectory(95, "/a", 90),
		func(ctx context.Context, tx *sqlstore.Tx) error { return tx.SetPrincipalRoles(ctx, id(20), ids(10)) },
		func(ctx context.Context, tx *sqlstore.Tx) error { return tx.AddGroupMember(ctx, id(21), id(20)) },
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.EnrolCertificate(ctx, certificate("leaf", "").ID, id(22))
		},
		putEntry(30, peer),
		func(ctx context.Context, tx *sqlstore.Tx) error { _, err := tx.PurgeACLEntries(ctx, 9); return err },
		func(ctx context.Context, tx *sqlstore.Tx) error { return tx.PutSetting(ctx, "name", []byte("value")) },
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.InsertAuthority(ctx, trustrows.Authority{Authority: keyserver.Authority{
				ID: id(110), Generation: 1, State: keyserver.AuthorityActive, Certificate: []byte{4, 0}, Links: [][]byte{{4, 0}, {4, 1, 7}}, PreparedAt: at(0), ActivatedAt: at(1),
			}, WrappedKey: []byte("wrapped")})
		},
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.InsertPeerAuthority(ctx, keyserver.PeerAuthority{System: 9, Certificate: []byte{4, 0}, Links: [][]byte{{4, 0}}, Anchor: keyserver.Digest{1}, LearnedAt: at(0)})
		},
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.PutWitnessedLog(ctx, keyserver.WitnessedLog{Origin: "peer/audit/9", Key: "key", System: 9, WitnessKey: "witness", Size: 1, SeenAt: at(0), ConflictAt: at(0)})
		},
		func(ctx context.Context, tx *sqlstore.Tx) error { return tx.AddDelegate(ctx, id(20), id(21)) },
		putOwner(keyserver.ChangeRole, 10, "owner"),
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.InsertApproval(ctx, keyserver.Approval{
				ID: id(100), Asker: ref(20), AskerName: "alice", Method: "PUT", Path: "/api/x", Body: []byte("{}"), Reason: "why",
				Digest: [32]byte{1}, Operations: []string{"exportKey"}, CreatedAt: at(0), ExpiresAt: at(9),
			})
		},
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.InsertApprovalVote(ctx, id(100), keyserver.ApprovalVote{Principal: ref(21), Name: "second", At: at(1)})
		},
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.DecideApproval(ctx, keyserver.Approval{ID: id(100), Decision: keyserver.ApprovalExecuted, DecidedAt: at(2), DecidedBy: ref(20)})
		},
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.PutRevocationPolicy(ctx, oneIssuer, keyserver.RevocationPolicy{Mode: keyserver.RevocationRequired})
		},
		func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.PutRevocationList(ctx, oneIssuer, crl, keyserver.NewSerialSet([][]byte{{7}}))
		},
	)
}

func findings(t *testing.T, s *sqlstore.Store) []rowmac.Finding {
	t.Helper()
	var found []rowmac.Finding
	rows, err := s.CheckRows(t.Context(), func(f rowmac.Finding) error {
		found = append(found, f)
		return nil
	})
	if err != nil || rows < 10 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	return found
}

// outside is a connection of an attacker who can write anything to the database.
type outside struct {
	*sql.Conn
	driver string
}

func openOutside(t *testing.T, d database) outside {
	t.Helper()
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), db.Close() })
	o := outside{conn, d.driver}
	if d.driver == "pgx" {
		o.run(t, `SET session_replication_role = replica`) // no foreign keys
	}
	return o
}

func (o outside) run(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := o.ExecContext(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func (o outside) columns(t *testing.T) map[string][]string {
	t.Helper()
	query := `SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'`
	if o.driver == "pgx" {
		query = `SELECT table_name, column_name FROM information_schema.columns JOIN pg_class ON oid = table_name::regclass
			WHERE table_schema = current_schema() AND NOT relispartition`
	}
	rows, err := o.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	tables := map[string][]string{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			t.Fatal(err)
		}
		tables[table] = append(tables[table], column)
	}
	if rows.Err() != nil || len(tables) < 20 {
		t.Fatalf("%d tables, %v", len(tables), rows.Err())
	}
	return tables
}

// testEveryColumn checks every column of the schema. It fails for an unknown table,
// and for a column that could be changed without detection.
func testEveryColumn(t *testing.T, _ database, s *sqlstore.Store, o outside) {
	tables := o.columns(t)
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		table, covered := rowmac.Tables[name]
		if covered == (rowmac.UncoveredTables[name] != "") {
			t.Errorf("table %s: it has to be in rowmac.Tables, or in rowmac.UncoveredTables with the reason", name)
		}
		if !covered {
			continue
		}
		for column := range table.Uncovered {
			if !slices.Contains(tables[name], column) {
				t.Errorf("%s.%s: left out, and not there", name, column)
			}
		}
		for _, column := range tables[name] {
			where := ""
			switch {
			case name == "principals" && column == "id":
				where = ` WHERE name = 'alice'`
			case name == "principals":
				where = fmt.Sprintf(` WHERE id = %s`, literal(o, id(20)))
			}
			var before any
			if err := o.QueryRowContext(t.Context(), `SELECT `+column+` FROM `+name+where).Scan(&before); err != nil {
				t.Fatalf("%s.%s: %v", name, column, err)
			}
			o.run(t, `UPDATE `+name+` SET `+column+` = $1`+where, other(before, column))
			found := findings(t, s)
			if _, leftOut := table.Uncovered[column]; (len(found) == 0) != leftOut {
				t.Errorf("%s.%s changed: found %v; it has to be in the MAC, or in Uncovered with the reason", name, column, found)
			}
			o.run(t, `UPDATE `+name+` SET `+column+` = $1`+where, before)
			if found := findings(t, s); len(found) > 0 {
				t.Fatalf("%s.%s as it was: %v", name, column, found)
			}
		}
	}
}

func literal(o outside, id keyserver.ID) string {
	if o.driver == "pgx" {
		return `'\x` + id.Hex() + `'`
	}
	return `x'` + id.Hex() + `'`
}

// other returns another value of the same type.
func other(v any, column string) any {
	switch v := v.(type) {
	case int64:
		return v ^ 1
	case string:
		return v + "x"
	case []byte:
		if len(v) == 0 {
			return []byte{1}
		}
		changed := bytes.Clone(v)
		changed[len(v)-1] ^= 0x80
		return changed
	}
	if strings.HasSuffix(column, "hash") {
		return "x"
	}
	return []byte{1, 2, 3, 4, 5, 6, 7, 8}
}

// testEveryRow deletes each row of a set, and inserts one into it.
func testEveryRow(t *testing.T, _ database, s *sqlstore.Store, o outside) {
	tables := o.columns(t)
	for name, table := range rowmac.Tables {
		if table.In == "" {
			continue
		}
		columns := strings.Join(tables[name], ", ")
		o.run(t, `CREATE TABLE aside AS SELECT `+columns+` FROM `+name)
		o.run(t, `DELETE FROM `+name)
		if found := findings(t, s); len(found) == 0 || found[0].Table != table.In {
			t.Errorf("all of %s deleted: found %v", name, found)
		}
		o.run(t, `INSERT INTO `+name+` (`+columns+`) SELECT `+columns+` FROM aside`)
		o.run(t, `DROP TABLE aside`)
		if found := findings(t, s); len(found) > 0 {
			t.Fatalf("%s as it was: %v", name, found)
		}
	}
	o.run(t, `INSERT INTO principal_roles (principal_id, role_id) VALUES (`+literal(o, id(21))+`, `+literal(o, id(10))+`)`)
	if found := findings(t, s); len(found) != 1 || found[0].ID != id(21).Hex() {
		t.Errorf("a role inserted: found %v", found)
	}
}

// testMovedMACs checks that the MAC of another row is invalid, and that a row without
// a MAC is invalid.
func testMovedMACs(t *testing.T, _ database, s *sqlstore.Store, o outside) {
	o.run(t, `UPDATE principals SET mac = (SELECT mac FROM principals WHERE name = 'alice') WHERE name = 'group'`)
	o.run(t, `UPDATE trusted_cas SET mac = NULL`)
	if found := findings(t, s); len(found) != 2 {
		t.Errorf("found %v", found)
	}
}

func failure[T any](_ T, err error) error { return err }

func tampered(err error) bool { return fault.CodeOf(err) == fault.StoreTampered }

// testTamperedRowsRefused checks that a row that does not agree with its MAC is
// refused and reported.
func testTamperedRowsRefused(t *testing.T, _ database, s *sqlstore.Store, o outside) {
	var told []rowmac.Finding
	s.OnTampered(func(f rowmac.Finding) { told = append(told, f) })
	for name := range rowmac.Tables {
		if rowmac.Tables[name].In == "" {
			o.run(t, `UPDATE `+name+` SET mac = NULL`)
		}
	}
	ctx := t.Context()
	for name, err := range map[string]error{
		"Principal":         failure(s.Principal(ctx, id(20))),
		"PrincipalByName":   failure(s.PrincipalByName(ctx, keyserver.PasswordPrincipal, "alice")),
		"Principals":        failure(s.Principals(ctx, keyserver.PrincipalFilter{Type: keyserver.PasswordPrincipal, Limit: 9})),
		"GroupMembers":      failure(s.GroupMembers(ctx, id(21), 9, 0)),
		"PasswordHash":      failure(s.PasswordHash(ctx, id(20))),
		"Holdings":          failure(s.HoldingsOf(ctx, id(20))),
		"Roles":             failure(s.Roles(ctx)),
		"Key":               failure(s.Key(ctx, id(30))),
		"ACL":               failure(s.ACL(ctx, id(30))),
		"TrustedCAs":        failure(s.TrustedCAs(ctx)),
		"Certificate":       failure(s.CertificateByID(ctx, certificate("leaf", "").ID)),
		"TrustedServers":    failure(s.TrustedServers(ctx)),
		"PrincipalTrusts":   failure(s.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{})),
		"RevocationStates":  failure(s.RevocationStates(ctx)),
		"ACLTemplates":      failure(s.ACLTemplates(ctx, keyserver.ACLTemplateQuery{Digests: true})),
		"ACLTemplate":       failure(s.ACLTemplate(ctx, id(90))),
		"Memberships":       failure(s.ACLTemplateMemberships(ctx, ref(20))),
		"Directories":       failure(s.TemplatedDirectories(ctx)),
		"Approval":          failure(s.Approval(ctx, id(100))),
		"Approvals":         failure(s.Approvals(ctx, sqlstore.ApprovalFilter{Limit: 9})),
		"Owner":             failure(s.Owner(ctx, keyserver.Object{Kind: keyserver.ChangeRole, ID: id(10)})),
		"Owners":            failure(s.Owners(ctx, keyserver.OwnerFilter{Kind: keyserver.ChangeRole, Limit: 9})),
		"Setting":           failure(s.Setting(ctx, "name")),
		"Session":           failure(s.Session(ctx, [32]byte{1})),
		"Sessions":          failure(s.Sessions(ctx, sessionrows.SessionFilter{Limit: 9})),
		"PrincipalsByID":    failure(s.PrincipalsByID(ctx, ids(20))),
		"CertificatesOf":    failure(s.CertificatesOf(ctx, id(22), 9)),
		"TemplatedAt":       failure(s.TemplatedDirectoriesAt(ctx, []string{"/a"})),
		"TrustedServer":     failure(s.TrustedServer(ctx, 9)),
		"EnrolledOnSubject": failure(s.EnrolledCertificates(ctx, "/CN=leaf", 9)),
	} {
		if !tampered(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(told) < 20 || told[0].Problem != "it has no MAC" {
		t.Errorf("told of %v", told)
	}
}

// testNotLaundered checks that no write gives a tampered row a valid MAC.
func testNotLaundered(t *testing.T, _ database, s *sqlstore.Store, o outside) {
	o.run(t, `INSERT INTO principal_roles (principal_id, role_id) VALUES (`+literal(o, id(21))+`, `+literal(o, id(10))+`)`)
	o.run(t, `UPDATE acl_entries SET rights = 255`)
	o.run(t, `UPDATE roles SET name = 'x'`)
	o.run(t, `UPDATE purged_acl_entries SET rights = 255`)
	name := "y"
	for name, write := range map[string]write{
		"Rename": func(ctx context.Context, tx *sqlstore.Tx) error { return tx.RenamePrincipal(ctx, id(21), "other") },
		"Roles":  func(ctx context.Context, tx *sqlstore.Tx) error { return tx.SetPrincipalRoles(ctx, id(21), nil) },
		"Renew": func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.RenewPasswordHash(ctx, id(21), "", "other")
		},
		"Entry": putEntry(30, entry(44, 25)),
		"Purge": func(ctx context.Context, tx *sqlstore.Tx) error {
			_, err := tx.RestoreACLEntries(ctx, 9)
			return err
		},
		"Close": func(ctx context.Context, tx *sqlstore.Tx) error {
			_, err := tx.CloseACLEntries(ctx, ref(20), keyserver.Stamp{7: 9})
			return err
		},
		"RoleName": func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.UpdateRole(ctx, keyserver.RoleChange{ID: id(10), Name: &name})
		},
		"RoleGone": func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteRole(ctx, id(10)) },
	} {
		if err := tryUpdate(t, s, write); !tampered(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testDataKeyGone checks that a database whose data key was deleted gets no new data
// key, which would hide the loss.
func testDataKeyGone(t *testing.T, _ database, s *sqlstore.Store, _ outside) {
	_, err := s.EnsureSetting(t.Context(), rowmac.DataKeySetting, func(context.Context) ([]byte, error) { return []byte("another"), nil })
	if err == nil || !strings.Contains(err.Error(), "dataKey") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Setting(t.Context(), rowmac.DataKeySetting); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("and it was stored: %v", err)
	}
}

// testSealRows checks that a database of a version without MACs gets MACs once, and
// not again if they are deleted.
func testSealRows(t *testing.T, _ database, s *sqlstore.Store, o outside) {
	clearMACs := func() {
		for name := range rowmac.Tables {
			if rowmac.Tables[name].In == "" {
				o.run(t, `UPDATE `+name+` SET mac = NULL`)
			}
		}
	}
	clearMACs()
	first := true
	mark := func(*sqlstore.Tx) (bool, error) { was := first; first = false; return was, nil }
	found := len(findings(t, s))
	if rows, err := s.SealRows(t.Context(), rowKey(t), mark); err != nil || rows != found {
		t.Errorf("%d rows sealed of %d, %v", rows, found, err)
	}
	if found := findings(t, s); len(found) > 0 {
		t.Errorf("sealed: %v", found)
	}
	clearMACs()
	if rows, err := s.SealRows(t.Context(), rowKey(t), mark); err != nil || rows != 0 {
		t.Errorf("again: %d rows, %v", rows, err)
	}
	if again := len(findings(t, s)); again != found {
		t.Errorf("cleared: %d found, want %d", again, found)
	}
}

// testSealBesideOthers checks that another running process is detected. It might be of
// an older version, which writes rows without MACs.
func testSealBesideOthers(t *testing.T, d database, s *sqlstore.Store, _ outside) {
	if d.config.URL == "" {
		return // no other process can open it
	}
	old := d.open(t)
	defer closeStore(t, old)
	w := openWriter(t, old, audit.Options{})
	held := func() (n int) {
		t.Helper()
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) (err error) {
			n, err = tx.ChainsHeld(ctx)
			return err
		})
		return n
	}
	if n := held(); n != 1 {
		t.Errorf("beside a process that serves: %d", n)
	}
	closeWriter(t, w)
	// The server releases the lock when it notices that the connection has ended.
	for end := time.Now().Add(deadline); held() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a process that ended still holds its chain")
		}
	}
}
