package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// cluster is a kube-apiserver and a manager. A proxy before the key server may return false responses.
type cluster struct {
	site       *site
	falseProxy *lyingProxy
	config     *rest.Config
	kubeconfig string
	kube       kube.Client
	reader     *client.Client // client of the site that bypasses the proxy
	manager    *program.Process
	n          int // number of declarations, so that each has different content
	looks      atomic.Int64
}

// namespace is the namespace of all objects.
const namespace = "default"

func newCluster(t testing.TB, s *site) *cluster {
	t.Helper()
	environment := controlplane.Start(t, controlplane.KeepAcrossRestarts(t))
	c := &cluster{site: s, config: environment.Config, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	rig.Must(t, os.WriteFile(c.kubeconfig, environment.KubeConfig, 0o600))
	c.config.QPS, c.config.Burst, c.config.Timeout = 200, 400, rig.Patience
	var err error
	c.kube, err = kube.New(c.config, kube.Options{Scheme: controlplane.Scheme()})
	rig.Must(t, err)
	c.falseProxy = newLyingProxy(t, s)
	c.reader = s.client(t, 0, program.NoRetries)
	for _, o := range c.installation() {
		rig.Must(t, c.kube.Create(t.Context(), o))
	}
	t.Cleanup(func() { c.stop(t) })
	c.start(t)
	for i := range declared {
		rig.Must(t, c.kube.Create(t.Context(), c.role(i)))
		rig.Must(t, c.kube.Create(t.Context(), c.template(i)))
	}
	return c
}

// installation returns the KeyServer and the credentials of the manager.
func (c *cluster) installation() []kube.Object {
	ca := c.falseProxy.bundle()
	return []kube.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "admin", Namespace: "kube-system"},
			StringData: map[string]string{"username": "admin", "password": c.site.password},
		},
		&v1beta1.KeyServer{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec: v1beta1.KeyServerSpec{
				URL:      c.falseProxy.URL,
				CABundle: &v1beta1.CABundle{Inline: &ca},
				Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
					SecretRef: &v1beta1.CredentialSecretReference{Namespace: "kube-system", Name: "admin"},
				}},
				Grants: []v1beta1.Grant{{
					Name: "all", Namespaces: v1beta1.GrantedNamespaces{Selector: &metav1.LabelSelector{}},
					Kinds: []v1beta1.GrantedKind{"ACLTemplate", "Role", "TrustedCA"}, Names: []string{"*"},
					Operations: []string{"duty:administration", "duty:trust", "duty:key use", "duty:audit"}, Adopt: true,
				}},
			},
		},
	}
}

func (c *cluster) start(t testing.TB) {
	t.Helper()
	var err error
	c.manager, err = built.Start("manager", "--kubeconfig", c.kubeconfig)
	rig.Must(t, err)
}

func (c *cluster) stop(t testing.TB) {
	t.Helper()
	c.manager.Kill()
	if t.Failed() {
		t.Logf("the manager's log ends with\n%s", c.manager.Log()[max(0, len(c.manager.Log())-3000):])
	}
}

// running restarts the manager if it has ended, as a cluster would. A manager may end when it has lost its API server.
func (c *cluster) running(t testing.TB) {
	t.Helper()
	select {
	case <-c.manager.Exited():
		c.start(t)
	default:
	}
}

// declared is the number of objects of each kind.
const declared = 4

func nameOf(kind string, i int) string { return fmt.Sprint(kind, "-", i) }

// operations returns a set that no other generation of the role has had.
func (c *cluster) operations() []string {
	c.n++
	set := []string{}
	for bit := range 12 {
		if c.n>>bit&1 == 1 {
			set = append(set, keyserver.Operations[bit].Name)
		}
	}
	return set
}

func (c *cluster) role(i int) *v1beta1.Role {
	name := nameOf("declared", i)
	return &v1beta1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1beta1.RoleSpec{RoleName: &name, Operations: c.operations()},
	}
}

func (c *cluster) template(i int) *v1beta1.ACLTemplate {
	c.n++
	return &v1beta1.ACLTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf("declared", i), Namespace: namespace},
		Spec: v1beta1.ACLTemplateSpec{
			TemplateName: fmt.Sprintf("declared %d %d", i, c.n),
			Members:      []v1beta1.ACLTemplateMember{{Principal: "password/admin", Rights: []v1beta1.Right{"OWNER"}}},
		},
	}
}

// betweenEdits is the time between two changes of declared objects.
const betweenEdits = 150 * time.Millisecond

// begin changes declared objects until over is set. Concurrently it compares the conditions of the
// objects with the state of the key server.
func (c *cluster) begin(t *testing.T, ctx context.Context, group *sync.WaitGroup, over *atomic.Bool, r *rand.Rand, tell func(error)) {
	t.Helper()
	group.Go(func() {
		for !over.Load() && ctx.Err() == nil {
			c.edit(ctx, r) // fails if the API server is away
			time.Sleep(betweenEdits)
		}
	})
	group.Go(func() {
		for !over.Load() && ctx.Err() == nil {
			if err := c.compareConditions(ctx); err != nil {
				tell(err)
				return
			}
			time.Sleep(betweenEdits / 2)
		}
	})
}

func (c *cluster) edit(ctx context.Context, r *rand.Rand) {
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	key := kube.ObjectKey{Namespace: namespace, Name: nameOf("declared", r.IntN(declared))}
	if r.IntN(2) == 0 {
		o := &v1beta1.Role{}
		if c.kube.Get(short, key, o) == nil {
			o.Spec.Operations = c.operations()
			_ = c.kube.Update(short, o) // the next update may succeed
		}
		return
	}
	o := &v1beta1.ACLTemplate{}
	if c.kube.Get(short, key, o) == nil {
		c.n++
		o.Spec.TemplateName = fmt.Sprintf("declared %s %d", key.Name, c.n)
		_ = c.kube.Update(short, o) // the next update may succeed
	}
}

