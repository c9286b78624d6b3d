// Package consistency checks that grants, revocations and authorizations have
// one order that explains every answer: at once on one server and between
// servers that trust each other, and within the bound of staleness between
// replicas on one database.
package consistency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// staleness is how much older than the database an authorization may be
// (DESIGN section 7).
const staleness = time.Second

var built program.Program

func TestMain(m *testing.M) {
	var err error
	if built, err = program.Build(false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = built.Remove()
	os.Exit(status)
}

// world is one principal, some keys, and the ways to them: each owner and each
// user speaks to one server.
type world struct {
	owners []*client.Client
	users  []*client.Client
	user   schema.ACLRevokeRequest // whose entry it is; TTag is filled in per key
	keys   []schema.HiddenLink
}

const (
	keys       = 4
	writes     = 60 // per owner
	readers    = 2  // at work through each server
	betweenOps = 20 * time.Millisecond
)

func TestOneServer(t *testing.T) {
	w := newWorld(t, serve(t, nil, filepath.Join(t.TempDir(), "data")))
	check(t, w, 0, nil)
}

func TestReplicas(t *testing.T) {
	check(t, replicas(t), staleness, nil)
}

// A replica that was stopped and goes on must not answer from what it knew.
func TestAReplicaThatWasFrozen(t *testing.T) {
	var frozen *program.Server
	w := replicas(t, func(s *program.Server) { frozen = s })
	check(t, w, staleness, func(ctx context.Context) {
		for ctx.Err() == nil {
			for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				if err := syscall.Kill(frozen.PID(), signal); err != nil {
					t.Error(err)
				}
				sleep(ctx, staleness*5/2)
			}
		}
		_ = syscall.Kill(frozen.PID(), syscall.SIGCONT)
	})
}

// replicas are two processes on one PostgreSQL; the second is shown.
func replicas(t *testing.T, show ...func(*program.Server)) *world {
	t.Helper()
	args := []string{"--database-url", pgtest.Database(t)}
	dirs := t.TempDir()
	// They have the key-encryption key in common, as replicas must.
	args = append(args, "--kek", "base64key://smGbjm71Nxd1Ig5FS0wj9SlbzAIrnolCz9bQQ6uAhl4=")
	first := serve(t, args, filepath.Join(dirs, "first"))
	second := serve(t, args, filepath.Join(dirs, "second"))
	for _, f := range show {
		f(second)
	}
	return newWorld(t, first, second)
}

func serve(t *testing.T, args []string, dir string) *program.Server {
	t.Helper()
	s, err := built.Serve(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// newWorld makes the principal and the keys on the first server.
func newWorld(t *testing.T, servers ...*program.Server) *world {
	t.Helper()
	password, err := servers[0].Password()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{}
	for _, s := range servers {
		w.owners = append(w.owners, connect(t, s, "admin", password))
		for range readers {
			w.users = append(w.users, connect(t, s, "user", "user's password"))
		}
	}
	ctx, admin := t.Context(), w.owners[0]
	p, err := admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{
		Name: "user", Password: "user's password", RoleIDs: []schema.HexID{exchanger},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.user = schema.ACLRevokeRequest{SystemID: p.Principal.SystemID, PrincipalID: p.Principal.PrincipalID}
	for range keys {
		key, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		if err != nil {
			t.Fatal(err)
		}
		w.keys = append(w.keys, key.TTag)
	}
	return w
}

// exchanger is the id of the built-in role of that name.
var exchanger = schema.HexID{7: 4}

func connect(t *testing.T, s *program.Server, name, password string) *client.Client {
	t.Helper()
	roots, err := program.Roots(s.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	transport := program.Transport(roots, func() string { return s.Address })
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Options{
		BaseURL: program.BaseURL, HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1,
		Credentials: client.PasswordCredentials(name, func(context.Context) (string, error) { return password, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// check lets everybody work at once, a disturbance too, and looks for the order.
func check(t *testing.T, w *world, staleness time.Duration, disturb func(context.Context)) {
	t.Helper()
	h := newHistory(staleness)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var owners, others sync.WaitGroup
	for i, c := range w.owners {
		owners.Go(func() { w.write(ctx, h, i, c) })
	}
	for i, c := range w.users {
		others.Go(func() { w.ask(ctx, h, len(w.owners)+i, c) })
	}
	if disturb != nil {
		others.Go(func() { disturb(ctx) })
	}
	owners.Wait()
	sleep(ctx, 2*staleness) // the last writes are read, too
	cancel()
	others.Wait()

	t.Logf("%d operations, of them %d allowed and %d refused", len(h.ops), h.allowed, h.refused)
	if h.allowed < 50 || h.refused < 50 {
		t.Fatal("too few answers of one kind to show anything")
	}
	switch h.verdict() {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Fatal("no order was found in time, and none excluded")
	default:
		_, info := porcupine.CheckOperationsVerbose(entry, h.ops, patience)
		path := filepath.Join(os.TempDir(), "keyserver-consistency.html")
		if err := porcupine.VisualizePath(entry, info, path); err != nil {
			t.Log(err)
		}
		t.Fatalf("no order explains the answers; %s draws them", path)
	}
}

// write grants and revokes at random.
func (w *world) write(ctx context.Context, h *history, id int, c *client.Client) {
	for range writes {
		in := input{operation(rand.IntN(2)), rand.IntN(len(w.keys))} //nolint:gosec // a test's choice
		who := w.user
		who.TTag = w.keys[in.key]
		call := h.now()
		var err error
		if in.op == grant {
			_, err = c.GrantACL(ctx, schema.ACLChangeRequest{TTag: who.TTag, SystemID: who.SystemID, PrincipalID: who.PrincipalID, Rights: 1})
		} else {
			_, err = c.RevokeACL(ctx, who)
		}
		end := h.now()
		switch e := (*client.Error)(nil); {
		case err == nil:
			h.wrote(id, in, call, end)
		case errors.As(err, &e) && e.Code == "ACL_NOT_FOUND": // nothing was sent
		case errors.As(err, &e) && e.Code == "NOT_VERIFIED": // somebody undid it before the re-read
			h.wrote(id, in, call, end)
		default:
			h.wrote(id, in, call, never)
		}
		sleep(ctx, betweenOps)
	}
}

// ask goes through the keys. An answer that is no decision counts for nothing.
func (w *world) ask(ctx context.Context, h *history, id int, c *client.Client) {
	for n := id; ctx.Err() == nil; n++ {
		key := n % len(w.keys)
		call := h.now()
		_, err := c.AuthorizeKey(ctx, w.keys[key], "")
		end := h.now()
		var e *client.Error
		switch {
		case err == nil:
			h.read(id, key, true, call, end)
		case errors.As(err, &e) && e.Code == "ACL_DENIED":
			h.read(id, key, false, call, end)
		}
		sleep(ctx, betweenOps/2)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
