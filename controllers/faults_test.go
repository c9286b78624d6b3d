package controllers

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

var _ = Describe("a key server that", func() {
	It("swallows a write never makes an object ready, and is not flooded", func(ctx context.Context) {
		s := newStage(ctx)
		s.onAdd(func(context.Context, connection.API, schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
			return schema.TrustedCAAdded{ListCountBefore: 1, ListCountAfter: 1},
				&apiclient.Error{Status: 409, Code: "NOT_SAVED", Detail: "a fresh read does not contain it"}
		})
		obj := s.trustedCA(newCA())
		begun := time.Now()
		apply(ctx, obj, beUnready(v1beta1.ReasonNotVerified, "NOT_SAVED: a fresh read does not contain it"))
		Expect(meta.IsStatusConditionFalse(obj.Status.Conditions, v1beta1.ConditionVerified)).To(BeTrue())
		Expect(obj.Status.CertificateID).To(BeEmpty())
		for range 20 { // passes because of unrelated changes
			_, err := s.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: newCA().der})
			Expect(err).NotTo(HaveOccurred())
		}
		// Not more writes than the doubling pauses allow until now, on a machine of any speed.
		adds, passed := s.adds.Load(), time.Since(begun)
		allowed := int32(1)
		for due := timing.RetryMin; due <= passed; due += min(timing.RetryMin<<(allowed-1), timing.RetryMax) {
			allowed++
		}
		Expect(adds).To(BeNumerically("<=", allowed))
		Eventually(func() bool { _ = readiness(ctx, obj)(); return has(obj, v1beta1.ConditionStalled) }).Should(BeTrue())

		s.onAdd(nil)
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(has(obj, v1beta1.ConditionStalled)).To(BeFalse())
	})

	It("fails the first repair of an outside change leaves it said that there was one", func(ctx context.Context) {
		s := newStage(ctx)
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beReady("created"))
		failing := s.adds.Load()
		s.onAdd(func(ctx context.Context, real connection.API, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
			if s.adds.Load() < failing+3 {
				return schema.TrustedCAAdded{}, &apiclient.Error{Status: 500, Code: "OP_FAILED", Detail: "not now"}
			}
			return real.AddTrustedCA(ctx, in)
		})
		found, repaired := counter(status.DriftFound, "TrustedCA"), counter(status.DriftRepaired, "TrustedCA")
		_, err := s.admin().RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: read(schema.ParseBase64ID, obj.Status.CertificateID)})
		Expect(err).NotTo(HaveOccurred())
		Eventually(eventsAbout(ctx, obj)).Should(ContainElement("DriftFound"))
		Eventually(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(obj.Status.Fingerprint))
		Eventually(readiness(ctx, obj)).Should(beReady("created"))
		Expect(counter(status.DriftFound, "TrustedCA")-found).To(BeEquivalentTo(1), "the same drift was counted anew at each try")
		Expect(counter(status.DriftRepaired, "TrustedCA") - repaired).To(BeEquivalentTo(1))
	})

	It("answers nothing but 503 is probed and asked nothing else, however many objects want something", func(ctx context.Context) {
		s := newStage(ctx)
		front, shut := newFront(s.server)
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		edit(ctx, ks, func(ks *v1beta1.KeyServer) {
			bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}))
			ks.Spec.URL, ks.Spec.CABundle.Inline = front.URL, &bundle
		})
		kept, late := s.trustedCA(newCA()), make([]*v1beta1.TrustedCA, 10)
		apply(ctx, kept, beReady("created"))
		requests := shut(true)
		Eventually(readiness(ctx, kept)).Should(beUnready(v1beta1.ReasonKeyServerUnavailable, "does not respond"))
		Eventually(readiness(ctx, ks)).Should(beUnready(v1beta1.ReasonKeyServerUnavailable, "")) // the KeyServer's own requests have ended
		Expect(requests()).NotTo(BeEmpty())                                                      // the failed requests
		for i := range late {
			late[i] = s.trustedCA(newCA())
			apply(ctx, late[i], beUnready(v1beta1.ReasonKeyServerUnavailable, "does not respond"))
			annotate(ctx, late[i], v1beta1.AnnotationReconcileRequestedAt, "now")
		}
		Consistently(requests).Should(Or(BeEmpty(), HaveEach("GET /api/ready")), "the gate let something through")

		shut(false)
		for _, obj := range slices.Concat(late, []*v1beta1.TrustedCA{kept}) {
			Eventually(readiness(ctx, obj)).Should(beReady(""))
		}
	})

	It("claims success without evidence is not believed", func(ctx context.Context) {
		s := newStage(ctx)
		s.onAdd(func(ctx context.Context, _ connection.API, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
			return lying(`{"saved":true,"matchedBy":"certificate-body"}`).AddTrustedCA(ctx, in)
		})
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beUnready(v1beta1.ReasonNotVerified, "without the certificate as read back"))
	})

	It("reads back another certificate is not believed", func(ctx context.Context) {
		s := newStage(ctx)
		s.onAdd(func(ctx context.Context, real connection.API, _ schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
			return real.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: newCA().der})
		})
		obj := s.trustedCA(newCA())
		apply(ctx, obj, beUnready(v1beta1.ReasonNotVerified, "another certificate than the one that was sent"))
	})

	It("loses its reply after the write took effect keeps what was created ours", func(ctx context.Context) {
		s := newStage(ctx)
		lost := false
		s.onAdd(func(ctx context.Context, real connection.API, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
			added, err := real.AddTrustedCA(ctx, in)
			if !lost && err == nil {
				lost = true
				return schema.TrustedCAAdded{}, &apiclient.NetworkError{Sent: true, Err: errors.New("connection reset")}
			}
			return added, err
		})
		ca := newCA()
		obj := s.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Spec.AdoptionPolicy = v1beta1.AdoptNever })
		Expect(kube.Create(ctx, obj)).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		Expect(s.adds.Load()).To(BeEquivalentTo(1), "the write was repeated")
		remove(ctx, obj)
		Expect(s.trusted(ctx)).NotTo(HaveKey(ca.fingerprint))
	})

	DescribeTable("somebody else was faster with leaves the decision to the adoption policy",
		func(ctx context.Context, policy v1beta1.AdoptionPolicy, comes OmegaMatcher, provenance v1beta1.Provenance) {
			s := newStage(ctx)
			s.onAdd(func(ctx context.Context, real connection.API, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
				if _, err := s.admin().AddTrustedCA(apiclient.OwnedBy(ctx, ""), in); err != nil && apiclient.CodeOf(err) != "ALREADY_TRUSTED" {
					return schema.TrustedCAAdded{}, err
				}
				return real.AddTrustedCA(ctx, in)
			})
			ca := newCA()
			obj := s.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Spec.AdoptionPolicy = policy })
			Expect(kube.Create(ctx, obj)).To(Succeed())
			Eventually(readiness(ctx, obj)).Should(comes)
			Expect(obj.Status.Provenance).To(Equal(provenance))
			Expect(controllerutil.ContainsFinalizer(obj, v1beta1.FinalizerExternal)).To(Equal(provenance != ""), "the finalizer of the attempt")
			remove(ctx, obj)
			Expect(s.trusted(ctx)).To(HaveKey(ca.fingerprint), "what somebody else added was deleted")
		},
		Entry("Never", v1beta1.AdoptNever, beUnready(v1beta1.ReasonConflict, "adoptionPolicy is Never"), v1beta1.Provenance("")),
		Entry("IfIdentical", v1beta1.AdoptIfIdentical, beReady("took over"), v1beta1.Adopted),
	)

	It("has no change feed is polled, and says so", func(ctx context.Context) {
		s := newStage(ctx, func(ks *v1beta1.KeyServer) {
			m := meddlerOf(ks.Spec.URL)
			m.onChanges(func(ctx context.Context, _ connection.API, in schema.ChangesQuery) (schema.ChangePage, error) {
				return withoutRoutes().ListChanges(ctx, in)
			})
		})
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		feed := meta.FindStatusCondition(ks.Status.Conditions, v1beta1.ConditionChangeFeed)
		Expect(feed).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", string(v1beta1.ReasonUnsupported)))))

		ca := newCA()
		obj := s.trustedCA(ca, func(o *v1beta1.TrustedCA) { o.Spec.ResyncInterval = &metav1.Duration{Duration: 5 * time.Second} })
		apply(ctx, obj, beReady(""))
		_, err := s.admin().RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: read(schema.ParseBase64ID, obj.Status.CertificateID)})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(ca.fingerprint))
	})

	It("answers every poll at once, as one does that drains, is not asked without a pause", func(ctx context.Context) {
		var mu sync.Mutex
		var asked []time.Time
		s := newStage(ctx, func(ks *v1beta1.KeyServer) {
			meddlerOf(ks.Spec.URL).onChanges(func(ctx context.Context, real connection.API, in schema.ChangesQuery) (schema.ChangePage, error) {
				if in.LongPoll() == 0 { // the manager moves to the end of the feed without waiting
					return real.ListChanges(ctx, in)
				}
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, time.Now())
				return schema.ChangePage{Cursor: *in.After}, nil
			})
		})
		Eventually(readiness(ctx, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}})).Should(beReady(""))
		polls := func() []time.Time { mu.Lock(); defer mu.Unlock(); return slices.Clone(asked) }
		Eventually(func() int { return len(polls()) }).Should(BeNumerically(">=", 4))
		for i, at := range polls()[1:] {
			Expect(at.Sub(polls()[i])).To(BeNumerically(">=", connection.AfterDrain), "poll %d", i+1)
		}
	})

	It("forgets its change feed has everything read anew", func(ctx context.Context) {
		s := newStage(ctx)
		ca := newCA()
		obj := s.trustedCA(ca)
		apply(ctx, obj, beReady(""))
		// The feed does not report the removal. It only reports that the cursor is too old.
		hidden := false
		s.onChanges(func(ctx context.Context, real connection.API, in schema.ChangesQuery) (schema.ChangePage, error) {
			page, err := real.ListChanges(ctx, in)
			if err == nil && len(page.Changes) > 0 && !hidden {
				hidden = true
				return schema.ChangePage{Cursor: page.Cursor, Reset: true}, nil
			}
			return page, err
		})
		// The long poll in progress still goes to the real key server.
		annotate(ctx, &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, v1beta1.AnnotationReconcileRequestedAt, "1")
		Eventually(func() string {
			ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
			_ = readiness(ctx, ks)()
			return ks.Status.LastHandledReconcileAt
		}).Should(Equal("1"))
		_, err := s.admin().RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: read(schema.ParseBase64ID, obj.Status.CertificateID)})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(ca.fingerprint))
	})
})

