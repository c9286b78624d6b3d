package install

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// pod runs the containers of a Deployment's Pod: the program of the image with the arguments,
// environment and volumes of the manifests, and a free port of this machine for each port.
type pod struct {
	t          *testing.T
	image      image
	settings   map[string]string            // from the ConfigMap of both containers
	secrets    map[string]map[string]string // secrets that variables refer to
	containers map[string]corev1.Container
	volumes    map[string]string // directory of each volume
}

func newPod(t *testing.T, objects []*unstructured.Unstructured, deployment string) *pod {
	t.Helper()
	p := &pod{t: t, image: imageBuilt(t), containers: map[string]corev1.Container{}, volumes: map[string]string{}}
	for _, d := range typed[appsv1.Deployment](t, objects, "Deployment") {
		if d.Name != deployment {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			p.containers[c.Name] = c
		}
		for _, v := range d.Spec.Template.Spec.Volumes {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o775|os.ModeSetgid); err != nil { // as fsGroup requires
				t.Fatal(err)
			}
			own(t, dir, 0, accountID)
			p.volumes[v.Name] = dir
			if projectsToken(v) {
				p.project(d.Spec.Template.Spec.ServiceAccountName, v)
			}
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

// process is a running container.
type process struct {
	ports  map[string]string // address by the name of the port
	about  corev1.Container
	cmd    *exec.Cmd
	log    rig.Output
	exited chan struct{}
}

// start starts a container. extra arguments shorten default delays.
func (p *pod) start(name string, extra ...string) *process {
	p.t.Helper()
	c, ok := p.containers[name]
	if !ok {
		p.t.Fatalf("there is no container %s", name)
	}
	r := &process{about: c, ports: map[string]string{}, exited: make(chan struct{})}
	inside := container{Root: p.image.root(), Path: p.image.entrypoint, Env: slices.Clone(p.image.env)}
	for _, m := range c.VolumeMounts {
		inside.Mounts = append(inside.Mounts, mount{From: p.volumes[m.Name], At: m.MountPath, ReadOnly: m.ReadOnly})
	}
	var replace []string
	for _, port := range c.Ports {
		r.ports[port.Name] = rig.FreeAddress(p.t, "127.0.0.1")
		replace = append(replace, fmt.Sprintf(":%d", port.ContainerPort), r.ports[port.Name])
	}
	here := strings.NewReplacer(replace...)
	for _, a := range append(slices.Clone(c.Args), extra...) {
		inside.Args = append(inside.Args, here.Replace(a))
	}
	// The variables that a node adds, and those of the manifests.
	inside.Env = append(inside.Env, "KUBERNETES_SERVICE_HOST="+apiServer.Hostname(), "KUBERNETES_SERVICE_PORT="+apiServer.Port())
	for name, value := range p.settings {
		inside.Env = append(inside.Env, name+"="+value)
	}
	for _, e := range c.Env {
		value := here.Replace(e.Value)
		if e.ValueFrom != nil {
			from := e.ValueFrom.SecretKeyRef
			value, ok = p.secrets[from.Name][from.Key]
			if !ok && from.Optional != nil && *from.Optional {
				continue
			}
			if !ok {
				p.t.Fatalf("%s of %s comes from key %q of Secret %s", e.Name, name, from.Key, from.Name)
			}
		}
		inside.Env = append(inside.Env, e.Name+"="+value)
	}
	r.cmd = inside.command(p.t)
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	start(p.t, r.cmd)
	go func() {
		_ = r.cmd.Wait() // the log shows the exit status
		close(r.exited)
	}()
	p.t.Cleanup(func() {
		r.kill()
		if p.t.Failed() {
			p.t.Logf("log of %s (%d):\n%s", name, r.cmd.Process.Pid, r.log.Tail())
		}
	})
	return r
}

// answers sends the request of a probe.
func (r *process) answers(probe *corev1.Probe) error {
	get := probe.HTTPGet
	url := strings.ToLower(string(cmp.Or(get.Scheme, corev1.URISchemeHTTP))) + "://" + r.ports[get.Port.StrVal] + get.Path
	response, err := kubelet.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s %w", url, response.Status, text, err)
	}
	return nil
}

// awaitReady waits until the probes succeed.
func (r *process) awaitReady(t *testing.T) {
	t.Helper()
	for _, probe := range []*corev1.Probe{r.about.StartupProbe, r.about.LivenessProbe, r.about.ReadinessProbe} {
		if probe != nil {
			rig.Succeeds(t, func() error { return r.answers(probe) })
		}
	}
}

// kubelet accepts any certificate, like the real one.
var kubelet = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}

// kill sends SIGKILL and waits until the process has ended.
func (r *process) kill() {
	_ = r.cmd.Process.Kill() // it fails only for a process that has ended
	<-r.exited
}

// terminate sends SIGTERM, and waits until the process has ended.
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

// leader waits until exactly one manager is active, and returns it.
func leader(t *testing.T, managers ...*process) *process {
	t.Helper()
	var active []*process
	rig.Succeeds(t, func() error {
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

// put writes a file into a volume, as kubelet does for a Secret.
func (p *pod) put(volume, name, content string) {
	p.t.Helper()
	dir, ok := p.volumes[volume]
	if !ok {
		p.t.Fatal(errors.New("there is no volume " + volume))
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o440); err != nil {
		p.t.Fatal(err)
	}
	own(p.t, path, 0, accountID)
}

func projectsToken(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

// project writes the files that the cluster projects for a service account into a volume.
func (p *pod) project(account string, v corev1.Volume) {
	p.t.Helper()
	for _, s := range v.Projected.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			p.put(v.Name, s.ServiceAccountToken.Path, token(p.t, namespace, account, s.ServiceAccountToken.Audience))
		case s.ConfigMap != nil:
			p.put(v.Name, "ca.crt", string(restConfig.CAData))
		case s.DownwardAPI != nil:
			p.put(v.Name, "namespace", namespace)
		}
	}
}

// token requests a token from the cluster. If the audience is empty, the token is for the cluster itself.
func token(t *testing.T, namespace, account, audience string) string {
	t.Helper()
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	if err := kube.SubResource("token").Create(t.Context(), owner, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}