// readyContents returns the declared content of Ready objects, by kind, name and generation, and the status
// of those that are not Ready.
func (c *cluster) readyContents(ctx context.Context) (ready, waiting map[string]string, err error) {
	ready, waiting = map[string]string{}, map[string]string{}
	note := func(kind string, o kube.Object, status v1beta1.ManagedStatus, id, content string) {
		object := fmt.Sprintf("%s %s of generation %d", kind, o.GetName(), o.GetGeneration())
		cond := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
		if cond != nil && cond.Status == metav1.ConditionTrue && cond.ObservedGeneration == o.GetGeneration() && status.ObservedGeneration == o.GetGeneration() {
			ready[object] = id + ": " + content
		} else {
			waiting[object] = fmt.Sprintf("%s, resource version %s: %+v", content, o.GetResourceVersion(), status)
		}
	}
	var roles v1beta1.RoleList
	if err := c.kube.List(ctx, &roles); err != nil {
		return nil, nil, err
	}
	for i := range roles.Items {
		o := &roles.Items[i]
		ids := []schema.HexID{}
		for _, name := range o.Spec.Operations {
			at := slices.IndexFunc(keyserver.Operations, func(op keyserver.Operation) bool { return op.Name == name })
			ids = append(ids, schema.HexID(keyserver.Operations[at].ID))
		}
		note("Role", o, o.Status.ManagedStatus, "role "+o.Status.RoleID, *o.Spec.RoleName+" "+ledger.IDs(ids))
	}
	var templates v1beta1.ACLTemplateList
	if err := c.kube.List(ctx, &templates); err != nil {
		return nil, nil, err
	}
	for i := range templates.Items {
		o := &templates.Items[i]
		note("ACLTemplate", o, o.Status.ManagedStatus, "template "+o.Status.TemplateID, o.Spec.TemplateName)
	}
	return ready, waiting, nil
}

// has returns the state of the key server.
func (c *cluster) has(ctx context.Context) (map[string]bool, error) {
	there := map[string]bool{}
	roles, err := c.reader.ListRoles(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range roles.Roles {
		there["role "+r.ID.String()+": "+r.Name+" "+ledger.IDs(r.Operations)] = true
	}
	templates, err := c.reader.ListACLTemplates(ctx, schema.ACLTemplateQuery{})
	if err != nil {
		return nil, err
	}
	for _, l := range templates.Templates {
		there["template "+l.ID.String()+": "+l.Name] = true
	}
	return there, nil
}

// compareConditions returns an error if an object was Ready although the key server did not have its content. It only compares
// objects whose status is the same before and after look reads the key server.
func (c *cluster) compareConditions(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before, _, err := c.readyContents(short)
	if err != nil {
		return nil // the status is unknown
	}
	there, err := c.has(short)
	if err != nil {
		return nil // the state is unknown
	}
	after, _, err := c.readyContents(short)
	if err != nil {
		return nil // the status is unknown
	}
	c.looks.Add(1)
	for object, content := range before {
		if after[object] == content && !there[content] {
			return fmt.Errorf("a false Ready: %s says so, and the key server does not have %s; it has %s", object, content, near(there, content))
		}
	}
	return nil
}

// near returns the object with the same id on the key server.
func near(there map[string]bool, content string) string {
	id, _, _ := strings.Cut(content, ":")
	for one := range there {
		if strings.HasPrefix(one, id+":") {
			return one
		}
	}
	return "nothing of that id"
}

// check waits until every object is Ready, and compares all of them with the key server.
func (c *cluster) check(t *testing.T) {
	t.Helper()
	if c.looks.Swap(0) == 0 {
		t.Log("nobody has seen what the objects said, so nothing was shown of it")
	}
	c.running(t)
	missing := ""
	ok := func() bool {
		c.running(t)
		ready, waiting, err := c.readyContents(t.Context())
		missing = fmt.Sprintf("%d are Ready (%v), and not %v", len(ready), err, waiting)
		return err == nil && len(waiting) == 0 && len(ready) == 2*declared
	}
	for end := time.Now().Add(rig.Patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("what is declared does not come to rest: %s", missing)
			return
		}
	}
	if err := c.compareConditions(t.Context()); err != nil {
		t.Error(err)
	}
}

func (c *cluster) faults() []fault {
	return []fault{
		{"kill the API server", []string{"API server"}, func(t *testing.T, _ *rand.Rand) func() {
			return controlplane.KillAPIServer(t, controlplane.Port(c.config.Host))
		}},
		{"kill the manager", []string{"manager"}, func(t *testing.T, _ *rand.Rand) func() {
			c.manager.Kill()
			return func() { c.start(t) }
		}},
		{"freeze the manager", []string{"manager"}, func(t *testing.T, _ *rand.Rand) func() {
			c.running(t)
			return c.manager.Freeze(t)
		}},
		{"take writes well and drop them", []string{"liar"}, func(*testing.T, *rand.Rand) func() {
			c.falseProxy.drops.Store(true)
			return func() { c.falseProxy.drops.Store(false) }
		}},
		{"answer with what was read before", []string{"liar"}, func(*testing.T, *rand.Rand) func() {
			c.falseProxy.repeats.Store(true)
			return func() { c.falseProxy.repeats.Store(false) }
		}},
		{"part the manager from its key server", []string{"liar"}, func(*testing.T, *rand.Rand) func() {
			c.falseProxy.parted.Store(true)
			c.falseProxy.CloseClientConnections()
			return func() { c.falseProxy.parted.Store(false) }
		}},
	}
}
