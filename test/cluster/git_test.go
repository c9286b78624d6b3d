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

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// declared is the directory of declared objects in docs/install.md.
const declared = "trust"

// managesFromGit installs the CRDs and the namespace of a GitOps tool, without its processes. It deletes them when the
// test ends, unless the test fails. It returns the directory in which make test-cluster has stored the tool's programs.
func (n *node) managesFromGit(t *testing.T, variable, in string, definitions ...string) (programs string) {
	t.Helper()
	if programs = os.Getenv(variable); programs == "" {
		t.Fatalf("%s is not set: run the suite by make test-cluster, which builds what it is to name", variable)
	}
	of := func(definition string) string { return filepath.Join(programs, definition+".yaml") }
	for _, definition := range definitions {
		n.kubectl(t, "apply", "--server-side", "-f", of(definition))
		n.kubectl(t, "wait", "--for=condition=Established", "-f", of(definition), "--timeout=1m")
	}
	n.kubectl(t, "create", "namespace", in)
	t.Cleanup(func() {
		if t.Failed() {
			return // for inspection
		}
		n.kubectl(t, "delete", "namespace", in, "--timeout=2m")
		for _, definition := range definitions {
			n.kubectl(t, "delete", "-f", of(definition), "--timeout=2m")
		}
	})
	return programs
}

// leavesGit deletes what a GitOps tool manages, in the reverse order of docs/install.md, and then
// what remains, as docs/uninstall.md says.
func (n *node) leavesGit(t *testing.T, in, kind string) {
	t.Helper()
	gone := func(name string) { n.kubectl(t, "-n", in, "delete", kind+"/"+name, "--timeout=5m") }
	gone("trust")
	if left := strings.TrimSpace(n.kubectl(t, "get", "trust", "--all-namespaces", "-o", "name")); left != "keyserver.trust.keyserver.dev/default" {
		t.Errorf("what was declared is gone with its %s, and there is %q", kind, left)
	}
	for _, name := range []string{"keyserver-object", "keyserver", "keyserver-volume"} {
		gone(name)
	}
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	n.awaitField(t, namespace, "deployment/keyserver", available, "True")
	n.awaitField(t, namespace, "persistentvolumeclaim/keyserver-data", "{.status.phase}", "Bound")
	n.uninstall(t, onePod)
}

// repository makes a Git repository of the files of the test, and serves it on the network of the
// node until the test ends.
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

// process runs a program on the network of the node, with access to the cluster, until the test ends.
func (n *node) process(t *testing.T, environment []string, program string, flags ...string) {
	t.Helper()
	log, temporary := &rig.Output{}, t.TempDir()
	cmd := exec.Command(program, flags...)
	cmd.Env = append(os.Environ(), append(environment, "KUBECONFIG="+filepath.Join(n.state, "admin.conf"), "TMPDIR="+temporary, "HOME="+temporary)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = temporary, log, log
	rig.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // Kill fails only for a process that has ended
		_ = cmd.Wait()
		if t.Failed() {
			lines := strings.Split(log.String(), "\n")
			t.Logf("the end of the log of %s:\n%s", filepath.Base(program), strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
}

// commit commits the files of the test and returns the id of the commit.
func (n *node) commit(t *testing.T, message string) string {
	t.Helper()
	n.run(t, "git", "add", "--all", "--", ".", ":!.kube")
	n.run(t, "git", "-c", "user.name=platform", "-c", "user.email=platform@example.com", "commit", "--quiet", "--allow-empty", "--message", message)
	return strings.TrimSpace(n.run(t, "git", "rev-parse", "HEAD"))
}

// declare writes a file with declared objects, or removes it if text is empty.
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

func trustedCA(name, certificate string) string {
	return "apiVersion: trust.keyserver.dev/v1beta1\nkind: TrustedCA\nmetadata: {name: " + name + ", namespace: default}\nspec:\n  certificate:\n" + certificate
}

// noCertificate is PEM that is not a certificate.
const noCertificate = "-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----"

// inline returns a certificate as part of a manifest.
func inline(pem string) string {
	return "    inline: |\n      " + strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n      ") + "\n"
}

// allReady fails the test unless all declared objects are Ready now.
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

// trusts fails the test unless the key server trusts a CA (want is true) or does not trust it.
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
