package plan_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/controllers"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/plan"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/manifest"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// patience bounds a wait for the manager. Only a failing test waits so long.
const patience = time.Minute

// cluster is a kube-apiserver with the definitions and a running manager.
type cluster struct {
	client.Client
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	environment, scheme := controlplane.Start(t), controlplane.Scheme()
	skip := true
	mgr, err := ctrl.NewManager(environment.Config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := controllers.Setup(mgr, controllers.Options{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Run(t, mgr)
	return &cluster{must[client.Client](t)(client.New(environment.Config, client.Options{Scheme: scheme}))}
}

// register creates the KeyServer "default" for a key server.
func (c *cluster) register(t testing.TB, k *keys) {
	t.Helper()
	ca := string(k.CA(t))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "admin"},
		Data: map[string][]byte{"username": []byte(testserver.AdminName), "password": []byte(testserver.AdminPassword)}}
	ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1beta1.KeyServerSpec{
		URL: k.URL(), CABundle: &v1beta1.CABundle{Inline: &ca},
		Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
			SecretRef: &v1beta1.CredentialSecretReference{Namespace: secret.Namespace, Name: secret.Name},
		}},
		Grants: []v1beta1.Grant{v1beta1.GrantAll("default", v1beta1.GrantedNamespaces{Names: []string{"default"}})},
	}}
	for _, o := range []client.Object{secret, ks} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// apply applies manifests like kubectl apply --server-side.
func (c *cluster) apply(t testing.TB, manifests string) {
	t.Helper()
	for _, m := range must[[]manifest.Manifest](t)(manifest.Read(t.Context(), []string{"-"}, strings.NewReader(manifests))) {
		if m.Object.GetNamespace() == "" {
			m.Object.SetNamespace("default")
		}
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(m.Object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("%s: %v", m.Object.GetName(), err)
		}
	}
}

// managed returns the status of all objects, by kind and name.
func (c *cluster) managed(t testing.TB) map[string]*v1beta1.ManagedStatus {
	t.Helper()
	all := map[string]*v1beta1.ManagedStatus{}
	for _, k := range v1beta1.Kinds {
		list := k.NewList()
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if m, is := o.(reconcile.Object); is {
				_, all[k.Name+" "+m.GetName()] = m.Managed()
			}
			return nil
		})
	}
	return all
}

// settle waits until the condition Ready of every object has the reason.
func (c *cluster) settle(t testing.TB, reason v1beta1.Reason) map[string]*v1beta1.ManagedStatus {
	t.Helper()
	var waiting []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		waiting = nil
		all := c.managed(t)
		for name, status := range all {
			if r := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady); r == nil || r.Reason != string(reason) {
				waiting = append(waiting, name)
				if r != nil {
					waiting = append(waiting, r.Reason, r.Message)
				}
			}
		}
		if len(waiting) == 0 {
			return all
		}
	}
	t.Fatalf("never %s: %v", reason, waiting)
	return nil
}

