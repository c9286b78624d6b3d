package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// called makes a request that calls the server by another name than the one by
// which it was reached.
func (s *subject) called(t testing.TB, host, authorization, path, proof string) rig.Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
	rig.Must(t, err)
	req.Host = host
	req.Header.Set("Authorization", authorization)
	req.Header["DPoP"] = []string{proof}
	a, err := s.Carry(req)
	rig.Must(t, err)
	return a
}

// Whoever relays a request to another host may call this one by that host's name:
// a proof is for what the server is called, not for what the request calls it.
func TestProofsForTheNamesOfTheServer(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		h := newHolder(t)
		s.bind(t, h)
		port := s.Address()[strings.LastIndexByte(s.Address(), ':')+1:]
		for url, taken := range map[string]bool{
			"https://127.0.0.1:" + port:         true,
			"https://localhost:" + port:         true,
			"https://LocalHost.:" + port:        true,
			"https://[::1]:" + port:             true,
			"https://[0:0::0:1]:" + port:        true,
			"https://test:" + port:              true, // --server-name
			"https://elsewhere.example:" + port: false,
			"https://elsewhere.example":         false,
			"https://localhost":                 false,
			"https://localhost:1":               false,
			"http://localhost:" + port:          false,
			"https://a.localhost:" + port:       false,
			"https://127.0.0.2:" + port:         false,
		} {
			host := strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://")
			for _, called := range []string{host, "127.0.0.1:" + port} {
				a := s.called(t, called, "Bearer "+h.session, where, h.proof(t, "GET", url+where))
				if taken {
					is(t, a, http.StatusOK, "")
				} else {
					is(t, a, http.StatusUnauthorized, "PROOF_URI_MISMATCH")
				}
				if t.Failed() {
					t.Fatalf("a proof for %s, called %s", url, called)
				}
			}
		}
	})
}

// Without TLS there is no certificate, and nobody but this machine.
func TestProofsWithoutTLS(t *testing.T) {
	s := start(t, func(c *server.Config) { c.InsecureHTTP = true })
	h := newHolder(t)
	login := func(url string) rig.Answer {
		a, err := s.Carry(s.loginWith(t, h.proof(t, "POST", url+"/api/sessions")))
		rig.Must(t, err)
		return a
	}
	port := s.Address()[strings.LastIndexByte(s.Address(), ':')+1:]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
		is(t, login("http://"+host+":"+port), http.StatusOK, "")
	}
	for _, url := range []string{"http://elsewhere.example:" + port, "https://127.0.0.1:" + port, "http://127.0.0.1", "http://10.0.0.1:" + port} {
		is(t, login(url), http.StatusUnauthorized, "PROOF_URI_MISMATCH")
	}
}

// loginWith is a login with a proof, to where the server is reached.
func (s *subject) loginWith(t testing.TB, proof string) *http.Request {
	t.Helper()
	body := `{"method": "password", "name": "` + s.Administrator.Name + `", "password": "` + s.Administrator.Password + `"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/api/sessions", strings.NewReader(body))
	rig.Must(t, err)
	req.Header["DPoP"] = []string{proof}
	return req
}
