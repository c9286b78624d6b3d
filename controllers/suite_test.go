package controllers

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// timing has short pauses for the manager under test.
var timing = connection.Timing{
	ProbeMin: 100 * time.Millisecond, ProbeMax: 500 * time.Millisecond, LoginMax: time.Minute,
	FeedWait: 30 * time.Second, PollEach: 300 * time.Millisecond, LookEach: 200 * time.Millisecond,
	RetryMin: 200 * time.Millisecond, RetryMax: 2 * time.Second,
}

// The time limit for an expected state on a slow machine, and the time after which "never" is accepted.
const (
	eventually = 30 * time.Second
	never      = 1500 * time.Millisecond
)

var (
	restConfig *rest.Config
	kube       client.Client
	shown      *stage // the key server that most cases share
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "controllers")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(eventually)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(never)
	ctrl.SetLogger(GinkgoLogr)
	restConfig, kube = startControlPlane()
	tokenFile = filepath.Join(GinkgoT().TempDir(), "token")
	startManager(restConfig)
	shown = newStage(ctx)
})

// startControlPlane runs a kube-apiserver with the CRDs until the spec ends.
func startControlPlane() (*rest.Config, client.Client) {
	GinkgoHelper()
	cfg := controlplane.Start(GinkgoTB()).Config
	cfg.QPS, cfg.Burst = 200, 400
	c, err := client.New(cfg, client.Options{Scheme: controlplane.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return cfg, c
}

// startManager runs the controllers until the spec ends.
func startManager(cfg *rest.Config) {
	GinkgoHelper()
	skip := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  controlplane.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// The suite runs more than one manager in one process.
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(Setup(mgr, Options{ClusterName: "tested", Dial: meddle, TokenFiles: map[string]string{tokenAudience: tokenFile}, timing: &timing})).To(Succeed())
	controlplane.Run(GinkgoTB(), mgr)
}

// stage is a running key server with a KeyServer object for it.
type stage struct {
	server *testserver.Server
	name   string
	*callInterceptor

	mu sync.Mutex
	by *apiclient.Client // a client of the administrator, used for all polling
	at string
}

var stages atomic.Int32

func newStage(ctx context.Context, change ...func(*v1beta1.KeyServer)) *stage {
	GinkgoHelper()
	return newStageOn(ctx, testserver.Start(GinkgoTB()), change...)
}

func newStageOn(ctx context.Context, server *testserver.Server, change ...func(*v1beta1.KeyServer)) *stage {
	GinkgoHelper()
	s := &stage{server: server, name: fmt.Sprintf("server-%d", stages.Add(1))}
	s.callInterceptor = meddlerOf(s.server.URL())
	DeferCleanup(meddlers.Delete, s.server.URL()) // a later server may get the same port
	s.secret(ctx, s.name, testserver.AdminName, testserver.AdminPassword)
	ca := string(s.server.CA(GinkgoTB()))
	ks := &v1beta1.KeyServer{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: v1beta1.KeyServerSpec{
			URL: s.server.URL(), CABundle: &v1beta1.CABundle{Inline: &ca},
			Credentials: v1beta1.KeyServerCredentials{Administrator: v1beta1.AdministratorCredential{
				SecretRef: &v1beta1.CredentialSecretReference{Namespace: "kube-system", Name: s.name},
			}},
			Grants: []v1beta1.Grant{v1beta1.GrantAll("default", v1beta1.GrantedNamespaces{Names: []string{"default"}})},
		},
	}
	for _, c := range change {
		c(ks)
	}
	Expect(kube.Create(ctx, ks)).To(Succeed())
	c := kube
	DeferCleanup(func(ctx context.Context) { // while the manager still runs
		patch := []byte(`{"metadata":{"annotations":{"` + v1beta1.AnnotationAbandon + `":"true"}}}`)
		err := c.Patch(ctx, ks, client.RawPatch(types.MergePatchType, patch))
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(client.IgnoreNotFound(c.Delete(ctx, ks))).To(Succeed())
	})
	return s
}

// secret creates a Secret with credentials.
func (s *stage) secret(ctx context.Context, name, username, password string) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	_, err := controllerutil.CreateOrUpdate(ctx, kube, secret, func() error {
		secret.Data = map[string][]byte{"username": []byte(username), "password": []byte(password)}
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// admin returns one client for each address of the server, so that polling does not open new connections.
func (s *stage) admin() *apiclient.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.server.URL(); s.by == nil || s.at != at {
		s.by, s.at = s.server.Admin(GinkgoTB()), at
	}
	return s.by
}

// trusted returns the certificateIds of the trusted CAs by fingerprint.
func (s *stage) trusted(ctx context.Context) map[string]string {
	GinkgoHelper()
	list, err := s.admin().ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
	Expect(err).NotTo(HaveOccurred())
	ids := map[string]string{}
	for _, ca := range list.TrustedCAs {
		ids[fingerprintOf(ca.Certificate)] = certificateID(ca.Certificate)
	}
	return ids
}

func (s *stage) roles(ctx context.Context) map[string]schema.Role {
	GinkgoHelper()
	list, err := s.admin().ListRoles(ctx)
	Expect(err).NotTo(HaveOccurred())
	byName := map[string]schema.Role{}
	for _, r := range list.Roles {
		byName[r.Name] = r
	}
	return byName
}

// read parses text and fails the spec after an error.
func read[V any](parse func(string) (V, error), text string) V {
	GinkgoHelper()
	v, err := parse(text)
	Expect(err).NotTo(HaveOccurred())
	return v
}

// operation returns the id of an operation by its name.
func (s *stage) operation(ctx context.Context, name string) schema.HexID {
	GinkgoHelper()
	list, err := s.admin().ListOperations(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, op := range list.Operations {
		if op.Name == name {
			return op.ID
		}
	}
	Fail("no operation " + name)
	return schema.HexID{}
}

// callInterceptor counts the calls of the manager to one key server, and can change or fail them.
type callInterceptor struct {
	adds, removes, lists, writes, replaces, checkpoints, people, mints atomic.Int32
	templates, rolls                                                   atomic.Int32 // reads of templates, and of the members of one
	revocation                                                         revocationCalls

	mu      sync.Mutex
	add     func(ctx context.Context, real connection.API, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error)
	changes func(ctx context.Context, real connection.API, in schema.ChangesQuery) (schema.ChangePage, error)
	put     func(ctx context.Context) error // makes SetACLTemplateMember fail
	give    func(ctx context.Context) error // if it returns an error, GrantACL fails
	minted  func(schema.KeyMetadata) error  // if it returns an error, the response is lost
	join    func() error                    // makes AddGroupMember fail
	says    func(schema.TrustInfo) schema.TrustInfo
	witness func(ctx context.Context) (schema.Witness, error)
}

// meddlers has the callInterceptor of each running service, by URL.
var meddlers sync.Map

func meddlerOf(url string) *callInterceptor {
	m, _ := meddlers.LoadOrStore(url, &callInterceptor{})
	return m.(*callInterceptor)
}

// meddle is the Dial of the suite.
func meddle(e connection.Endpoint) (connection.API, error) {
	real, err := connection.DialHTTP(e)
	m, ok := meddlers.Load(e.BaseURL)
	if !ok { // the stage of this key server has ended
		m = &callInterceptor{}
	}
	return &meddled{API: real, callInterceptor: m.(*callInterceptor)}, err
}

func (m *callInterceptor) onAdd(f func(context.Context, connection.API, schema.AddTrustedCARequest) (schema.TrustedCAAdded, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add = f
}

func (m *callInterceptor) onChanges(f func(context.Context, connection.API, schema.ChangesQuery) (schema.ChangePage, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes = f
}

func (m *callInterceptor) onPut(f func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put = f
}

func (m *callInterceptor) onGive(f func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.give = f
}

func (m *callInterceptor) onMinted(f func(schema.KeyMetadata) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.minted = f
}

func (m *callInterceptor) onJoin(f func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.join = f
}

// onTrustInfo changes the trust info in responses.
func (m *callInterceptor) onTrustInfo(f func(schema.TrustInfo) schema.TrustInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says = f
}

// onWitness replaces the witness response.
func (m *callInterceptor) onWitness(f func(context.Context) (schema.Witness, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.witness = f
}

type meddled struct {
	connection.API
	*callInterceptor
}

func (m *meddled) ListTrustedCAs(ctx context.Context, in schema.TrustedCAsQuery) (schema.TrustedCAList, error) {
	m.lists.Add(1)
	return m.API.ListTrustedCAs(ctx, in)
}

func (m *meddled) AddTrustedCA(ctx context.Context, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
	m.adds.Add(1)
	m.mu.Lock()
	f := m.add
	m.mu.Unlock()
	if f != nil {
		return f(ctx, m.API, in)
	}
	return m.API.AddTrustedCA(ctx, in)
}

func (m *meddled) RemoveTrustedCA(ctx context.Context, in schema.RemoveTrustedCARequest) (schema.TrustedCARemoved, error) {
	m.removes.Add(1)
	return m.API.RemoveTrustedCA(ctx, in)
}

func (m *meddled) AddTrustedServer(ctx context.Context, in schema.AddTrustedServerRequest) (schema.TrustedServerSaved, error) {
	if in.Replace {
		m.replaces.Add(1)
	}
	return m.API.AddTrustedServer(ctx, in)
}

func (m *meddled) GetLocalTrustInfo(ctx context.Context) (schema.TrustInfo, error) {
	m.mu.Lock()
	f := m.says
	m.mu.Unlock()
	info, err := m.API.GetLocalTrustInfo(ctx)
	if f != nil && err == nil {
		info = f(info)
	}
	return info, err
}

func (m *meddled) GetWitness(ctx context.Context) (schema.Witness, error) {
	m.mu.Lock()
	f := m.witness
	m.mu.Unlock()
	if f != nil {
		return f(ctx)
	}
	return m.API.GetWitness(ctx)
}

func (m *meddled) GetAuditCheckpoint(ctx context.Context) (schema.Text, error) {
	m.checkpoints.Add(1)
	return m.API.GetAuditCheckpoint(ctx)
}

func (m *meddled) ListRoles(ctx context.Context) (schema.RoleList, error) {
	m.lists.Add(1)
	return m.API.ListRoles(ctx)
}

func (m *meddled) CreateRole(ctx context.Context, in schema.CreateRoleRequest) (schema.RoleSaved, error) {
	m.writes.Add(1)
	return m.API.CreateRole(ctx, in)
}

func (m *meddled) UpdateRole(ctx context.Context, in schema.UpdateRoleRequest) (schema.RoleSaved, error) {
	m.writes.Add(1)
	return m.API.UpdateRole(ctx, in)
}

func (m *meddled) ListACLTemplates(ctx context.Context, in schema.ACLTemplateQuery) (schema.ACLTemplateList, error) {
	m.templates.Add(1)
	return m.API.ListACLTemplates(ctx, in)
}

func (m *meddled) ListACLTemplateMembers(ctx context.Context, in schema.ByID) (schema.TemplateMemberList, error) {
	m.rolls.Add(1)
	return m.API.ListACLTemplateMembers(ctx, in)
}

func (m *meddled) SetACLTemplateMember(ctx context.Context, in schema.SetACLTemplateMemberRequest) (schema.TemplateMemberSaved, error) {
	m.mu.Lock()
	f := m.put
	m.mu.Unlock()
	if f != nil {
		return schema.TemplateMemberSaved{}, f(ctx)
	}
	return m.API.SetACLTemplateMember(ctx, in)
}

func (m *meddled) MintKey(ctx context.Context, in schema.MintKeyRequest) (schema.KeyMetadata, error) {
	m.mints.Add(1)
	m.mu.Lock()
	f := m.minted
	m.mu.Unlock()
	key, err := m.API.MintKey(ctx, in)
	if f != nil && err == nil {
		err = f(key)
	}
	return key, err
}

func (m *meddled) GrantACL(ctx context.Context, in schema.ACLChangeRequest) (schema.ACLResponse, error) {
	m.mu.Lock()
	f := m.give
	m.mu.Unlock()
	if f != nil {
		if err := f(ctx); err != nil {
			return schema.ACLResponse{}, err
		}
	}
	return m.API.GrantACL(ctx, in)
}

func (m *meddled) ListPrincipals(ctx context.Context, in schema.PrincipalQuery) (schema.PrincipalPage, error) {
	m.people.Add(1)
	return m.API.ListPrincipals(ctx, in)
}

func (m *meddled) GetPrincipal(ctx context.Context, in schema.ByID) (schema.Principal, error) {
	m.people.Add(1)
	return m.API.GetPrincipal(ctx, in)
}

func (m *meddled) AddGroupMember(ctx context.Context, in schema.GroupMemberRequest) (schema.GroupMemberSaved, error) {
	m.mu.Lock()
	f := m.join
	m.mu.Unlock()
	if f != nil {
		return schema.GroupMemberSaved{}, f()
	}
	return m.API.AddGroupMember(ctx, in)
}

func (m *meddled) ListChanges(ctx context.Context, in schema.ChangesQuery) (schema.ChangePage, error) {
	m.mu.Lock()
	f := m.changes
	m.mu.Unlock()
	if f != nil {
		return f(ctx, m.API, in)
	}
	return m.API.ListChanges(ctx, in)
}

// testCA is a CA certificate for tests.
type testCA struct {
	pem         string
	der         []byte
	fingerprint string
}

func newCA() testCA {
	GinkgoHelper()
	return newCAUntil(time.Now().AddDate(1, 0, 0))
}

func newCAUntil(notAfter time.Time) testCA {
	GinkgoHelper()
	ca := rig.NewCAUntil(GinkgoTB(), fmt.Sprintf("Test CA %d", objects.Add(1)), notAfter)
	return testCA{pem: ca.PEM, der: ca.DER, fingerprint: ca.Fingerprint}
}

var objects atomic.Int32

// trustedCA returns a TrustedCA with an inline certificate. It is not applied yet.
func (s *stage) trustedCA(ca testCA, change ...func(*v1beta1.TrustedCA)) *v1beta1.TrustedCA {
	obj := &v1beta1.TrustedCA{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("ca-%d", objects.Add(1))},
		Spec:       v1beta1.TrustedCASpec{Certificate: v1beta1.CertificateSource{Inline: &ca.pem}},
	}
	obj.Spec.KeyServerRef.Name = s.name
	for _, c := range change {
		c(obj)
	}
	return obj
}

// role returns a Role that is not applied yet.
func (s *stage) role(name string, operations []string, change ...func(*v1beta1.Role)) *v1beta1.Role {
	obj := &v1beta1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("role-%d", objects.Add(1))},
		Spec:       v1beta1.RoleSpec{Operations: operations},
	}
	if name != "" {
		obj.Spec.RoleName = &name
	}
	obj.Spec.KeyServerRef.Name = s.name
	for _, c := range change {
		c(obj)
	}
	return obj
}

// about is the Ready condition in a comparable form.
type about struct {
	Status  metav1.ConditionStatus
	Reason  v1beta1.Reason
	Current bool // observed at the current generation
	Message string
}

// readiness reads an object and returns its Ready condition.
func readiness(ctx context.Context, obj client.Object) func() about {
	return func() about {
		c, err := controlplane.Ready(ctx, kube, obj)
		if err != nil {
			return about{Message: err.Error()}
		}
		return about{c.Status, v1beta1.Reason(c.Reason), c.ObservedGeneration == obj.GetGeneration(), c.Message}
	}
}

// beReady matches the condition of a Ready object if its message contains says.
func beReady(says string) OmegaMatcher {
	return And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1beta1.ReasonVerified),
		HaveField("Current", true), HaveField("Message", ContainSubstring(says)))
}

// beCorrected matches a Ready object whose difference was corrected. If the cache is outdated, the correcting pass
// cannot write the status and is repeated. The message is then that of the second pass, which finds no difference.
func beCorrected() OmegaMatcher { return Or(beReady("corrected"), beReady("re-read")) }

// beDone matches the result of an outside change. The manager may have corrected the change before the key server read
// it back.
func beDone() OmegaMatcher {
	return Or(BeNil(), WithTransform(apiclient.CodeOf, BeElementOf("NOT_SAVED", "NOT_REMOVED", "NOT_VERIFIED")))
}

// beUnready matches the condition of an object that is not Ready for this reason.
func beUnready(reason v1beta1.Reason, says string) OmegaMatcher {
	return And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", reason),
		HaveField("Message", ContainSubstring(says)))
}

// apply creates the object and waits until its condition matches.
func apply(ctx context.Context, obj client.Object, comes OmegaMatcher) {
	GinkgoHelper()
	Expect(kube.Create(ctx, obj)).To(Succeed())
	Eventually(readiness(ctx, obj)).Should(comes)
}

// edit changes an object and retries if another client changes it at the same time.
func edit[T client.Object](ctx context.Context, obj T, change func(T)) {
	GinkgoHelper()
	Eventually(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		change(obj)
		return kube.Update(ctx, obj)
	}).Should(Succeed())
}

