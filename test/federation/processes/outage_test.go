package processes

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A network that swallows everything, in one direction of asking: who asks is
// told when to come back, the other direction works, and so does everybody else.
func TestPartition(t *testing.T) {
	a, b, c := three(t, sqlite)
	ab, ba, ac := share(t, a, b, "there", "OWNER"), share(t, b, a, "back", "READ"), share(t, a, c, "beside", "READ")
	own := ab.caller.mint(t, material)
	for _, p := range []pair{ab, ba, ac} {
		p.works(t)
	}
	a.links[b.system].hold(true, true)
	lost := a.begin(t, ab.caller.session, "/api/keys/authorize", object{"ttag": ab.ttag})
	read := a.begin(t, ab.caller.session, "/api/keys/acl/get", object{"ttag": ab.ttag})
	stream := a.begin(t, ab.caller.session, "/api/crypto/hmac", hmacOf(ab.ttag, messageOf(largest)))
	ba.works(t)
	ac.works(t)
	a.ok(t, ab.caller.session, "POST", "/api/keys/authorize", object{"ttag": own})
	for _, p := range []*pending{lost, read, stream} {
		unavailable(t, p.wait(t))
	}
	if got, want := a.trail(t, lost.id), `["authorizeKey allowed" "authorizeKey failed peerUnavailable"]`; got != want {
		t.Errorf("where it was asked: %s, want %s", got, want)
	}
	if rows := b.rows(t, lost.id); len(rows) != 0 {
		t.Errorf("the peer heard it: %v", rows)
	}
	found := a.ok(t, ab.caller.session, "POST", "/api/principals/lookup", object{"principals": []object{
		{"systemId": b.system, "principalId": ab.owner.decimal}, {"systemId": a.system, "principalId": ab.caller.decimal},
	}})
	if list := found.list("principals"); len(list) != 1 {
		t.Errorf("a lookup past the partition finds %v", found.body)
	}
	a.links[b.system].hold(false, false)
	ab.works(t)
}

// A peer that is stopped, with its connections open, is slow for ever.
func TestSlowPeer(t *testing.T) {
	a, b, c := three(t, sqlite)
	ab, ac := share(t, a, b, "slow", "OWNER"), share(t, a, c, "quick", "READ")
	guest := a.user(t, "guest", exchanger)
	ab.works(t)
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(b.server.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(b.server.PID(), syscall.SIGCONT) })
	var asked []*pending
	for range 5 { // as many failures as open the breaker
		asked = append(asked, a.begin(t, ab.caller.session, "/api/keys/authorize", object{"ttag": ab.ttag}))
	}
	for _, p := range asked {
		unavailable(t, p.wait(t))
	}
	// Nothing is sent while the breaker is open. Who comes too late for that is
	// the call that tries, which fails and opens it again, for longer.
	var shut answer
	soon(t, "the breaker is open", func() bool {
		shut = ab.ask(t)
		unavailable(t, shut)
		return strings.Contains(shut.text("detail"), "a moment ago")
	})
	ac.works(t)
	signal(syscall.SIGCONT)
	ab.works(t)
	if rows := b.rows(t, shut.requestID); len(rows) != 0 {
		t.Errorf("asked past the breaker: %v", rows)
	}

	// A change reads the list first, which changes nothing.
	signal(syscall.SIGSTOP)
	change := a.begin(t, ab.caller.session, "/api/keys/acl/grant", entry(ab.ttag, guest, "READ"))
	unavailable(t, change.wait(t))
	signal(syscall.SIGCONT)
	ab.works(t)
	if got := a.trail(t, change.id); !strings.HasSuffix(got, `"readACL failed peerUnavailable"]`) {
		t.Errorf("rows of the change: %s", got)
	}
}

// A peer that is killed in mid-call, by the stream and by the short call: no
// wrong answer, nothing half done, and it is asked again once it is back.
func TestPeerKilledInMidCall(t *testing.T) { onEach(t, peerKilledInMidCall) }

func peerKilledInMidCall(t *testing.T, on database) {
	a, b, _ := three(t, on)
	ab := share(t, a, b, "killed", "OWNER")
	ab.works(t)
	counted := ab.owner.mint(t, material)
	limited := entry(counted, ab.caller, "READ")
	limited["maxUsage"] = 2
	b.ok(t, ab.owner.session, "POST", "/api/keys/acl/grant", limited)

	// Its windows are used up and not renewed: the message is on its way.
	a.links[b.system].hold(false, true)
	stream := a.begin(t, ab.caller.session, "/api/crypto/hmac", hmacOf(counted, messageOf(largest)))
	short := a.begin(t, ab.caller.session, "/api/keys/authorize", object{"ttag": ab.ttag})
	soon(t, "the peer is at work", func() bool { return len(b.rows(t, stream.id)) == 1 && len(b.rows(t, short.id)) == 1 })
	b.server.Kill()
	a.links[b.system].cut() // with whatever it had answered
	a.links[b.system].hold(false, false)
	unavailable(t, stream.wait(t))
	unavailable(t, short.wait(t))

	b.start(t)
	ab.works(t)
	if got := b.trail(t, stream.id); got != `["hmacData allowed"]` {
		t.Errorf("the stream was asked again: %s", got)
	}
	if got := a.trail(t, stream.id); got != `["hmacData allowed" "hmacData failed peerUnavailable"]` {
		t.Errorf("where it was asked: %s", got)
	}
	// At most the one use was counted, so one is left; two at most.
	a.ok(t, ab.caller.session, "POST", "/api/crypto/hmac", hmacOf(counted, messageOf(300_000)))
	used := 1
	for a.send(t, ab.caller.session, "POST", "/api/keys/authorize", object{"ttag": counted}).status == http.StatusOK {
		used++
	}
	if used > 2 {
		t.Errorf("a limit of 2 uses lets %d through", used)
	}
	for _, s := range []*site{a, b} {
		s.verifyTrail(t)
	}
}

