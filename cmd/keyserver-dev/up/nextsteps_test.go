package up

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/curl"
)

// TestNextStepsInAnyDirectory checks that the commands printed by "up" work for any state directory.
func TestNextStepsInAnyDirectory(t *testing.T) {
	curl.Need(t)
	dir := filepath.Join(t.TempDir(), "it's a $HOME")
	rig.Must(t, os.Mkdir(dir, 0o700))
	rig.Must(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\nprintf '<%s>' \"$@\"\n"), 0o700))
	t.Setenv("TMPDIR", dir)
	srv := testserver.Start(t)
	var out bytes.Buffer
	o := &options{dir: dir, assets: dir}
	cluster := target{kubeconfig: filepath.Join(dir, "kubeconfig")}
	rig.Must(t, o.printNextSteps(t.Context(), &out, srv.Server, cluster, &kube{}))

	var script strings.Builder
	for line := range strings.Lines(out.String()) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			script.WriteString(command)
		}
	}
	ran, err := exec.Command("bash", "-euo", "pipefail", "-c", script.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script.String(), ran)
	}
	for _, want := range []string{`"mac":"`, "<--kubeconfig><" + cluster.kubeconfig + "><get><trust><-A>"} {
		if !strings.Contains(string(ran), want) {
			t.Errorf("%s does not come out of\n%s\n%s", want, script.String(), ran)
		}
	}
}

// TestShellWord checks that shellWord quotes text only if necessary.
func TestShellWord(t *testing.T) {
	for given, want := range map[string]string{
		"/home/me/.keyserver/server/ca.crt": "/home/me/.keyserver/server/ca.crt",
		"a b":                               "'a b'", "": "''", "it's": `'it'\''s'`, "~": "'~'", "a;b": "'a;b'", "$(a)": "'$(a)'",
	} {
		if got := shellWord(given); got != want {
			t.Errorf("%q: got %s, want %s", given, got, want)
		}
	}
}
