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

// proxy terminates TLS in front of a key server, and injects faults. Its address stays the same when the key server
// restarts at another address.
type proxy struct {
	*httptest.Server
	mu     sync.Mutex
	fault  func(*http.Request) fault
	bearer string // the last session id from the manager
}

// fault is how the proxy treats one request.
type fault struct {
	// Answer replaces the response of the key server if Status is not 0.
	Status int
	Answer string
	// Delay delays the response of the key server.
	Delay time.Duration
	// Cut forwards the request and then closes the connection without the response.
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
		ErrorLog: log.New(io.Discard, "", 0), // a killed key server causes errors
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch f := p.next(r); {
		case f.Status != 0:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(f.Status)
			_, _ = io.WriteString(w, f.Answer) // the client may have disconnected
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

// late delays the response.
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

// inject sets the function that chooses the fault of each request; nil: none.
func (p *proxy) inject(f func(*http.Request) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// session returns the session id that the manager used last.
func (p *proxy) session() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bearer
}

// bundle returns the certificate that clients must trust.
func (p *proxy) bundle() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
}

// isWrite reports whether a request changes the key server.
func isWrite(r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, "/api/sessions") || r.URL.Path == "/api/server/version" {
		return false
	}
	return r.Method != http.MethodGet
}
