package peer

import (
	"crypto/rand"
	"crypto/x509"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// heir is a peer with a sequence of CAs. Each CA has a link from the previous CA.
type heir struct {
	own   []pki.Identity // one certificate from each CA, all with the same key
	cas   []pki.Identity
	links []*x509.Certificate // links[i] has the key of cas[i+1] and is signed by cas[i]
}

func newHeir(t *testing.T, generations int) heir {
	t.Helper()
	var h heir
	now := time.Now()
	for i := range generations {
		ca, err := pki.NewCA("CA "+string(rune('1'+i)), now, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		key := pki.Identity{}
		if i > 0 {
			key = h.own[0]
			link, err := h.cas[i-1].Link(ca.Certificate, now, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			h.links = append(h.links, link)
		}
		own, err := ca.IssueServer("key server", nil, key.Key, now, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		h.cas, h.own = append(h.cas, ca), append(h.own, own)
	}
	return h
}

// told lets a registry learn from a chain of the peer: its certificate from CA n, that CA, and chain.
func (h heir) told(t *testing.T, r *registry, n int, chain ...*x509.Certificate) []keyserver.PeerAuthority {
	t.Helper()
	known, err := load(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	chain = append([]*x509.Certificate{h.own[n].Certificate, h.cas[n].Certificate}, chain...)
	who, _, err := known.identify(chain, x509.ExtKeyUsageServerAuth, time.Now())
	if err != nil {
		t.Fatalf("generation %d: %v", n, err)
	}
	learned, err := known.newAuthorities(t.Context(), r, who, chain, time.Now())
	if err != nil {
		return nil
	}
	if err := r.LearnAuthorities(t.Context(), who, learned); err != nil {
		t.Fatal(err)
	}
	return learned
}

// letIn returns an error if the peer's certificate from CA n is not accepted without links.
func (h heir) letIn(t *testing.T, r *registry, n int, at time.Time) error {
	t.Helper()
	known, err := load(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	_, ways, err := known.identify([]*x509.Certificate{h.own[n].Certificate, h.cas[n].Certificate}, x509.ExtKeyUsageServerAuth, at)
	if err != nil {
		return err
	}
	return known.notRevoked(t.Context(), r, ways)
}

func (h heir) known() *registry {
	r := &registry{}
	r.trust(identity{h.cas[0], h.own[0]}, 2, netip.MustParseAddrPort("192.0.2.1:9443"))
	return r
}

// TestSuccessors checks that the next CA of a peer is learned before it issues certificates. Later it counts without
// links, over any number of CAs.
func TestSuccessors(t *testing.T) {
	h := newHeir(t, 4)
	r := h.known()
	for n := range 3 {
		if err := h.letIn(t, r, n+1, time.Now()); err == nil || !strings.Contains(err.Error(), "GET /api/trust/local-info") {
			t.Fatalf("generation %d before it was heard of: %v", n+1, err)
		}
		if learned := h.told(t, r, n, h.cas[n+1].Certificate, h.links[n]); len(learned) != 1 {
			t.Fatalf("generation %d: learned %d", n, len(learned))
		}
		if again := h.told(t, r, n, h.cas[n+1].Certificate, h.links[n]); len(again) != 0 {
			t.Errorf("generation %d: learned again", n)
		}
		if err := h.letIn(t, r, n+1, time.Now()); err != nil {
			t.Fatalf("generation %d: %v", n+1, err)
		}
	}
	if want := keyserver.DigestOf(h.cas[0].Certificate.Raw); r.learned[2].Anchor != want {
		t.Error("the anchor is not the CA of the list")
	}
	r.cas = nil
	for n := range 4 {
		if h.letIn(t, r, n, time.Now()) == nil {
			t.Errorf("generation %d is let in after the CA was taken out", n)
		}
	}
}

// TestSuccessorsAfterAnAbsence checks that a key server that missed several changes learns all CAs from the links,
// while the CA that it trusts has not expired.
func TestSuccessorsAfterAnAbsence(t *testing.T) {
	h := newHeir(t, 3)
	r := h.known()
	if learned := h.told(t, r, 2, h.links[1], h.links[0]); len(learned) != 1 {
		t.Fatalf("learned %d", len(learned))
	}
	if err := h.letIn(t, r, 2, time.Now()); err != nil {
		t.Error(err)
	}
}

// TestSuccessorsOfAnotherPeer checks that a CA counts only for the peer from which it was learned.
func TestSuccessorsOfAnotherPeer(t *testing.T) {
	h := newHeir(t, 2)
	r := h.known()
	h.told(t, r, 0, h.cas[1].Certificate, h.links[0])
	other, err := h.cas[1].IssueServer("key server", nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.servers = append(r.servers, keyserver.TrustedServer{System: 3, Certificate: keyserver.Certificate{DER: other.Certificate.Raw}})
	another := heir{own: []pki.Identity{{}, other}, cas: h.cas}
	if err := another.letIn(t, r, 1, time.Now()); err == nil {
		t.Error("a peer is let in by the authority of another one")
	}
}

// TestSuccessorsThatNobodyVouchesFor checks that a CA is not learned without a link from a trusted CA.
func TestSuccessorsThatNobodyVouchesFor(t *testing.T) {
	h, stranger := newHeir(t, 3), newHeir(t, 2)
	weak := subordinate(t, h.cas[0], h.cas[1])
	cases := map[string]struct {
		chain   []*x509.Certificate
		revoked string
	}{
		"NoLink":        {chain: []*x509.Certificate{h.cas[1].Certificate}},
		"NoRoot":        {chain: []*x509.Certificate{h.links[0]}},
		"LinkOfOther":   {chain: []*x509.Certificate{h.cas[1].Certificate, stranger.links[0]}},
		"LinkByOther":   {chain: []*x509.Certificate{stranger.cas[1].Certificate, stranger.links[0]}},
		"OtherName":     {chain: []*x509.Certificate{h.cas[1].Certificate, weak.Certificate}},
		"MissingLink":   {chain: []*x509.Certificate{h.cas[2].Certificate, h.links[1]}},
		"RevokedLink":   {chain: []*x509.Certificate{h.cas[1].Certificate, h.links[0]}, revoked: named(h.links[0], h.cas[0].Certificate)},
		"CAThatIsKnown": {chain: []*x509.Certificate{h.cas[0].Certificate}},
	}
	for name, tc := range cases {
		r := h.known()
		r.revoked = map[string]string{tc.revoked: "it is revoked"}
		if learned := h.told(t, r, 0, tc.chain...); len(learned) != 0 {
			t.Errorf("%s: learned %d", name, len(learned))
		}
	}
	// When a link is revoked later, the CA that was learned with it is not accepted any more.
	r := h.known()
	h.told(t, r, 0, h.cas[1].Certificate, h.links[0])
	r.revoked = map[string]string{named(h.links[0], h.cas[0].Certificate): "it is revoked"}
	if h.letIn(t, r, 1, time.Now()) == nil {
		t.Error("let in by a link that is revoked")
	}
}
