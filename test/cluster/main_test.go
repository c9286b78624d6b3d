//go:build cluster

// Package cluster installs the product into a real Kubernetes of one node (hack/cluster) with the commands of its
// documents. Pods use the product, and the tests break parts of the node. "make test-cluster" runs the package with the
// build tag "cluster", because no other suite has a node. A line "figure: ..." is a measurement.
package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

const (
	namespace = "keyserver-system"
	image     = "registry.example/keyserver-operator"
	release   = "v0.1.0"
)

// node is the node of hack/cluster. The tests run on its network, with its kubectl.
type node struct {
	state string // directory with kubectl, ctr and other files of the node
	root  string // of the repository
	work  string // directory of commands, with a copy of config
}

func newNode(t *testing.T) *node {
	t.Helper()
	state := os.Getenv("RIG_CLUSTER")
	if state == "" {
		t.Fatal("RIG_CLUSTER is not set: run the suite by make test-cluster")
	}
	root, err := rig.Root()
	rig.Must(t, err)
	n := &node{state: state, root: root, work: t.TempDir()}
	rig.Must(t, os.CopyFS(filepath.Join(n.work, "config"), os.DirFS(filepath.Join(root, "config"))))
	return n
}

// logMeasurement logs a measurement.
func logMeasurement(t *testing.T, what string, arguments ...any) {
	t.Helper()
	t.Logf("figure: "+what, arguments...)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// try runs a command in the directory that the documents assume.
func (n *node) try(stdin string, command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	if filepath.Base(command[0]) == command[0] && (command[0] == "kubectl" || command[0] == "ctr") {
		cmd = exec.Command(filepath.Join(n.state, command[0]), command[1:]...)
	}
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = n.work, strings.NewReader(stdin), &out, &errs
	cmd.Env = append(os.Environ(), "PATH="+n.state+":"+os.Getenv("PATH"), "HOME="+n.work)
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(command, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

func (n *node) run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := n.try("", command...)
	rig.Must(t, err)
	return out
}

func (n *node) kubectl(t *testing.T, arguments ...string) string {
	t.Helper()
	return n.run(t, append([]string{"kubectl"}, arguments...)...)
}

// field returns a field of an object, selected by a JSON path.
func (n *node) field(t *testing.T, in, object, path string) string {
	t.Helper()
	return n.kubectl(t, "-n", in, "get", object, "-o", "jsonpath="+path)
}

// awaitField waits until a field of an object has a value.
func (n *node) awaitField(t *testing.T, in, object, path, want string) {
	t.Helper()
	rig.Succeeds(t, func() error {
		got, err := n.try("", "kubectl", "-n", in, "get", object, "-o", "jsonpath="+path)
		if err == nil && got != want {
			err = fmt.Errorf("%s %s of %s is %q, want %q", object, path, in, got, want)
		}
		return err
	})
}

const (
	available = `{.status.conditions[?(@.type=="Available")].status}`
	ready     = `{.status.conditions[?(@.type=="Ready")].status}`
	reason    = `{.status.conditions[?(@.type=="Ready")].reason}`
)

// document runs the commands of a page under some headings, after the replacements.
func (n *node) document(t *testing.T, page string, replace *strings.Replacer, headings ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.root, "docs", page))
	rig.Must(t, err)
	seen := map[string]bool{}
	for _, b := range markdown.Blocks(string(text)) {
		for _, h := range headings {
			if b.Heading != h {
				continue
			}
			seen[h] = true
			out, err := n.try("set -euo pipefail\n"+replace.Replace(b.Text), "bash")
			if err != nil {
				t.Fatalf("docs/%s, %s: %v", page, h, err)
			}
			t.Logf("docs/%s, %s:\n%s", page, h, out)
		}
	}
	for _, h := range headings {
		if !seen[h] {
			t.Fatalf("docs/%s has no commands under %q", page, h)
		}
	}
}

// asking is the workload that sends requests during a fault.
type asking struct {
	n    *node
	name string
}

// seen is the output of asks.
type seen struct {
	Begun   time.Time
	Asked   int
	Failed  int
	First   float64
	Last    float64
	Slowest float64
	Why     map[string]int
}

// lasted returns the time from the first to the last failed request, in seconds.
func (s seen) lasted() float64 { return s.Last - s.First }

func (s seen) String() string {
	text := fmt.Sprintf("%d of %d requests failed, begun within %.2f s, the slowest answer took %.2f s", s.Failed, s.Asked, s.lasted(), s.Slowest)
	if s.Failed > 0 {
		text += fmt.Sprintf(", the first %.2f s after it began %v", s.First, s.Why)
	}
	return text
}

// inPod runs a script in the Pod of docs/workloads.md.
func (n *node) inPod(script string) (string, error) {
	return n.try(script, "kubectl", "-n", "payments", "exec", "-i", "signer", "--", "sh")
}

// ask starts requests in the background of the Pod, so that they continue while kubelet is down.
func (n *node) ask(t *testing.T, name string, flags ...string) *asking {
	t.Helper()
	a := &asking{n: n, name: name}
	_, err := n.inPod(fmt.Sprintf("cd /tmp; asks -until /tmp/%[1]s.end %[2]s >/tmp/%[1]s.json 2>/tmp/%[1]s.log </dev/null &", name, strings.Join(flags, " ")))
	rig.Must(t, err)
	return a
}

// end stops the requests and returns their results.
func (a *asking) end(t *testing.T) seen {
	t.Helper()
	var s seen
	rig.Succeeds(t, func() error {
		out, err := a.n.inPod(fmt.Sprintf("echo end >/tmp/%[1]s.end; cat /tmp/%[1]s.log >&2; cat /tmp/%[1]s.json", a.name))
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			return fmt.Errorf("asks has not said what it saw: %q", out)
		}
		return nil
	})
	if s.Asked == 0 {
		t.Error("nothing was asked, so nothing was shown")
	}
	return s
}

// stage is a part of a suite that needs the results of the previous stages.
type stage struct {
	name string
	do   func(*testing.T, *node)
}

// inOrder runs stages. The first failure ends the suite.
func (n *node) inOrder(t *testing.T, stages []stage) {
	t.Helper()
	for _, s := range stages {
		if !t.Run(s.name, func(t *testing.T) { s.do(t, n) }) {
			t.FailNow()
		}
	}
}

// showWhenFailed logs the usual diagnostics if the test fails.
func (n *node) showWhenFailed(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, of := range [][]string{
			{"get", "pods,events,endpointslices", "--all-namespaces"},
			{"-n", namespace, "logs", "--selector=app.kubernetes.io/name=keyserver", "--all-containers", "--prefix", "--tail=50"},
		} {
			out, err := n.try("", append([]string{"kubectl"}, of...)...)
			t.Logf("%s%v", out, err)
		}
	})
}
