// Package operations runs the commands of docs/guides in order, as a user who copies them would, while clients use
// keys.
package operations

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/hsm"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	"github.com/keyserver-operator/keyserver-operator/test/rig/shell"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// guides are the pages of docs/guides that have commands, in the order in which they run.
var guides = []string{
	"session.md", "rotate-data-key.md", "replace-the-key-encryption-key.md", "use-an-hsm.md", "recover-the-key-encryption-key.md",
	"back-up.md", "restore.md", "replace-the-ca.md", "rotate-and-withdraw-keys.md", "explain-a-refusal.md", "verify-the-audit-log.md",
	"archive-the-audit-log.md", "move-to-postgresql.md",
}

// after has additional commands and waits after the blocks of a page. $1 is the number of the block.
var after = map[string]string{
	"rotate-data-key.md":                `until_ "retired"`,
	"replace-the-key-encryption-key.md": `[[ $1 == 3 ]] || until_ "not_needed"`,
	"use-an-hsm.md":                     `until_ "retired"`,
	// After a restore, the user logs in again with the password.
	"restore.md":                  `[[ $1 == 1 ]] || log_in`,
	"rotate-and-withdraw-keys.md": `sleep 2`, // after that, no client uses a new MAC of the previous key
}

// hurried replaces commands to avoid a wait of an hour.
var hurried = strings.NewReplacer(`/api/authority/activate '{}'`, `/api/authority/activate '{"early":true}'`)

const preamble = `set -euo pipefail
set -o monitor
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
retired() { [[ $(ask GET /api/custody | jq '[.dataKeys[] | select(.state != "retired")] | length') == 1 ]]; }
not_needed() { [[ $(ask GET /api/custody | jq .kek.previousNeeded) == false ]]; }
log_in() {
	cp keyserver-lost/bootstrap-password keyserver-data/
	SESSION=$(curl -sS --fail-with-body --cacert $CA $SERVER/api/sessions -d '{"method":"password","name":"admin","password":"'"$(cat keyserver-data/bootstrap-password)"'"}' | jq -r .sessionId)
}
until_() { for _ in {1..600}; do if "$1"; then return; fi; sleep 0.2; done; echo "never: $1" >&2; exit 1; }
`

// runner stands for the program. "serve" runs in the background and replaces the previous one, as under a supervisor.
const runner = `#!/usr/bin/env bash
set -euo pipefail
[[ ${1:-} == serve ]] || exec "$PROGRAM" "$@"
stop-server
"$PROGRAM" "$@" >>serve.log 2>&1 & echo $! >serve.pid
for _ in {1..600}; do
	if curl -sf --cacert keyserver-data/ca.crt "$SERVER_UNDER_TEST/api/health" >/dev/null; then exit; fi
	sleep 0.2
done
cat serve.log >&2
exit 1
`

const stopper = `#!/usr/bin/env bash
[[ -f serve.pid ]] || exit 0
kill "$(cat serve.pid)" 2>/dev/null
tail --pid="$(cat serve.pid)" -f /dev/null
rm serve.pid
`

func TestOperationsByTheirCommands(t *testing.T) {
	shell.Need(t)
	rig.Must(t, program.DependOnSources())
	root, err := rig.Root()
	rig.Must(t, err)
	w := newWorkplace(t)
	bash := func(script string) error {
		cmd := exec.Command("bash", "-c", script)
		out := &rig.Output{}
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, w.env, out, out
		cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
		cmd.WaitDelay = 10 * time.Second // processes in the background may keep the output open
		err := cmd.Run()
		t.Logf("%s", out.Tail())
		return err
	}
	rig.Must(t, bash("keyserver-operator serve --data-dir keyserver-data"))
	c := w.client(t)
	former, err := c.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)

	script := strings.Builder{}
	script.WriteString(preamble)
	fmt.Fprintf(&script, "TTAG=%q\n", former.TTag)
	for _, page := range guides {
		text, err := os.ReadFile(filepath.Join(root, "docs", "guides", page))
		rig.Must(t, err)
		seen := 0
		for _, b := range markdown.Blocks(string(text)) {
			if b.NotRun != "" { // needs several key servers, a cluster or another year
				continue
			}
			seen++
			fmt.Fprintf(&script, "echo %q\n", "=== "+page+": "+b.Heading)
			if slices.ContainsFunc([]string{"custody restore", "keyserver-operator restore", "keyserver-operator migrate"}, func(rest string) bool { return strings.Contains(b.Text, rest) }) {
				script.WriteString("stop-server\n")
			}
			script.WriteString(hurried.Replace(w.replace.Replace(b.Text)))
			if wait := after[page]; wait != "" {
				fmt.Fprintf(&script, "after() { %s; }; after %d\n", wait, seen)
			}
		}
		if seen == 0 && after[page] != "" {
			t.Errorf("%s has no commands", page)
		}
	}

	users := w.use(t, c, former)
	if err := bash(script.String()); err != nil {
		t.Errorf("the commands: %v", err)
	}
	users.end(t)
	var refused *client.Error
	if _, err := c.HMAC(t.Context(), former.TTag, strings.NewReader("message")); !errors.As(err, &refused) || refused.Code != "KEY_DISABLED" {
		t.Errorf("the key that was withdrawn: %v", err)
	}
}

