package processes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

// One operator makes three key servers trust each other, from one directory of YAML, as "make run-federation" does. The
// printed commands and those of docs/start/federation.md work as described.
func TestUpFederation(t *testing.T) {
	controlplane.Need(t)
	checkout := t.TempDir()
	dir := filepath.Join(checkout, "a b") // the commands have to quote it
	rig.Must(t, os.Symlink(dir, filepath.Join(checkout, ".keyserver")))
	for range 2 { // the second run continues with the existing state
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
		got = shell(t, tutorial(t, checkout, out))
		for _, want := range []string{`"algorithm":"HMAC-SHA384"`, `"requestId":"try-1"`, `"sessionKind":"peer"`, "ACCESS_DENIED", "admin-of-east-at-west "} {
			if !strings.Contains(got, want) {
				t.Errorf("the tutorial does not show %q:\n%s", want, got)
			}
		}
		got = shell(t, login+first+third)
		if !strings.Contains(got, "ACCESS_DENIED") {
			t.Errorf("the restriction does nothing:\n%s", got)
		}
		running.Stop(t)
	}
}

// address matches the line of a key server in the output of up.
var address = regexp.MustCompile(`(?m)^(east|west) +system id \d+, (https://\S+)/api `)

// tutorial returns the commands of docs/start/federation.md for a checkout, with the addresses that up printed.
func tutorial(t *testing.T, checkout, out string) string {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "start", "federation.md"))
	rig.Must(t, err)
	printed := address.FindAllStringSubmatch(out, -1)
	if len(printed) != 2 {
		t.Fatalf("%d addresses were printed, want 2:\n%s", len(printed), out)
	}
	replace := []string{"$(hack/controlplane.sh)", filepath.Dir(controlplane.Kubectl(t))}
	for _, line := range printed {
		documented := map[string]string{"east": "https://127.0.0.2:8443", "west": "https://127.0.0.3:8443"}[line[1]]
		replace = append(replace, documented, line[2])
	}
	commands := strings.Builder{}
	fmt.Fprintf(&commands, "cd '%s'\n", checkout)
	for _, b := range markdown.Blocks(string(page)) {
		if b.NotRun == "" {
			commands.WriteString(b.Text)
		}
	}
	return strings.NewReplacer(replace...).Replace(commands.String())
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
