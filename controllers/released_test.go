package controllers

import (
	"cmp"
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// These specs use a real API server. TestSchedulesOfDeletions tests deletions of Roles in simulated time.
var _ = Describe("A deleted object", func() {
	DescribeTable("leaves no CA if it is deleted while a rotation adds one", func(ctx context.Context, lost error) {
		s := newStage(ctx)
		old, next := newCA(), newCA()
		obj := s.trustedCA(old)
		apply(ctx, obj, beReady("created"))
		doomed := obj.DeepCopy() // a copy, because edit writes into obj
		s.onAdd(func(ctx context.Context, real connection.API, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
			added, err := real.AddTrustedCA(ctx, in)
			if err == nil {
				err = cmp.Or(kube.Delete(ctx, doomed), lost)
			}
			return added, err
		})
		edit(ctx, obj, func(o *v1beta1.TrustedCA) { o.Spec.Certificate.Inline = &next.pem })
		Eventually(gone(ctx, obj)).Should(BeTrue())
		Expect(s.trusted(ctx)).NotTo(Or(HaveKey(old.fingerprint), HaveKey(next.fingerprint)))
	},
		Entry("and the answer comes", nil),
		Entry("and the answer is lost", &apiclient.NetworkError{Sent: true, Err: errors.New("connection reset")}),
	)

	// This is the state after a manager has crashed between the creation and the write of the status.
	It("leaves nothing that bears its mark if its status names an older one", func(ctx context.Context) {
		s := newStage(ctx)
		const before = "00000000000000ff"
		name := fresh("Recreated")
		role, principal, template := s.role(name, []string{"HMAC Data"}), s.principalOf(ofLDAP(name)), s.aclTemplate(name, nil)
		apply(ctx, role, beReady("created"))
		apply(ctx, principal, beReady("created"))
		apply(ctx, template, beReady("created"))
		for _, obj := range []client.Object{role, principal, template} {
			annotate(ctx, obj, v1beta1.AnnotationPaused, "true")
			Eventually(readiness(ctx, obj)).Should(HaveField("Reason", v1beta1.ReasonPaused))
			switch o := obj.(type) {
			case *v1beta1.Role:
				o.Status.RoleID = before
			case *v1beta1.Principal:
				o.Status.PrincipalID = before
			case *v1beta1.ACLTemplate:
				o.Status.TemplateID = before
			}
			Expect(kube.Status().Update(ctx, obj)).To(Succeed())
			Expect(kube.Delete(ctx, obj)).To(Succeed())
			annotate(ctx, obj, v1beta1.AnnotationPaused, "")
			Eventually(gone(ctx, obj)).Should(BeTrue())
		}
		Expect(s.roles(ctx)).NotTo(HaveKey(name))
		Expect(s.held(ctx, ldapType, name)).To(BeNil())
		templates, err := s.admin().ListACLTemplates(ctx, schema.ACLTemplateQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(templates.Templates).NotTo(ContainElement(HaveField("Name", name)))
	})
})
