// Package krew installs the kubectl plugin of a release with the real krew.
package krew

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/krew"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// binaries are the files of a release, by platform name in the archives.
var binaries = map[string]string{
	"linux-amd64": "keyserverctl-linux-amd64", "linux-arm64": "keyserverctl-linux-arm64",
	"darwin-amd64": "keyserverctl-darwin-amd64", "darwin-arm64": "keyserverctl-darwin-arm64",
	"windows-amd64": "keyserverctl-windows-amd64.exe",
}

// release returns a directory with the plugin's manifest and archives. native is the program for this machine.
func release(t *testing.T, native []byte) string {
	t.Helper()
	dir := t.TempDir()
	for platform, file := range binaries {
		binary := []byte("for " + platform)
		if platform == "linux-"+runtime.GOARCH {
			binary = native
		}
		rig.Must(t, os.WriteFile(filepath.Join(dir, file), binary, 0o600))
	}
	manifest, err := exec.CommandContext(t.Context(), "../../hack/krew.sh", version.String(), dir).Output()
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(filepath.Join(dir, "keyserver.yaml"), manifest, 0o600))
	return dir
}

// archive returns the name of the plugin's archive for an architecture.
func archive(architecture string) string {
	return "kubectl-keyserver-linux-" + architecture + ".tar.gz"
}

// user is a user with kubectl and krew, and no plugins.
type user struct {
	t           *testing.T
	environment []string
	home, bin   string // bin is the directory of kubectl
}

func newUser(t *testing.T) *user {
	t.Helper()
	u := &user{t: t, home: t.TempDir(), bin: t.TempDir()}
	rig.Must(t, os.Symlink(controlplane.Kubectl(t), filepath.Join(u.bin, "kubectl")))
	path := strings.Join([]string{filepath.Join(u.home, ".krew", "bin"), u.bin, krew.Programs(t), os.Getenv("PATH")}, string(os.PathListSeparator))
	u.environment = []string{"HOME=" + u.home, "PATH=" + path, "KREW_NO_UPGRADE_CHECK=1"}
	u.must(u.home, "git init --quiet .krew/index/default") // an empty index for krew
	return u
}

// sh runs commands in a directory, and returns their output.
func (u *user) sh(dir, commands string) (said string, err error) {
	cmd := exec.CommandContext(u.t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = dir, u.environment
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u *user) must(dir, commands string) string {
	u.t.Helper()
	said, err := u.sh(dir, commands)
	if err != nil {
		u.t.Fatalf("%s: %v\n%s", commands, err, said)
	}
	return said
}

// installed returns the names of installed plugins.
func (u *user) installed(dir string) string {
	u.t.Helper()
	return strings.Join(strings.Fields(u.must(dir, "kubectl krew list </dev/null")), " ")
}

// documented returns the commands of docs/ctl.md.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/ctl.md")
	rig.Must(t, err)
	blocks := slices.DeleteFunc(markdown.Blocks(string(text)), func(b markdown.Block) bool { return b.Heading != "Install the plugin with krew" })
	if len(blocks) != 1 {
		t.Fatalf("docs/ctl.md has %d blocks of commands with krew", len(blocks))
	}
	return blocks[0].Text
}

// The commands of docs/ctl.md install the plugin, which then calls a key server. Uninstalling removes it.
func TestKrew(t *testing.T) {
	const name = "https://keys.example:8443"
	rig.Must(t, program.DependOnSources())
	native, err := os.ReadFile(built.Named("keyserverctl").Path)
	rig.Must(t, err)
	u, dir := newUser(t), release(t, native)
	server, err := built.Serve(filepath.Join(t.TempDir(), "data"))
	rig.Must(t, err)
	t.Cleanup(server.Kill)
	authority, err := os.ReadFile(filepath.Join(server.DataDir, "ca.crt"))
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), authority, 0o600))
	u.environment = append(u.environment, "KEYSERVER_PASSWORD_FILE="+filepath.Join(server.DataDir, "bootstrap-password"))

	commands := documented(t)
	for _, part := range []string{name, archive("amd64"), "kubectl keyserver version"} {
		if !strings.Contains(commands, part) {
			t.Fatalf("docs/ctl.md has no %s:\n%s", part, commands)
		}
	}
	said := u.must(dir, strings.NewReplacer(name, "https://"+server.Address, archive("amd64"), archive(runtime.GOARCH)).Replace(commands))
	for _, part := range []string{
		"Installed plugin: keyserver", "kubectl keyserver login --server https://HOST --ca-file ca.crt", // the caveat
		"logged in to https://" + server.Address + " as admin", version.String(),
	} {
		if !strings.Contains(said, part) {
			t.Errorf("nothing says %q:\n%s", part, said)
		}
	}
	if got := u.installed(dir); got != "detached/keyserver" { // it is from no index
		t.Errorf("krew has %q", got)
	}
	if got := u.must(dir, "kubectl keyserver roles list --field name"); !strings.Contains(got, "Administrator") {
		t.Errorf("the roles are %q", got)
	}
	u.must(dir, "kubectl krew uninstall keyserver")
	if said, err := u.sh(dir, "kubectl keyserver version"); err == nil || !strings.Contains(said, `unknown command "keyserver"`) {
		t.Errorf("uninstalled: %v\n%s", err, said)
	}
	if got := u.installed(dir); got != "" {
		t.Errorf("uninstalled, and krew has %q", got)
	}
}

