// Package support inspects a cluster with "doctor --cluster" and "support-bundle --cluster", as a person on call would.
// The report names denied parts and covers all other parts, and no secret leaves the cluster.
package support

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// system is the namespace of the operator.
const system = "keyserver-system"

// cluster is a cluster without a manager. The tests write the status of objects.
type cluster struct {
	client.Client
	environment *envtest.Environment
	kubeconfig  string
}

func start(t *testing.T, change ...func(*envtest.Environment)) cluster {
	t.Helper()
	c := cluster{environment: controlplane.Start(t, change...)}
	var err error
	c.Client, err = client.New(c.environment.Config, client.Options{Scheme: controlplane.Scheme()})
	rig.Must(t, err)
	c.kubeconfig = written(t, c.environment.KubeConfig)
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	return c
}

func written(t *testing.T, kubeconfig []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	rig.Must(t, os.WriteFile(path, kubeconfig, 0o600))
	return path
}

func (c cluster) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		rig.Must(t, c.Create(t.Context(), o))
	}
}

// doctor returns both outputs and the exit code.
func doctor(t *testing.T, args ...string) (said string, code int) {
	t.Helper()
	return run(t, append([]string{"doctor", "--cluster"}, args...)...)
}

func run(t *testing.T, args ...string) (said string, code int) {
	t.Helper()
	rig.Must(t, program.DependOnSources())
	cmd := exec.CommandContext(t.Context(), built.Named("keyserverctl").Path, args...)
	cmd.Env = append(program.Environment(), "KUBECONFIG=", "HOME="+t.TempDir(), "KUBERNETES_SERVICE_HOST=")
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// packed is a support bundle.
type packed struct {
	files map[string]rig.Packed
	why   map[string]string // reason for each missing part
}

func pack(t *testing.T, args ...string) packed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if said, code := run(t, append([]string{"support-bundle", "--cluster", "--output", path}, args...)...); code != 0 {
		t.Fatalf("support-bundle ends with %d: %s", code, said)
	}
	archive, err := os.ReadFile(path)
	rig.Must(t, err)
	p := packed{rig.Unpacked(t, archive), map[string]string{}}
	var listed []struct{ Name, Error string }
	rig.Must(t, json.Unmarshal([]byte(p.text("files.json")), &listed))
	for _, l := range listed {
		if l.Error != "" {
			p.why[l.Name] = l.Error
		}
	}
	return p
}

func (p packed) text(name string) string { return p.files["support-bundle/"+name].Text }

func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

