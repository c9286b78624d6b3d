package controllers

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

var _ = Describe("Role", func() {
	// grants returns the operations that a role grants, nil if the role does not exist.
	grants := func(ctx context.Context, name string) func() []schema.HexID {
		return func() []schema.HexID {
			role, ok := shown.roles(ctx)[name]
			if !ok {
				return nil
			}
			return role.Operations
		}
	}
	ops := func(ctx context.Context, names ...string) []schema.HexID {
		GinkgoHelper()
		ids := make([]schema.HexID, len(names))
		for i, n := range names {
			ids[i] = shown.operation(ctx, n)
		}
		return ids
	}
	exists := func(ctx context.Context, name string, operations ...string) string {
		GinkgoHelper()
		saved, err := shown.admin().CreateRole(ctx, schema.CreateRoleRequest{Name: name, Operations: ops(ctx, operations...)})
		Expect(err).NotTo(HaveOccurred())
		return saved.ID.String()
	}

	It("says in the key server's audit trail for which object it acts", func(ctx context.Context) {
		obj := shown.role("Accounted For", []string{"HMAC Data"})
		apply(ctx, obj, beReady("created"))
		want := "tested/" + obj.Namespace + "/Role/" + obj.Name
		limit := 1000
		found := []string{}
		for cursor := int64(0); ; {
			page, err := shown.admin().ListAuditEntries(ctx, schema.AuditQuery{Operation: "createRole", Cursor: cursor, Limit: &limit})
			Expect(err).NotTo(HaveOccurred())
			for _, row := range page.Entries {
				found = append(found, row.For)
			}
			if page.Next == nil {
				break
			}
			cursor = *page.Next
		}
		Expect(found).To(ContainElement(want))
		remove(ctx, obj)
	})

	Describe("refusals", func() {
		It("refuses an operation that the key server does not know, and suggests one that it does", func(ctx context.Context) {
			obj := shown.role("Misspelt", []string{"HMAC Data", "HMAC Date"})
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, `spec.operations: the key server does not know "HMAC Date"; did you mean "HMAC Data"?`))
			Expect(readiness(ctx, obj)().Message).To(ContainSubstring(`"HMAC Data"`))
			Expect(grants(ctx, "Misspelt")()).To(BeNil())
			remove(ctx, obj)
		})

		It("does not overwrite a role that exists and differs, until told to", func(ctx context.Context) {
			id := exists(ctx, "Differing", "HMAC Data")
			obj := shown.role("Differing", []string{"Authorize Key"})
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "differs in operations"))
			Expect(obj.Status.RoleID).To(BeEmpty())
			Expect(obj.Status.Drift).To(ConsistOf(v1beta1.FieldDrift{Field: "operations", Declared: "Authorize Key", Observed: "HMAC Data"}))
			Expect(grants(ctx, "Differing")()).To(ConsistOf(ops(ctx, "HMAC Data")))

			edit(ctx, obj, func(o *v1beta1.Role) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
			Eventually(readiness(ctx, obj)).Should(beCorrected())
			Expect(obj.Status.RoleID).To(Equal(id))
			Expect(obj.Status.Provenance).To(Equal(v1beta1.Adopted))
			Expect(obj.Status.Drift).To(BeEmpty())
			Expect(grants(ctx, "Differing")()).To(ConsistOf(ops(ctx, "Authorize Key")))
			remove(ctx, obj)
			Expect(grants(ctx, "Differing")()).NotTo(BeNil(), "what was adopted is not deleted")
		})

		It("takes no name from another role, and gets it when it comes free", func(ctx context.Context) {
			holder, obj := shown.role("Name Held", []string{}), shown.role("Name Given", []string{})
			apply(ctx, holder, beReady("created"))
			apply(ctx, obj, beReady("created"))
			rename := func(o *v1beta1.Role, name string) {
				GinkgoHelper()
				edit(ctx, o, func(o *v1beta1.Role) { o.Spec.RoleName = &name })
			}
			rename(obj, "Name Held")
			// The status of the younger object names the older one.
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "is claimed by Role default/"+holder.Name))
			outside := exists(ctx, "Name Outside")
			rename(obj, "Name Outside")
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "(id "+outside+") already has this name"))
			Expect(obj.Status.Drift).To(ConsistOf(v1beta1.FieldDrift{Field: "roleName", Declared: "Name Outside", Observed: "Name Given"}))
			Expect(grants(ctx, "Name Given")()).NotTo(BeNil())
			_, err := shown.admin().DeleteRole(ctx, schema.ByID{ID: read(schema.ParseHexID, outside)})
			Expect(err).NotTo(HaveOccurred())
			Eventually(readiness(ctx, obj)).Should(beCorrected())

			By("another Role giving it up")
			rename(obj, "Name Held")
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, ""))
			rename(holder, "Name Free")
			Eventually(readiness(ctx, obj)).Should(beCorrected())
			Expect(grants(ctx, "Name Free")()).NotTo(BeNil())
			remove(ctx, obj)
			remove(ctx, holder)
		})

		It("manages no built-in role, but observes it", func(ctx context.Context) {
			obj := shown.role("Auditor", []string{"Read Audit"}, func(o *v1beta1.Role) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "built in and read-only"))
			remove(ctx, obj)

			id := shown.roles(ctx)["Auditor"].ID.String()
			all := []string{}
			for _, op := range shown.roles(ctx)["Auditor"].Operations {
				all = append(all, op.String())
			}
			observed := shown.role("", all, func(o *v1beta1.Role) {
				o.Spec.RoleID, o.Spec.ManagementPolicy = &id, v1beta1.Observe
			})
			apply(ctx, observed, beReady("lists exactly"))
			edit(ctx, observed, func(o *v1beta1.Role) { o.Spec.Operations = []string{"Read Audit"} })
			Eventually(readiness(ctx, observed)).Should(beUnready(v1beta1.ReasonDrifted, "differs in operations"))
			Expect(observed.Status.Drift).To(HaveLen(1))
			remove(ctx, observed)
		})

		It("makes up no role for an id that does not exist", func(ctx context.Context) {
			id := "00000000deadbeef"
			obj := shown.role("", []string{}, func(o *v1beta1.Role) { o.Spec.RoleID = &id })
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, "no role has the id 00000000deadbeef"))
			remove(ctx, obj)
		})
	})

	It("remembers that it created what it only observes", func(ctx context.Context) {
		obj := shown.role("Observed Later", []string{"HMAC Data"})
		apply(ctx, obj, beReady("created"))
		edit(ctx, obj, func(o *v1beta1.Role) { o.Spec.ManagementPolicy = v1beta1.Observe })
		annotate(ctx, obj, v1beta1.AnnotationReconcileRequestedAt, "now")
		Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.LastHandledReconcileAt }).Should(Equal("now"))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		edit(ctx, obj, func(o *v1beta1.Role) { o.Spec.ManagementPolicy = v1beta1.Manage })
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		remove(ctx, obj)
	})

	It("is created, edited, renamed, repaired and deleted", func(ctx context.Context) {
		obj := shown.role("Signer", []string{"HMAC Data", "Authorize Key", shown.operation(ctx, "HMAC Data").String()})
		apply(ctx, obj, beReady(`created: the second read shows "Signer" with 2 operations`))
		Expect(grants(ctx, "Signer")()).To(ConsistOf(ops(ctx, "HMAC Data", "Authorize Key")))
		Expect(obj.Status.OperationCount).To(HaveValue(BeEquivalentTo(2)))
		id := obj.Status.RoleID

		By("editing the operations")
		edit(ctx, obj, func(o *v1beta1.Role) { o.Spec.Operations = []string{"HMAC Data"} })
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(grants(ctx, "Signer")()).To(ConsistOf(ops(ctx, "HMAC Data")))

		By("renaming: principals keep the role")
		edit(ctx, obj, func(o *v1beta1.Role) { name := "Senior Signer"; o.Spec.RoleName = &name })
		Eventually(readiness(ctx, obj)).Should(beReady(`"Senior Signer"`))
		Expect(obj.Status.RoleID).To(Equal(id))
		Expect(grants(ctx, "Signer")()).To(BeNil())

		By("repairing an outside change")
		Eventually(eventsAfter(ctx, obj, func() error {
			_, err := shown.admin().UpdateRole(ctx, schema.UpdateRoleRequest{ID: read(schema.ParseHexID, id), Operations: ops(ctx, "HMAC Data", "Create Role")})
			return err
		})).WithPolling(time.Second).Should(ContainElements("DriftFound", "Updated"))
		Eventually(grants(ctx, "Senior Signer")).Should(ConsistOf(ops(ctx, "HMAC Data")))

		By("repairing an outside deletion")
		_, err := shown.admin().DeleteRole(ctx, schema.ByID{ID: read(schema.ParseHexID, id)})
		Expect(err).To(beDone())
		Eventually(grants(ctx, "Senior Signer")).Should(ConsistOf(ops(ctx, "HMAC Data")))
		Eventually(readiness(ctx, obj)).Should(beReady(""))
		Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.RoleID }).ShouldNot(Equal(id))

		remove(ctx, obj)
		Expect(grants(ctx, "Senior Signer")()).To(BeNil())
	})

	It("takes over a role by its id and leaves its name alone", func(ctx context.Context) {
		id := exists(ctx, "Named Outside", "HMAC Data")
		obj := shown.role("", []string{"HMAC Data"}, func(o *v1beta1.Role) { o.Spec.RoleID = &id })
		apply(ctx, obj, beReady("took over"))
		name := "Renamed Outside"
		_, err := shown.admin().UpdateRole(ctx, schema.UpdateRoleRequest{ID: read(schema.ParseHexID, id), Name: &name})
		Expect(err).NotTo(HaveOccurred())
		Consistently(grants(ctx, name)).ShouldNot(BeNil())
		remove(ctx, obj)
	})

	It("of a name and an id for the same role lets the older win", func(ctx context.Context) {
		elder := shown.role("Twice", []string{"HMAC Data"})
		apply(ctx, elder, beReady(""))
		id := elder.Status.RoleID
		younger := shown.role("", []string{"HMAC Data"}, func(o *v1beta1.Role) { o.Name = "z" + o.Name; o.Spec.RoleID = &id })
		apply(ctx, younger, beUnready(v1beta1.ReasonConflict, "is claimed by Role default/"+elder.Name))
		remove(ctx, younger)
		Expect(grants(ctx, "Twice")()).NotTo(BeNil())
		remove(ctx, elder)
	})
})