// krew installs nothing whose digest differs from that in the manifest.
func TestKrewRefuses(t *testing.T) {
	u, dir := newUser(t), release(t, []byte("a program"))
	right, err := os.ReadFile(filepath.Join(dir, "keyserver.yaml"))
	rig.Must(t, err)
	wrong := regexp.MustCompile(`sha256: [0-9a-f]{64}`).ReplaceAllString(string(right), "sha256: "+strings.Repeat("a", 64))
	rig.Must(t, os.WriteFile(filepath.Join(dir, "wrong.yaml"), []byte(wrong), 0o600))
	template, err := filepath.Abs("../../config/krew/keyserver.yaml")
	rig.Must(t, err)
	own, other := archive("amd64"), archive("arm64")
	if runtime.GOARCH == "arm64" {
		own, other = other, own
	}
	for of, flags := range map[string]string{
		"a manifest with another digest":              "--manifest=wrong.yaml --archive=" + own,
		"a manifest that no release has filled in":    "--manifest=" + template + " --archive=" + own,
		"the archive of another architecture":         "--manifest=keyserver.yaml --archive=" + other,
		"the binary itself where an archive is meant": "--manifest=keyserver.yaml --archive=keyserverctl-linux-" + runtime.GOARCH,
	} {
		if said, err := u.sh(dir, "kubectl krew install "+flags); err == nil || !strings.Contains(said, "checksum does not match") {
			t.Errorf("%s: %v\n%s", of, err, said)
		}
		if got := u.installed(dir); got != "" {
			t.Errorf("%s: krew has %q", of, got)
		}
	}
	u.must(dir, "kubectl krew install --manifest=keyserver.yaml --archive="+own)
}

// krew's index checks a manifest like this: it is well-formed, names each platform once, and can be
// installed on each, with its license. The download is replaced by the files of the release.
func TestKrewIndexTakesIt(t *testing.T) {
	u, dir := newUser(t), release(t, []byte("a program"))
	kubectl := filepath.Join(u.bin, "kubectl")
	rig.Must(t, os.Remove(kubectl))
	rig.Must(t, os.WriteFile(kubectl, []byte(`#!/bin/sh
exec `+controlplane.Kubectl(t)+` "$@" --archive="`+dir+`/kubectl-keyserver-$KREW_OS-$KREW_ARCH.tar.gz"
`), 0o700))
	if said := u.must(dir, "validate-krew-manifest -manifest keyserver.yaml"); !strings.Contains(said, "all 5 spec.platforms installed fine") {
		t.Errorf("it says %s", said)
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "keyserver.yaml"))
	rig.Must(t, err)
	for of, change := range map[string][2]string{
		"failed to read plugin file": {"apiVersion: krew.", "apiVersion: crew."},
		"should have a short":        {"shortDescription:", "description:"},
		"overlapping platform":       {"arch: arm64", "arch: amd64"},
	} {
		changed := strings.Replace(string(manifest), change[0], change[1], 1)
		at := filepath.Join(t.TempDir(), "keyserver.yaml")
		rig.Must(t, os.WriteFile(at, []byte(changed), 0o600))
		if said, err := u.sh(dir, "validate-krew-manifest -skip-install -manifest "+at); err == nil || !strings.Contains(said, of) {
			t.Errorf("%s for %s: %v\n%s", change[1], change[0], err, said)
		}
	}
}
