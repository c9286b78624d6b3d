package contract

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// stated returns the CAs of a response by their state.
func stated(t testing.TB, a rig.Answer) map[string]rig.Object {
	t.Helper()
	all := map[string]rig.Object{}
	for _, o := range a.List(t, "authorities") {
		all[o["state"].(string)] = o
	}
	return all
}

// published returns the certificates in ca.crt as base64.
func published(t testing.TB, s *testserver.Server) (list []string) {
	t.Helper()
	for text := s.CA(t); ; {
		block, rest := pem.Decode(text)
		if block == nil {
			return list
		}
		list, text = append(list, b64(block.Bytes)), rest
	}
}

// shown returns the server certificate and the CA certificates that the server sends in a handshake.
func shown(t testing.TB, s *testserver.Server) []*x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: s.Pool(t), ServerName: "localhost", MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates
}

// TestAuthority checks /api/authority. Clients trust the next CA before it issues certificates, and the previous CA
// until it is retired.
func TestAuthority(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		const path = "/api/authority"
		list := s.OK(t, admin, "GET", path, nil)
		first := stated(t, list)["active"]
		if len(list.List(t, "authorities")) != 1 || first["certificate"] != b64(internalCA(t, s).Raw) {
			t.Fatalf("at first: %s", list.Raw)
		}
		s.Refused(t, admin, "POST", path+"/activate", rig.Object{}, http.StatusConflict, "AUTHORITY_STATE")
		s.Refused(t, admin, "POST", path+"/retire", rig.Object{"certificateId": first["certificateId"]}, http.StatusConflict, "AUTHORITY_STATE")
		s.Refused(t, admin, "POST", path+"/retire", rig.Object{"certificateId": "AAAAAAAAAAE="}, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "POST", path+"/retire", rig.Object{}, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, admin, "POST", path+"/activate", rig.Object{"early": "yes"}, http.StatusBadRequest, "BAD_REQUEST")

		prepared := s.OK(t, admin, "POST", path+"/prepare", nil)
		next := stated(t, prepared)["prepared"]
		if prepared.Body["saved"] != true || prepared.Body["certificateId"] != next["certificateId"] || next["activatedAt"] != nil {
			t.Fatalf("prepared: %s", prepared.Raw)
		}
		s.Refused(t, admin, "POST", path+"/prepare", nil, http.StatusConflict, "AUTHORITY_STATE")
		if a := s.Refused(t, admin, "POST", path+"/activate", rig.Object{}, http.StatusConflict, "AUTHORITY_STATE"); !strings.Contains(string(a.Raw), "early") {
			t.Errorf("too soon: %s", a.Raw)
		}
		rig.Soon(t, "ca.crt has both, the one that issues first", func() bool {
			p := published(t, s.Server)
			return len(p) == 2 && p[0] == first["certificate"] && p[1] == next["certificate"]
		})
		agent := enginetest.NewRequest(t, s.name("agent"), newKey(t))
		issued := s.OK(t, admin, "POST", "/api/certificates", rig.Object{"request": b64(agent)}).Text(t, "certificate")
		s.OK(t, admin, "POST", "/api/certificates/enroll", rig.Object{"certificates": []string{issued}})

		activated := s.OK(t, admin, "POST", path+"/activate", rig.Object{"early": true})
		all := stated(t, activated)
		if activated.Body["saved"] != true || activated.Body["certificateId"] != next["certificateId"] || all["active"]["certificate"] != next["certificate"] ||
			all["retiring"]["certificateId"] != first["certificateId"] || all["retiring"]["retiringAt"] == nil {
			t.Fatalf("activated: %s", activated.Raw)
		}
		rig.Soon(t, "the server shows a certificate of the new one, by the link of the former", func() bool {
			chain := shown(t, s.Server)
			return len(chain) == 2 && b64(chain[1].Raw) != next["certificate"] && chain[0].CheckSignatureFrom(chain[1]) == nil &&
				chain[1].CheckSignatureFrom(parsed(t, first["certificate"])) == nil
		})
		if again := s.OK(t, admin, "POST", "/api/certificates", rig.Object{"request": b64(enginetest.NewRequest(t, s.name("second"), newKey(t)))}).Text(t, "certificate"); parsed(t, again).CheckSignatureFrom(parsed(t, next["certificate"])) != nil {
			t.Error("the former one has issued it")
		}

		retired := s.OK(t, admin, "POST", path+"/retire", rig.Object{"certificateId": first["certificateId"]})
		if retired.Body["gone"] != true || len(retired.List(t, "authorities")) != 1 || !strings.Contains(retired.Text(t, "detail"), "1 certificate that it issued") {
			t.Errorf("retired: %s", retired.Raw)
		}
		rig.Soon(t, "ca.crt has one", func() bool { p := published(t, s.Server); return len(p) == 1 && p[0] == next["certificate"] })
		s.Refused(t, admin, "POST", "/api/certificates/enroll", rig.Object{"certificates": []string{b64(enginetest.NewAgent(t, newCA(t, s.name("nobody")), s.name("x"), time.Now(), nil).Certificate.Raw)}}, 400, "INVALID_ARGUMENT")
		renewed := s.OK(t, admin, "POST", "/api/certificates/renew", rig.Object{"certificate": issued}).Text(t, "chain")
		der, err := base64.StdEncoding.DecodeString(renewed)
		rig.Must(t, err)
		chain, err := pki.ParseChain(der)
		if err != nil || chain.Leaf.CheckSignatureFrom(parsed(t, next["certificate"])) != nil {
			t.Errorf("renewed by another one: %v", err)
		}
		var feed []string
		changes, _ := s.Changes(t, admin, "0")
		for _, c := range changes {
			if c["kind"] == "authority" {
				feed = append(feed, c["action"].(string))
			}
		}
		if got := strings.Join(feed, " "); !strings.HasSuffix(got, "created updated updated deleted") {
			t.Errorf("the change feed has %s", got)
		}
	})
}

