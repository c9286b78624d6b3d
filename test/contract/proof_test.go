package contract

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// holder has the key that a session is bound to.
type holder struct {
	key     *ecdsa.PrivateKey
	session string
	jti     int
}

func newHolder(t testing.TB) *holder {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &holder{key: key}
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (h *holder) jwk(t testing.TB) rig.Object {
	t.Helper()
	point, err := h.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return rig.Object{"kty": "EC", "crv": "P-256", "x": base64url(point[1:33]), "y": base64url(point[33:])}
}

// thumbprint returns the thumbprint of the key (RFC 7638).
func (h *holder) thumbprint(t testing.TB) string {
	t.Helper()
	canonical, err := json.Marshal(h.jwk(t)) // Marshal sorts the names
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(canonical)
	return base64url(sum[:])
}

// proof returns a proof that is valid unless change modifies its claims.
func (h *holder) proof(t testing.TB, method, url string, change ...func(claims rig.Object)) string {
	t.Helper()
	h.jti++
	claims := rig.Object{"htm": method, "htu": url, "iat": time.Now().Unix(), "jti": strconv.Itoa(h.jti)}
	if h.session != "" {
		sum := sha256.Sum256([]byte(h.session))
		claims["ath"] = base64url(sum[:])
	}
	for _, c := range change {
		c(claims)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	header, err := json.Marshal(rig.Object{"typ": "dpop+jwt", "alg": "ES256", "jwk": h.jwk(t)})
	if err != nil {
		t.Fatal(err)
	}
	return h.sign(t, string(header), string(payload))
}

func (h *holder) sign(t testing.TB, header, payload string) string {
	t.Helper()
	signed := base64url([]byte(header)) + "." + base64url([]byte(payload))
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, h.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64url(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// prove sends a request with a header Authorization and any number of headers DPoP.
func (s *subject) prove(t testing.TB, authorization, method, path string, body any, proofs ...string) rig.Answer {
	t.Helper()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.address()+path, content)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	req.Header["DPoP"] = proofs
	a, err := s.SendRequest(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	inspect(t, req, a)
	return a
}

// address returns the URL of the listener, independent of the external name.
func (s *subject) address() string { return "https://" + s.Address() }

// loginBody returns the login of the test's administrator.
func (s *subject) loginBody() rig.Object {
	return byPassword(s.Administrator.Name, s.Administrator.Password)
}

// bind logs in with a proof.
func (s *subject) bind(t testing.TB, h *holder) {
	t.Helper()
	h.session = ""
	a := s.prove(t, "", "POST", "/api/sessions", s.loginBody(), h.proof(t, "POST", s.URL()+"/api/sessions"))
	if a.Status != http.StatusOK || a.Body["boundKey"] != h.thumbprint(t) {
		t.Fatalf("got %d %s, want a session bound to %s", a.Status, a.Raw, h.thumbprint(t))
	}
	h.session = a.Text(t, "sessionId")
}

func is(t testing.TB, a rig.Answer, status int, code string) {
	t.Helper()
	if a.Status != status || a.Code() != code {
		t.Errorf("got %d %s, want %d %s", a.Status, a.Raw, status, code)
	}
	if challenge := a.Header.Get("WWW-Authenticate"); status == http.StatusUnauthorized && strings.HasPrefix(code, "PROOF_") && !strings.HasPrefix(challenge, `DPoP realm="keyserver", algs="ES256 `) {
		t.Errorf("the challenge to %s is %q", code, challenge)
	}
	if strings.HasPrefix(code, "PROOF_") && a.Body["reauth"] == true {
		t.Errorf("%s: a new login does not help: %s", code, a.Raw)
	}
}

const (
	where = "/api/sessions/current"
	mac   = "/api/crypto/hmac"
)

// TestProofs checks that a session bound to a key needs a proof for each request.
func TestProofs(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		h, stranger := newHolder(t), newHolder(t)
		s.bind(t, h)
		stranger.session = h.session
		bearer, url := "Bearer "+h.session, s.URL()+where
		set := func(name string, value any) func(rig.Object) { return func(c rig.Object) { c[name] = value } }
		flip := func(proof string) string {
			at := strings.LastIndexByte(proof, '.') + 5
			other := "A"
			if proof[at:at+1] == other {
				other = "B"
			}
			return proof[:at] + other + proof[at+1:]
		}
		// Each proof is created just before its use, and its time is far from the limits. So a slow machine
		// does not change the results.
		now := func(d time.Duration) func(rig.Object) {
			return func(c rig.Object) { c["iat"] = time.Now().Add(d).Unix() }
		}
		proof := func(change ...func(rig.Object)) string { return h.proof(t, "GET", url, change...) }
		used := func() string {
			p := proof()
			is(t, s.prove(t, bearer, "GET", where, nil, p), http.StatusOK, "")
			return p
		}
		rows := map[string]int{} // by reason
		for _, tc := range []struct {
			name   string
			status int
			code   string
			reason string
			proofs func() []string
		}{
			{"None", 401, "PROOF_REQUIRED", "proofRequired", func() []string { return nil }},
			{"Empty", 400, "PROOF_MALFORMED", "proofMalformed", func() []string { return []string{""} }},
			{"Two", 400, "PROOF_MALFORMED", "proofMalformed", func() []string { return []string{proof(), proof()} }},
			{"NotAProof", 400, "PROOF_MALFORMED", "proofMalformed", func() []string { return []string{"proof"} }},
			{"Padded", 400, "PROOF_MALFORMED", "proofMalformed", func() []string { return []string{proof() + "=="} }},
			{"DuplicateClaim", 400, "PROOF_MALFORMED", "proofMalformed", func() []string {
				return []string{h.sign(t, header(t, h, nil), `{"htm":"POST","htm":"GET"}`)}
			}},
			{"ClaimInAnotherCase", 400, "PROOF_MALFORMED", "proofMalformed", func() []string { return []string{proof(set("HTM", "GET"))} }},
			{"ClaimOfAnotherType", 400, "PROOF_MALFORMED", "proofMalformed", func() []string { return []string{proof(set("iat", "now"))} }},
			{"NoID", 400, "PROOF_MALFORMED", "proofMalformed", func() []string { return []string{proof(func(c rig.Object) { delete(c, "jti") })} }},
			{"UnknownCrit", 400, "PROOF_MALFORMED", "proofMalformed", func() []string {
				return []string{h.sign(t, header(t, h, rig.Object{"crit": []string{"x"}, "x": 1}), "{}")}
			}},
			{"AlgNone", 400, "PROOF_MALFORMED", "proofMalformed", func() []string {
				return []string{h.sign(t, header(t, h, rig.Object{"alg": "none"}), "{}")}
			}},
			{"PrivateKey", 400, "PROOF_MALFORMED", "proofMalformed", func() []string {
				return []string{h.sign(t, header(t, h, rig.Object{"jwk": merge(h.jwk(t), rig.Object{"d": "AQ"})}), "{}")}
			}},
			{"Signature", 401, "PROOF_INVALID_SIGNATURE", "proofInvalidSignature", func() []string { return []string{flip(proof())} }},
			{"Key", 401, "PROOF_KEY_MISMATCH", "proofKeyMismatch", func() []string { return []string{stranger.proof(t, "GET", url)} }},
			{"Method", 401, "PROOF_METHOD_MISMATCH", "proofMethodMismatch", func() []string { return []string{h.proof(t, "POST", url)} }},
			{"Path", 401, "PROOF_URI_MISMATCH", "proofUriMismatch", func() []string { return []string{h.proof(t, "GET", s.URL()+"/api/roles")} }},
			{"Host", 401, "PROOF_URI_MISMATCH", "proofUriMismatch", func() []string {
				return []string{h.proof(t, "GET", "https://elsewhere.example"+where)}
			}},
			{"Token", 401, "PROOF_TOKEN_MISMATCH", "proofTokenMismatch", func() []string {
				return []string{proof(set("ath", base64url(make([]byte, 32))))}
			}},
			{"NoToken", 401, "PROOF_TOKEN_MISMATCH", "proofTokenMismatch", func() []string {
				return []string{proof(func(c rig.Object) { delete(c, "ath") })}
			}},
			{"Old", 401, "PROOF_STALE", "proofStale", func() []string { return []string{proof(now(-62 * time.Second))} }},
			{"New", 401, "PROOF_STALE", "proofStale", func() []string { return []string{proof(now(time.Hour))} }},
			{"Replayed", 401, "PROOF_REPLAYED", "proofReplayed", func() []string { return []string{used()} }},
			{"ReplayedHighS", 401, "PROOF_REPLAYED", "proofReplayed", func() []string { return []string{highS(t, used())} }},
			{"ReplayedID", 401, "PROOF_REPLAYED", "proofReplayed", func() []string { return []string{proof(set("jti", idOf(t, used())))} }},
		} {
			rows[tc.reason]++
			t.Run(tc.name, func(t *testing.T) {
				is(t, s.prove(t, bearer, "GET", where, nil, tc.proofs()...), tc.status, tc.code)
			})
		}
		t.Run("RefusalsAreAudited", func(t *testing.T) {
			for _, e := range fault.Reasons {
				reason := string(e.Reason)
				if strings.HasPrefix(reason, "proof") && rows[reason] == 0 {
					t.Errorf("no proof here is refused for %s", reason)
				}
			}
			for reason, want := range rows {
				got := s.OK(t, s.AsAdmin(t), "GET", s.trail("operation=proof&limit=1000&reason="+reason), nil).List(t, "entries")
				if len(got) != want || got[0]["outcome"] != "refused" || got[0]["principalId"] == nil {
					t.Errorf("%s: got %v, want %d rows", reason, got, want)
				}
			}
		})
		t.Run("Accepted", func(t *testing.T) {
			capital := strings.Replace(url, "https", "HTTPS", 1)
			for name, made := range map[string]func() string{
				"SchemeDPoP": func() string { return proof() }, "CapitalHost": func() string { return h.proof(t, "GET", capital) },
				"OtherClaims": func() string { return proof(set("nonce", "n")) }, "SlowClock": func() string { return proof(now(-25 * time.Second)) },
				"FastClock": func() string { return proof(now(40 * time.Second)) },
			} {
				proof := made()
				a := s.prove(t, "DPoP "+h.session, "GET", where, nil, proof)
				if a.Status != http.StatusOK {
					t.Errorf("%s: %s", name, a.Raw)
				}
				is(t, s.prove(t, bearer, "GET", where, nil, proof), http.StatusUnauthorized, "PROOF_REPLAYED")
			}
		})
		t.Run("QueryIsNoPartOfIt", func(t *testing.T) {
			proof := h.proof(t, "GET", s.URL()+"/api/changes")
			is(t, s.prove(t, bearer, "GET", "/api/changes?after=0", nil, proof), http.StatusOK, "")
		})
		t.Run("HMAC", func(t *testing.T) {
			key := s.prove(t, bearer, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"}, h.proof(t, "POST", s.URL()+"/api/keys"))
			body := rig.Object{"hiddenLink": key.Text(t, "ttag"), "data": "aGVsbG8="}
			is(t, s.prove(t, bearer, "POST", mac, body), http.StatusUnauthorized, "PROOF_REQUIRED")
			is(t, s.prove(t, bearer, "POST", mac, body, h.proof(t, "POST", s.URL()+mac)), http.StatusOK, "")
		})
		t.Run("Ended", func(t *testing.T) {
			is(t, s.prove(t, bearer, "DELETE", where, nil, h.proof(t, "DELETE", url)), http.StatusOK, "")
			a := s.prove(t, "DPoP "+h.session, "GET", where, nil, h.proof(t, "GET", url))
			is(t, a, http.StatusUnauthorized, "SESSION_NOT_FOUND")
			if challenge := a.Header.Get("WWW-Authenticate"); a.Body["reauth"] != true || !strings.HasPrefix(challenge, "DPoP ") {
				t.Errorf("got %s and the challenge %q", a.Raw, challenge)
			}
		})
	})
}

func header(t testing.TB, h *holder, change rig.Object) string {
	t.Helper()
	b, err := json.Marshal(merge(rig.Object{"typ": "dpop+jwt", "alg": "ES256", "jwk": h.jwk(t)}, change))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func merge(a, b rig.Object) rig.Object {
	for k, v := range b {
		a[k] = v
	}
	return a
}

func idOf(t testing.TB, proof string) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(proof, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct{ JTI string }
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims.JTI
}

// highS returns the second valid signature of the same proof.
func highS(t testing.TB, proof string) string {
	t.Helper()
	at := strings.LastIndexByte(proof, '.') + 1
	sig, err := base64.RawURLEncoding.DecodeString(proof[at:])
	if err != nil {
		t.Fatal(err)
	}
	s := new(big.Int).SetBytes(sig[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(sig[32:])
	return proof[:at] + base64url(sig)
}

// TestProofsAtLogin checks that a valid proof at the login binds the session, and an invalid one is refused.
// Without a proof the session is bound to no key and accepts no proofs.
func TestProofsAtLogin(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		h := newHolder(t)
		login := s.URL() + "/api/sessions"
		wrong := rig.Object{"method": "password", "name": s.Administrator.Name, "password": "wrong password"}
		unused := h.proof(t, "POST", login)
		is(t, s.prove(t, "", "POST", "/api/sessions", wrong, unused), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		is(t, s.prove(t, "", "POST", "/api/sessions", s.loginBody(), "proof"), http.StatusBadRequest, "PROOF_MALFORMED")
		is(t, s.prove(t, "", "POST", "/api/sessions", s.loginBody(), unused, unused), http.StatusBadRequest, "PROOF_MALFORMED")
		is(t, s.prove(t, "", "POST", "/api/sessions", s.loginBody(), h.proof(t, "GET", login)), http.StatusUnauthorized, "PROOF_METHOD_MISMATCH")
		is(t, s.prove(t, "", "POST", "/api/sessions", s.loginBody(), h.proof(t, "POST", login+"/")), http.StatusUnauthorized, "PROOF_URI_MISMATCH")
		is(t, s.prove(t, "", "POST", "/api/sessions", s.loginBody(), unused), http.StatusOK, "")
		is(t, s.prove(t, "", "POST", "/api/sessions", s.loginBody(), unused), http.StatusUnauthorized, "PROOF_REPLAYED")

		plain := s.AsAdmin(t)
		h.session = plain
		proof := h.proof(t, "GET", s.URL()+where)
		is(t, s.prove(t, "Bearer "+plain, "GET", where, nil, proof), http.StatusUnauthorized, "PROOF_KEY_MISMATCH")
		is(t, s.prove(t, "DPoP "+plain, "GET", where, nil), http.StatusUnauthorized, "PROOF_KEY_MISMATCH")
		s.OK(t, plain, "GET", where, nil)
	})
}

// TestProofRace sends the same proof in concurrent requests, and checks that only one of them succeeds.
func TestProofRace(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		h := newHolder(t)
		s.bind(t, h)
		proof := h.proof(t, "GET", s.URL()+where)
		var mu sync.Mutex
		got := map[string]int{}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				a := s.prove(t, "Bearer "+h.session, "GET", where, nil, proof)
				mu.Lock()
				got[a.Code()]++
				mu.Unlock()
			})
		}
		group.Wait()
		if got[""] != 1 || got["PROOF_REPLAYED"] != 7 {
			t.Errorf("got %v", got)
		}
	})
}