// kubeconfigOf returns a kubeconfig for an address, without credentials.
func kubeconfigOf(address string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"https://%s","insecure-skip-tls-verify":true}}],"contexts":[{"name":"c","context":{"cluster":"c","user":""}}]}`, address)
}

// TestABundleHasNotWhatItWasGiven has a key server repeat a password and a cluster repeat a token.
// The bundle quotes them without these secrets.
func TestABundleHasNotWhatItWasGiven(t *testing.T) {
	const password, token = "obGf2DRdPyXdH-8ikRtoW0zjUU-9n5t8", "kubeconfigs own t0ken"
	said := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": 403, "code": "ACCESS_DENIED", "detail": "no account for " + password + " " + string(body), "message": "nothing for " + r.Header.Get("Authorization")})
	}
	s := httptest.NewTLSServer(http.HandlerFunc(said))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	ca, file, log, kubeconfig := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "password"), filepath.Join(dir, "api.log"), filepath.Join(dir, "kubeconfig")
	rig.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	rig.Must(t, errors.Join(os.WriteFile(file, []byte(password+"\n"), 0o600), os.WriteFile(log, []byte("nobody is "+password+" or "+token+" here\n"), 0o600),
		os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{"token":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, s.URL, token), 0o600)))
	p := pack(t, "--server", s.URL, "--ca-file", ca, "--password-file", file, "--kubeconfig", kubeconfig, "--log", log)
	for name, f := range p.files {
		if strings.Contains(f.Text, password) || strings.Contains(f.Text, token) {
			t.Errorf("%s has it: %s", name, rig.Shorten(f.Text))
		}
	}
	has(t, p.why["server/login"], "no account for [left out] ")
	if text := p.text("logs/1-api.log"); text != "" {
		t.Errorf("a line that is not ours is packed: %s", text)
	}
}

func logLine(message string) string {
	return fmt.Sprintf("{\"time\":\"2026-11-25T21:57:38Z\",\"level\":\"INFO\",\"msg\":%q}\n", message)
}

// TestNoCluster checks that the commands do not wait for an unreachable cluster, and that a bundle has all other parts.
func TestNoCluster(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	log := filepath.Join(t.TempDir(), "api.log")
	rig.Must(t, os.WriteFile(log, []byte(logLine("the log of the key server")), 0o600))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no kubeconfig":             {nil, "no cluster is configured; give --kubeconfig"},
		"one that is not there":     {[]string{"--kubeconfig", filepath.Join(t.TempDir(), "none")}, "--kubeconfig cannot be used"},
		"one that is none":          {[]string{"--kubeconfig", written(t, []byte("{"))}, "--kubeconfig cannot be used"},
		"an API server that is off": {[]string{"--kubeconfig", written(t, kubeconfigOf(rig.FreeAddress(t, "127.0.0.1")))}, "does not respond"},
		"one that says nothing":     {[]string{"--kubeconfig", written(t, kubeconfigOf(silent.Addr().String()))}, "does not respond"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, code := doctor(t, c.args...)
			if code != 1 {
				t.Errorf("doctor ends with %d", code)
			}
			has(t, said, c.want)
			p := pack(t, append(c.args, "--log", log)...)
			has(t, p.why["cluster"], c.want)
			has(t, p.text("logs/1-api.log"), "the log of the key server")
		})
	}
	said, code := doctor(t, "--namespace", "Not A Name")
	if code != 2 {
		t.Errorf("a namespace that cannot be ends with %d", code)
	}
	has(t, said, "--namespace")
}

// TestAClusterWithoutTheDefinitions uses a cluster without our CRDs.
func TestAClusterWithoutTheDefinitions(t *testing.T) {
	c := start(t, func(e *envtest.Environment) { e.CRDDirectoryPaths = nil })
	said, code := doctor(t, "--kubeconfig", c.kubeconfig)
	if code != 1 {
		t.Errorf("doctor ends with %d", code)
	}
	for _, kind := range v1beta1.Kinds {
		has(t, said, "definitions: the CustomResourceDefinition "+kind.CRD()+" is missing; apply config/crd")
	}
	has(t, said, "manager: there is no Lease keyserver-system/manager.trust.keyserver.dev")
	p := pack(t, "--kubeconfig", c.kubeconfig)
	for _, kind := range v1beta1.Kinds {
		if p.why["cluster/"+kind.Resource+".json"] == "" {
			t.Errorf("nothing is said of %s: %v", kind.Resource, p.why)
		}
	}
	has(t, p.text("cluster/pods.json"), "[]")
}

// ready sets the Ready condition of an object, as a manager does.
func (c cluster) ready(t *testing.T, o client.Object, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	condition := metav1.Condition{
		Type: v1beta1.ConditionReady, Status: status, Reason: reason, Message: message, ObservedGeneration: o.GetGeneration(), LastTransitionTime: metav1.Now(),
	}
	switch o := o.(type) {
	case *v1beta1.KeyServer:
		o.Status.Conditions = []metav1.Condition{condition}
	case *v1beta1.Role:
		_, s := o.Managed()
		s.Conditions = []metav1.Condition{condition}
	default:
		t.Fatalf("no test has a %T", o)
	}
	rig.Must(t, c.Status().Update(t.Context(), o))
}

func role(name string) *v1beta1.Role {
	return &v1beta1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: v1beta1.RoleSpec{RoleName: &name}}
}

func keyServer(name string) *v1beta1.KeyServer {
	return &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.KeyServerSpec{
		URL: "https://keys.example",
		Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
			SecretRef: &v1beta1.CredentialSecretReference{Namespace: system, Name: "keyserver-admin"},
		}},
	}}
}

func lease(holder string, renewed time.Time) *coordinationv1.Lease {
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "manager.trust.keyserver.dev", Namespace: system},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: new(int32(3600))},
	}
}

// TestDoctorNamesWhatIsWrong checks that doctor reports the problems in a cluster, and only these.
func TestDoctorNamesWhatIsWrong(t *testing.T) {
	c := start(t)
	active := lease("keyserver-0_1", time.Now().Add(-2*time.Hour))
	whole, broken, unseen, changed := keyServer("whole"), role("broken"), role("unseen"), role("changed")
	c.create(t, active, whole, broken, unseen, changed)
	c.ready(t, whole, metav1.ConditionTrue, "Verified", "it answers")
	c.ready(t, broken, metav1.ConditionFalse, "Conflict", "it is claimed by\n\x1b[2Jdefault/other")
	c.ready(t, changed, metav1.ConditionTrue, "Verified", "re-read")
	changed.Spec.RoleName = new("another name")
	rig.Must(t, c.Update(t.Context(), changed))
	said, code := doctor(t, "--kubeconfig", c.kubeconfig)
	if code != 1 {
		t.Errorf("doctor ends with %d", code)
	}
	has(t, said,
		"definitions: ok: ", "manager: the manager has not renewed its Lease for 2h0m", "see the log of keyserver-0_1\n", "keyservers: ok: 1 objects checked\n",
		"roles: default/broken is not Ready: Conflict: it is claimed by; \uFFFD[2Jdefault/other\n", "roles: default/unseen has no condition Ready: no manager has reconciled it\n",
		"roles: default/changed was changed and has not been reconciled since\n", "4 findings in 2 of 10 checks")
	if strings.Contains(said, "\x1b") {
		t.Error("a terminal would act upon it")
	}

	// doctor does not report a repaired problem again.
	for _, o := range []*v1beta1.Role{broken, unseen, changed} {
		rig.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		c.ready(t, o, metav1.ConditionTrue, "Verified", "re-read")
	}
	now := metav1.NowMicro()
	active.Spec.RenewTime = &now
	rig.Must(t, c.Update(t.Context(), active))
	if said, code = doctor(t, "--kubeconfig", c.kubeconfig); code != 0 {
		t.Errorf("doctor ends with %d", code)
	}
	has(t, said, "manager: ok: a manager is active\n", "all checks passed: 10 checks\n")

	// For a user who may read only some objects, the report covers these objects and names the denied ones.
	some, err := c.environment.AddUser(envtest.User{Name: "helper", Groups: []string{"helpers"}}, nil)
	rig.Must(t, err)
	c.create(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"roles"}, Verbs: []string{"list"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "some"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "some"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "helpers"}},
		})
	text, err := some.KubeConfig()
	rig.Must(t, err)
	helper := written(t, text)
	rig.Succeeds(t, func() error { // the API server applies the new grant with a delay
		if said, code = doctor(t, "--kubeconfig", helper); !strings.Contains(said, "roles: ok: 3 objects checked\n") {
			return errors.New(said)
		}
		return nil
	})
	if code != 1 {
		t.Errorf("doctor ends with %d", code)
	}
	has(t, said, "manager: FAILED: ", "keyservers: FAILED: ", `User "helper" cannot list resource "keyservers"`)
	p := pack(t, "--kubeconfig", helper)
	has(t, p.text("cluster/roles.json"), `"name": "broken"`)
	for _, name := range []string{"cluster/keyservers.json", "cluster/pods.json", "cluster/events.json"} {
		has(t, p.why[name], `User "helper" cannot list`)
	}
}

// planted is a secret that a bundle must not contain.
const planted = "Pl4nted-wh1ch-must-not-leave"

// kubelet starts a node's kubelet API. The container logs have secrets, and are larger than a bundle may be.
func (c cluster) kubelet(t *testing.T, log http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewTLSServer(log)
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	rig.Must(t, err)
	at, err := strconv.ParseInt(port, 10, 32)
	rig.Must(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	c.create(t, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at)
	rig.Must(t, c.Status().Update(t.Context(), node))
	return node.Name
}

func pod(name, node string, containers int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: system, Annotations: map[string]string{"note": planted}}, Spec: corev1.PodSpec{NodeName: node}}
	for i := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "c" + strconv.Itoa(i), Image: "registry.example/program:1", Args: []string{"--flag", planted},
			Env: []corev1.EnvVar{{Name: "ANYTHING", Value: planted}},
		})
	}
	return p
}

// event returns an event of the newer event API, as the manager writes it.
func event(name, message string, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: system}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "keyserver-0", Namespace: system},
		Reason: "Happened", Message: message, EventTime: metav1.NewMicroTime(at), Action: "Observe", Type: corev1.EventTypeNormal,
		ReportingController: "keyserver-operator", ReportingInstance: "keyserver-0",
	}
}

// TestABundleHasNothingSecret checks that a bundle has no secret, even if the cluster has many, and
// that its size is bounded.
func TestABundleHasNothingSecret(t *testing.T) {
	c := start(t)
	var little atomic.Bool
	node := c.kubelet(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("previous") == "true" {
			http.Error(w, "it has not been restarted", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, logLine("the first line"))
		if strings.HasSuffix(r.URL.Path, "/keyserver-0/c0") && !little.Load() { // more than was requested
			line := []byte(logLine(strings.Repeat("x", 1023)))
			for range 9 << 10 {
				_, _ = w.Write(line)
			}
		}
		fmt.Fprintf(w, "{\"time\":\"2026-11-25T21:57:38Z\",\"level\":\"INFO\",\"msg\":\"login\",\"password\":%q}\nAuthorization: Bearer %s\n%s", planted, planted, logLine("the last line"))
	})
	broken := role("broken")
	broken.Annotations = map[string]string{"note": planted}
	foreign := event("foreign", "the password is "+planted, time.Now().Add(-time.Minute))
	foreign.ReportingController = "somebody"
	c.create(t, broken, event("newest", "the newest, of https://u:"+planted+"@host/"+planted, time.Now()), event("a-first", "the oldest", time.Now().Add(-time.Hour)), foreign,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keyserver-admin", Namespace: system}, StringData: map[string]string{"password": planted}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: system}, Data: map[string]string{"anything": planted}},
		pod("keyserver-0", node, 2))
	c.ready(t, broken, metav1.ConditionFalse, "AccessDenied", "the service says https://u:"+planted+"@host/"+planted)
	p := pack(t, "--kubeconfig", c.kubeconfig)
	for name, f := range p.files {
		if strings.Contains(f.Text, planted) {
			t.Errorf("%s has it: %s", name, rig.Shorten(f.Text))
		}
		if len(f.Text) > 4<<20 {
			t.Errorf("%s has %d bytes", name, len(f.Text))
		}
	}
	has(t, p.text("logs/keyserver-0.c1.log"), "the first line", `"msg":"login"}`, "the last line")
	if long := p.text("logs/keyserver-0.c0.log"); !strings.HasSuffix(long, logLine("the last line")) || strings.Contains(long, "the first line") {
		t.Errorf("of a long log are %d bytes, which are not its end", len(long))
	}
	has(t, p.text("cluster/roles.json"), "AccessDenied", `"the service says https://host"`)
	has(t, p.text("cluster/pods.json"), "keyserver-0")
	var events []struct {
		At      *time.Time
		Message string
	}
	rig.Must(t, json.Unmarshal([]byte(p.text("cluster/events.json")), &events))
	if len(events) != 3 || events[0].At == nil || events[1].At == nil || events[1].Message != "" || events[2].Message != "the newest, of https://host" {
		t.Errorf("the events are %s", p.text("cluster/events.json"))
	}

	little.Store(true)
	// There are more Pods and logs than a bundle may contain. It has some of them, and reports the others as missing.
	for i := range 52 {
		c.create(t, pod(fmt.Sprintf("many-%02d", i), node, 9))
	}
	p = pack(t, "--kubeconfig", c.kubeconfig)
	has(t, p.why["cluster/pods.json (the rest)"], "there are more than 50 Pods")
	has(t, p.why["logs (the rest)"], "there are more logs than a bundle can hold; the first omitted log is of the Pod many-")
	if len(p.files) > 500 {
		t.Errorf("it has %d files", len(p.files))
	}
	for name, f := range p.files {
		if strings.Contains(f.Text, planted) {
			t.Errorf("%s has it: %s", name, rig.Shorten(f.Text))
		}
	}
}