// newFront starts a TLS proxy in front of a key server. After shut(true), the proxy returns 503. shut returns a
// function that lists the requests since its last call.
func newFront(s *testserver.Server) (front *httptest.Server, shut func(bool) (asked func() []string)) {
	GinkgoHelper()
	target, err := url.Parse(s.URL())
	Expect(err).NotTo(HaveOccurred())
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.Pool(GinkgoTB()), MinVersion: tls.VersionTLS13}},
		ErrorLog:  log.New(io.Discard, "", 0), // hides errors of requests that a closed connection interrupts
	}
	var mu sync.Mutex
	var closed bool
	var asked []string
	front = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		refuse := closed
		mu.Unlock()
		if refuse {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"NOT_CURRENT","detail":"out of order","retryable":true,"scope":"process"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	DeferCleanup(front.Close)
	return front, func(close bool) func() []string {
		mu.Lock()
		closed, asked = close, nil
		mu.Unlock()
		if close {
			front.CloseClientConnections() // also ends the long poll in progress
		}
		return func() []string {
			mu.Lock()
			defer mu.Unlock()
			was := asked
			asked = nil
			return was
		}
	}
}

func counter(of *prometheus.CounterVec, kind string) float64 {
	return testutil.ToFloat64(of.WithLabelValues(kind))
}

