package install

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// commands are command lines, by command.
type commands map[string]struct {
	args []string
	code int
	says string // expected text on standard output if it succeeds, else on standard error
}

// Every command of the image works or fails with a clear error, as another user, without HOME, and without a writable
// directory.
func TestEveryCommandWithNothingToWrite(t *testing.T) {
	built := imageBuilt(t)
	programs := map[string]commands{
		"keyserver-operator": {
			"":                      {nil, 0, "Available Commands:"},
			"audit":                 {nil, 0, "verify"},
			"audit discard-journal": {[]string{"--data-dir", "/data"}, 1, "keyserver-operator: "},
			"audit show":            {[]string{"--archive", "file:///nowhere"}, 1, "/nowhere"},
			"audit verify":          {[]string{"--data-dir", "/data"}, 1, "keyserver-operator: "},
			"audit receipt":         {nil, 0, "verify"},
			"backup":                {nil, 2, "--server is missing"},
			"custody":               {nil, 0, "recovery"},
			"custody recovery":      {[]string{"--data-dir", "/data", "--recipient", "age1", "--out", "/data/o"}, 1, "keyserver-operator: "},
			"custody restore":       {[]string{"--data-dir", "/data", "--kek", "base64key://AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "--recovery", "/nowhere", "--identity", "/nowhere"}, 1, "/nowhere"},
			"doctor":                {[]string{"--data-dir", "/data"}, 1, "keyserver-operator: "},
			"export":                {nil, 2, "--"},
			"help":                  {nil, 0, "Available Commands:"},
			"manager":               {nil, 1, "no cluster is configured"},
			"migrate":               {[]string{"--from", "sqlite", "--data-dir", "/data", "--to", "postgres", "--database-url", "postgres://nowhere/x"}, 1, "--kek: "},
			"openapi":               {nil, 0, `"openapi"`},
			"plan":                  {[]string{"-f", "/nowhere"}, 1, "/nowhere"},
			"reference":             {nil, 0, "# "},
			"release":               {nil, 0, "keygen"},
			"release keygen":        {[]string{"--key", "/data/key", "--pub", "/data/pub"}, 1, "/data/key"},
			"release sign":          {[]string{"--key", "/nowhere", "--binary", built.entrypoint, "--not-before", "2026-01-01T00:00:00Z", "--not-after", "2027-01-01T00:00:00Z", "--out", "/data/o"}, 1, "/nowhere"},
			"release verify":        {[]string{"--pub", "/nowhere", "--manifest", "/nowhere", "--binary", built.entrypoint}, 1, "/nowhere"},
			"restore":               {[]string{"--from", "/nowhere", "--identity", "/nowhere", "--data-dir", "/data/restored"}, 1, "/nowhere"},
			"serve":                 {[]string{"--listen", "127.0.0.1:0", "--external-listen", "", "--data-dir", "/data/keyserver"}, 1, "/data/keyserver"},
			"version":               {nil, 0, "keyserver-operator "},
		},
		"keyserver-agent": {
			"":        {nil, 0, "Available Commands:"},
			"help":    {nil, 0, "Available Commands:"},
			"agent":   {[]string{"--server", "https://keys.example", "--token-file", "/nowhere"}, 1, "/nowhere"},
			"kms":     {[]string{"--server", "https://127.0.0.1:1", "--token-file", "/nowhere", "--lineage", "AAAAAQECAwQFBgcI", "--listen", "unix:///nowhere/kms.sock"}, 1, "--listen: open /nowhere"},
			"version": {nil, 0, "keyserver-agent "},
		},
	}
	for name, all := range programs {
		run := func(args ...string) (code int, out, errOut string) { return runInImage(t, built, name, args...) }
		for command, tc := range all {
			words := strings.Fields(command)
			code, out, errOut := run(append(words, "--help")...)
			if code != 0 || errOut != "" || !strings.Contains(out, "Usage:") {
				t.Errorf("%s %s --help: exit %d\n%s%s", name, command, code, out, errOut)
			}
			for _, below := range subcommands(out) {
				below = strings.TrimSpace(command + " " + below)
				if _, tried := all[below]; !tried && !slices.Contains(moved, name+" "+below) {
					t.Errorf("%s %s is not tried", name, below)
				}
			}
			code, out, errOut = run(append(words, tc.args...)...)
			said := out
			if tc.code != 0 {
				if said = errOut; strings.Count(said, "\n") != 1 {
					t.Errorf("%s %s: not one sentence", name, command)
				}
			}
			if code != tc.code || !strings.Contains(said, tc.says) || strings.Contains(out+errOut, "goroutine ") {
				t.Errorf("%s %s: exit %d, want %d and %q\n%s%s", name, command, code, tc.code, tc.says, out, errOut)
			}
		}
	}
}

// moved are former commands of keyserver-operator that are now commands of other programs.
var moved = []string{
	"keyserver-operator agent", "keyserver-operator ctl", "keyserver-operator kms", "keyserver-operator up",
	"keyserver-operator support-bundle", "keyserver-operator audit receipt verify",
}

// TestMovedCommands checks that the image of the operator still runs these commands. Manifests and scripts for version
// 0.1.0 use them.
func TestMovedCommands(t *testing.T) {
	built := imageBuilt(t)
	for name, tc := range map[string]struct {
		other string
		flags []string
		code  int
		says  string
	}{
		"agent":                {"keyserver-agent", []string{"--log-level", "loud"}, 2, "--"},
		"kms":                  {"keyserver-agent", []string{"--log-level", "loud"}, 2, "--"},
		"doctor":               {"keyserverctl", []string{"--server", "https://127.0.0.1:1/api"}, 2, "--server ends in /api"},
		"audit verify":         {"keyserverctl", []string{"--server", "https://127.0.0.1:1/api"}, 2, "--server ends in /api"},
		"audit receipt verify": {"keyserverctl", nil, 2, "--key is missing"},
		"support-bundle":       {"keyserverctl", []string{"--log", "/nowhere", "--output", "/data/bundle.tar.gz"}, 1, "--output: open /data/bundle.tar.gz"},
	} {
		code, out, errOut := runInImage(t, built, "keyserver-operator", append(strings.Fields(name), tc.flags...)...)
		warning, refusal, _ := strings.Cut(errOut, "\n")
		if code != tc.code || out != "" || !strings.Contains(warning, `"level":"WARN"`) || !strings.Contains(warning, `"use":"`+tc.other+` `+name+`"`) ||
			!strings.HasPrefix(refusal, tc.other+": "+tc.says) {
			t.Errorf("%s: exit %d\n%s%s", name, code, out, errOut)
		}
	}
	for name, instead := range map[string]string{"ctl": `"keyserverctl"`, "up": `"keyserver-dev up"`} {
		for _, flag := range []string{"--listen", "--help"} {
			code, out, errOut := runInImage(t, built, "keyserver-operator", name, flag)
			if code != 2 || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, instead) {
				t.Errorf("%s %s: exit %d\n%s%s", name, flag, code, out, errOut)
			}
		}
	}
}

// runInImage runs a program of the image to its end.
func runInImage(t *testing.T, built image, program string, args ...string) (code int, out, errOut string) {
	t.Helper()
	cmd := container{Root: built.root(), Path: "/ko-app/" + program, Args: args, Env: built.env}.command(t)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start(t, cmd)
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// The key server runs as a user that the image does not know, in group 0, and again with its
// existing files. OpenShift runs it like this.
func TestARandomUserServes(t *testing.T) {
	built, data := imageBuilt(t), t.TempDir()
	if err := os.Chmod(data, 0o770); err != nil { // group 0 may write, by fsGroup or by OpenShift
		t.Fatal(err)
	}
	own(t, data, 0, 0)
	user := 1_000_000_000 + rand.IntN(100_000)
	for range 2 {
		cmd := container{
			Root: built.root(), Path: built.entrypoint, Env: built.env, User: user, Mounts: []mount{{From: data, At: "/data"}},
			Args: []string{"serve", "--listen", "127.0.0.1:0", "--external-listen", "", "--data-dir", "/data/keyserver"},
		}.command(t)
		var log rig.Output
		cmd.Stdout, cmd.Stderr = &log, &log
		start(t, cmd)
		rig.Succeeds(t, func() error {
			if !strings.Contains(log.String(), "ready: ") {
				return fmt.Errorf("not ready as user %d:\n%s", user, log.Tail())
			}
			return nil
		})
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("user %d: %v\n%s", user, err, log.Tail())
		}
	}
}

// subcommands returns the commands in a help text.
func subcommands(help string) []string {
	_, list, _ := strings.Cut(help, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return names
}
