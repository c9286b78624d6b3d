package ctl

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// run runs a command line with a fake key server.
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

// TestNotReadySaysWhy checks that the command prints why the key server is not ready, also as a table.
func TestNotReadySaysWhy(t *testing.T) {
	out, _, err := run(t, unready, "ready")
	var failure *cmdline.Failure
	if !errors.As(err, &failure) || failure.Code != cmdline.ExitUnavailable {
		t.Errorf("%v, want exit code %d", err, cmdline.ExitUnavailable)
	}
	flat := strings.ReplaceAll(out, "\n", " ")
	for _, want := range []string{"writes: the disk is full\ufffd, and", "that is all; next attempt in 5 s", " volume: 3 MiB are left", "warning: the certificate ends\ufffd[31m in 3 days"} {
		if !strings.Contains(flat, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "admission") {
		t.Errorf("what is ready is shown:\n%s", out)
	}
}
