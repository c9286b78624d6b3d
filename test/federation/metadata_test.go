package federation

import (
	"crypto/rand"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// POST /api/keys/get for a foreign key needs a transport principal, as for any
// other; both sides see to that.
func TestForwardedMetadata(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		ttag := owner.Mint(t, []byte("eleven byte"))
		plain := a.User(t, "plain", keyserver.RoleExchanger)
		agent := a.agent(t, "agent", keyserver.RoleExchanger)
		for _, u := range []rig.User{plain, agent} {
			a.Expose(t, u.ID, b.Site)
			owner.Grant(t, ttag, u, "READ")
		}
		refusal := a.Refused(t, plain.Session, "POST", "/api/keys/get", rig.Object{"ttag": ttag}, http.StatusForbidden, "ACCESS_DENIED")
		if got := rig.Trail(a.Rows(t, refusal.RequestID)); got != `["readKeyMetadata refused notTransportPrincipal"]` {
			t.Errorf("rows: %s", got)
		}
		got := agent.Site.OK(t, agent.Session, "POST", "/api/keys/get", rig.Object{"ttag": ttag})
		if got.Body["ttag"] != ttag || got.Body["algorithm"] != "HMAC-SHA384" || got.Body["keyBytes"] != 11.0 || got.Body["algid"] != 1.0 || got.Body["ivBytes"] != 0.0 {
			t.Errorf("metadata: %s", got.Raw)
		}
		for _, s := range []*site{a, b} {
			if rows := rig.Trail(s.Rows(t, got.RequestID)); rows != `["readKeyMetadata allowed"]` {
				t.Errorf("at %d: %s", s.System, rows)
			}
		}
	})
}

// agent enrols a certificate and logs in with it.
func (s *site) agent(t testing.TB, name string, roles ...keyserver.ID) rig.User {
	t.Helper()
	ca, err := pki.NewCA("CA of agents", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.TrustCA(t, ca.Certificate.Raw)
	holder := enginetest.NewAgent(t, ca, name, time.Now(), nil)
	over := s.client(t, tls.Certificate{Certificate: [][]byte{holder.Certificate.Raw}, PrivateKey: holder.Key})
	return s.Agent(t, holder.Certificate.Raw, over, roles...)
}
