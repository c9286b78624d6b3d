package crash

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// Clients send requests to one of two key servers, for keys of the other. Either key server is killed meanwhile. For
// every response, both have an audit row, and the owner has counted the use.
func TestNoForwardedAnswerWithoutItsRows(t *testing.T) {
	for name, place := range map[string]func(*testing.T) site{"SQLite": onSQLite, "PostgreSQL": onPostgreSQL} {
		t.Run(name+"/AskedIsKilled", func(t *testing.T) {
			r := dice(t)
			asked, owner := newNode(t, 2, place(t)), newNode(t, 3, quick(t, place(t)))
			newPair(t, r, asked, owner).survives(t, r, asked)
		})
		t.Run(name+"/OwnerIsKilled", func(t *testing.T) {
			r := dice(t)
			asked, owner := newNode(t, 2, quick(t, place(t))), newNode(t, 3, place(t))
			newPair(t, r, asked, owner).survives(t, r, owner)
		})
	}
}

// survives runs clients and kills one of the two key servers, several times.
func (p *pair) survives(t *testing.T, r *rand.Rand, victim *node) {
	t.Helper()
	for round := range (*kills + 1) / 2 {
		p.limited = p.shareKey(t, r, 50+r.Int64N(400))
		p.load(t, round, victim.server.Kill)
		victim.start(t)
		p.awaitPeer(t)
		p.check(t, round)
	}
	for _, n := range []*node{p.asked, p.owner} {
		if err := n.server.Stop(); err != nil {
			t.Error(err)
		}
		n.verifyTrail(t)
	}
}

// quick returns a site with its directory in memory, if possible. A key server that does not wait for a disk writes its
// rows first. So the killed key server writes its rows last, and the test detects a missing row.
func quick(t *testing.T, s site) site {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "keyserver-crash-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return s
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.dir = filepath.Join(dir, "data")
	return s
}

// node is a key server that trusts another key server.
type node struct {
	site
	server  *program.Server
	address atomic.Pointer[string]
	admin   *client.Client
	log     ledger.AuditLog
}

// newNode starts a key server. If its system id is n, its address is 127.0.0.n.
func newNode(t *testing.T, system int, at site) *node {
	t.Helper()
	host := "127.0.0." + strconv.Itoa(system)
	external := rig.FreeAddress(t, host) // peers need a permanent address
	at.args = append(at.args, "--system-id", strconv.Itoa(system), "--server-name", host, "--external-listen", external)
	n := &node{site: at}
	n.start(t)
	password, err := n.server.Password()
	if err != nil {
		t.Fatal(err)
	}
	n.admin = program.Client(t, n.transport(t), "admin", password, 5)
	return n
}

func (n *node) start(t *testing.T) {
	t.Helper()
	n.server = n.serve(t)
	n.address.Store(&n.server.Address)
}

func (n *node) transport(t *testing.T) *http.Transport {
	t.Helper()
	return program.Connect(t, n.dir, func() string { return *n.address.Load() })
}

// pair is two key servers, and a principal of asked, which gets all requests.
type pair struct {
	asked, owner *node
	caller       schema.ACLRevokeRequest // the principal in ACL entries
	requests     *ledger.Requests        // requests of its clients
	clients      []*client.Client        // clients of the principal
	local        schema.HiddenLink       // a key of asked
	unlimited    *sharedKey
	limited      *sharedKey // new in each round
}

// sharedKey is a key of the owner that the principal of asked may use.
type sharedKey struct {
	link     schema.HiddenLink
	material []byte
	limit    int64 // maximum number of uses; -1 for none
	answered atomic.Int64
	lost     atomic.Int64 // uses with an unknown outcome
}

const (
	callers      = 12
	callerSecret = "the caller's password"
)

func newPair(t *testing.T, r *rand.Rand, asked, owner *node) *pair {
	t.Helper()
	p := &pair{asked: asked, owner: owner}
	program.Trust(t, p.asked.admin, p.owner.admin)
	program.Trust(t, p.owner.admin, p.asked.admin)
	made, err := p.asked.admin.CreatePasswordPrincipal(t.Context(), schema.CreatePasswordPrincipalRequest{
		Name: "caller", Password: callerSecret, RoleIDs: []schema.HexID{{7: 3}}, // Encryptor
	})
	if err != nil {
		t.Fatal(err)
	}
	p.caller = schema.ACLRevokeRequest{SystemID: made.Principal.SystemID, PrincipalID: made.Principal.PrincipalID}
	_, err = p.asked.admin.CreatePrincipalTrust(t.Context(), schema.CreatePrincipalTrustRequest{
		PrincipalID: made.Principal.ID, TrustedServerSystemID: 3, Flag: "expose",
	})
	if err != nil {
		t.Fatal(err)
	}
	p.requests = ledger.NewRequests(fmt.Sprintf("forwarded-%x", r.Uint32()))
	over := p.requests.Transport(p.asked.transport(t))
	for range callers {
		c := program.Client(t, over, "caller", callerSecret, program.NoRetries)
		if _, err := c.GetCurrentSession(t.Context()); err != nil { // log in sequentially
			t.Fatal(err)
		}
		p.clients = append(p.clients, c)
	}
	local, err := p.clients[0].MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		t.Fatal(err)
	}
	p.local = local.TTag
	p.unlimited = p.shareKey(t, r, -1)
	return p
}

