package install

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Every command of the image does its work, or says in a sentence why it
// cannot, for another user, without HOME, where nothing at all can be written.
func TestEveryCommandWithNothingToWrite(t *testing.T) {
	built := imageBuilt(t)
	run := func(args ...string) (code int, out, errOut string) {
		t.Helper()
		cmd := container{Root: built.root(), Path: built.entrypoint, Args: args, Env: built.env}.command(t)
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
	commands := map[string]struct {
		args []string
		code int
		says string // on standard output where it succeeds, else on standard error
	}{
		"":                      {nil, 0, "Available Commands:"},
		"agent":                 {[]string{"--server", "https://keys.example", "--token-file", "/nowhere"}, 1, "/nowhere"},
		"audit":                 {nil, 0, "verify"},
		"audit discard-journal": {[]string{"--data-dir", "/data"}, 1, "keyserver-operator: "},
		"audit show":            {[]string{"--archive", "file:///nowhere"}, 1, "/nowhere"},
		"audit verify":          {[]string{"--data-dir", "/data"}, 1, "keyserver-operator: "},
		"audit receipt":         {nil, 0, "verify"},
		"audit receipt verify":  {nil, 2, "--key is missing"},
		"backup":                {nil, 2, "--server is missing"},
		"ctl":                   {[]string{"roles", "list"}, 2, "HOME is not set"},
		"custody":               {nil, 0, "recovery"},
		"custody recovery":      {[]string{"--data-dir", "/data", "--recipient", "age1", "--out", "/data/o"}, 1, "keyserver-operator: "},
		"custody restore":       {[]string{"--data-dir", "/data", "--kek", "base64key://AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "--recovery", "/nowhere", "--identity", "/nowhere"}, 1, "/nowhere"},
		"doctor":                {[]string{"--data-dir", "/data"}, 1, "keyserver-operator: "},
		"export":                {nil, 2, "--"},
		"help":                  {nil, 0, "Available Commands:"},
		"kms":                   {[]string{"--server", "https://127.0.0.1:1", "--token-file", "/nowhere", "--lineage", "AAAAAQECAwQFBgcI", "--listen", "unix:///nowhere/kms.sock"}, 1, "--listen: open /nowhere"},
		"manager":               {nil, 1, "no cluster to talk to"},
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
		"support-bundle":        {[]string{"--log", "/nowhere", "--output", "/data/bundle.tar.gz"}, 1, "--output: open /data/bundle.tar.gz"},
		"up":                    {[]string{"--dir", "/data/up", "--listen", "127.0.0.1:0"}, 1, "/data/up"},
		"version":               {nil, 0, "keyserver-operator "},
	}
	for command, tc := range commands {
		words := strings.Fields(command)
		code, out, errOut := run(append(words, "--help")...)
		if code != 0 || errOut != "" || !strings.Contains(out, "Usage:") {
			t.Errorf("%s --help: exit %d\n%s%s", command, code, out, errOut)
		}
		for _, below := range subcommands(out) {
			if command == "ctl" { // a verb for each route, which test/script has
				break
			}
			if name := strings.TrimSpace(command + " " + below); !has(commands, name) {
				t.Errorf("%s is not tried", name)
			}
		}
		code, out, errOut = run(append(words, tc.args...)...)
		said := out
		if tc.code != 0 {
			if said = errOut; strings.Count(said, "\n") != 1 {
				t.Errorf("%s: not one sentence", command)
			}
		}
		if code != tc.code || !strings.Contains(said, tc.says) || strings.Contains(out+errOut, "goroutine ") {
			t.Errorf("%s: exit %d, want %d and %q\n%s%s", command, code, tc.code, tc.says, out, errOut)
		}
	}
}

// The key server serves as a user that the image does not know, in group 0, and again with
// what it has written: so OpenShift runs it.
func TestARandomUserServes(t *testing.T) {
	built, data := imageBuilt(t), t.TempDir()
	if err := os.Chmod(data, 0o770); err != nil { // of group 0, by fsGroup or by OpenShift
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

// subcommands are those that a help text lists.
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

func has[V any](m map[string]V, key string) bool {
	_, there := m[key]
	return there
}
