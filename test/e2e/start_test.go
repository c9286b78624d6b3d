package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	"github.com/keyserver-operator/keyserver-operator/test/rig/shell"
)

// reader is a user at a terminal in one checkout, while "make run" runs in another checkout.
type reader struct {
	directory string
	env       []string
	replace   *strings.Replacer
}

func newReader(t *testing.T) *reader {
	t.Helper()
	shell.Need(t)
	up := startUp(t)
	r := &reader{directory: t.TempDir(), replace: strings.NewReplacer("https://127.0.0.1:8443", up.api, "https://localhost:8443", up.api)}
	home := filepath.Join(r.directory, "home")
	for _, dir := range []string{home, filepath.Join(home, "run"), filepath.Join(home, ".local", "bin"), filepath.Join(r.directory, "bin")} {
		rig.Must(t, os.MkdirAll(dir, 0o700))
	}
	for name, at := range map[string]string{
		"config": filepath.Join(up.root, "config"), "hack": filepath.Join(up.root, "hack"), "go.mod": filepath.Join(up.root, "go.mod"),
		".keyserver": up.dir, "keyserver-data": filepath.Join(up.dir, "server"), "bin/keyserver-operator": binary.Path,
		"bin/keyserverctl": binary.Named("keyserverctl").Path,
	} {
		rig.Must(t, os.Symlink(at, filepath.Join(r.directory, filepath.FromSlash(name))))
	}
	// The environment of a desktop. The password comes from a file, because there is no prompt.
	r.env = append(program.Environment(), "HOME="+home, "XDG_RUNTIME_DIR="+filepath.Join(home, "run"), "XDG_CONFIG_HOME=", "XDG_STATE_HOME=",
		"KUBECONFIG="+filepath.Join(up.dir, "kubeconfig"), "KEYSERVER_PASSWORD_FILE="+filepath.Join(up.dir, "server", "bootstrap-password"),
		"PATH="+filepath.Join(r.directory, "bin")+":"+filepath.Dir(controlplane.Kubectl(t))+":"+os.Getenv("PATH"))
	return r
}

// types runs the commands of a page in one terminal, or only those below some headings.
func (r *reader) types(t *testing.T, page string, headings ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout(t), filepath.FromSlash(page)))
	rig.Must(t, err)
	under := map[string]bool{}
	for _, h := range headings {
		under[h] = true
	}
	var commands strings.Builder
	for _, b := range markdown.Blocks(string(text)) {
		if b.Heading == "Install the plugin with krew" {
			continue // test/krew runs these commands, because it has krew
		}
		if b.NotRun == "" && (len(under) == 0 || under[b.Heading]) {
			commands.WriteString(b.Text)
		}
	}
	if commands.Len() == 0 {
		t.Fatalf("%s has no commands", page)
	}
	return r.run(t, r.replace.Replace(commands.String()))
}

// The start pages work if one user follows them in order. From the second page on, the user is logged in.
func TestStartPages(t *testing.T) {
	t.Parallel() // it mostly waits, for its own cluster
	r := newReader(t)
	for _, step := range []struct {
		page  string
		shows []string
	}{
		{"docs/start/platform-engineer.md", []string{"role.trust.keyserver.dev/message-signer condition met", "Authorize Key, Read ACL\n", "Plan: 0 to create, 1 to update"}},
		{"docs/start/application-developer.md", []string{"logged in to", "generation 2 is the successor of generation 1", "\ntrue\n"}},
		{"docs/start/security-officer.md", []string{"Encryptor, admin", "allowed      false", "CN=Example Partners CA", "no operation needs an approval"}},
		{"docs/start/auditor.md", []string{"audit log intact: ", "continues the checkpoint in checkpoint (", "is in the audit log of "}},
		{"docs/start/on-call.md", []string{"all checks passed", `"ready":true`, "trustedca.trust.keyserver.dev/example-partners", "support-bundle-"}},
		{"docs/ctl.md", []string{"logged in to", "HMAC-SHA384"}},
	} {
		if !t.Run(step.page, func(t *testing.T) {
			said := r.types(t, step.page)
			for _, want := range step.shows {
				if !strings.Contains(said, want) {
					t.Errorf("nobody is shown %q, but\n%s", want, said)
				}
			}
		}) {
			return
		}
	}
	// The rights that docs/install.md tells an administrator to grant, in namespaces that exist.
	r.run(t, "kubectl create namespace payments; kubectl create namespace argocd")
	r.types(t, "docs/install.md", "Give people rights", "Open a namespace to the manager", "Argo CD")
	if said := r.run(t, "kubectl -n payments get rolebindings -o name; kubectl -n argocd get configmap argocd-cm -o name; ls ~/.local/bin"); !strings.Contains(said, "/declare-trust\n") ||
		!strings.Contains(said, "/keyserver-manager-secrets\n") || !strings.Contains(said, "/keyserver-manager-publish\n") || !strings.Contains(said, "configmap/argocd-cm\n") || !strings.Contains(said, "kubectl_complete-keyserver\n") {
		t.Errorf("what was made is\n%s", said)
	}
}

func (r *reader) run(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = r.directory, r.env
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// The commands of the contributor page need only the checkout.
func TestContributorPage(t *testing.T) {
	t.Parallel()
	shell.Need(t)
	r := &reader{directory: checkout(t), env: program.Environment(), replace: strings.NewReplacer()}
	said := r.types(t, "docs/start/contributor.md")
	for _, want := range []string{"make test ", "/internal/platform/quota", "internal/store/sqlstore postgres"} {
		if !strings.Contains(said, want) {
			t.Errorf("nobody is shown %q, but\n%s", want, said)
		}
	}
}