// shareKey creates a key of the owner and grants the principal its use.
func (p *pair) shareKey(t *testing.T, r *rand.Rand, limit int64) *sharedKey {
	t.Helper()
	k := &sharedKey{material: fmt.Appendf(nil, "material %x", r.Uint64()), limit: limit}
	made, err := p.owner.admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384", Material: (*schema.Base64)(&k.material)})
	if err == nil {
		k.link = made.TTag
		_, err = p.owner.admin.GrantACL(t.Context(), schema.ACLChangeRequest{
			TTag: k.link, SystemID: p.caller.SystemID, PrincipalID: p.caller.PrincipalID, Rights: 1, MaxUsage: &k.limit,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// load runs all clients, ends one of the key servers, and waits for the clients.
func (p *pair) load(t *testing.T, round int, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	var over, killed atomic.Bool
	var group sync.WaitGroup
	before := p.requests.Answered()
	for i, c := range p.clients {
		group.Go(func() {
			r := rand.New(rand.NewPCG(*seed, uint64(round)<<8|uint64(i)))
			for !over.Load() {
				err := p.step(ctx, r, c)
				if err == nil {
					continue
				}
				if !client.IsUnavailable(err) {
					t.Errorf("a client: %v", err)
				} else if !killed.Load() {
					t.Errorf("a client was left without an answer before the kill: %v", err)
				}
				over.Store(true)
			}
		})
	}
	for p.requests.Answered()-before < minAnswers && !over.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(upTo(rand.New(rand.NewPCG(*seed, uint64(round))), 400*time.Millisecond))
	killed.Store(true)
	end()
	over.Store(true)
	group.Wait()
	t.Logf("round %d: %d requests answered, %d of %d uses", round, p.requests.Answered()-before, p.limited.answered.Load(), p.limited.limit)
}

// step sends one request. Some requests are local, so that asked has more rows to write than the owner.
func (p *pair) step(ctx context.Context, r *rand.Rand, c *client.Client) error {
	key := p.unlimited
	switch r.IntN(4) {
	case 0:
		_, err := c.GetACL(ctx, schema.KeyRequest{TTag: p.local})
		return err
	case 1:
		key = p.limited
	}
	err := key.use(ctx, r, c)
	switch {
	case err == nil:
		key.answered.Add(1)
	case key.limit >= 0 && client.IsCode(err, "ACL_DENIED"): // no use is left
		return nil
	default:
		key.lost.Add(1)
	}
	return err
}

// use requests an HMAC, short or streamed, or authorization to use the key.
func (k *sharedKey) use(ctx context.Context, r *rand.Rand, c *client.Client) error {
	length := []int{0, 64, 150_000}[r.IntN(3)]
	if length == 0 {
		_, err := c.AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: k.link})
		return err
	}
	message := strings.Repeat(string([]byte{byte(r.Uint32())}), length)
	answer, err := c.HMAC(ctx, k.link, strings.NewReader(message))
	if err != nil {
		return err
	}
	if want := ledger.MAC(k.material, message); !bytes.Equal(answer.MAC, want) {
		return fmt.Errorf("the HMAC under %s is %x, want %x", k.link, answer.MAC, want)
	}
	return nil
}

// connections is the number of connections to a peer. They take calls alternately.
const connections = 2

// awaitPeer waits until requests to the peer succeed over every connection.
func (p *pair) awaitPeer(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	for inARow := 0; inARow < connections; inARow++ {
		_, err := p.clients[0].AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: p.unlimited.link})
		if err == nil {
			continue
		}
		if ctx.Err() != nil || !client.IsUnavailable(err) {
			t.Fatalf("the peer is not asked again: %v", err)
		}
		inARow = -1
		time.Sleep(50 * time.Millisecond)
	}
}

// check compares both key servers with the responses.
func (p *pair) check(t *testing.T, round int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	left := int64(0)
	for {
		_, err := p.clients[0].AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: p.limited.link})
		if client.IsCode(err, "ACL_DENIED") {
			break
		}
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		left++
	}
	counted, answered, lost := p.limited.limit-left, p.limited.answered.Load(), p.limited.lost.Load()
	if counted < answered || counted > answered+lost {
		t.Errorf("round %d: %d uses were counted, %d answered, %d neither answered nor refused", round, counted, answered, lost)
	}
	for _, n := range []*node{p.asked, p.owner} {
		n.verifyTrail(t)
		if err := n.log.Read(ctx, n.admin); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	ledger.Report(t, p.requests.Missing(&p.owner.log, "authorizeKey", "hmacData"))
	ledger.Report(t, p.requests.Missing(&p.asked.log))
	p.requests.Exclude()
}
