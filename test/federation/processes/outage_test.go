package processes

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// A network loses all data of requests in one direction. The error tells the caller when to retry. The other direction
// and all other peers work.
func TestPartition(t *testing.T) {
	a, b, c := three(t, sqlite)
	ab, ba, ac := share(t, a, b, "there", "OWNER"), share(t, b, a, "back", "READ"), share(t, a, c, "beside", "READ")
	own := ab.caller.Mint(t, []byte(material))
	for _, p := range []pair{ab, ba, ac} {
		p.works(t)
	}
	a.links[b.System].hold(true, true)
	lost := a.begin(t, ab.caller.Session, "/api/keys/authorize", rig.Object{"ttag": ab.ttag})
	read := a.begin(t, ab.caller.Session, "/api/keys/acl/get", rig.Object{"ttag": ab.ttag})
	stream := a.begin(t, ab.caller.Session, "/api/crypto/hmac", hmacOf(ab.ttag, messageOf(largest)))
	ba.works(t)
	ac.works(t)
	a.OK(t, ab.caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": own})
	for _, p := range []*pending{lost, read, stream} {
		unavailable(t, p.wait(t))
	}
	if got, want := a.trail(t, lost.id), `["authorizeKey allowed" "authorizeKey failed peerUnavailable"]`; got != want {
		t.Errorf("where it was asked: %s, want %s", got, want)
	}
	if rows := b.Rows(t, lost.id); len(rows) != 0 {
		t.Errorf("the peer heard it: %v", rows)
	}
	found := a.OK(t, ab.caller.Session, "POST", "/api/principals/lookup", rig.Object{"principals": []rig.Object{
		{"systemId": b.System, "principalId": ab.owner.Decimal}, {"systemId": a.System, "principalId": ab.caller.Decimal},
	}})
	if list := found.List(t, "principals"); len(list) != 1 {
		t.Errorf("a lookup past the partition finds %v", found.Body)
	}
	a.links[b.System].hold(false, false)
	ab.works(t)
}

// A stopped process keeps its connections open and never responds.
func TestSlowPeer(t *testing.T) {
	a, b, c := three(t, sqlite)
	ab, ac := share(t, a, b, "slow", "OWNER"), share(t, a, c, "quick", "READ")
	guest := a.User(t, "guest", keyserver.RoleExchanger)
	ab.works(t)
	resume := b.server.Freeze(t)
	var asked []*pending
	for range 5 { // enough failures to open the circuit breaker
		asked = append(asked, a.begin(t, ab.caller.Session, "/api/keys/authorize", rig.Object{"ttag": ab.ttag}))
	}
	for _, p := range asked {
		unavailable(t, p.wait(t))
	}
	// While the circuit breaker is open, no request is sent. A later request is a trial: it fails and opens the breaker
	// again, for a longer time.
	var shut rig.Answer
	rig.Soon(t, "the breaker is open", func() bool {
		shut = ab.ask(t)
		unavailable(t, shut)
		return strings.Contains(shut.Field("detail"), "recent calls")
	})
	ac.works(t)
	resume()
	ab.works(t)
	if rows := b.Rows(t, shut.RequestID); len(rows) != 0 {
		t.Errorf("asked past the breaker: %v", rows)
	}

	// A change reads the ACL first. This request fails, and nothing is changed.
	resume = b.server.Freeze(t)
	change := a.begin(t, ab.caller.Session, "/api/keys/acl/grant", guest.Entry(ab.ttag, "READ"))
	unavailable(t, change.wait(t))
	resume()
	ab.works(t)
	if got := a.trail(t, change.id); !strings.HasSuffix(got, `"readACL failed peerUnavailable"]`) {
		t.Errorf("rows of the change: %s", got)
	}
}

// A peer is killed during a streamed or short call. No response is wrong, no change is incomplete, and the peer is used
// again after its restart.
func TestPeerKilledInMidCall(t *testing.T) { onEach(t, peerKilledInMidCall) }

func peerKilledInMidCall(t *testing.T, on database) {
	a, b, _ := three(t, on)
	ab := share(t, a, b, "killed", "OWNER")
	ab.works(t)
	counted := ab.owner.Mint(t, []byte(material))
	limited := ab.caller.Entry(counted, "READ")
	limited["maxUsage"] = 2
	b.OK(t, ab.owner.Session, "POST", "/api/keys/acl/grant", limited)

	// The held responses keep the flow-control windows closed, so that the message is still being sent.
	a.links[b.System].hold(false, true)
	stream := a.begin(t, ab.caller.Session, "/api/crypto/hmac", hmacOf(counted, messageOf(largest)))
	short := a.begin(t, ab.caller.Session, "/api/keys/authorize", rig.Object{"ttag": ab.ttag})
	rig.Soon(t, "the peer is at work", func() bool { return len(b.Rows(t, stream.id)) == 1 && len(b.Rows(t, short.id)) == 1 })
	b.server.Kill()
	a.links[b.System].cut() // also discards held responses
	a.links[b.System].hold(false, false)
	unavailable(t, stream.wait(t))
	unavailable(t, short.wait(t))
	whileDown(t, ab)

	b.start(t)
	rig.Within(t, prompt, "the peer is asked again", func() bool { return ab.ask(t).Status == http.StatusOK })
	ab.works(t)
	if got := b.trail(t, stream.id); got != `["hmacData allowed"]` {
		t.Errorf("the stream was asked again: %s", got)
	}
	if got := a.trail(t, stream.id); got != `["hmacData allowed" "hmacData failed peerUnavailable"]` {
		t.Errorf("where it was asked: %s", got)
	}
	// The limit is 2, and the killed call may have counted as a use.
	a.OK(t, ab.caller.Session, "POST", "/api/crypto/hmac", hmacOf(counted, messageOf(300_000)))
	used := 1
	for a.Send(t, ab.caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": counted}).Status == http.StatusOK {
		used++
	}
	if used > 2 {
		t.Errorf("a limit of 2 uses lets %d through", used)
	}
	for _, s := range []*site{a, b} {
		s.verifyTrail(t)
	}
}

// whileDown checks that each call for a key of a stopped peer fails, and that all other calls work.
func whileDown(t *testing.T, p pair) {
	t.Helper()
	a, call := p.from, p.caller.Session
	own := p.caller.Mint(t, []byte(material))
	var last rig.Answer
	for range 3 { // the circuit breaker opens during these calls
		for path, body := range map[string]rig.Object{
			"/api/keys/authorize": {"ttag": p.ttag}, "/api/crypto/hmac": hmacOf(p.ttag, messageOf(300_000)), "/api/keys/acl/get": {"ttag": p.ttag},
			"/api/keys/acl/grant": p.caller.Entry(p.ttag, "READ"),
		} {
			unavailable(t, a.Refused(t, call, "POST", path, body, http.StatusServiceUnavailable, "PEER_UNAVAILABLE"))
		}
		last = p.ask(t)
		unavailable(t, last)
	}
	if got := a.trail(t, last.RequestID); got != `["authorizeKey allowed" "authorizeKey failed peerUnavailable"]` {
		t.Errorf("rows: %s", got)
	}
	a.OK(t, call, "POST", "/api/keys/authorize", rig.Object{"ttag": own})
	found := a.OK(t, call, "POST", "/api/principals/lookup", rig.Object{"principals": []rig.Object{
		{"systemId": p.to.System, "principalId": p.owner.Decimal}, {"systemId": a.System, "principalId": p.caller.Decimal},
	}})
	if list := found.List(t, "principals"); len(list) != 1 {
		t.Errorf("a lookup at a peer that is down finds %v", found.Body)
	}
}

// If the response of a call is lost, the caller repeats the call with its call key, and it takes effect once. A call
// without a call key is not repeated.
func TestAnswerLost(t *testing.T) { onEach(t, answerLost) }

func answerLost(t *testing.T, on database) {
	a, b, _ := three(t, on)
	ab := share(t, a, b, "lost", "OWNER")
	ab.works(t)
	over := a.links[b.System]
	// lose makes a request whose response the network loses after the peer has executed it.
	lose := func(t *testing.T, path string, body rig.Object, done func(id string) bool) *pending {
		t.Helper()
		over.hold(false, true)
		p := a.begin(t, ab.caller.Session, path, body)
		rig.Soon(t, "the peer does it", func() bool { return done(p.id) })
		return p
	}
	heard := func(operation string) func(string) bool {
		return func(id string) bool { return strings.Contains(b.trail(t, id), operation) }
	}
	limited := func(t *testing.T) string {
		t.Helper()
		ttag := ab.owner.Mint(t, []byte(material))
		once := ab.caller.Entry(ttag, "READ")
		once["maxUsage"] = 1
		b.OK(t, ab.owner.Session, "POST", "/api/keys/acl/grant", once)
		return ttag
	}

	t.Run("UseIsRepeatedAndCountsOnce", func(t *testing.T) {
		ttag := limited(t)
		p := lose(t, "/api/keys/authorize", rig.Object{"ttag": ttag}, heard("authorizeKey"))
		over.cut()
		over.hold(false, false)
		if out := p.wait(t); out.Status != http.StatusOK {
			t.Errorf("repeated: %d %v", out.Status, out.Body)
		}
		if got, want := b.trail(t, p.id), `["authorizeKey allowed" "authorizeKey allowed"]`; got != want {
			t.Errorf("where the key is: %s, want %s", got, want)
		}
		a.Refused(t, ab.caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag}, http.StatusForbidden, "ACL_DENIED")
	})
	t.Run("StreamIsNotRepeated", func(t *testing.T) {
		ttag := limited(t)
		p := lose(t, "/api/crypto/hmac", hmacOf(ttag, messageOf(150_000)), heard("hmacData"))
		over.cut()
		over.hold(false, false)
		unavailable(t, p.wait(t))
		if got := b.trail(t, p.id); got != `["hmacData allowed"]` {
			t.Errorf("where the key is: %s", got)
		}
		ab.works(t)
	})
	// A change reads, writes and reads. The link passes responses until the peer executes the write.
	change := func(t *testing.T, of rig.User) *pending {
		t.Helper()
		_, cursor := b.Changes(t, b.AsAdmin(t), "0")
		over.hold(false, true)
		p := a.begin(t, ab.caller.Session, "/api/keys/acl/grant", of.Entry(ab.ttag, "READ"))
		var pulsed time.Time // the peer gets time to execute the write, so that no pulse forwards its response
		rig.Soon(t, "the peer makes the change", func() bool {
			if time.Since(pulsed) > 300*time.Millisecond && !heard("amendACL")(p.id) {
				over.pulse()
				pulsed = time.Now()
			}
			return keyChanges(t, b, cursor) > 0
		})
		return p
	}
	t.Run("ChangeIsRepeatedAndMadeOnce", func(t *testing.T) {
		_, cursor := b.Changes(t, b.AsAdmin(t), "0")
		p := change(t, a.User(t, "guest", keyserver.RoleExchanger))
		over.cut()
		over.hold(false, false)
		if out := p.wait(t); out.Status != http.StatusOK || out.Body["verified"] != true {
			t.Errorf("repeated: %d %v", out.Status, out.Body)
		}
		if got, want := b.trail(t, p.id), `["readACL allowed" "amendACL allowed" "amendACL allowed" "readACL allowed"]`; got != want {
			t.Errorf("where the key is: %s, want %s", got, want)
		}
		if n := keyChanges(t, b, cursor); n != 1 {
			t.Errorf("the list changed %d times", n)
		}
		ab.works(t)
	})
	// A call that times out is not repeated, and its response does not claim that nothing changed.
	t.Run("ChangeWithoutAnswer", func(t *testing.T) {
		guest := a.User(t, "another guest", keyserver.RoleExchanger)
		p := change(t, guest)
		if out := p.wait(t); out.Status != http.StatusGatewayTimeout || out.Code() != "PEER_NO_ANSWER" {
			t.Errorf("no answer: %d %v", out.Status, out.Body)
		}
		if got, want := b.trail(t, p.id), `["readACL allowed" "amendACL allowed"]`; got != want {
			t.Errorf("where the key is: %s, want %s", got, want)
		}
		over.hold(false, false)
		ab.works(t)
		if again := a.OK(t, ab.caller.Session, "POST", "/api/keys/acl/get", rig.Object{"ttag": ab.ttag}); !lists(again, guest) {
			t.Errorf("the change is not in the list: %v", again.Body)
		}
	})
}

// keyChanges counts changes of keys and ACLs after a cursor of the change feed.
func keyChanges(t *testing.T, s *site, cursor string) (n int) {
	t.Helper()
	changes, _ := s.Changes(t, s.AsAdmin(t), cursor)
	for _, c := range changes {
		if c["kind"] == "key" {
			n++
		}
	}
	return n
}

// lists reports whether a response of the ACL routes has an entry of a principal.
func lists(a rig.Answer, of rig.User) bool {
	acl, _ := a.Body["acl"].(rig.Object)
	entries, _ := acl["entries"].([]any)
	return slices.ContainsFunc(entries, func(e any) bool {
		o, _ := e.(rig.Object)
		return o["principalId"] == of.Decimal && rig.Number(o["systemId"]) == rig.Number(float64(of.Site.System))
	})
}
