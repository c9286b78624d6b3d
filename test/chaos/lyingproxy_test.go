package chaos

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// lyingProxy is a proxy between the manager and its key server. It terminates TLS. While drops or repeats is set, it
// returns false responses.
type lyingProxy struct {
	*httptest.Server
	drops   atomic.Bool // writes get an earlier response, and the proxy does not forward them
	repeats atomic.Bool // reads get the previous response
	parted  atomic.Bool // no request reaches the key server

	mu   sync.Mutex
	last map[string][]byte // the last successful response, by method and path
}

func newLyingProxy(t testing.TB, s *site) *lyingProxy {
	t.Helper()
	l := &lyingProxy{last: map[string][]byte{}}
	over := http.DefaultTransport
	if m := s.members[0]; m != nil {
		over = m.over
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: "127.0.0.1:1"})
			r.Out = r.Out.WithContext(ledger.Unaudited(r.Out.Context())) // the ledger does not know these routes
		},
		Transport:      over,
		ModifyResponse: l.remember,
		ErrorLog:       log.New(io.Discard, "", 0), // a killed key server causes errors
	}
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.parted.Load() {
			panic(http.ErrAbortHandler)
		}
		if said, lies := l.fakeResponse(r); lies {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(said) // the client may have disconnected
			return
		}
		forward.ServeHTTP(w, r)
	}))
	l.Config.ErrorLog = log.New(io.Discard, "", 0)
	l.StartTLS()
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

// neverFaked reports whether the proxy forwards a request in any case: logins, and the change feed, because a false
// change feed would only make the manager slower.
func neverFaked(r *http.Request) bool {
	for _, path := range []string{"/api/sessions", "/api/server", "/api/ready", "/api/health", "/api/changes"} {
		if strings.HasPrefix(r.URL.Path, path) {
			return true
		}
	}
	return false
}

func nameOfRequest(r *http.Request) string { return r.Method + " " + r.URL.RequestURI() }

// fakeResponse returns a replacement for the key server's response, or false if the proxy forwards the request.
func (l *lyingProxy) fakeResponse(r *http.Request) (answer []byte, lies bool) {
	reads := r.Method == http.MethodGet
	if neverFaked(r) || reads && !l.repeats.Load() || !reads && !l.drops.Load() {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.last[nameOfRequest(r)]
	switch {
	case before != nil:
		return before, true
	case reads:
		return nil, false
	default:
		return []byte(`{"saved":true,"detail":"as asked"}`), true
	}
}

// remember stores the last successful response of each request.
func (l *lyingProxy) remember(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK || neverFaked(resp.Request) {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[nameOfRequest(resp.Request)] = body
	return nil
}

// bundle returns the certificate that the manager has to trust.
func (l *lyingProxy) bundle() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw}))
}
