package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pod runs the containers of a Deployment's Pod as processes of this machine:
// the same arguments and environment, with a directory for each volume and a
// free port for each port.
type pod struct {
	t          *testing.T
	binary     string
	settings   map[string]string            // of the ConfigMap that both containers take
	secrets    map[string]map[string]string // that variables refer to
	containers map[string]corev1.Container
	volumes    map[string]string // directory by volume
}

func newPod(t *testing.T, binary string, objects []*unstructured.Unstructured, deployment string) *pod {
	t.Helper()
	p := &pod{t: t, binary: binary, containers: map[string]corev1.Container{}, volumes: map[string]string{}}
	for _, d := range typed[appsv1.Deployment](t, objects, "Deployment") {
		if d.Name != deployment {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			p.containers[c.Name] = c
		}
		for _, v := range d.Spec.Template.Spec.Volumes {
			p.volumes[v.Name] = t.TempDir()
		}
	}
	for _, m := range typed[corev1.ConfigMap](t, objects, "ConfigMap") {
		if strings.HasPrefix(m.Name, "keyserver-settings-") {
			p.settings = m.Data
		}
	}
	if len(p.containers) == 0 || len(p.settings) == 0 {
		t.Fatal("the manifests have no such Deployment, or no settings")
	}
	return p
}

// process is a container that runs.
type process struct {
	ports  map[string]string // address by the name of the port
	cmd    *exec.Cmd
	log    output
	exited chan struct{}
}

// start runs a container. extra arguments stand for what a cluster provides.
func (p *pod) start(container string, extra ...string) *process {
	p.t.Helper()
	c, ok := p.containers[container]
	if !ok {
		p.t.Fatalf("there is no container %s", container)
	}
	r := &process{ports: map[string]string{}, exited: make(chan struct{})}
	var replace []string
	for _, m := range c.VolumeMounts {
		replace = append(replace, m.MountPath, p.volumes[m.Name])
	}
	for _, port := range c.Ports {
		r.ports[port.Name] = freeAddress(p.t)
		replace = append(replace, fmt.Sprintf(":%d", port.ContainerPort), r.ports[port.Name])
	}
	here := strings.NewReplacer(replace...)
	var args []string
	for _, a := range c.Args {
		args = append(args, here.Replace(a))
	}
	r.cmd = exec.Command(p.binary, append(args, extra...)...)
	// Nothing else of this process's environment.
	r.cmd.Env = []string{"TMPDIR=" + p.t.TempDir()}
	for name, value := range p.settings {
		r.cmd.Env = append(r.cmd.Env, name+"="+value)
	}
	for _, e := range c.Env {
		value := here.Replace(e.Value)
		if e.ValueFrom != nil {
			from := e.ValueFrom.SecretKeyRef
			if value, ok = p.secrets[from.Name][from.Key]; !ok {
				p.t.Fatalf("%s of %s comes from key %q of Secret %s", e.Name, container, from.Key, from.Name)
			}
		}
		r.cmd.Env = append(r.cmd.Env, e.Name+"="+value)
	}
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait() // how it ended is in its log
		close(r.exited)
	}()
	p.t.Cleanup(func() {
		r.kill()
		if p.t.Failed() {
			p.t.Logf("log of %s (%d):\n%s", container, r.cmd.Process.Pid, r.log.tail())
		}
	})
	return r
}

// kill is kill -9.
func (r *process) kill() {
	_ = r.cmd.Process.Kill() // it fails only for a process that has ended
	<-r.exited
}

// terminate asks the process to end, and waits until it has.
func (r *process) terminate(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.exited
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// metrics scrapes a listener.
func (r *process) metrics(port string) (string, error) {
	response, err := http.Get("http://" + r.ports[port] + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{name="manager\.trust\.keyserver\.dev"\} 1$`)

// leader answers which of the managers is active, once exactly one is.
func leader(t *testing.T, managers ...*process) *process {
	t.Helper()
	var active []*process
	eventually(t, func() error {
		active = nil
		for _, m := range managers {
			text, err := m.metrics("manager-metrics")
			if err != nil {
				return err
			}
			if leads.MatchString(text) {
				active = append(active, m)
			}
		}
		if len(active) != 1 {
			return fmt.Errorf("%d of %d managers are active", len(active), len(managers))
		}
		return nil
	})
	return active[0]
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// output keeps what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) tail() string {
	text := o.String()
	return text[max(0, len(text)-20_000):]
}

// put writes a file into a volume, as a Secret's is.
func (p *pod) put(volume, name, content string) {
	p.t.Helper()
	dir, ok := p.volumes[volume]
	if !ok {
		p.t.Fatal(errors.New("there is no volume " + volume))
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o400); err != nil {
		p.t.Fatal(err)
	}
}
