package install

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

const password = "a password that the installer chose"

// installation is a running installation of config/default and config/prometheus. The manager uses the token of its
// service account, so that the test fails if the manifests lack a right.
type installation struct {
	*pod
	api        *process
	url        string // URL of the API
	roots      *x509.CertPool
	keys       *apiclient.Client // client of the administrator
	operations map[string]schema.HexID
}

func install(t *testing.T) *installation {
	t.Helper()
	objects := build(t, monitored)
	apply(t, objects)
	i := &installation{pod: newPod(t, objects, "keyserver")}
	i.settings["KEYSERVER_OIDC_ISSUER"] = issuer(t)
	i.api = i.start("api")
	i.api.awaitReady(t)
	first := pick(t, objects, "ConfigMap", "keyserver-first")
	manifest, _, _ := unstructured.NestedString(first.Object, "data", "keyserver.yaml")
	manifest = strings.Replace(manifest, "https://localhost:8443", "https://"+i.api.ports["api"], 1)
	rig.Must(t, unstructured.SetNestedField(first.Object, manifest, "data", "keyserver.yaml"))
	apply(t, []*unstructured.Unstructured{first})
	return i
}

// manager starts one more manager with a fast election.
func (i *installation) manager() *process {
	i.t.Helper()
	m := i.start("manager", "--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s", "--leader-elect-retry-period", "300ms")
	m.awaitReady(i.t)
	return m
}

// issuer reads the issuer from the cluster, as docs/install.md does.
func issuer(t *testing.T) string {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var about struct{ Issuer string }
	if err := json.Unmarshal(text, &about); err != nil || about.Issuer == "" {
		t.Fatalf("the cluster names no issuer: %v %s", err, text)
	}
	return about.Issuer
}

// connect waits until the KeyServer that the manager has created is Ready. Then it logs in like a workload, with the CA
// certificate from the ConfigMap.
func (i *installation) connect() {
	i.t.Helper()
	t, ctx := i.t, i.t.Context()
	ks := v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	rig.Succeeds(t, func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(&ks), &ks); err != nil {
			return err
		}
		return ready(ctx, &ks)
	})
	ca := &corev1.ConfigMap{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "keyserver-ca"}, ca); err != nil {
		t.Fatal(err)
	}
	i.url, i.roots = ks.Spec.URL, x509.NewCertPool()
	i.roots.AppendCertsFromPEM([]byte(ca.Data["ca.crt"]))
	over := program.Transport(i.roots, func() string { return i.api.ports["api"] })
	i.keys = administrator(t, over, i.settings)
	list, err := i.keys.ListOperations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	i.operations = map[string]schema.HexID{}
	for _, op := range list.Operations {
		i.operations[op.Name] = op.ID
	}
}

