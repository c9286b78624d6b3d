package federation

import (
	"context"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// A peer that is down is a 503 that says when to come back, and holds up
// nothing else; once it is up, it is asked again without anybody's help.
func TestPeerDown(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		caller := a.user(t, "caller", keyserver.RoleEncryptor)
		a.expose(t, caller.id, b)
		ttag, own := owner.mint(t, nil), caller.mint(t, nil)
		owner.grant(t, ttag, caller, "OWNER")
		ask := object{"ttag": ttag}
		a.ok(t, caller.session, "POST", "/api/keys/authorize", ask)

		b.Stop(t)
		calls := map[string]object{
			"/api/keys/authorize": ask, "/api/crypto/hmac": hmacOf(ttag, make([]byte, 300_000)), "/api/keys/acl/get": ask,
			"/api/keys/acl/grant": {"ttag": ttag, "systemId": a.system, "principalId": caller.decimal, "rights": []string{"READ"}},
		}
		for range 3 { // the breaker opens on the way
			for path, body := range calls {
				down := a.refused(t, caller.session, "POST", path, body, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
				if down.body["retryable"] != true || down.body["scope"] != "process" || down.header.Get("Retry-After") == "" {
					t.Errorf("%s: %s does not say when to come back", path, down.raw)
				}
			}
		}
		down := a.send(t, caller.session, "POST", "/api/keys/authorize", ask)
		if got := brief(a.rows(t, down.requestID)); got != "[authorizeKey allowed  authorizeKey failed peerUnavailable]" {
			t.Errorf("rows: %s", got)
		}
		a.ok(t, caller.session, "POST", "/api/keys/authorize", object{"ttag": own})
		if found := a.lookup(t, caller.session, pair(owner), pair(caller)).list("principals"); len(found) != 1 {
			t.Errorf("found %v", found)
		}

		b.Restart(t)
		soon(t, "the peer is asked again", func() bool {
			again, err := a.try(context.Background(), caller.session, "POST", "/api/keys/authorize", ask)
			return err == nil && again.status == http.StatusOK
		})
	})
}

// One hop: a key server does not pass on what a peer asks, so a key of a third
// key server that the caller's own does not know is nobody's.
func TestOneHop(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			a, b, c := open(t, 2, database(t)), open(t, 3, database(t)), open(t, 4, database(t))
			a.register(t, b)
			b.register(t, a)
			b.register(t, c)
			c.register(t, b)
			caller := a.user(t, "caller", keyserver.RoleExchanger)
			a.expose(t, caller.id, b)
			ttag := c.user(t, "owner", keyserver.RoleEncryptor).mint(t, nil)
			refusal := a.refused(t, caller.session, "POST", "/api/keys/authorize", object{"ttag": ttag}, http.StatusNotFound, "KEY_NOT_FOUND")
			for _, s := range []*site{b, c} {
				if rows := s.rows(t, refusal.requestID); len(rows) != 0 {
					t.Errorf("%d was asked: %s", s.system, brief(rows))
				}
			}
		})
	}
}