// TestProofMemoryIsBounded checks that a full memory of proofs causes refusals, for one principal before all
// others. It never forgets a proof that could be used again.
func TestProofMemoryIsBounded(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		h := newHolder(t)
		s.bind(t, h)
		bearer, url := "Bearer "+h.session, s.URL()+where
		first := h.proof(t, "GET", url)
		is(t, s.prove(t, bearer, "GET", where, nil, first), http.StatusOK, "")
		is(t, s.prove(t, bearer, "GET", where, nil, h.proof(t, "GET", url)), http.StatusOK, "")
		a := s.prove(t, bearer, "GET", where, nil, h.proof(t, "GET", url))
		is(t, a, http.StatusServiceUnavailable, "PROOF_REPLAY_CACHE_FULL")
		if after, err := strconv.Atoi(a.Header.Get("Retry-After")); a.Body["scope"] != "session" || a.Body["retryable"] != true || err != nil || after < 1 || after > 75 {
			t.Errorf("Retry-After is %q in %s", a.Header.Get("Retry-After"), a.Raw)
		}
		is(t, s.prove(t, bearer, "GET", where, nil, first), http.StatusUnauthorized, "PROOF_REPLAYED")
		s.OK(t, s.AsAdmin(t), "GET", where, nil) // unbound sessions are not affected
	}, at(tight))
}

