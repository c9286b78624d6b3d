package federation

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
)

// POST /api/keys/get for a foreign key needs a transport principal, as for any
// other; both sides see to that.
func TestForwardedMetadata(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		ttag := owner.mint(t, []byte("eleven byte"))
		plain := a.user(t, "plain", keyserver.RoleExchanger)
		agent := a.agent(t, "agent", keyserver.RoleExchanger)
		for _, u := range []user{plain, agent} {
			a.expose(t, u.id, b)
			owner.grant(t, ttag, u, "READ")
		}
		refusal := a.refused(t, plain.session, "POST", "/api/keys/get", object{"ttag": ttag}, http.StatusForbidden, "ACCESS_DENIED")
		if got := brief(a.rows(t, refusal.requestID)); got != "[readKeyMetadata refused notTransportPrincipal]" {
			t.Errorf("rows: %s", got)
		}
		got := a.ok(t, agent.session, "POST", "/api/keys/get", object{"ttag": ttag})
		if got.body["ttag"] != ttag || got.body["algorithm"] != "HMAC-SHA384" || got.body["keyBytes"] != 11.0 || got.body["algid"] != 1.0 || got.body["ivBytes"] != 0.0 {
			t.Errorf("metadata: %s", got.raw)
		}
		for _, s := range []*site{a, b} {
			if rows := brief(s.rows(t, got.requestID)); rows != "[readKeyMetadata allowed ]" {
				t.Errorf("at %d: %s", s.system, rows)
			}
		}
	})
}

// agent enrols a certificate and logs in with it.
func (s *site) agent(t testing.TB, name string, roles ...keyserver.ID) user {
	t.Helper()
	ca, err := pki.NewCA("CA of agents", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.ok(t, s.admin(t), "POST", "/api/trusted-cas", object{"certificate": base64.StdEncoding.EncodeToString(ca.Certificate.Raw)})
	holder := enginetest.NewAgent(t, ca, name, time.Now(), nil)
	var ids []string
	for _, r := range roles {
		ids = append(ids, r.Hex())
	}
	enrolled := s.ok(t, s.admin(t), "POST", "/api/certificates/enroll", object{
		"certificates": []string{base64.StdEncoding.EncodeToString(holder.Certificate.Raw)}, "roleIds": ids,
	})
	p := enrolled.list("principals")[0]
	over := *s
	over.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{holder.Certificate.Raw}, PrivateKey: holder.Key}},
	}}}
	t.Cleanup(over.http.CloseIdleConnections)
	session := over.ok(t, "", "POST", "/api/sessions", object{"method": "certificate"}).text("sessionId")
	return user{at: s, session: session, id: p["id"].(string), decimal: p["principalId"].(string)}
}
