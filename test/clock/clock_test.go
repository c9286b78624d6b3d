// Package clock sets the clock of the machine that a key server runs on. The server is built with a
// clock that a test can set (ADR 59).
package clock

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// there is the program with a clock that runs ahead by a duration that the test sets.
var there program.Program

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if there, err = program.BuildChanged(program.SettableClock); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = there.Remove() }() // a leftover in the temporary directory fails no test
	return m.Run()
}

// machine is a server with a settable clock.
type machine struct {
	dir    string
	args   []string
	server *program.Server
	http   *http.Client
}

func newMachine(t *testing.T, args ...string) *machine {
	m := &machine{dir: filepath.Join(t.TempDir(), "data"), args: args}
	m.start(t)
	t.Cleanup(func() { m.server.Kill() })
	m.http = &http.Client{Transport: program.Connect(t, m.dir, func() string { return m.server.Address })}
	return m
}

func (m *machine) start(t *testing.T) {
	t.Helper()
	server, err := there.Serve(m.dir, m.args...)
	rig.Must(t, err)
	m.server = server
}

func (m *machine) set(t *testing.T, ahead time.Duration) {
	t.Helper()
	rig.Must(t, program.SetClock(m.dir, ahead))
}

// send returns the code and the body of a response.
func (m *machine) send(t *testing.T, method, path, token string, body any) (string, map[string]any) {
	t.Helper()
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		rig.Must(t, err)
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, program.BaseURL+path, content)
	rig.Must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := m.http.Do(r)
	rig.Must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	rig.Must(t, err)
	var parsed map[string]any
	rig.Must(t, json.Unmarshal(answer, &parsed))
	if response.StatusCode == http.StatusOK {
		return "", parsed
	}
	code, _ := parsed["code"].(string)
	return code, parsed
}

func (m *machine) login(t *testing.T) string {
	t.Helper()
	password, err := m.server.Password()
	rig.Must(t, err)
	code, opened := m.send(t, http.MethodPost, "/api/sessions", "", map[string]string{"method": "password", "name": "admin", "password": password})
	token, is := opened["sessionId"].(string)
	if code != "" || !is {
		t.Fatalf("the login is answered %s %v", code, opened)
	}
	return token
}

// refusalCode returns the error code for a request with a session, or "" if the session is valid.
func (m *machine) refusalCode(t *testing.T, token string) string {
	t.Helper()
	code, _ := m.send(t, http.MethodGet, "/api/sessions/current", token, nil)
	return code
}

// await waits until is returns true, for at most a minute.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to that: %s", what)
		}
	}
}

// rows returns the objects of the rows about clock steps, oldest first. It checks that the times in
// the log are in order.
func rows(t *testing.T, admin *client.Client) (objects []string) {
	t.Helper()
	var last time.Time
	query := schema.AuditQuery{Limit: new(500)}
	for {
		page, err := admin.ListAuditEntries(t.Context(), query)
		rig.Must(t, err)
		for _, e := range page.Entries {
			at := e.Time
			if at.Before(last) {
				t.Errorf("row %d is of %s, behind one of %s", e.Seq, at, last)
			}
			if last = at; e.Operation == keyserver.AuditClock {
				objects = append(objects, e.Object)
			}
		}
		if page.Next == nil {
			return objects
		}
		query.Cursor = *page.Next
	}
}

func TestClockIsSet(t *testing.T) {
	for name, args := range map[string]func(*testing.T) []string{
		"SQLite":     func(*testing.T) []string { return nil },
		"PostgreSQL": func(t *testing.T) []string { return []string{"--database-url", migrated.Database(t)} },
	} {
		t.Run(name, func(t *testing.T) { clockIsSet(t, args(t)) })
	}
}

