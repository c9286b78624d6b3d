package processes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// Three key servers that one operator makes trust each other, from one
// directory of YAML, as "make run-federation" shows them; and the commands that
// it prints do what it says they do.
func TestUpFederation(t *testing.T) {
	controlplane.Need(t)
	dir := filepath.Join(t.TempDir(), "a b") // which the commands have to quote
	for range 2 {                            // the second run continues on the first one's state
		out, running, ended := up(t, dir)
		_, table, _ := strings.Cut(out, "\nKIND ")
		for _, kind := range []string{"KeyServer", "TrustedCA", "TrustedServer", "PrincipalTrust"} {
			want := 6
			if kind == "KeyServer" {
				want = 3
			}
			if n := strings.Count(table, "\n"+kind+" "); n != want {
				t.Errorf("%d lines of %s, want %d:\n%s", n, kind, want, out)
			}
		}
		login, first, _ := strings.Cut(section(t, out, "Log in at east", "2. "), "1. ")
		_, first, _ = strings.Cut(first, "\n")
		third := section(t, out, "3. ", "4. ")
		got := shell(t, login+first+section(t, out, "2. ", "3. "))
		if !strings.Contains(got, `"algorithm":"HMAC-SHA384"`) || !strings.Contains(got, `"requestId":"try-1"`) || !strings.Contains(got, `"sessionKind":"peer"`) {
			t.Errorf("the commands answer:\n%s", got)
		}
		got = shell(t, login+first+third)
		if !strings.Contains(got, "ACCESS_DENIED") {
			t.Errorf("the restriction does nothing:\n%s", got)
		}
		if err := running.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	}
}

// up starts it and answers, once everything is Ready, what it printed, the
// process, and how it ends.
func up(t *testing.T, dir string) (string, *os.Process, <-chan error) {
	t.Helper()
	cmd := exec.Command(built.Path, "up", "--federation", "--dir", dir, "--listen", "127.0.0.1:0")
	out := &rig.Output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // it fails only for a process that has ended
	for !strings.Contains(out.String(), "Ctrl-C stops") {
		select {
		case err := <-ended:
			log, _ := os.ReadFile(filepath.Join(dir, "federation", "up.log"))
			t.Fatalf("not ready: %v\n%s\n%.4000s", err, out, log)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return out.String(), cmd.Process, ended
}

// section is the commands between two headings: the lines after the first one.
func section(t *testing.T, out, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(out, "\n"+from)
	text, _, also := strings.Cut(rest, "\n"+to)
	if !ok || !also {
		t.Fatalf("nothing between %q and %q:\n%s", from, to, out)
	}
	_, text, _ = strings.Cut(text, "\n")
	return text + "\n"
}

func shell(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-uo", "pipefail", "-c", script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s\n%v", out, err)
	}
	return string(out)
}
