package oidc

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// isRefused reports whether the error is a refusal and not an unavailable issuer.
func isRefused(err error) bool {
	var why Refused
	return errors.As(err, &why)
}

// TestRotation checks that a new key is found with the first token that it signed, that a removed key is dropped, and
// that invented tokens cause no more reads than Pace allows.
func TestRotation(t *testing.T) {
	v, s, c := newVerifier(t)
	oldKey, newKey := keys()["ES256"], keys()["ES384"]
	before, after := newDraft("ES256", "old", oldKey).text(t), newDraft("ES384", "new", newKey).text(t)
	made := newDraft("ES256", "made up", oldKey).text(t)
	s.set(jwks(t, map[string]any{"old": oldKey.Public()}), nil)

	good := func(text string) {
		t.Helper()
		if _, err := v.Verify(t.Context(), text); err != nil {
			t.Error(err)
		}
	}
	reads := func(want int) {
		t.Helper()
		if s.reads != want {
			t.Errorf("%d reads of the source, want %d", s.reads, want)
		}
	}
	good(before)
	good(before)
	reads(1)
	for range 100 {
		refused(t, v, made) // too soon after the first read
	}
	reads(1)
	c.at = c.at.Add(s.pace.Retry)
	for range 100 {
		refused(t, v, made)
	}
	reads(2)

	s.set(jwks(t, map[string]any{"old": oldKey.Public(), "new": newKey.Public()}), nil)
	c.at = c.at.Add(s.pace.Retry)
	good(after)
	good(before)
	reads(3)
	s.set(jwks(t, map[string]any{"new": newKey.Public()}), nil)
	c.at = c.at.Add(s.pace.Fresh)
	refused(t, v, before)
	good(after)
	reads(4)
}

// TestIssuerDown checks that tokens with a known key are accepted for a limited time if the issuer is unavailable.
// After that, and for unknown keys, the error is not Refused.
func TestIssuerDown(t *testing.T) {
	v, s, c := newVerifier(t)
	known, unknown := newDraft("ES256", "ES256", keys()["ES256"]), newDraft("ES256", "other", keys()["ES256"])
	for _, d := range []*draft{&known, &unknown} { // so that the tokens do not expire during the test
		d.payload = strings.Replace(d.payload, "1800000600", "1900000000", 1)
	}
	s.set(nil, errors.New("connection refused"))
	if _, err := v.Verify(t.Context(), known.text(t)); err == nil || isRefused(err) {
		t.Errorf("before any key was read: %v", err)
	}
	s.set(jwks(t, all()), nil)
	if _, err := v.Verify(t.Context(), known.text(t)); err == nil || isRefused(err) {
		t.Errorf("sooner than the pace allows: %v", err)
	}
	c.at = c.at.Add(s.pace.Retry)
	_, err := v.Verify(t.Context(), known.text(t))
	fatal(t, err)

	s.set(nil, errors.New("connection refused"))
	read := c.at
	c.at = read.Add(s.pace.Keep - time.Second)
	if _, err := v.Verify(t.Context(), known.text(t)); err != nil {
		t.Errorf("a known key: %v", err)
	}
	if _, err := v.Verify(t.Context(), unknown.text(t)); err == nil || isRefused(err) {
		t.Errorf("a key that may be new: %v", err)
	}
	c.at = read.Add(s.pace.Keep)
	if _, err := v.Verify(t.Context(), known.text(t)); err == nil || isRefused(err) {
		t.Errorf("after the bounded time: %v", err)
	}
	s.set(jwks(t, all()), nil)
	c.at = c.at.Add(s.pace.Retry)
	if _, err := v.Verify(t.Context(), known.text(t)); err != nil {
		t.Errorf("after the issuer came back: %v", err)
	}
}

// slow is a source whose reads block until the test releases them.
type slow struct {
	*source
	entered, leave chan struct{}
}

func (s slow) Read(ctx context.Context) ([]byte, error) {
	s.entered <- struct{}{}
	<-s.leave
	return s.source.Read(ctx)
}

