package controllers

import (
	"context"
	"crypto/rand"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/mod/sumdb/note"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

var _ = Describe("The audit trail of a key server", func() {
	look := func(ctx context.Context, ks *v1beta1.KeyServer) {
		GinkgoHelper()
		token := rand.Text()
		annotate(ctx, ks, v1beta1.AnnotationReconcileRequestedAt, token)
		Eventually(func() string { _ = readiness(ctx, ks)(); return ks.Status.LastHandledReconcileAt }).Should(Equal(token))
	}
	consistent := func(ks *v1beta1.KeyServer) metav1.Condition {
		GinkgoHelper()
		c := meta.FindStatusCondition(ks.Status.Conditions, v1beta1.ConditionTrailConsistent)
		Expect(c).NotTo(BeNil())
		return *c
	}
	be := func(status metav1.ConditionStatus, reason v1beta1.Reason, says string) OmegaMatcher {
		return And(HaveField("Status", status), HaveField("Reason", string(reason)), HaveField("Message", ContainSubstring(says)))
	}

	It("is consistent until the service has seen a log lie, and names it", func(ctx context.Context) {
		s := newStage(ctx)
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		Expect(consistent(ks)).To(be(metav1.ConditionTrue, v1beta1.ReasonVerified, "the key server witnesses no audit log of another key server"))

		By("what cannot be read is unknown, and stops nothing else")
		s.onWitness(func(context.Context) (schema.Witness, error) {
			return schema.Witness{}, &apiclient.Error{Status: 403, Code: "ACCESS_DENIED", Detail: "Read Audit"}
		})
		look(ctx, ks)
		Expect(consistent(ks)).To(be(metav1.ConditionUnknown, v1beta1.ReasonAccessDenied, "cannot be read: ACCESS_DENIED: Read Audit"))
		Eventually(readiness(ctx, ks)).Should(beReady(""))

		By("a liar is named")
		system, at := schema.SystemID(9), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		s.onWitness(func(context.Context) (schema.Witness, error) {
			return schema.Witness{Logs: []schema.WitnessedLog{
				{Origin: "honest/audit/8", Size: 3},
				{Origin: "liar/audit/9", SystemID: &system, Size: 7, Conflict: "logRolledBack", ConflictAt: at},
				{Origin: "elsewhere/log", Conflict: "logForked", ConflictAt: at},
			}}, nil
		})
		look(ctx, ks)
		Expect(consistent(ks)).To(be(metav1.ConditionFalse, v1beta1.ReasonConflict,
			"the audit log liar/audit/9 of peer 9: logRolledBack at 2026-11-20T12:00:00Z, the audit log elsewhere/log: logForked at 2026-11-20T12:00:00Z"))
		Expect(consistent(ks).Message).NotTo(ContainSubstring("honest"))

		By("and no longer once the peer was removed")
		s.onWitness(nil)
		look(ctx, ks)
		Expect(consistent(ks)).To(be(metav1.ConditionTrue, v1beta1.ReasonVerified, ""))
	})

	It("is unknown where the service has no such route", func(ctx context.Context) {
		s := newStage(ctx, func(ks *v1beta1.KeyServer) { meddlerOf(ks.Spec.URL).onWitness(withoutRoutes().GetWitness) })
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		Expect(consistent(ks)).To(be(metav1.ConditionUnknown, v1beta1.ReasonUnsupported, ""))
		Expect(ks.Status.AuditKey).To(BeEmpty())
		Expect(s.checkpoints.Load()).To(BeZero())
	})

	It("has its key and a checkpoint in the status, which is written once an hour at most", func(ctx context.Context) {
		s := newStageOn(ctx, testserver.Start(GinkgoTB(), func(c *server.Config) { c.CheckpointInterval = 100 * time.Millisecond }))
		ks := &v1beta1.KeyServer{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
		Eventually(readiness(ctx, ks)).Should(beReady(""))
		Eventually(func() *v1beta1.AuditCheckpoint { look(ctx, ks); return ks.Status.AuditCheckpoint }).ShouldNot(BeNil())
		Expect(ks.Status.AuditKey).To(Equal(s.server.AuditKey().Key))
		verifier, err := note.NewVerifier(ks.Status.AuditKey)
		Expect(err).NotTo(HaveOccurred())
		_, err = note.Open([]byte(ks.Status.AuditCheckpoint.Note), note.VerifierList(verifier))
		Expect(err).NotTo(HaveOccurred())

		By("looking again within the hour")
		first, reads := *ks.Status.AuditCheckpoint, s.checkpoints.Load()
		for range 3 {
			look(ctx, ks) // each pass adds rows to the audit log
		}
		Expect(*ks.Status.AuditCheckpoint).To(Equal(first))
		Expect(s.checkpoints.Load()).To(Equal(reads))

		By("looking again after it")
		grown := func() string {
			Eventually(func() error {
				if err := kube.Get(ctx, client.ObjectKeyFromObject(ks), ks); err != nil {
					return err
				}
				ks.Status.AuditCheckpoint.ReadAt = metav1.NewTime(time.Now().Add(-checkpointEvery - time.Minute))
				return kube.Status().Update(ctx, ks)
			}).Should(Succeed())
			look(ctx, ks)
			return ks.Status.AuditCheckpoint.Note
		}
		Eventually(grown).ShouldNot(Equal(first.Note))
		Expect(ks.Status.AuditCheckpoint.ReadAt.Time).To(BeTemporally(">=", first.ReadAt.Time))
	})
})