// workplace is a directory with programs. Its addresses replace those of the document.
type workplace struct {
	dir, address string
	env          []string
	replace      *strings.Replacer
}

func newWorkplace(t *testing.T) *workplace {
	t.Helper()
	token := hsm.New(t, "house")
	w := &workplace{dir: t.TempDir(), address: rig.FreeAddress(t, "127.0.0.1")}
	bin := filepath.Join(w.dir, "bin")
	rig.Must(t, os.Mkdir(bin, 0o700))
	for name, text := range map[string]string{"keyserver-operator": runner, "stop-server": stopper} {
		rig.Must(t, os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700))
	}
	plugin := token.Command("")
	rig.Must(t, os.Symlink(plugin.Path, filepath.Join(bin, "kms-pkcs11")))
	rig.Must(t, os.Symlink(built.Named("keyserverctl").Path, filepath.Join(bin, "keyserverctl")))
	pin, err := os.ReadFile(token.PINFile)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(filepath.Join(w.dir, "pin"), pin, 0o600))
	rig.Must(t, os.Mkdir(filepath.Join(w.dir, "run"), 0o700))
	// Without the variables of the tests: the program would reject unknown ones.
	outside := slices.DeleteFunc(slices.Clone(plugin.Env), func(line string) bool { return strings.HasPrefix(line, "KEYSERVER_") })
	w.env = slices.Concat(outside, []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "PROGRAM=" + built.Path, "SERVER_UNDER_TEST=https://" + w.address,
		"KEYSERVER_LISTEN=" + w.address, "KEYSERVER_EXTERNAL_LISTEN=",
	})
	w.replace = strings.NewReplacer("https://localhost:8443", "https://"+w.address,
		"postgres://USER:PASSWORD@HOST/DATABASE'\n", pgtest.Database(t)+"'\n",
		"/run/kms/", filepath.Join(w.dir, "run")+"/", "/usr/lib/softhsm/libsofthsm2.so", token.Library)
	t.Cleanup(func() {
		stop := exec.Command(filepath.Join(bin, "stop-server"))
		stop.Dir = w.dir
		if out, err := stop.CombinedOutput(); err != nil {
			t.Errorf("stop the server: %v\n%s", err, out)
		}
	})
	return w
}

// client returns a client that trusts the first CA.
func (w *workplace) client(t *testing.T) *client.Client {
	t.Helper()
	data := filepath.Join(w.dir, "keyserver-data")
	password, err := os.ReadFile(filepath.Join(data, "bootstrap-password"))
	rig.Must(t, err)
	over := program.Connect(t, data, func() string { return w.address })
	return program.Client(t, over, "admin", strings.TrimSpace(string(password)), program.NoRetries)
}

// users compute with a key and verify with a lineage, repeatedly.
type users struct {
	stop   context.CancelFunc
	ended  chan struct{}
	done   atomic.Int64
	absent atomic.Int64 // failed connections while one server replaced another
}

func (w *workplace) use(t *testing.T, c *client.Client, line schema.KeyMetadata) *users {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	u := &users{stop: cancel, ended: make(chan struct{})}
	key, err := c.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	first := ""
	once := func() error {
		h, err := c.HMAC(ctx, key.TTag, strings.NewReader("message"))
		if err != nil {
			return fmt.Errorf("hmac: %w", err)
		}
		if first == "" {
			first = string(h.MAC)
		}
		if string(h.MAC) != first {
			t.Error("another MAC of the same key")
		}
		made, err := c.MAC(ctx, line.TTag, strings.NewReader("message"))
		if err != nil {
			return fmt.Errorf("mac: %w", err)
		}
		checked, err := c.VerifyMAC(ctx, schema.VerifyMACRequest{Lineage: &line.TTag, MAC: made.MAC}, strings.NewReader("message"))
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if !checked.Valid {
			t.Error("a MAC of this moment is not valid")
		}
		return nil
	}
	go func() {
		defer close(u.ended)
		for ctx.Err() == nil {
			var away *client.NetworkError
			switch err := once(); {
			case err == nil:
				u.done.Add(1)
			case errors.As(err, &away):
				u.absent.Add(1)
				time.Sleep(20 * time.Millisecond)
			case ctx.Err() == nil:
				t.Errorf("beside the commands: %v", err)
			}
		}
	}()
	return u
}

func (u *users) end(t *testing.T) {
	t.Helper()
	u.stop()
	<-u.ended
	t.Logf("%d times used, %d times while no server listened", u.done.Load(), u.absent.Load())
	if u.done.Load() < 50 {
		t.Errorf("used %d times only", u.done.Load())
	}
}
