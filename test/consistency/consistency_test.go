// Package consistency checks that one order of grants, revocations and authorizations explains every response. On one
// server and between servers that trust each other, the order follows real time. Between replicas on one database, a
// response may be stale.
package consistency

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// staleness is how much older than the database an authorization may be (contract 4.5).
const staleness = time.Second

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// world has the clients, some keys, and ACL entries on them that the clients add and remove. Each owner and each user
// uses one server.
type world struct {
	owners  []*client.Client
	users   []user
	entries []schema.ACLRevokeRequest
	hold    chan struct{} // if it is not nil, the owners continue until it is closed
}

// user is a client that requests authorization for the keys of its entries.
type user struct {
	*client.Client
	entries []int
}

const (
	keys       = 4
	writes     = 60 // per owner, and more until there are enough responses
	readers    = 2  // concurrent readers of each server
	betweenOps = 20 * time.Millisecond
	// If responses may be stale, all responses within a second can be in any order. More responses in this time would
	// make the search longer without more evidence.
	betweenOld = 80 * time.Millisecond
	// longest is the maximum time that the owners continue if there are too few responses.
	longest = 2 * time.Minute
)

func TestOneServer(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, serve(t, nil, filepath.Join(t.TempDir(), "data")))
	check(t, w, 0, nil)
}

func TestReplicas(t *testing.T) {
	t.Parallel() // it mostly waits
	check(t, replicas(t), staleness, nil)
}

// A replica that was stopped must not decide by its old state when it resumes.
func TestAReplicaThatWasFrozen(t *testing.T) {
	t.Parallel() // it mostly waits
	var frozen *program.Server
	w := replicas(t, func(s *program.Server) { frozen = s })
	check(t, w, staleness, func(ctx context.Context) {
		for ctx.Err() == nil {
			resume := frozen.Freeze(t)
			sleep(ctx, staleness*5/2)
			resume()
			sleep(ctx, staleness*5/2)
		}
	})
}

// replicas starts two processes on one PostgreSQL. The functions show get the second process.
func replicas(t testing.TB, show ...func(*program.Server)) *world {
	t.Helper()
	both := built.Replicas(t, make([][]string, 2), "--database-url", pgtest.DurableDatabase(t))
	for _, f := range show {
		f(both[1])
	}
	return newWorld(t, both...)
}

func serve(t testing.TB, args []string, dir string) *program.Server {
	t.Helper()
	s, err := built.Serve(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// newWorld creates the principal and the keys on the first server.
func newWorld(t testing.TB, servers ...*program.Server) *world {
	t.Helper()
	w := &world{}
	for _, s := range servers {
		w.owners = append(w.owners, connectAdmin(t, s, servers[0]))
	}
	admin := w.owners[0]
	who := makeUser(t, admin)
	mine := w.addEntries(who, mint(t, admin))
	for _, s := range servers {
		w.addUsers(t, s, mine)
	}
	return w
}

// makeUser creates the principal whose entries the owners add and remove.
func makeUser(t testing.TB, admin *client.Client) schema.ACLRevokeRequest {
	t.Helper()
	p, err := admin.CreatePasswordPrincipal(t.Context(), schema.CreatePasswordPrincipalRequest{
		Name: "user", Password: "user's password", RoleIDs: []schema.HexID{exchanger},
	})
	if err != nil {
		t.Fatal(err)
	}
	return schema.ACLRevokeRequest{SystemID: p.Principal.SystemID, PrincipalID: p.Principal.PrincipalID}
}

func mint(t testing.TB, owner *client.Client) (made []schema.HiddenLink) {
	t.Helper()
	for range keys {
		key, err := owner.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, key.TTag)
	}
	return made
}

// addEntries adds a principal's entries on keys to those that change, and returns their indexes.
func (w *world) addEntries(who schema.ACLRevokeRequest, on []schema.HiddenLink) (added []int) {
	for _, key := range on {
		who.TTag = key
		added = append(added, len(w.entries))
		w.entries = append(w.entries, who)
	}
	return added
}

// addUsers adds clients that request authorization by these entries from a server.
func (w *world) addUsers(t testing.TB, s *program.Server, entries []int) {
	t.Helper()
	for range readers {
		w.users = append(w.users, user{connect(t, s, "user", "user's password"), entries})
	}
}

// connectAdmin returns a client of a server as admin. The password is that of the first server on the database.
func connectAdmin(t testing.TB, s, first *program.Server) *client.Client {
	t.Helper()
	password, err := first.Password()
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, s, "admin", password)
}

