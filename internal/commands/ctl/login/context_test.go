package login

import (
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

	"github.com/spf13/cobra"
)

// command returns the commands of this package for a command line.
func command(line ...string) *cobra.Command {
	root := &cobra.Command{Use: "ctl", SilenceErrors: true, SilenceUsage: true}
	flags := &Flags{}
	flags.Bind(root)
	root.AddCommand(Commands(flags, func(*cobra.Command) error { return nil })...)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs(line)
	return root
}

// serve starts a fake key server, for a user without files. It returns the URL and flags for its CA and a password.
func serve(t *testing.T, service http.HandlerFunc) (url string, flags []string) {
	t.Helper()
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, t.TempDir())
	}
	server := httptest.NewTLSServer(service)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, password := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "password")
	err := errors.Join(os.WriteFile(password, []byte("secret"), 0o600),
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, []string{"--ca-file", ca, "--password-file", password}
}

// TestAnUnboundSessionIsNotKept checks that a session without a bound key is not stored: its id alone gives access.
func TestAnUnboundSessionIsNotKept(t *testing.T) {
	ended := false
	server, files := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete {
			ended = true
			_, _ = w.Write([]byte(`{"ended":1,"detail":"d"}`))
			return
		}
		at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		_, _ = w.Write([]byte(`{"sessionId":"AAAA","id":"0000000000000002","kind":"password","principal":{"id":"0000000000000001","principalId":"1","systemId":1,"name":"ann","type":"password"},` +
			`"roles":[],"boundKey":null,"expiresAt":"` + at + `","idleExpiresAt":"` + at + `","detail":"d"}`))
	})
	err := command(append([]string{"login", "--server", server, "--username", "ann"}, files...)...).Execute()
	if err == nil || !strings.Contains(err.Error(), "did not bind the session") || !ended {
		t.Errorf("%v, ended %v", err, ended)
	}
}

// sessions is a key server that opens and ends sessions.
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

// TestLoginsAtOnce checks concurrent logins of several processes. No context may be lost. For one context, the last
// session must be stored and the earlier ones ended.
func TestLoginsAtOnce(t *testing.T) {
	const each = 6
	service := &sessions{open: map[string]bool{}}
	server, files := serve(t, service.serve)
	var all sync.WaitGroup
	atOnce := func(line ...string) {
		cmd := command(line...)
		all.Go(func() {
			if err := cmd.Execute(); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		})
	}
	for i := range each {
		for _, name := range []string{fmt.Sprintf("own%d", i), "shared"} {
			atOnce(append([]string{"login", "--server", server, "--context", name}, files...)...)
		}
	}
	all.Wait()
	s, known, err := openStore()
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