// What may have had an effect is repeated under its key, and has it once; what
// carries no key is not repeated.
func TestAnswerLost(t *testing.T) { onEach(t, answerLost) }

func answerLost(t *testing.T, on database) {
	a, b, _ := three(t, on)
	ab := share(t, a, b, "lost", "OWNER")
	ab.works(t)
	over := a.links[b.system]
	// lose makes a request whose answer the network loses once the peer has
	// done what the request asks for.
	lose := func(t *testing.T, path string, body object, done func(id string) bool) *pending {
		t.Helper()
		over.hold(false, true)
		p := a.begin(t, ab.caller.session, path, body)
		soon(t, "the peer does it", func() bool { return done(p.id) })
		return p
	}
	heard := func(operation string) func(string) bool {
		return func(id string) bool { return strings.Contains(b.trail(t, id), operation) }
	}
	limited := func(t *testing.T) string {
		t.Helper()
		ttag := ab.owner.mint(t, material)
		once := entry(ttag, ab.caller, "READ")
		once["maxUsage"] = 1
		b.ok(t, ab.owner.session, "POST", "/api/keys/acl/grant", once)
		return ttag
	}

	t.Run("UseIsRepeatedAndCountsOnce", func(t *testing.T) {
		ttag := limited(t)
		p := lose(t, "/api/keys/authorize", object{"ttag": ttag}, heard("authorizeKey"))
		over.cut()
		over.hold(false, false)
		if out := p.wait(t); out.status != http.StatusOK {
			t.Errorf("repeated: %d %v", out.status, out.body)
		}
		if got, want := b.trail(t, p.id), `["authorizeKey allowed" "authorizeKey allowed"]`; got != want {
			t.Errorf("where the key is: %s, want %s", got, want)
		}
		a.refused(t, ab.caller.session, "/api/keys/authorize", object{"ttag": ttag}, "ACL_DENIED")
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
	// A change is read, made and read: the link lets answers through until the
	// peer is at the change.
	change := func(t *testing.T, of user) *pending {
		t.Helper()
		cursor := feed(t, b)
		over.hold(false, true)
		p := a.begin(t, ab.caller.session, "/api/keys/acl/grant", entry(ab.ttag, of, "READ"))
		soon(t, "the peer makes the change", func() bool {
			if !heard("amendACL")(p.id) {
				over.pulse()
			}
			return keyChanges(t, b, cursor) > 0
		})
		return p
	}
	t.Run("ChangeIsRepeatedAndMadeOnce", func(t *testing.T) {
		cursor := feed(t, b)
		p := change(t, a.user(t, "guest", exchanger))
		over.cut()
		over.hold(false, false)
		if out := p.wait(t); out.status != http.StatusOK || out.body["verified"] != true {
			t.Errorf("repeated: %d %v", out.status, out.body)
		}
		if got, want := b.trail(t, p.id), `["readACL allowed" "amendACL allowed" "amendACL allowed" "readACL allowed"]`; got != want {
			t.Errorf("where the key is: %s, want %s", got, want)
		}
		if n := keyChanges(t, b, cursor); n != 1 {
			t.Errorf("the list changed %d times", n)
		}
		ab.works(t)
	})
	// Slow is not broken: nothing is repeated, and nobody is told that nothing
	// was changed.
	t.Run("ChangeWithoutAnswer", func(t *testing.T) {
		guest := a.user(t, "another guest", exchanger)
		p := change(t, guest)
		if out := p.wait(t); out.status != http.StatusGatewayTimeout || out.text("code") != "PEER_NO_ANSWER" {
			t.Errorf("no answer: %d %v", out.status, out.body)
		}
		if got, want := b.trail(t, p.id), `["readACL allowed" "amendACL allowed"]`; got != want {
			t.Errorf("where the key is: %s, want %s", got, want)
		}
		over.hold(false, false)
		ab.works(t)
		if again := a.ok(t, ab.caller.session, "POST", "/api/keys/acl/get", object{"ttag": ab.ttag}); !lists(again, guest) {
			t.Errorf("the change is not in the list: %v", again.body)
		}
	})
}

// feed is the cursor behind the last change.
func feed(t *testing.T, s *site) string {
	t.Helper()
	return number(s.ok(t, s.admin, "GET", "/api/changes?after=0", nil).body["cursor"])
}

// keyChanges counts the changes of keys and their lists after a cursor.
func keyChanges(t *testing.T, s *site, cursor string) (n int) {
	t.Helper()
	for _, c := range s.ok(t, s.admin, "GET", "/api/changes?after="+cursor, nil).list("changes") {
		if c["kind"] == "key" {
			n++
		}
	}
	return n
}

// lists reports whether an answer of the ACL routes has an entry of somebody.
func lists(a answer, of user) bool {
	acl, _ := a.body["acl"].(object)
	entries, _ := acl["entries"].([]any)
	return slices.ContainsFunc(entries, func(e any) bool {
		o, _ := e.(object)
		return o["principalId"] == of.decimal && number(o["systemId"]) == number(float64(of.at.system))
	})
}