// TestARetiredAuthorityVouchesForNothing checks certificates of a retired CA. Logins with them fail, and their open
// connections are closed.
func TestARetiredAuthorityVouchesForNothing(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		admin, key := s.AsAdmin(t), newKey(t)
		first := stated(t, s.OK(t, admin, "GET", "/api/authority", nil))["active"]["certificateId"]
		issued := s.OK(t, admin, "POST", "/api/certificates", rig.Object{"request": b64(enginetest.NewRequest(t, s.name("agent"), key))}).Text(t, "certificate")
		s.OK(t, admin, "POST", "/api/certificates/enroll", rig.Object{"certificates": []string{issued}})
		agent := enginetest.Agent{Certificate: parsed(t, issued), Key: key}
		s.OK(t, admin, "POST", "/api/authority/prepare", nil)
		s.OK(t, admin, "POST", "/api/authority/activate", rig.Object{"early": true})
		s.showing(t, agent).OK(t, "", "POST", sessions, certificateLogin) // the CA is not retired yet
		open := s.stay(t, agent)
		s.OK(t, admin, "POST", "/api/authority/retire", rig.Object{"certificateId": first})
		s.shutOut(t, agent)
		if _, err := open.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
	})
}

func parsed(t testing.TB, text any) *x509.Certificate {
	t.Helper()
	der, err := base64.StdEncoding.DecodeString(text.(string))
	rig.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	rig.Must(t, err)
	return cert
}

// TestAuthorityOnReplicas checks that a replica follows within a second: its certificate, its ca.crt, and the
// clients that it accepts.
func TestAuthorityOnReplicas(t *testing.T) {
	a, b := replicas(t, at(proxied))
	admin := a.AsAdmin(t)
	a.OK(t, admin, "POST", "/api/authority/prepare", nil)
	next := a.OK(t, admin, "POST", "/api/authority/activate", rig.Object{"early": true})
	certificate := parsed(t, stated(t, next)["active"]["certificate"])
	rig.Within(t, 2*time.Second, "the other replica shows a certificate of it, the same one", func() bool {
		at, there := shown(t, a.Server)[0], shown(t, b.Server)[0]
		return at.Equal(there) && there.CheckSignatureFrom(certificate) == nil
	})
	rig.Soon(t, "and publishes both", func() bool { return len(published(t, b.Server)) == 2 })
}

// TestAnExpiredAuthority checks an expired CA: readiness is false and names the remedy, no renewal is reported,
// and the remedy works.
func TestAnExpiredAuthority(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := start(t, func(c *server.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c.InsecureHTTP = true
	})
	chain := func() (detail string, fine bool) {
		t.Helper()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL()+"/api/ready", nil)
		rig.Must(t, err)
		resp, err := http.DefaultClient.Do(req)
		rig.Must(t, err)
		defer resp.Body.Close()
		var out struct {
			Parts []struct {
				Part, Detail string
				Ready        bool
			}
		}
		rig.Must(t, json.NewDecoder(resp.Body).Decode(&out))
		for _, p := range out.Parts {
			if p.Part == "chain" {
				return p.Detail, p.Ready
			}
		}
		t.Fatal("there is no such part")
		return "", false
	}
	ahead.Store(int64(11 * 365 * 24 * time.Hour))
	rig.Soon(t, "ready says what to do", func() bool {
		detail, fine := chain()
		return !fine && strings.Contains(detail, "docs/guides/replace-the-ca.md")
	})
	s.Stop(t)
	s.Restart(t) // despite this, the server starts, so that an administrator can repair it
	if _, fine := chain(); fine {
		t.Error("after a start it is fine")
	}
	s.DropSessions()
	admin := s.AsAdmin(t)
	if list := s.OK(t, admin, "GET", "/api/authority", nil).List(t, "authorities"); len(list) != 1 {
		t.Errorf("%d authorities: nobody asked for another", len(list))
	}
	s.OK(t, admin, "POST", "/api/authority/prepare", nil)
	s.OK(t, admin, "POST", "/api/authority/activate", rig.Object{})
	rig.Soon(t, "it is ready again", func() bool { _, fine := chain(); return fine })
}
