package processes

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// One operator makes three key servers trust each other, from one directory of YAML, as "make
// run-federation" shows it. The printed commands work as described.
func TestUpFederation(t *testing.T) {
	controlplane.Need(t)
	dir := filepath.Join(t.TempDir(), "a b") // the commands have to quote it
	for range 2 {                            // the second run continues with the state of the first
		running := built.Up(t, dir, "--federation")
		out := running.Shown
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
		running.Stop(t)
	}
}

// section returns the commands between two headings, without the first line.
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
