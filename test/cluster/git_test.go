//go:build cluster

package cluster

import (
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// declared is the directory of what is declared, in docs/install.md.
const declared = "trust"

// repository makes one of what the test writes, and serves it on the node's network until
// the test ends.
func (n *node) repository(t *testing.T) (url string) {
	t.Helper()
	git := strings.TrimSpace(n.run(t, "git", "--exec-path"))
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(git, "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + n.work, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + n.work},
	})
	t.Cleanup(server.Close)
	n.run(t, "git", "init", "--quiet", "--initial-branch=main")
	n.commit(t, "What the repository has")
	return server.URL + "/.git"
}

// process runs a program that manages the cluster from the node's network, until the test
// ends.
func (n *node) process(t *testing.T, environment []string, program string, flags ...string) {
	t.Helper()
	log, temporary := &rig.Output{}, t.TempDir()
	cmd := exec.Command(program, flags...)
	cmd.Env = append(os.Environ(), append(environment, "KUBECONFIG="+filepath.Join(n.state, "admin.conf"), "TMPDIR="+temporary, "HOME="+temporary)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = temporary, log, log
	rig.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it fails only for a process that has ended
		_ = cmd.Wait()
		if t.Failed() {
			lines := strings.Split(log.String(), "\n")
			t.Logf("the end of the log of %s:\n%s", filepath.Base(program), strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
}

// commit makes a commit of what the test has written, and answers its id.
func (n *node) commit(t *testing.T, message string) string {
	t.Helper()
	n.run(t, "git", "add", "--all", "--", ".", ":!.kube")
	n.run(t, "git", "-c", "user.name=platform", "-c", "user.email=platform@example.com", "commit", "--quiet", "--allow-empty", "--message", message)
	return strings.TrimSpace(n.run(t, "git", "rev-parse", "HEAD"))
}

// declare writes a file of what is declared, or removes it.
func (n *node) declare(t *testing.T, name, text string) {
	t.Helper()
	const first = "resources: [../config/samples"
	if text == "" {
		rig.Must(t, os.Remove(filepath.Join(n.work, declared, name)))
		n.kustomize(t, declared, first+"]\n")
		return
	}
	n.kustomize(t, declared, first+", "+name+"]\n")
	rig.Must(t, os.WriteFile(filepath.Join(n.work, declared, name), []byte(text), 0o600))
}

// trustedCA is one in the namespace default.
func trustedCA(name, certificate string) string {
	return "apiVersion: trust.keyserver.dev/v1alpha1\nkind: TrustedCA\nmetadata: {name: " + name + ", namespace: default}\nspec:\n  certificate:\n" + certificate
}

// inline is a certificate in a manifest.
func inline(pem string) string {
	return "    inline: |\n      " + strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n      ") + "\n"
}

// allReady fails unless everything that is declared is Ready now.
func (n *node) allReady(t *testing.T) {
	t.Helper()
	lines := strings.Fields(n.kubectl(t, "get", "trust", "--all-namespaces", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name}={.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`))
	if len(lines) == 0 {
		t.Error("nothing is declared")
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, "=True") {
			t.Errorf("all is said to be well, and %s", line)
		}
	}
}

// trusts fails unless the key server itself trusts a CA, or does not.
func (n *node) trusts(t *testing.T, subject string, want bool) {
	t.Helper()
	list, err := n.admin(t).ListTrustedCAs(t.Context(), schema.TrustedCAsQuery{})
	rig.Must(t, err)
	has := false
	for _, ca := range list.TrustedCAs {
		has = has || ca.Subject != nil && strings.Contains(*ca.Subject, subject)
	}
	if has != want {
		t.Errorf("the key server trusts %q: %t, want %t", subject, has, want)
	}
}