// The clock is set forward and back by an hour. Bound and unbound sessions stay valid, logins work, and each step has
// an audit row.
func clockIsSet(t *testing.T, args []string) {
	m := newMachine(t, args...)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	roots, err := program.Roots(m.dir)
	rig.Must(t, err)
	logins := 0
	bound, err := client.New(client.Options{
		BaseURL: "https://" + m.server.Address, RootCAs: roots, MaxRetries: program.NoRetries, ProofKey: key,
		Credentials: client.PasswordCredentials("admin", func(context.Context) (string, error) { logins++; return m.server.Password() }),
	})
	rig.Must(t, err)
	plain := m.login(t)
	var want []string
	var before time.Duration
	for _, ahead := range []time.Duration{time.Hour, 0, -time.Hour, time.Hour, 0} {
		m.set(t, ahead)
		by := ahead - before
		before = ahead
		object := by.String()
		if by > 0 {
			object = "+" + object
		}
		want = append(want, object)
		await(t, "a row of the step "+object, func() bool { return len(rows(t, bound)) >= len(want) })
		if code := m.refusalCode(t, plain); code != "" {
			t.Errorf("at %s: the session is refused with %s", ahead, code)
		}
		if _, err := bound.GetCurrentSession(t.Context()); err != nil {
			t.Errorf("at %s: the bound session: %v", ahead, err)
		}
		m.login(t)
	}
	if got := rows(t, bound); !near(got, want) {
		t.Errorf("the rows are of %q, want %q", got, want)
	}
	if logins != 1 {
		t.Errorf("the bound session was opened %d times", logins)
	}
	if n := strings.Count(m.server.Log(), "the machine's clock was set"); n != len(want) {
		t.Errorf("it was logged %d times:\n%s", n, m.server.Log())
	}
}

// near compares steps within a second, because a step is noticed some time after it is made.
func near(got, want []string) bool {
	return slices.EqualFunc(got, want, func(a, b string) bool {
		one, err := time.ParseDuration(a)
		other, err2 := time.ParseDuration(b)
		return err == nil && err2 == nil && (one-other).Abs() < time.Second
	})
}

func TestEndedStaysEnded(t *testing.T) {
	for name, args := range map[string]func(*testing.T) []string{
		"SQLite":     func(*testing.T) []string { return nil },
		"PostgreSQL": func(t *testing.T) []string { return []string{"--database-url", migrated.Database(t)} },
	} {
		t.Run(name, func(t *testing.T) { endedStaysEnded(t, args(t)) })
	}
}

// An expired session stays expired if the clock is set back, also if the server starts with that clock. A valid session
// stays valid if the server starts with a clock that was set back.
func endedStaysEnded(t *testing.T, args []string) {
	const lifetime = 3 * time.Second
	m := newMachine(t, append(slices.Clone(args), "--session-lifetime", lifetime.String(), "--session-idle", lifetime.String())...)
	ended := m.login(t)
	await(t, "the end of the session", func() bool { return m.refusalCode(t, ended) != "" })
	m.set(t, -time.Hour)
	await(t, "a row of the step", func() bool { return len(rows(t, m.server.Admin(t, program.NoRetries))) == 1 })
	if code := m.refusalCode(t, ended); code != "SESSION_EXPIRED" && code != "SESSION_NOT_FOUND" {
		t.Errorf("after the step: %q", code)
	}
	m.server.Kill()
	m.args = args // with the default lifetime of sessions
	m.start(t)
	if !strings.Contains(m.server.Log(), "the machine's clock differs from the time of the database") {
		t.Errorf("it is not said:\n%s", m.server.Log())
	}
	if code := m.refusalCode(t, ended); code != "SESSION_EXPIRED" && code != "SESSION_NOT_FOUND" {
		t.Errorf("after a start: %q", code)
	}
	live := m.login(t)
	m.server.Kill()
	m.start(t)
	if code := m.refusalCode(t, live); code != "" {
		t.Errorf("a session that lives is refused with %s after a start", code)
	}
	admin := m.server.Admin(t, program.NoRetries)
	await(t, "rows of the step, of both starts", func() bool { return len(rows(t, admin)) == 3 })
}