// withoutRoutes returns a client of a server that returns 404 for every route.
func withoutRoutes() *apiclient.Client { return clientOf(http.NotFoundHandler()) }

// lying returns a client of a server that returns success and the same body for every call.
func lying(answer string) *apiclient.Client {
	return clientOf(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/sessions" {
			until := time.Now().Add(time.Hour).Format(time.RFC3339)
			_, _ = fmt.Fprintf(w, `{"sessionId":"any","roles":[],"expiresAt":%q,"idleExpiresAt":%q}`, until, until)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
}

func clientOf(service http.Handler) *apiclient.Client {
	GinkgoHelper()
	srv := httptest.NewServer(service)
	DeferCleanup(srv.Close)
	c, err := apiclient.New(apiclient.Options{
		BaseURL: srv.URL, MaxRetries: -1,
		Credentials: apiclient.PasswordCredentials("nobody", func(context.Context) (string, error) { return "", nil }),
	})
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("removing the custom resource definitions", Serial, func() {
	It("abandons every object and deletes no trust", func(ctx context.Context) {
		was := kube
		defer func() { kube = was }()
		cfg, c := startControlPlane()
		kube = c
		startManager(cfg)
		s := newStage(ctx)
		p := newPeer(ctx)
		ca := s.trustedCA(p.ca, func(o *v1beta1.TrustedCA) { o.Spec.DeletionPolicy = v1beta1.DeleteExternal })
		peer := s.trustedServer(p, func(o *v1beta1.TrustedServer) { o.Spec.DeletionPolicy = v1beta1.DeleteExternal })
		trust := s.principalTrust(0, byTypeAndName("password", testserver.AdminName), of(peer))
		role := s.role("Kept", []string{"HMAC Data"})
		template := s.aclTemplate("Kept", members(), func(o *v1beta1.ACLTemplate) { o.Spec.Directories = []string{"/kept/"} })
		person := s.principalOf(ofLDAP("kept"), func(o *v1beta1.Principal) { o.Spec.DeletionPolicy = v1beta1.DeleteExternal })
		for _, obj := range []client.Object{ca, peer, trust, role, template, person} {
			apply(ctx, obj, beReady("created"))
		}

		crds, err := client.New(cfg, client.Options{Scheme: controlplane.Scheme(apiextensionsv1.AddToScheme)})
		Expect(err).NotTo(HaveOccurred())
		all := &apiextensionsv1.CustomResourceDefinitionList{}
		Expect(crds.List(ctx, all)).To(Succeed())
		Expect(all.Items).To(HaveLen(len(v1beta1.Kinds)))
		for i := range all.Items {
			Expect(crds.Delete(ctx, &all.Items[i])).To(Succeed())
		}
		Eventually(func() []apiextensionsv1.CustomResourceDefinition {
			Expect(crds.List(ctx, all)).To(Succeed())
			return all.Items
		}).Should(BeEmpty(), "a definition hangs on its objects' finalizers")

		Consistently(func() map[string]string { return s.trusted(ctx) }).Should(HaveKey(p.ca.fingerprint))
		Expect(s.removes.Load()).To(BeZero())
		Expect(s.peers(ctx)).To(HaveKey(p.system))
		trusts, err := s.admin().ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(trusts.PrincipalTrusts).To(HaveLen(1))
		Expect(s.roles(ctx)).To(HaveKey("Kept"))
		Expect(s.held(ctx, "ldap", "kept")).NotTo(BeNil())
		Expect(s.template(ctx, "Kept")).NotTo(BeEmpty())
		Expect(s.paths(ctx, "Kept")()).To(ConsistOf("/kept/"))
	})
})