func annotate(ctx context.Context, obj client.Object, name, value string) {
	GinkgoHelper()
	edit(ctx, obj, func(o client.Object) {
		a := o.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		if a[name] = value; value == "" {
			delete(a, name)
		}
		o.SetAnnotations(a)
	})
}

// remove deletes an object and waits until it no longer exists.
func remove(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(kube.Delete(ctx, obj)).To(Succeed())
	Eventually(gone(ctx, obj)).Should(BeTrue())
}

func gone(ctx context.Context, obj client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(obj), obj))
	}
}

// eventsAfter makes an outside change before each read of the events. One change may not be enough: if the manager's
// cache has no status yet, the manager corrects the change as a part of an update, without an event.
func eventsAfter(ctx context.Context, obj client.Object, change func() error) func() []string {
	return func() []string {
		Expect(change()).To(beDone())
		return eventsAbout(ctx, obj)()
	}
}

// eventsAbout returns the reasons of an object's events.
func eventsAbout(ctx context.Context, obj client.Object) func() []string {
	return func() []string {
		all := &eventsv1.EventList{}
		if err := kube.List(ctx, all); err != nil {
			return []string{err.Error()}
		}
		var reasons []string
		for _, e := range all.Items {
			if e.Regarding.UID == obj.GetUID() {
				reasons = append(reasons, e.Reason)
			}
		}
		return reasons
	}
}

// vanish removes an object without the manager, as if the storage of the cluster was lost. obj can be applied again.
func vanish(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	annotate(ctx, obj, v1beta1.AnnotationPaused, "true")
	Eventually(readiness(ctx, obj)).Should(HaveField("Reason", v1beta1.ReasonPaused))
	Expect(kube.Delete(ctx, obj)).To(Succeed())
	Eventually(func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return client.IgnoreNotFound(err)
		}
		obj.SetFinalizers(nil)
		return client.IgnoreNotFound(kube.Update(ctx, obj))
	}).Should(Succeed())
	obj.SetResourceVersion("")
	obj.SetUID("")
	obj.SetGeneration(0)
	obj.SetAnnotations(nil)
	obj.SetFinalizers(nil)
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetManagedFields(nil)
}
