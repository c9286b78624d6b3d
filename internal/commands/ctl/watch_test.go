package ctl

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/login"
)

// watchedKey returns a row of keys list.
func watchedKey(ttag, state string, uses int) string {
	return fmt.Sprintf(`{"ttag":%q,"algid":1,"algorithm":"AES-256","keyBytes":32,"ivBytes":16,"state":%q,"lineage":%[1]q,"generation":1,"exportable":false,"createdAt":"2026-01-31T12:00:00Z","uses":%[3]d,"lastUsedAt":null,"destroyAt":null,"rotation":null}`, ttag, state, uses)
}

// watched watches the keys of a fake key server, and returns the output.
func watched(ctx context.Context, t *testing.T, service http.HandlerFunc) (string, error) {
	t.Helper()
	s := httptest.NewTLSServer(service)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c, err := client.New(client.Options{BaseURL: s.URL, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	var out bytes.Buffer
	o := &options{output: asTable, columns: []string{"ttag", "state"}}
	v := theTable(t).find("keys list")
	w := &watching{
		options: o, caller: &caller{Context: &login.Context{}, client: c}, verb: v, request: &request{}, input: &input{verb: v},
		show: &printer{options: o, out: &out, notes: io.Discard, width: 100, rows: true},
	}
	if err := w.input.check(w.request); err != nil {
		t.Fatal(err)
	}
	err = w.run(ctx)
	return out.String(), err
}

// TestWatch checks that a watched list prints all rows, and then only new and changed ones, until the session ends.
func TestWatch(t *testing.T) {
	reads := [][]string{
		{watchedKey("AAAA", "enabled", 1), watchedKey("AAAB", "enabled", 1)},
		{watchedKey("AAAA", "disabled", 1), watchedKey("AAAB", "enabled", 2), watchedKey("AAAC", "enabled", 1)},
	}
	n := 0
	out, err := watched(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if n == len(reads) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"code":"SESSION_EXPIRED","detail":"the session has ended","reauth":true,"retryable":false,"scope":"session"}`))
			return
		}
		// Each read has two pages.
		rows, next := reads[n][:1], `"AAAA"`
		if r.URL.Query().Get("after") != "" {
			rows, next = reads[n][1:], "null"
			n++
		}
		fmt.Fprintf(w, `{"count":%d,"keys":[%s],"next":%s,"detail":""}`, len(rows), strings.Join(rows, ","), next)
	})
	var failure *cmdline.Failure
	if !errors.As(err, &failure) || failure.Code != cmdline.ExitRefused || !strings.HasSuffix(err.Error(), "log in again: keyserverctl login") {
		t.Errorf("%v, want exit code %d and what to do", err, cmdline.ExitRefused)
	}
	if want := "KEY   STATE\nAAAA  enabled\nAAAB  enabled\nAAAA  disabled\nAAAC  enabled\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestWatchEnds checks that a signal ends a watched list without an error, and that its rows have a bound.
func TestWatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, err := watched(ctx, t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"count":1,"keys":[%s],"next":null,"detail":""}`, watchedKey("AAAA", "enabled", 1))
	})
	if err != nil || out != "" {
		t.Errorf("%q %v", out, err)
	}
	pages := 0
	_, err = watched(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
		pages++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"count":500,"keys":[%s],"next":"AAAA","detail":""}`, strings.TrimSuffix(strings.Repeat(watchedKey("AAAA", "enabled", 1)+",", 500), ","))
	})
	if err == nil || !strings.Contains(err.Error(), "--watch: the list has more than 10000 rows") || pages != 21 {
		t.Errorf("%d pages: %v", pages, err)
	}
}