// administrator adds a person to a key server whose first administrator is the manager, as docs/install.md
// does: with a token of the manager's service account.
func administrator(t *testing.T, over http.RoundTripper, settings map[string]string) *apiclient.Client {
	t.Helper()
	first, err := apiclient.New(apiclient.Options{
		BaseURL: program.BaseURL, HTTPClient: &http.Client{Transport: over},
		Credentials: serviceAccount(token(t, namespace, "keyserver-manager", settings["KEYSERVER_OIDC_AUDIENCE"])),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = first.CreatePasswordPrincipal(t.Context(), schema.CreatePasswordPrincipalRequest{
		Name: "admin", Password: password, RoleIDs: []schema.HexID{schema.HexID(keyserver.RoleAdministrator), schema.HexID(keyserver.RoleEncryptor)},
	})
	if err != nil && !apiclient.IsCode(err, "ALREADY_EXISTS") {
		t.Fatal(err)
	}
	return program.Client(t, over, "admin", password, 0)
}

func ready(ctx context.Context, o client.Object) error {
	c, err := controlplane.Ready(ctx, kube, o)
	if err == nil && (c.Status != metav1.ConditionTrue || c.ObservedGeneration != o.GetGeneration()) {
		err = fmt.Errorf("%s is not Ready: %+v", o.GetName(), c)
	}
	return err
}

func (i *installation) declare(name string, operations ...string) *v1beta1.Role {
	i.t.Helper()
	r := &v1beta1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	r.Spec.RoleName, r.Spec.Operations = &r.Name, operations
	if err := kube.Create(i.t.Context(), r); err != nil {
		i.t.Fatal(err)
	}
	return r
}

// redeclare changes the operations of a Role.
func (i *installation) redeclare(r *v1beta1.Role, operations ...string) {
	i.t.Helper()
	change := client.MergeFrom(r.DeepCopy())
	r.Spec.Operations = operations
	if err := kube.Patch(i.t.Context(), r, change); err != nil {
		i.t.Fatal(err)
	}
}

// holds waits until the key server has exactly one role as the object declares, and the object is Ready.
func (i *installation) holds(r *v1beta1.Role) {
	i.t.Helper()
	rig.Succeeds(i.t, func() error {
		if err := ready(i.t.Context(), r); err != nil {
			return err
		}
		list, err := i.keys.ListRoles(i.t.Context())
		if err != nil {
			return err
		}
		var found []schema.Role
		for _, have := range list.Roles {
			if have.Name == r.Name {
				found = append(found, have)
			}
		}
		want := map[schema.HexID]bool{}
		for _, name := range r.Spec.Operations {
			want[i.operations[name]] = true
		}
		have := map[schema.HexID]bool{}
		for _, f := range found {
			for _, id := range f.Operations {
				have[id] = true
			}
		}
		if len(found) != 1 || !maps.Equal(want, have) || found[0].ID.String() != r.Status.RoleID {
			return fmt.Errorf("%s: the key server has %+v, declared is %v", r.Name, found, r.Spec.Operations)
		}
		return nil
	})
}

// outside changes a role on the key server directly.
func (i *installation) outside(r *v1beta1.Role, operations ...string) {
	i.t.Helper()
	ids := make([]schema.HexID, len(operations))
	for n, name := range operations {
		ids[n] = i.operations[name]
	}
	id, err := schema.ParseHexID(r.Status.RoleID)
	if err != nil {
		i.t.Fatal(err)
	}
	if _, err := i.keys.UpdateRole(i.t.Context(), schema.UpdateRoleRequest{ID: id, Operations: ids}); err != nil {
		i.t.Fatal(err)
	}
}

// The installation works with the rights of its manifests, and its metrics show its work. If the active one of two
// managers is killed during its work, no change is lost.
func TestInstallationRuns(t *testing.T) {
	i := install(t)
	first := i.manager()
	i.connect()
	i.workload()

	second := i.manager()
	signer, auditor := i.declare("signer", "HMAC Data"), i.declare("auditor", "Authorize Key")
	i.holds(signer)
	i.holds(auditor)
	i.outside(signer)
	i.holds(signer)
	active := leader(t, first, second)
	i.measures(active)

	standby := second
	if active == second {
		standby = first
	}
	// The test kills the manager while it creates these objects.
	var many []*v1beta1.Role
	for n := range 40 {
		many = append(many, i.declare(fmt.Sprintf("made-%d", n), "HMAC Data", "Authorize Key"))
	}
	rig.Succeeds(t, func() error {
		list, err := i.keys.ListRoles(t.Context())
		if err == nil && !slices.ContainsFunc(list.Roles, func(r schema.Role) bool { return strings.HasPrefix(r.Name, "made-") }) {
			err = errors.New("none made yet")
		}
		return err
	})
	active.kill()
	// While no manager is active, the test changes, deletes and creates objects, and changes a role on the key server.
	i.redeclare(signer, "HMAC Data", "List Operations")
	i.outside(auditor, "HMAC Data")
	gone := many[0]
	if err := kube.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	many = append(many[1:], i.declare("made-late", "Authorize Key"))

	leader(t, standby)
	i.holds(signer)
	i.holds(auditor)
	for _, r := range many {
		i.holds(r)
		if r.Status.Provenance != v1beta1.Created {
			t.Errorf("%s: provenance %q", r.Name, r.Status.Provenance)
		}
	}
	rig.Succeeds(t, func() error {
		list, err := i.keys.ListRoles(t.Context())
		if err != nil {
			return err
		}
		if n := len(list.Roles); n != builtInRoles(list)+2+len(many) {
			return fmt.Errorf("%d roles on the key server, of which %d are built in", n, builtInRoles(list))
		}
		return nil
	})

	// A manager that stops gracefully releases the lease before it expires.
	again := i.manager()
	standby.terminate(t)
	leader(t, again)
	i.redeclare(signer, "Authorize Key")
	i.holds(signer)

	for _, m := range []*process{first, second, again} {
		for line := range strings.Lines(m.log.String()) {
			if strings.Contains(line, "forbidden") {
				t.Errorf("a right is missing: %s", line)
			}
			if strings.Contains(line, "--oidc-issuer") {
				t.Errorf("the issuer is the cluster's: %s", line)
			}
			if !json.Valid([]byte(line)) {
				t.Errorf("not a line of JSON: %s", line)
			}
		}
	}
	again.terminate(t)
	i.api.terminate(t)
}

func builtInRoles(list schema.RoleList) int {
	n := 0
	for _, r := range list.Roles {
		if r.BuiltIn != nil && *r.BuiltIn {
			n++
		}
	}
	return n
}

// workload logs in with the token of a service account. The key server can only check it with the keys that
// the manager keeps for it.
func (i *installation) workload() {
	i.t.Helper()
	enroll(i.t, i.keys, i.settings)
	login(i.t, i.url, i.roots, i.settings)
}

// enroll creates the principal of a service account.
func enroll(t *testing.T, keys *apiclient.Client, settings map[string]string) {
	t.Helper()
	_, err := keys.CreateXAuthPrincipal(t.Context(), schema.CreateXAuthPrincipalRequest{
		Name: "workload", Issuer: settings["KEYSERVER_OIDC_ISSUER"], Subject: "system:serviceaccount:default:default", RoleIDs: []schema.HexID{},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// login opens a session with a new token of the cluster.
func login(t *testing.T, url string, roots *x509.CertPool, settings map[string]string) {
	t.Helper()
	ctx := t.Context()
	c, err := apiclient.New(apiclient.Options{BaseURL: url, RootCAs: roots, Credentials: serviceAccount(token(t, "default", "default", settings["KEYSERVER_OIDC_AUDIENCE"]))})
	if err != nil {
		t.Fatal(err)
	}
	session, err := c.GetCurrentSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if session.Principal.Name != "workload" {
		t.Errorf("logged in as %+v", session.Principal)
	}
}

// serviceAccount is a token that a client logs in with.
type serviceAccount string

func (s serviceAccount) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{Method: "kubernetes", Token: schema.Secret(s)}, nil
}

// used matches the metrics in the alerts.
var used = regexp.MustCompile(`\b(keyserver_[a-z_]+|leader_election_[a-z_]+|workqueue_[a-z_]+)\b`)

// measures scrapes both containers, at the ports that the component opens.
func (i *installation) measures(active *process) {
	i.t.Helper()
	t := i.t
	var manager string
	for _, want := range []string{
		`keyserver_objects{kind="KeyServer",reason="Verified"} 1`,
		`keyserver_objects{kind="Role",reason="Verified"} 2`,
		`keyserver_time_to_verified_seconds_count{kind="Role"} 2`,
		`keyserver_drift_found_total{kind="Role"} 1`,
		`keyserver_drift_repaired_total{kind="Role"} 1`,
		`keyserver_api_requests_total{call="createRole",code="OK",keyserver="default"} 2`,
	} {
		rig.Succeeds(t, func() (err error) {
			if manager, err = active.metrics("manager-metrics"); err == nil && !strings.Contains(manager, want+"\n") {
				err = fmt.Errorf("the manager does not say %s:\n%s", want, lines(manager, "keyserver_"))
			}
			return err
		})
	}
	api, err := i.api.metrics("api-metrics")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(configDir, "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range used.FindAllString(string(rules), -1) {
		// Some metrics only exist with an audit sink (internal/audit/sink TestMetrics), with an object that
		// has a certificate (internal/operator/reconcile TestWhatEnds) or with scheduled backups
		// (internal/store/backup TestABucketSaysWhenTheNextIsDue).
		elsewhere := name == "keyserver_object_not_after_seconds" || strings.HasPrefix(name, "keyserver_audit_sink_") || strings.HasPrefix(name, "keyserver_backup_") ||
			strings.HasPrefix(name, "keyserver_replication_")
		if !elsewhere && !strings.Contains(manager+api, "\n"+name) {
			t.Errorf("the rules rest on %s, which nobody has", name)
		}
	}
}

func lines(text, prefix string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
