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

// liar stands between the manager and its key server, ends TLS, and does not always say
// what the key server says.
type liar struct {
	*httptest.Server
	drops   atomic.Bool // writes are answered as one before was, and nothing is written
	repeats atomic.Bool // reads are answered as the one before was
	parted  atomic.Bool // nobody gets through

	mu   sync.Mutex
	last map[string][]byte // what a request was answered well with, by method and path
}

func newLiar(t testing.TB, s *site) *liar {
	t.Helper()
	l := &liar{last: map[string][]byte{}}
	over := http.DefaultTransport
	if m := s.members[0]; m != nil {
		over = m.over
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: "127.0.0.1:1"})
			r.Out = r.Out.WithContext(ledger.Unaudited(r.Out.Context())) // the manager uses routes that the ledger does not know
		},
		Transport:      over,
		ModifyResponse: l.remember,
		ErrorLog:       log.New(io.Discard, "", 0), // a key server that was killed
	}
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.parted.Load() {
			panic(http.ErrAbortHandler)
		}
		if said, lies := l.said(r); lies {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(said) // the client may have gone
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

// honest is what nobody lies about: who logs in, and the feed, by which the manager
// would only be slower.
func honest(r *http.Request) bool {
	for _, path := range []string{"/api/sessions", "/api/server", "/api/ready", "/api/health", "/api/changes"} {
		if strings.HasPrefix(r.URL.Path, path) {
			return true
		}
	}
	return false
}

func nameOfRequest(r *http.Request) string { return r.Method + " " + r.URL.RequestURI() }

// said is what is answered instead of asking.
func (l *liar) said(r *http.Request) (answer []byte, lies bool) {
	reads := r.Method == http.MethodGet
	if honest(r) || reads && !l.repeats.Load() || !reads && !l.drops.Load() {
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

// remember keeps the last good answer.
func (l *liar) remember(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK || honest(resp.Request) {
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

// bundle is the certificate that the manager has to trust.
func (l *liar) bundle() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw}))
}
