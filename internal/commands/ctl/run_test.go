package ctl

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// run has ctl ask a service that answers as it is told to.
func run(t *testing.T, service http.HandlerFunc, line ...string) (out, notes string, err error) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	s := httptest.NewTLSServer(service)
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := theCommand(t)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(append(line, "--server", s.URL, "--ca-file", ca))
	err = cmd.Execute()
	return stdout.String(), stderr.String(), err
}

func unready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"ready":false,"code":"NOT_READY","detail":"not ready: writes, volume","retryable":true,"scope":"process","parts":[` +
		`{"part":"admission","ready":true,"detail":"fine"},{"part":"writes","ready":false,"detail":"the disk is full\u202e, ` + strings.Repeat("and ", 40) + `that is all","retryInSeconds":5},` +
		`{"part":"volume","ready":false,"detail":"3 MiB are left"}],"warnings":["the certificate ends\u001b[31m in 3 days"]}`))
}

// Whoever asks why a key server is not ready is told so, without a form for programs.
func TestNotReadySaysWhy(t *testing.T) {
	out, _, err := run(t, unready, "ready")
	var failure *cmdline.Failure
	if !errors.As(err, &failure) || failure.Code != cmdline.ExitUnavailable {
		t.Errorf("%v, want exit code %d", err, cmdline.ExitUnavailable)
	}
	flat := strings.ReplaceAll(out, "\n", " ")
	for _, want := range []string{"writes: the disk is full\ufffd, and", "that is all; tried again in 5 s", " volume: 3 MiB are left", "warning: the certificate ends\ufffd[31m in 3 days"} {
		if !strings.Contains(flat, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "admission") {
		t.Errorf("what is ready is shown:\n%s", out)
	}
}

// A session that the key server did not bind is not kept: its id alone would open it.
func TestAnUnboundSessionIsNotKept(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := false
	unbound := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			ended = true
			_, _ = w.Write([]byte(`{"ended":1,"detail":"d"}`))
			return
		}
		at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		_, _ = w.Write([]byte(`{"sessionId":"AAAA","id":"0000000000000002","kind":"password","principal":{"id":"0000000000000001","principalId":"1","systemId":1,"name":"ann","type":"password"},` +
			`"roles":[],"boundKey":null,"expiresAt":"` + at + `","idleExpiresAt":"` + at + `","detail":"d"}`))
	}
	_, said, err := run(t, unbound, "login", "--username", "ann", "--password-file", password)
	if err == nil || !strings.Contains(err.Error(), "has not bound the session") || !ended {
		t.Errorf("%v, ended %v: %s", err, ended, said)
	}
}

// sessions is a service that opens and ends sessions.
type sessions struct {
	mu   sync.Mutex
	last int
	open map[string]bool // by session id
}

func (s *sessions) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodDelete {
		_, id, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		delete(s.open, id)
		_, _ = w.Write([]byte(`{"ended":true,"detail":"d"}`))
		return
	}
	s.last++
	id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "session %04d", s.last))
	s.open[id] = true
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	_, _ = fmt.Fprintf(w, `{"sessionId":%q,"id":"%016x","kind":"password","principal":{"id":"0000000000000001","principalId":"1","systemId":1,"name":"ann","type":"password"},`+
		`"roles":[],"boundKey":"key","expiresAt":%q,"idleExpiresAt":%q,"detail":"d"}`, id, s.last, at, at)
}

// Changes by several processes all persist: no context is lost, and of several logins to one
// context the last session is kept and the others are ended.
func TestLoginsAtOnce(t *testing.T) {
	const each = 6
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	service := &sessions{open: map[string]bool{}}
	server := httptest.NewTLSServer(http.HandlerFunc(service.serve))
	defer server.Close()
	dir := t.TempDir()
	ca, password := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "password")
	err := errors.Join(os.WriteFile(password, []byte("secret"), 0o600),
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	atOnce := func(line ...string) {
		cmd := theCommand(t)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(line)
		all.Go(func() {
			if err := cmd.Execute(); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		})
	}
	for i := range each {
		for _, name := range []string{fmt.Sprintf("own%d", i), "shared"} {
			atOnce("login", "--server", server.URL, "--ca-file", ca, "--password-file", password, "--context", name)
		}
	}
	all.Wait()
	s, known, err := known()
	if err != nil || len(known.Contexts) != each+1 {
		t.Errorf("%d contexts are left, %v", len(known.Contexts), err)
	}
	kept := map[string]bool{}
	for name := range known.Contexts {
		held, err := s.session(name)
		if err != nil || held == nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := s.key(name, held); err != nil {
			t.Error(err)
		}
		kept[held.SessionID] = true
	}
	if !maps.Equal(kept, service.open) {
		t.Errorf("sessions that are kept: %v, and open: %v", kept, service.open)
	}
	for i := range each {
		atOnce("contexts", "remove", fmt.Sprintf("own%d", i))
	}
	all.Wait()
	if known, err := s.settings(); err != nil || len(known.Contexts) != 1 {
		t.Errorf("contexts that are left: %v, %v", known.names(), err)
	}
}