// TestProofsBehindAProxy checks that proofs behind a proxy use the external name.
func TestProofsBehindAProxy(t *testing.T) {
	t.Parallel()
	const outside = "https://keys.example"
	s := start(t, func(c *server.Config) { c.ExternalURL = outside + "/" })
	h := newHolder(t)
	a := s.prove(t, "", "POST", "/api/sessions", s.loginBody(), h.proof(t, "POST", s.address()+"/api/sessions"))
	is(t, a, http.StatusUnauthorized, "PROOF_URI_MISMATCH")
	a = s.prove(t, "", "POST", "/api/sessions", s.loginBody(), h.proof(t, "POST", outside+":443/api/sessions"))
	is(t, a, http.StatusOK, "")
}

// TestProofsAcrossARestart checks that a proof cannot be used again after an orderly restart.
func TestProofsAcrossARestart(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		h := newHolder(t)
		s.bind(t, h)
		bearer, url := "Bearer "+h.session, s.URL()+where
		used, unused := h.proof(t, "GET", url), h.proof(t, "GET", url)
		is(t, s.prove(t, bearer, "GET", where, nil, used), http.StatusOK, "")
		s.Stop(t)
		s.Restart(t)
		s.HTTP.CloseIdleConnections()
		is(t, s.prove(t, bearer, "GET", where, nil, used), http.StatusUnauthorized, "PROOF_REPLAYED")
		is(t, s.prove(t, bearer, "GET", where, nil, unused), http.StatusOK, "")
	}, alone)
}

// proxied has the same external name on all replicas.
var proxied = &serverConfig{replicas: true, options: []testserver.Option{func(c *server.Config) { c.ExternalURL = "https://keys.example" }}}

// TestProofsOnReplicas checks that a proof can be used only once, on all replicas together.
func TestProofsOnReplicas(t *testing.T) {
	one, other := replicas(t, at(proxied))
	h := newHolder(t)
	one.bind(t, h)
	for _, pair := range [][2]*subject{{one, other}, {other, one}} {
		proof := h.proof(t, "GET", one.URL()+where)
		is(t, pair[0].prove(t, "Bearer "+h.session, "GET", where, nil, proof), http.StatusOK, "")
		is(t, pair[1].prove(t, "Bearer "+h.session, "GET", where, nil, proof), http.StatusUnauthorized, "PROOF_REPLAYED")
	}
}
