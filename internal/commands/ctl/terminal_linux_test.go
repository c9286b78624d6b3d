package ctl

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns the program's side of a terminal, and the side of the user.
func terminal(t *testing.T) (program, user *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return program, user
}

// TestWithoutArguments checks that on a terminal, the program says whether the user is logged in. Otherwise it prints
// its help.
func TestWithoutArguments(t *testing.T) {
	for name, c := range map[string]struct {
		session string
		server  string
		want    string
	}{
		"nothing stored": {"", "", "not logged in (context default); log in: ctl login --server URL"},
		"a server":       {"", "https://keys.example", "not logged in to https://keys.example (context default); log in: ctl login"},
		"a session": {
			`{"server":"https://keys.example","sessionId":"planted","principal":"ann\u001b[31m","expiresAt":"2999-01-01T00:00:00Z"}`, "https://keys.example",
			"logged in to https://keys.example as ann\ufffd[31m until 2999-01-01T00:00:00Z (context default), unless the key server ended the session; ask it: ctl whoami",
		},
		"a session for another server": {
			`{"server":"https://keys.example","sessionId":"planted","principal":"ann","expiresAt":"2999-01-01T00:00:00Z"}`, "https://other.example",
			"not logged in to https://other.example (context default); log in: ctl login",
		},
		"an expired session": {
			`{"server":"https://keys.example","sessionId":"planted","principal":"ann","expiresAt":"2001-01-01T00:00:00Z"}`, "https://keys.example",
			"the session of ann at https://keys.example ended at 2001-01-01T00:00:00Z (context default); log in again: ctl login",
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			t.Setenv("XDG_STATE_HOME", state)
			t.Setenv("KEYSERVER_SERVER", c.server)
			if c.session != "" {
				file := filepath.Join(state, "keyserver-operator", "default.session")
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(c.session), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := theCommand(t)
			cmd.SetArgs([]string{})
			out, user := terminal(t)
			cmd.SetOut(out)
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(user)
			for _, want := range []string{c.want, "all commands: ctl --help"} {
				if lines.Scan(); lines.Text() != want {
					t.Errorf("%q, want %q", lines.Text(), want)
				}
			}
			var help bytes.Buffer
			cmd.SetOut(&help)
			if err := cmd.Execute(); err != nil || !strings.Contains(help.String(), "Available Commands:") {
				t.Errorf("%v %s", err, help.String())
			}
		})
	}
}
