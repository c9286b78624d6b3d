package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy terminates TLS before a key server, stays where it is while that one
// comes back elsewhere, and misbehaves as it is told.
type proxy struct {
	*httptest.Server
	mu     sync.Mutex
	fault  func(*http.Request) fault
	bearer string // as last seen from the manager
}

// fault is what happens to one request.
type fault struct {
	// Answer is given instead of asking the key server, where Status is not 0.
	Status int
	Answer string
	// Delay holds the reply of the key server back.
	Delay time.Duration
	// Cut has the key server asked, and its reply lost with the connection.
	Cut bool
}

func newProxy(t *testing.T, roots *x509.CertPool, address func() string) *proxy {
	t.Helper()
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: address()}) },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1"},
		},
		ErrorLog: log.New(io.Discard, "", 0), // a key server that was killed
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch f := p.next(r); {
		case f.Status != 0:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(f.Status)
			_, _ = io.WriteString(w, f.Answer) // the client may have gone
		case f.Cut:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			forward.ServeHTTP(&late{ResponseWriter: w, by: f.Delay}, r)
		}
	}))
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.StartTLS()
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// late begins its answer after a time.
type late struct {
	http.ResponseWriter
	by time.Duration
}

func (l *late) WriteHeader(status int) {
	time.Sleep(l.by)
	l.by = 0
	l.ResponseWriter.WriteHeader(status)
}

func (p *proxy) next(r *http.Request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		p.bearer = b
	}
	if p.fault == nil {
		return fault{}
	}
	return p.fault(r)
}

// inject has requests misbehave until the test ends it with nil.
func (p *proxy) inject(f func(*http.Request) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// session is the session id that the manager used last.
func (p *proxy) session() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bearer
}

// bundle is the certificate that clients have to trust.
func (p *proxy) bundle() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
}

// isWrite tells the requests that change something from those that read.
func isWrite(r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, "/api/sessions") || r.URL.Path == "/api/server/version" {
		return false
	}
	return r.Method != http.MethodGet
}