// populate creates objects of every kind on the key server.
func (k *keys) populate(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	one, two := newPeer(t, 7), newPeer(t, 8)
	for _, p := range []peer{one, two} {
		must[schema.TrustedCAAdded](t)(k.admin.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: p.ca.Certificate.Raw}))
	}
	must[schema.TrustedServerSaved](t)(k.admin.AddTrustedServer(ctx, schema.AddTrustedServerRequest{TrustBlob: one.blob, FriendlyName: "The other one", Description: "for tests"}))
	must[schema.TrustedServerSaved](t)(k.admin.AddTrustedServer(ctx, schema.AddTrustedServerRequest{TrustBlob: two.blob, FriendlyName: "Ⅷ"}))
	group := must[schema.PrincipalSaved](t)(k.admin.CreateGroup(ctx, schema.CreateGroupRequest{Name: "Signers of mail"})).Principal
	for _, system := range []schema.SystemID{7, 8} {
		must[schema.PrincipalTrustSaved](t)(k.admin.CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{
			PrincipalID: group.ID, TrustedServerSystemID: system, Flag: "expose",
		}))
	}
	// A principal trust without its peer, of which only the system id is left.
	must[schema.TrustedServerGone](t)(k.admin.RemoveTrustedServer(ctx, schema.BySystemID{SystemID: 8}))

	var operations []schema.HexID
	for _, op := range must[schema.OperationList](t)(k.admin.ListOperations(ctx)).Operations[:3] {
		operations = append(operations, op.ID)
	}
	for _, name := range []string{"Signers", "signers", "Подписанты", "none: {a}", `"quoted"`, "true"} {
		must[schema.RoleSaved](t)(k.admin.CreateRole(ctx, schema.CreateRoleRequest{Name: name, Operations: operations}))
	}
	must[schema.RoleSaved](t)(k.admin.CreateRole(ctx, schema.CreateRoleRequest{Name: "Empty"}))

	role := must[schema.RoleList](t)(k.admin.ListRoles(ctx)).Roles[0].ID
	account := must[schema.PrincipalSaved](t)(k.admin.CreateXAuthPrincipal(ctx, schema.CreateXAuthPrincipalRequest{
		Name: "Shop", Issuer: "https://issuer.example", Subject: "system:serviceaccount:shop:till", Audiences: []string{"one", "another"}, RoleIDs: []schema.HexID{role},
	})).Principal
	ann := must[schema.PrincipalSaved](t)(k.admin.CreateLDAPPrincipal(ctx, schema.CreateLDAPPrincipalRequest{Name: "ann", RoleIDs: []schema.HexID{role}})).Principal
	must[schema.GroupMemberSaved](t)(k.admin.AddGroupMember(ctx, schema.GroupMemberRequest{Group: group.ID, Member: ann.ID}))
	must[schema.DelegateSaved](t)(k.admin.AddDelegate(ctx, schema.DelegateRequest{ID: ann.ID, Delegate: account.ID}))
	yes := true
	must[schema.PrincipalFlagsSaved](t)(k.admin.UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: ann.ID, Disabled: &yes, Delegation: &yes}))
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := must[[]byte](t)(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "agent", Organization: []string{"a/b"}}}, key))
	issued := must[schema.CertificateIssued](t)(k.admin.IssueCertificate(ctx, schema.IssueCertificateRequest{Request: request}))
	must[schema.CertificatesEnrolled](t)(k.admin.EnrollCertificates(ctx, schema.EnrollCertificatesRequest{Certificates: []schema.DER{schema.DER(issued.Certificate)}}))

	template := must[schema.ACLTemplateSaved](t)(k.admin.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: "Mail keys"}))
	limit := int64(0)
	until := schema.Stamp{0, 0, 0x01, 0xa3, 0x18, 0x5c, 0x50, 0x00} // 2027, a whole second
	must[schema.TemplateMemberSaved](t)(k.admin.SetACLTemplateMember(ctx, schema.SetACLTemplateMemberRequest{ID: template.ID, TemplateMemberRequest: schema.TemplateMemberRequest{
		SystemID: group.SystemID, PrincipalID: group.PrincipalID, Rights: schema.RightNamed("WRITE"), MaxUsage: &limit, EndTime: &until,
	}}))
	for _, path := range []string{"/mail", "/mail/archive"} {
		must[schema.TemplatedDirectorySaved](t)(k.admin.CreateTemplatedDirectory(ctx, schema.CreateTemplatedDirectoryRequest{Path: path, ACLTemplateID: template.ID}))
	}
}

// TestExportApplyPlan checks that an export can be applied and adopted, and that a plan then has no changes. Only owner
// marks are written to the key server. A plan shows a later change.
func TestExportApplyPlan(t *testing.T) {
	k := start(t)
	k.populate(t)
	exported, left := k.export(t)
	if len(left) > 0 {
		t.Errorf("left out: %+v", left)
	}
	before := k.writes(t)

	r := k.mustPlan(t, exported)
	// One object refers to a Principal whose id on the key server is known only after it is applied.
	if s := r.Summary; s.Adopt != len(r.Objects)-1 || len(r.Objects) != 17 || s.Blocked != 1 {
		t.Errorf("from the files alone everything is adopted: %+v\n%s", s, exported)
	}
	if o := find(t, r, "Principal ann"); o.Action != reconcile.PlanBlocked || !strings.Contains(o.Message, "Principal default/signers-of-mail is not on the key server yet") {
		t.Errorf("one that refers to others: %+v", o)
	}

	c := startCluster(t)
	c.register(t, k)
	c.apply(t, exported)
	for name, status := range c.settle(t, v1beta1.ReasonVerified) {
		if status.Provenance != v1beta1.Adopted {
			t.Errorf("%s is %s", name, status.Provenance)
		}
	}
	for range r.Objects { // adopted objects get an owner mark and stay the same otherwise
		before = append(before, "setOwner")
	}
	inCluster := func(o *plan.Options) { o.Cluster, o.Access = c.Client, nil }
	r = k.mustPlan(t, exported, inCluster)
	if s := r.Summary; s.None != len(r.Objects) || len(r.Objects) != 17 || !s.Agrees {
		t.Errorf("applied, it is left alone: %+v", s)
	}
	// The export now contains the owners, and is otherwise unchanged.
	owned := regexp.MustCompile(`(?m)^# owned by ".*/[^"]*", which took it over$`)
	if again, _ := k.export(t); owned.ReplaceAllString(again, "# no owner mark") != exported || len(owned.FindAllString(again, -1)) != len(r.Objects) {
		t.Errorf("another export differs:\n%s\nfrom\n%s", again, exported)
	}
	if after := k.writes(t); !slices.Equal(before, after) {
		t.Fatalf("the key server was written to: %v", after[len(before):])
	}

	// A changed file against the cluster, and a change that is not allowed.
	changed := strings.Replace(exported, "roleName: Empty", "roleName: Emptier", 1)
	r = k.mustPlan(t, changed, inCluster)
	if o := find(t, r, "Role empty"); o.Action != reconcile.PlanUpdate || len(o.Fields) != 1 || r.Summary.None != len(r.Objects)-1 {
		t.Errorf("a renamed role: %+v", o)
	}
	_, err := k.plan(t, strings.Replace(exported, "systemId: 8", "systemId: 9", 1), inCluster)
	if err == nil || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("another peer: %v", err)
	}
	// A new object that names a role of another object in the cluster.
	r = k.mustPlan(t, object("Role", "late", "{roleName: Empty, operations: []}"), inCluster)
	if o := find(t, r, "Role late"); o.Reason != v1beta1.ReasonConflict || !strings.Contains(o.Message, "Role default/empty") {
		t.Errorf("a newcomer: %+v", o)
	}
	if after := k.writes(t); !slices.Equal(before, after) {
		t.Fatalf("the key server was written to: %v", after[len(before):])
	}
}

