package diagnose_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// run runs one command line of keyserverctl, without stored contexts.
func run(t *testing.T, args []string, out io.Writer) (code int) {
	t.Helper()
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, t.TempDir())
	}
	p, args := ctl.Program("keyserverctl", args)
	return p.Run(args, nil, out, out)
}

// TestDoctorAsksAKeyServer uses a fake key server with states that a real one cannot have in a test.
func TestDoctorAsksAKeyServer(t *testing.T) {
	const whole = `{"ready":true,"detail":"every part is ready","warnings":["the replica knows no other"],"parts":[{"part":"store","ready":true,"detail":"it answers"}]}`
	for name, tc := range map[string]struct {
		status int
		answer string
		flags  []string
		code   int
		says   []string
	}{
		"it is whole": {
			200, whole, nil, program.ExitOK,
			[]string{"service: ok: 1 of 1 parts are ready; warning: the replica knows no other\n", "all checks passed: 1 checks\n"},
		},
		"a part is not ready": {
			503, `{"code":"NOT_READY","retryable":true,"scope":"process","ready":false,"detail":"not ready: store","warnings":[],` +
				`"parts":[{"part":"admission","ready":true,"detail":"off"},{"part":"store","ready":false,"detail":"the disk is full"}]}`, nil, program.ExitError,
			[]string{"service: the part store fails: the disk is full\n", "1 finding in 1 of 1 checks"},
		},
		"what a terminal would act upon": {
			200, `{"ready":true,"detail":"","warnings":["a\u001b[2Jb\nc"],"parts":[]}`, nil, program.ExitOK, []string{"warning: a\uFFFD[2Jb; c\n"},
		},
		"no answer of a key server": {404, `not found`, nil, program.ExitError, []string{"keyserverctl: "}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.Method + " " + r.URL.Path + r.Header.Get("Authorization")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.answer)
			}))
			defer s.Close()
			ca := filepath.Join(t.TempDir(), "ca.crt")
			text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
			if err := os.WriteFile(ca, text, 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			code := run(t, append([]string{"doctor", "--server", s.URL, "--ca-file", ca}, tc.flags...), &out)
			if code != tc.code {
				t.Errorf("it ends with %d, want %d", code, tc.code)
			}
			for _, want := range tc.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, &out)
				}
			}
			if want := "GET /api/ready"; asked != want && code != program.ExitUsage {
				t.Errorf("asked %q, want %q and no session", asked, want)
			}
		})
	}
}

// TestDoctorWhereNobodyLogsIn checks that doctor reports a full volume, although the key server then rejects logins.
func TestDoctorWhereNobodyLogsIn(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"code":"STORE_UNAVAILABLE","detail":"the database has no room","retryable":false,"scope":"process"}`)
			return
		}
		_, _ = io.WriteString(w, `{"code":"NOT_READY","retryable":true,"scope":"process","ready":false,"detail":"not ready: volume","warnings":[],`+
			`"parts":[{"part":"audit","ready":true,"detail":"rows are written"},{"part":"volume","ready":false,"detail":"0 MiB are free"}]}`)
	}))
	defer s.Close()
	dir := t.TempDir()
	ca, password := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "password")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, text, 0o600), os.WriteFile(password, []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code := run(t, []string{"doctor", "--server", s.URL, "--ca-file", ca, "--password-file", password}, &out)
	for _, says := range []string{"service: the part volume fails: 0 MiB are free\n", "1 of 2 parts are ready", "login: FAILED: ", "the database has no room", "2 findings in 2 of 2 checks"} {
		if code != program.ExitError || !strings.Contains(out.String(), says) {
			t.Errorf("it ends with %d and does not say %q:\n%s", code, says, out.String())
		}
	}
}
