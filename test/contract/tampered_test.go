package contract

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// intruder writes to the database of a server directly.
type intruder struct {
	*sql.DB
	where server.Config
}

// opened is a configuration whose tests write directly to the database. Each test undoes the changes that the server
// rejects.
var opened = &serverConfig{}

// intrude runs a test on each database, with a server of a configuration and an open connection to its database.
func intrude(t *testing.T, g *serverConfig, test func(t *testing.T, s *subject, in intruder)) {
	t.Helper()
	on(t, func(t *testing.T, s *subject) {
		where := s.Config()
		file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(where.DataDir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
		driver, source := "sqlite", file.String()
		if where.DatabaseURL != "" {
			driver, source = "pgx", where.DatabaseURL
		}
		db, err := sql.Open(driver, source)
		rig.Must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		test(t, s, intruder{db, where})
	}, at(g), alone)
}

func (in intruder) run(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := in.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// doctor runs the command doctor while the server runs.
func (in intruder) doctor(t *testing.T, code int, want string) {
	t.Helper()
	args := []string{"doctor", "--data-dir", in.where.DataDir}
	if in.where.DatabaseURL != "" {
		args = append(args, "--database-url", in.where.DatabaseURL)
	}
	var out, problems bytes.Buffer
	if got := commands.Main(args, strings.NewReader(""), &out, &problems); got != code || !strings.Contains(out.String(), want) {
		t.Errorf("doctor ends with %d and says, want %d and %q:\n%s%s", got, code, want, &out, &problems)
	}
}

// alarmed waits until the audit log has an alarm row for an object.
func (s *subject) alarmed(t *testing.T, object string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		for _, row := range s.OK(t, s.AsAdmin(t), "GET", "/api/audit?reason=storeTampered&limit=1000", nil).List(t, "entries") {
			if row["operation"] == "storeTampered" && row["object"] == object && row["outcome"] == "refused" {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the trail has no alarm about %s", object)
		}
	}
}

func bytesOf(t *testing.T, hex string) []byte {
	t.Helper()
	id, err := values.ParseHexID(hex)
	rig.Must(t, err)
	return id[:]
}

const storeTampered = "STORE_TAMPERED"

// TestInsertedRolesGiveNothing checks contract 17.7: two inserts into the database must not make a user an
// Administrator.
func TestInsertedRolesGiveNothing(t *testing.T) {
	intrude(t, opened, func(t *testing.T, s *subject, in intruder) {
		mallory := s.User(t, "mallory", keyserver.RoleEncryptor)
		s.trust(t, newCA(t, s.name("CA")))
		in.doctor(t, 0, "rows: ok")
		in.run(t, `INSERT INTO principal_roles (principal_id, role_id) VALUES ($1, $2)`, bytesOf(t, mallory.ID), keyserver.RoleAdministrator[:])
		in.run(t, `INSERT INTO changes (seq, kind, id, action) SELECT value + 1, 'principal', $1, 'updated' FROM sequences WHERE name = 'changes'`, bytesOf(t, mallory.ID))
		in.run(t, `UPDATE sequences SET value = value + 1 WHERE name = 'changes'`)
		if a := s.Send(t, mallory.Session, "GET", "/api/roles", nil); a.Status == http.StatusOK {
			t.Errorf("the session that was there is an administrator's: %s", a.Raw)
		}
		s.Refused(t, "", "POST", sessions, s.byPassword("mallory", rig.Password), http.StatusServiceUnavailable, storeTampered)
		s.alarmed(t, "principals "+mallory.ID)
		in.doctor(t, 1, "rows: principals "+mallory.ID+": it does not agree with its MAC\n")

		in.run(t, `UPDATE roles SET name = name || '!' WHERE id = $1`, keyserver.RoleAuditor[:])
		in.run(t, `UPDATE trusted_cas SET subject = subject || '!'`)
		s.Stop(t)
		s.Restart(t)
		s.DropSessions()
		s.Refused(t, mallory.Session, "GET", "/api/roles", nil, http.StatusServiceUnavailable, storeTampered)
		s.Refused(t, s.AsAdmin(t), "PUT", "/api/principals/"+mallory.ID+"/roles", rig.Object{"roleIds": []string{}}, http.StatusServiceUnavailable, storeTampered)
		if ready := s.Send(t, "", "GET", "/api/ready", nil); ready.Status != http.StatusOK {
			t.Errorf("one row stops everybody: %s", ready.Raw)
		}

		in.run(t, `UPDATE roles SET name = replace(name, '!', '') WHERE id = $1`, keyserver.RoleAuditor[:])
		in.run(t, `UPDATE trusted_cas SET subject = replace(subject, '!', '')`)
		in.run(t, `DELETE FROM principal_roles WHERE principal_id = $1 AND role_id = $2`, bytesOf(t, mallory.ID), keyserver.RoleAdministrator[:])
		s.As(t, s.name("mallory"), rig.Password)
		in.doctor(t, 0, "all checks passed")
	})
}

// TestTamperedRowsAreRefused checks contract 17.7: for each other change made directly in the database,
// dependent operations are refused, other operations are not, and undoing the change ends the refusals.
func TestTamperedRowsAreRefused(t *testing.T) {
	intrude(t, opened, func(t *testing.T, s *subject, in intruder) {
		const unavailable = http.StatusServiceUnavailable
		role := s.OK(t, s.AsAdmin(t), "POST", "/api/roles", rig.Object{"name": s.name("clerk"), "operations": []string{keyserver.OpReadVersion.ID.Hex()}}).Text(t, "id")
		clerk, other, victim := s.User(t, "clerk"), s.User(t, "other"), s.User(t, "victim", keyserver.RoleEncryptor)
		s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+clerk.ID+"/roles", rig.Object{"roleIds": []string{role}})
		off := s.User(t, "off", keyserver.RoleEncryptor)
		s.flags(t, off.ID, rig.Object{"disabled": true})
		link := s.mint(t, "key material")
		_, keyID, ok := keyserver.HiddenLink(unb64(t, link)).Split()
		if !ok {
			t.Fatal("the key's handle names no key")
		}
		ours, theirs := newCA(t, s.name("CA")), newCA(t, s.name("CA"))
		s.trust(t, ours)
		token := "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		hash := sha256.Sum256(make([]byte, 32))
		logIn := func(name string) func(*testing.T) rig.Answer {
			return func(t *testing.T) rig.Answer {
				return s.Send(t, "", "POST", sessions, s.byPassword(name, rig.Password))
			}
		}
		get := func(path string) func(*testing.T) rig.Answer {
			return func(t *testing.T) rig.Answer { return s.Send(t, s.AsAdmin(t), "GET", path, nil) }
		}
		for name, c := range map[string]struct {
			reason   string
			tamper   string
			undo     string
			args     []any
			undoArgs []any
			refused  func(t *testing.T) rig.Answer
			finding  string
		}{
			"Operations": {"a role is given an operation", `INSERT INTO role_operations (role_id, operation_id) VALUES ($1, $2)`,
				`DELETE FROM role_operations WHERE role_id = $1 AND operation_id = $2`, []any{bytesOf(t, role), keyserver.OpExportKey.ID[:]},
				[]any{bytesOf(t, role), keyserver.OpExportKey.ID[:]}, get("/api/roles"), "roles " + role},
			"Enabled": {"somebody who is disabled is enabled", `UPDATE principals SET flags = flags | 1 WHERE id = $1`, `UPDATE principals SET flags = flags & ~1 WHERE id = $1`,
				[]any{bytesOf(t, off.ID)}, []any{bytesOf(t, off.ID)}, logIn("off"), "principals " + off.ID},
			"Password": {"an administrator gets the intruder's password", `UPDATE principals SET password_hash = 'x' || password_hash WHERE id = $1`,
				`UPDATE principals SET password_hash = substr(password_hash, 2) WHERE id = $1`, []any{bytesOf(t, victim.ID)}, []any{bytesOf(t, victim.ID)}, logIn("victim"), "principals " + victim.ID},
			"Copied": {"with the MAC of another one", `UPDATE principals SET mac = (SELECT mac FROM principals WHERE name = '` + s.name("other") + `') WHERE id = $1`,
				`UPDATE principals SET mac = (SELECT mac FROM aside) WHERE id = $1`, []any{bytesOf(t, victim.ID)}, []any{bytesOf(t, victim.ID)}, logIn("victim"), "principals " + victim.ID},
			"Cleared": {"without a MAC", `UPDATE principals SET mac = NULL WHERE id = $1`,
				`UPDATE principals SET mac = (SELECT mac FROM aside) WHERE id = $1`, []any{bytesOf(t, victim.ID)}, []any{bytesOf(t, victim.ID)}, logIn("victim"), "principals " + victim.ID},
			"Entry": {"an entry of a list is given to somebody", `INSERT INTO acl_entries (id, acl_id, system_id, principal_id, rights, max_usage, used, user_right, start_stamp, end_stamp)
				SELECT $1, acl_id, system_id, $1, rights, max_usage, used, user_right, start_stamp, end_stamp FROM acl_entries e WHERE acl_id = (SELECT acl_id FROM stored_keys WHERE id = $2)`,
				`DELETE FROM acl_entries WHERE id = $1`, []any{bytesOf(t, other.ID), keyID[:]}, []any{bytesOf(t, other.ID)},
				func(t *testing.T) rig.Answer {
					return s.Send(t, s.AsAdmin(t), "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
				}, "stored_keys " + keyID.Hex()},
			"CA": {"a trusted CA is another one", `UPDATE trusted_cas SET der = $1 WHERE der = $2`, `UPDATE trusted_cas SET der = $1 WHERE der = $2`,
				[]any{theirs.Certificate.Raw, ours.Certificate.Raw}, []any{ours.Certificate.Raw, theirs.Certificate.Raw}, get("/api/trusted-cas"), "trusted_cas "},
			"Session": {"a session that nobody has logged in to", `INSERT INTO sessions (id, hash, system_id, principal_id, kind, created_at, expires_at, last_used_at, bound_key)
				SELECT $1, $2, system_id, principal_id, kind, created_at, expires_at, last_used_at, bound_key FROM sessions WHERE principal_id = (SELECT id FROM principals WHERE name = '` + s.Administrator.Name + `') LIMIT 1`,
				`DELETE FROM sessions WHERE id = $1`, []any{bytesOf(t, victim.ID), hash[:]}, []any{bytesOf(t, victim.ID)},
				func(t *testing.T) rig.Answer { return s.Send(t, token, "GET", "/api/roles", nil) }, "sessions " + victim.ID},
		} {
			t.Run(name, func(t *testing.T) {
				in.run(t, `CREATE TABLE aside AS SELECT mac FROM principals WHERE name = '`+s.name("victim")+`'`)
				defer in.run(t, `DROP TABLE aside`)
				in.run(t, c.tamper, c.args...)
				a := c.refused(t)
				if a.Status != unavailable || a.Code() != storeTampered {
					t.Errorf("%s: got %d %s", c.reason, a.Status, a.Raw)
				}
				in.doctor(t, 1, "rows: "+c.finding)
				s.OK(t, other.Session, "GET", "/api/sessions/current", nil) // independent of the changed row
				in.run(t, c.undo, c.undoArgs...)
				if a := c.refused(t); a.Code() == storeTampered {
					t.Errorf("%s: undone, and still refused: %s", c.reason, a.Raw)
				}
				in.doctor(t, 0, "rows: ok")
			})
		}
		in.run(t, `UPDATE settings SET value = $1 WHERE name = 'deployment'`, []byte("split"))
		in.doctor(t, 1, "rows: settings deployment: it does not agree with its MAC\n")
		in.run(t, `UPDATE settings SET value = $1 WHERE name = 'deployment'`, []byte(keyserver.Unified))
		in.doctor(t, 0, "rows: ok")
	})
}
