package approval_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// world is the API of a deployment with separated duties, on a real engine and database. No logins are needed: each
// known name has a session.
type world struct {
	*enginetest.Fixture
	api   *httpapi.API
	known *known
}

// known maps tokens to sessions.
type known struct {
	httpapi.Sessions
	callers map[string]keyserver.Caller
}

func (k *known) Authenticate(_ context.Context, token string, _ session.Proof, from session.From) (keyserver.Caller, func(), error) {
	by, ok := k.callers[token]
	if !ok {
		return by, nil, fault.New(fault.SessionNotFound, "no such session")
	}
	by.RequestID = from.RequestID
	return by, func() {}, nil
}

func onEach(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) { test(t, newWorld(t, f)) })
}

func newWorld(t testing.TB, f *enginetest.Fixture) *world {
	t.Helper()
	ctx := context.Background()
	fatal(t, f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		for _, b := range keyserver.BuiltInRoles(keyserver.Split) {
			if err := tx.UpdateRole(ctx, keyserver.RoleChange{ID: b.ID, Operations: b.Role().Operations}); err != nil {
				return err
			}
		}
		return nil
	}))
	config := f.Config
	config.Deployment = keyserver.Split
	e := engine.New(config)
	w := &world{Fixture: f, known: &known{callers: map[string]keyserver.Caller{}}}
	service := approval.New(approval.Config{Store: f.Store, Gate: e, Deployment: keyserver.Split, Clock: f.Clock.Now, Random: rand.Reader})
	var err error
	w.api, err = httpapi.New(httpapi.Config{
		Operations: verified.New(e), Sessions: w.known, Approvals: service, Logger: slog.New(slog.DiscardHandler), Clock: time.Now,
		Site: func(dpop.Origin) bool { return true },
	})
	fatal(t, err)
	return w
}

func fatal(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add creates a principal with roles. Its session with the token name is bound to a key. Its session with the token
// name+"unbound" is not bound.
func (w *world) add(t testing.TB, name string, roles ...keyserver.ID) keyserver.Caller {
	t.Helper()
	c := w.Add(t, keyserver.PasswordPrincipal, name, roles, nil)
	w.known.callers[name+" unbound"] = c
	c.Bound = true
	w.known.callers[name] = c
	return c
}

// answer is an HTTP response of the API.
type answer struct {
	status int
	body   map[string]any
	raw    string
	id     string // request id
}

func (a answer) text(field string) string {
	s, _ := a.body[field].(string)
	return s
}

// ask sends a request in the session of a principal.
func (w *world) ask(t rapid.TB, who, method, path string, body any) answer {
	t.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		text, err = json.Marshal(b)
		fatal(t, err)
	}
	r := httptest.NewRequestWithContext(context.Background(), method, path, bytes.NewReader(text))
	if text == nil {
		r.Body = http.NoBody
	}
	r.Header.Set("Authorization", "Bearer "+who)
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	a := answer{status: rec.Code, raw: rec.Body.String(), id: rec.Header().Get("X-Request-Id")}
	if err := json.Unmarshal(rec.Body.Bytes(), &a.body); err != nil {
		t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
	return a
}

// is checks the status and the error code of a response.
func is(t rapid.TB, a answer, status int, code string) answer {
	t.Helper()
	if a.status != status || a.text("code") != code {
		t.Fatalf("got %d %s, want %d %s", a.status, a.raw, status, code)
	}
	return a
}

func (w *world) ok(t rapid.TB, who, method, path string, body any) answer {
	t.Helper()
	return is(t, w.ask(t, who, method, path, body), http.StatusOK, "")
}

type object = map[string]any

// administratorRequest returns a request that makes a principal an administrator. The request needs an approval.
func administratorRequest(to keyserver.Caller) object {
	return object{
		"method": "PUT", "path": "/api/principals/" + to.Principal.ID.Hex() + "/roles",
		"body": object{"roleIds": []string{keyserver.RoleAdministrator.Hex()}}, "reason": "for the test",
	}
}

func at(id string, more ...string) string {
	return "/api/approvals/" + strings.Join(append([]string{id}, more...), "/")
}

// rolesOf reads the roles of a principal from the store.
func (w *world) rolesOf(t rapid.TB, who keyserver.Caller) string {
	t.Helper()
	p, err := w.Store.Principal(context.Background(), who.Principal.ID)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return "[]"
	}
	fatal(t, err)
	return fmt.Sprint(p.Roles)
}

// callerOf returns a caller whose principal does not exist.
func (w *world) callerOf(t rapid.TB, name string) keyserver.Caller {
	t.Helper()
	id, err := values.NewID(rand.Reader)
	fatal(t, err)
	return keyserver.Caller{Principal: keyserver.PrincipalRef{System: w.System, ID: id}, Name: name, Type: keyserver.PasswordPrincipal}
}

// addRole creates a role that every Administrator may give.
func (w *world) addRole(t rapid.TB, name string) keyserver.ID {
	t.Helper()
	id, err := values.NewID(rand.Reader)
	fatal(t, err)
	ctx := context.Background()
	fatal(t, w.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		return tx.InsertRole(ctx, keyserver.Role{ID: id, Name: name, Operations: roleOperations(false)})
	}))
	return id
}

// setRoles writes the roles of a principal to the store.
func (w *world) setRoles(t rapid.TB, who keyserver.Caller, roles ...keyserver.ID) {
	t.Helper()
	ctx := context.Background()
	fatal(t, w.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetPrincipalRoles(ctx, who.Principal.ID, roles) }))
}

// enable enables or disables a principal in the store.
func (w *world) enable(t rapid.TB, who keyserver.Caller, on bool) {
	t.Helper()
	ctx := context.Background()
	fatal(t, w.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		p, err := tx.Principal(ctx, who.Principal.ID)
		if err != nil {
			return err
		}
		word := p.Flags &^ keyserver.FlagEnable
		if on {
			word |= keyserver.FlagEnable
		}
		return tx.SetPrincipalFlags(ctx, who.Principal.ID, word)
	}))
}

// under returns the audit rows of the operations that were executed with an approval.
func (w *world) under(t testing.TB, id string) []string {
	t.Helper()
	var rows []string
	for _, r := range w.AllRows(t) {
		about := map[string]bool{keyserver.AuditAskApproval: true, keyserver.AuditApprove: true, keyserver.AuditReject: true, keyserver.AuditWithdraw: true, keyserver.AuditExecuteApproval: true}
		if r.Approval.Hex() == id && !about[r.Operation] {
			rows = append(rows, r.Operation+" "+string(r.Outcome))
		}
	}
	return rows
}
