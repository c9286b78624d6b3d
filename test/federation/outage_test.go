package federation

import (
	"context"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// A peer that is down is a 503 that says when to come back, and holds up
// nothing else; once it is up, it is asked again without anybody's help.
func TestPeerDown(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleEncryptor)
		a.Expose(t, caller.ID, b.Site)
		ttag, own := owner.Mint(t, nil), caller.Mint(t, nil)
		owner.Grant(t, ttag, caller, "OWNER")
		ask := rig.Object{"ttag": ttag}
		a.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)

		b.Stop(t)
		calls := map[string]rig.Object{
			"/api/keys/authorize": ask, "/api/crypto/hmac": hmacOf(ttag, make([]byte, 300_000)), "/api/keys/acl/get": ask,
			"/api/keys/acl/grant": {"ttag": ttag, "systemId": a.System, "principalId": caller.Decimal, "rights": []string{"READ"}},
		}
		for range 3 { // the breaker opens on the way
			for path, body := range calls {
				down := a.Refused(t, caller.Session, "POST", path, body, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
				if down.Body["retryable"] != true || down.Body["scope"] != "process" || down.Header.Get("Retry-After") == "" {
					t.Errorf("%s: %s does not say when to come back", path, down.Raw)
				}
			}
		}
		down := a.Send(t, caller.Session, "POST", "/api/keys/authorize", ask)
		if got := rig.Trail(a.Rows(t, down.RequestID)); got != `["authorizeKey allowed" "authorizeKey failed peerUnavailable"]` {
			t.Errorf("rows: %s", got)
		}
		a.OK(t, caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": own})
		if found := a.lookup(t, caller.Session, pair(owner), pair(caller)).List(t, "principals"); len(found) != 1 {
			t.Errorf("found %v", found)
		}

		b.Restart(t)
		rig.Within(t, prompt, "the peer is asked again", func() bool {
			again, err := a.Try(context.Background(), rig.Request{Session: caller.Session, Method: "POST", Path: "/api/keys/authorize", Body: ask})
			return err == nil && again.Status == http.StatusOK
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
			caller := a.User(t, "caller", keyserver.RoleExchanger)
			a.Expose(t, caller.ID, b.Site)
			ttag := c.User(t, "owner", keyserver.RoleEncryptor).Mint(t, nil)
			refusal := a.Refused(t, caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag}, http.StatusNotFound, "KEY_NOT_FOUND")
			for _, s := range []*site{b, c} {
				if rows := s.Rows(t, refusal.RequestID); len(rows) != 0 {
					t.Errorf("%d was asked: %s", s.System, rig.Trail(rows))
				}
			}
		})
	}
}