// TestObserveWritesNothing checks managementPolicy Observe for every kind. The status must show differences, and
// nothing may write to the key server if an object is missing, differs or is deleted.
func TestObserveWritesNothing(t *testing.T) {
	k := start(t)
	k.populate(t)
	exported, _ := k.export(t)
	c := startCluster(t)
	c.register(t, k)
	p := newPeer(t, 9)
	different := object("Role", "differs", "{roleName: Empty, operations: [HMAC Data]}") +
		object("Role", "missing", "{roleName: Missing, operations: []}") +
		object("ACLTemplate", "differs", "{templateName: Mail keys, members: [{principal: password/admin, rights: [OWNER]}], directories: [/elsewhere]}") +
		object("ACLTemplate", "missing", "{templateName: Missing, members: []}") +
		caManifest("missing", p) + peerManifest("missing", p) +
		object("PrincipalTrust", "missing", "{systemId: 7, principal: {type: password, name: admin}, flag: restrict}")
	for _, line := range strings.Split(exported, "---\n") {
		if strings.Contains(line, "kind: TrustedServer") {
			different += "---\n" + strings.Replace(line, "friendlyName: The other one", "friendlyName: Another", 1)
		}
		if strings.Contains(line, "kind: PrincipalTrust") && strings.Contains(line, "systemId: 8") {
			different += "---\n" + strings.Replace(line, "flag: expose", "flag: restrict", 1)
		}
	}
	observing := observed(t, different)
	before := k.writes(t)
	c.apply(t, observing)
	all := c.settle(t, v1beta1.ReasonDrifted)
	if len(all) != 9 {
		t.Errorf("got %d objects", len(all))
	}
	r := k.mustPlan(t, observing)
	if s := r.Summary; s.Drifted != 9 || s.Agrees {
		t.Errorf("the plan of the same: %+v", s)
	}
	for name, status := range all {
		if len(status.Drift) == 0 || status.Provenance != "" {
			t.Errorf("%s: %+v", name, status)
		}
	}
	for _, obj := range []client.Object{
		&v1beta1.Role{}, &v1beta1.ACLTemplate{}, &v1beta1.TrustedCA{}, &v1beta1.TrustedServer{}, &v1beta1.PrincipalTrust{},
	} {
		if err := c.DeleteAllOf(t.Context(), obj, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); len(c.managed(t)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never gone: %v", c.managed(t))
		}
	}
	if after := k.writes(t); !slices.Equal(before, after) {
		t.Errorf("the key server was written to: %v", after[len(before):])
	}
}

// observed sets managementPolicy Observe in each manifest.
func observed(t testing.TB, manifests string) string {
	t.Helper()
	var out strings.Builder
	for _, m := range must[[]manifest.Manifest](t)(manifest.Read(t.Context(), []string{"-"}, strings.NewReader(manifests))) {
		m.Object.Object["spec"].(map[string]any)["managementPolicy"] = "Observe"
		raw := must[[]byte](t)(m.Object.MarshalJSON())
		out.WriteString("---\n" + string(raw) + "\n")
	}
	return out.String()
}
