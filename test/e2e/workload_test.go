package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/curl"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

// TestWorkload runs a workload that is declared only in Git: the result of "up", one directory of manifests, and the
// script of the Pod, which has only a token and a ConfigMap. The test creates the files of the Pod as kubelet would.
func TestWorkload(t *testing.T) {
	t.Parallel() // it mostly waits, for its own cluster
	curl.Need(t)
	w := startUp(t)

	if out, err := w.mac(t, "before"); err == nil {
		t.Errorf("there is no principal yet, and the script computes %s", out)
	}
	if said := w.tutorial(t); !strings.Contains(said, `"generation":1}`) || !strings.Contains(said, `"valid":true`) {
		t.Errorf("the commands of %s print\n%s", tutorial, said)
	}
	w.wait(t, "ksrole/message-authenticator", "Ready")
	if keys := w.kubectl(t, "", "-n", "billing", "get", "configmap", "message-key", "-o", "jsonpath={.data.generation}"); keys != "1" {
		t.Errorf("the key of the namespace that was granted is at generation %q", keys)
	}

	first := w.mustMAC(t, "a message")
	if first.Generation != 1 || first.MACBytes != 48 {
		t.Errorf("the first MAC: %+v", first)
	}
	if again := w.mustMAC(t, "a message"); !bytes.Equal(again.MAC, first.MAC) {
		t.Error("one message has two MACs under one key")
	}

	// The key is rotated: Pods use the successor, and earlier MACs stay valid.
	admin := w.admin(t)
	if _, err := admin.RotateKey(t.Context(), schema.KeyRequest{TTag: first.TTag}); err != nil {
		t.Fatal(err)
	}
	rig.Soon(t, "the ConfigMap says generation 2", func() bool {
		return w.kubectl(t, "", "get", "configmap", "message-key", "-o", "jsonpath={.data.generation}") == "2"
	})
	second := w.mustMAC(t, "a message")
	if second.Generation != 2 || bytes.Equal(second.MAC, first.MAC) {
		t.Errorf("the MAC after the rotation: %+v", second)
	}

	// Removing the manifests revokes access.
	w.kubectl(t, "", "delete", "-k", w.sample, "--wait=true", "--timeout=2m")
	if out, err := w.mac(t, "after"); err == nil {
		t.Errorf("the principal is gone, and the script computes %s", out)
	}
	line, err := admin.ListKeys(t.Context(), schema.KeyQuery{Lineage: &first.TTag})
	if err != nil || len(line.Keys) != 2 {
		t.Fatalf("the line is %+v, %v", line, err)
	}
	for _, k := range line.Keys {
		if k.State == nil || *k.State != "destroying" || k.DestroyAt == nil || time.Until(*k.DestroyAt) < 29*24*time.Hour {
			t.Errorf("the key is %+v; want it to be destroyed in its time", k)
		}
	}
}

// tutorial is the page whose commands the test runs.
const tutorial = "docs/start/workload.md"

// tutorial runs the commands of the page in a directory that looks like a checkout, and returns their output.
func (w *local) tutorial(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.root, tutorial))
	if err != nil {
		t.Fatal(err)
	}
	checkout := t.TempDir()
	for name, at := range map[string]string{"config": filepath.Join(w.root, "config"), "hack": filepath.Join(w.root, "hack"), ".keyserver": w.dir} {
		if err := os.Symlink(at, filepath.Join(checkout, name)); err != nil {
			t.Fatal(err)
		}
	}
	var commands strings.Builder
	for _, b := range markdown.Blocks(string(text)) {
		commands.WriteString(b.Text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands.String())
	cmd.Dir = checkout
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands.String(), out)
	}
	return string(out)
}

// local is an installation that "up" created.
type local struct {
	*cluster
	root   string // of the repository
	sample string
	dir    string // directory of its state
	api    string
	pod    string // directory of the Pod's files
}

func startUp(t *testing.T) *local {
	t.Helper()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	u := binary.Up(t, t.TempDir())
	found := regexp.MustCompile(`API +(https://\S+)/api`).FindStringSubmatch(u.Shown)
	if found == nil {
		t.Fatalf("up names no API:\n%s", u.Shown)
	}
	pod := t.TempDir()
	if err := os.Mkdir(filepath.Join(pod, "key"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &local{
		pod:  pod,
		root: root, cluster: &cluster{kubeconfig: filepath.Join(u.Dir, "kubeconfig"), home: t.TempDir()},
		sample: filepath.Join(root, "config", "samples", "workload"), dir: u.Dir, api: found[1],
	}
}

// admin logs in to the key server directly.
func (w *local) admin(t *testing.T) *client.Client {
	t.Helper()
	password, err := os.ReadFile(filepath.Join(w.dir, "server", "bootstrap-password"))
	if err != nil {
		t.Fatal(err)
	}
	roots, err := program.Roots(filepath.Join(w.dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{BaseURL: w.api, RootCAs: roots, Credentials: client.PasswordCredentials("admin",
		func(context.Context) (string, error) { return strings.TrimSpace(string(password)), nil })})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// mac runs the script of the sample as its Pod does. A running Pod keeps its files even if the objects that
// they come from are deleted.
func (w *local) mac(t *testing.T, message string) ([]byte, error) {
	t.Helper()
	key, token := filepath.Join(w.pod, "key"), filepath.Join(w.pod, "token")
	if text, err := w.try(t, "", "get", "configmap", "message-key", "-o", "json"); err == nil {
		var published struct{ Data map[string]string }
		if err := json.Unmarshal([]byte(text), &published); err != nil {
			t.Fatal(err)
		}
		for name, content := range published.Data {
			if err := os.WriteFile(filepath.Join(key, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text, err := w.try(t, "", "create", "token", "message-signer", "--audience", "https://keyserver.keyserver-system.svc"); err == nil {
		if err := os.WriteFile(token, []byte(strings.TrimSpace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(w.sample, "mac.sh"), message)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TOKEN=" + token, "KEY=" + key}
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		t.Logf("the script: %v: %s%s", err, out, &says)
	}
	return out, err
}

func (w *local) mustMAC(t *testing.T, message string) schema.MACResponse {
	t.Helper()
	out, err := w.mac(t, message)
	if err != nil {
		t.Fatal(err)
	}
	var answer schema.MACResponse
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return answer
}