// exchanger is the id of the built-in role of that name.
var exchanger = schema.HexID{7: 4}

func connect(t testing.TB, s *program.Server, name, password string) *client.Client {
	t.Helper()
	return program.Client(t, program.Connect(t, s.DataDir, func() string { return s.Address }), name, password, program.NoRetries)
}

// check runs all clients and a disturbance concurrently, and searches for the order.
func check(t testing.TB, w *world, staleness time.Duration, disturb func(context.Context)) {
	t.Helper()
	h := newHistory(staleness)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var owners, others sync.WaitGroup
	for i, c := range w.owners {
		owners.Go(func() { w.write(ctx, h, i, c) })
	}
	for i, u := range w.users {
		others.Go(func() { w.ask(ctx, h, len(w.owners)+i, u) })
	}
	if disturb != nil {
		others.Go(func() { disturb(ctx) })
	}
	owners.Wait()
	sleep(ctx, 2*staleness) // the last writes are read, too
	cancel()
	others.Wait()

	if !w.judge(t, h) {
		t.Fatal("no order was found in time, and none excluded")
	}
}

// judge searches for an order of all responses. It returns false if the search neither found nor
// excluded one in time.
func (w *world) judge(t testing.TB, h *history) bool {
	t.Helper()
	t.Logf("%d operations; by client %+v", len(h.ops), h.tally)
	if err := h.missing(len(w.owners), len(w.users)); err != nil {
		t.Fatal("too few answers to show anything: ", err)
	}
	switch h.verdict() {
	case porcupine.Ok:
	case porcupine.Unknown:
		return false
	default:
		_, info := porcupine.CheckOperationsVerbose(entry, h.ops, rig.Patience)
		path := filepath.Join(os.TempDir(), "keyserver-consistency.html")
		if err := porcupine.VisualizePath(entry, info, path); err != nil {
			t.Log(err)
		}
		t.Fatalf("no order explains the answers; %s draws them", path)
	}
	return true
}

// write grants and revokes at random until all clients had enough to read.
func (w *world) write(ctx context.Context, h *history, id int, c *client.Client) {
	for n := 0; n < writes || w.held() || h.missing(len(w.owners), len(w.users)) != nil && time.Since(h.start) < longest; n++ {
		in := input{operation(rand.IntN(2)), rand.IntN(len(w.entries))}
		who := w.entries[in.entry]
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
		case errors.As(err, &e) && e.Code == "ACL_NOT_FOUND": // no change was sent
		case errors.As(err, &e) && e.Code == "NOT_VERIFIED": // another client undid the change before the re-read
			h.wrote(id, in, call, end)
		default:
			h.wrote(id, in, call, never)
			sleep(ctx, 5*betweenOld) // an unknown outcome makes the search long
		}
		sleep(ctx, betweenOps)
	}
}

func (w *world) held() bool {
	select {
	case <-w.hold:
		return false
	default:
		return w.hold != nil
	}
}

// ask requests authorization for the entries in turn. A response without a decision does not count.
func (w *world) ask(ctx context.Context, h *history, id int, u user) {
	for n := id; ctx.Err() == nil; n++ {
		which := u.entries[n%len(u.entries)]
		call := h.now()
		_, err := u.AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: w.entries[which].TTag})
		end := h.now()
		var e *client.Error
		switch {
		case err == nil:
			h.read(id, which, true, call, end)
		case errors.As(err, &e) && e.Code == "ACL_DENIED":
			h.read(id, which, false, call, end)
		}
		if h.staleness > 0 {
			sleep(ctx, betweenOld)
		} else {
			sleep(ctx, betweenOps/2)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