// TestOneReadForAll checks that many concurrent tokens cause one read, that the read continues if its request ends, and
// that a token with a known key does not wait for it.
func TestOneReadForAll(t *testing.T) {
	_, from, c := newVerifier(t)
	s := slow{source: from, entered: make(chan struct{}), leave: make(chan struct{})}
	v := NewVerifier(rules, s, c.now)
	text := newDraft("ES256", "ES256", keys()["ES256"]).text(t)
	first, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	results := make(chan error, 50)
	verify := func(ctx context.Context) {
		all.Go(func() {
			_, err := v.Verify(ctx, text)
			results <- err
		})
	}
	verify(first)
	<-s.entered
	for range 48 {
		verify(t.Context())
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := v.Verify(gone, text); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that is gone waits on: %v", err)
	}
	cancel()
	close(s.leave)
	all.Wait()
	close(results)
	for err := range results {
		fatal(t, err)
	}
	if from.reads != 1 {
		t.Errorf("%d reads", from.reads)
	}

	c.at = c.at.Add(from.pace.Fresh)
	s.leave = make(chan struct{})
	v.keys.source = s
	const together = 20
	answered := make(chan error, together)
	for range together {
		go func() {
			_, err := v.Verify(context.Background(), text)
			answered <- err
		}()
	}
	<-s.entered
	for range together - 1 { // blocks if more than one request has waited
		fatal(t, <-answered)
	}
	if _, err := v.Verify(t.Context(), text); err != nil {
		t.Error(err)
	}
	close(s.leave)
	fatal(t, <-answered)
}

// provider starts an issuer with TLS and the given documents.
func provider(t *testing.T, about func(self string) map[string]any, keys http.HandlerFunc) (Discovery, *httptest.Server) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(about(server.URL))
	})
	mux.HandleFunc("GET /keys", keys)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	fatal(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return Discovery{Issuer: server.URL, CAFile: ca}, server
}

func TestDiscovery(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	set := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(jwks(t, all())) }
	fine := func(self string) map[string]any { return map[string]any{"issuer": self, "jwks_uri": self + "/keys"} }
	for name, tc := range map[string]struct {
		about  func(self string) map[string]any
		keys   http.HandlerFunc
		change func(*Discovery)
		says   string // expected error; empty: none
	}{
		"Works": {fine, set, nil, ""},
		"OtherIssuer": {func(self string) map[string]any {
			return map[string]any{"issuer": self + "/", "jwks_uri": self + "/keys"}
		}, set, nil, "has the issuer"},
		"NoKeysURL": {func(self string) map[string]any { return map[string]any{"issuer": self} }, set, nil, "jwks_uri"},
		"PlainKeysURL": {func(self string) map[string]any {
			return map[string]any{"issuer": self, "jwks_uri": plain.URL + "/keys"}
		}, set, nil, "https://"},
		"FileKeysURL": {func(self string) map[string]any {
			return map[string]any{"issuer": self, "jwks_uri": "file:///etc/passwd"}
		}, set, nil, "jwks_uri"},
		"Redirect":  {fine, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, nil, "302"},
		"Forbidden": {fine, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, nil, "403"},
		"TooLong":   {fine, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxDocument+1)) }, nil, "longer than"},
		"UnknownCA": {fine, set, func(d *Discovery) { d.CAFile = "" }, "certificate"},
		"NoCAFile":  {fine, set, func(d *Discovery) { d.CAFile += ".gone" }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := provider(t, tc.about, tc.keys)
			if tc.change != nil {
				tc.change(&d)
			}
			text, err := d.Read(t.Context())
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v, want an error that says %q", err, tc.says)
				}
				return
			}
			fatal(t, err)
			if got, err := parseKeys(text); err != nil || len(got) != len(all()) {
				t.Errorf("%d keys, %v", len(got), err)
			}
		})
	}
	t.Run("Down", func(t *testing.T) {
		d, server := provider(t, fine, set)
		server.Close()
		if _, err := d.Read(t.Context()); err == nil {
			t.Error("a server that is gone answered")
		}
	})
	for issuer, good := range map[string]bool{
		"https://issuer.example": true, "https://issuer.example/realm": true, "http://127.0.0.1:1": true, "http://localhost:1": true,
		"http://issuer.example": false, "issuer.example": false, "": false, "https://": false, "https://u:p@issuer.example": false, "https://issuer.example?a=b": false,
		"https://issuer.example#a": false, "file:///etc/passwd": false,
	} {
		if err := (Discovery{Issuer: issuer}).Validate(); (err == nil) != good {
			t.Errorf("%q: %v", issuer, err)
		}
	}
}
