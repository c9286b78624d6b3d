package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// principalOf returns a Principal that is not applied yet.
func (s *stage) principalOf(change ...func(*v1beta1.Principal)) *v1beta1.Principal {
	obj := &v1beta1.Principal{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("principal-%d", objects.Add(1))}}
	obj.Spec.KeyServerRef.Name = s.name
	for _, c := range change {
		c(obj)
	}
	return obj
}

const someIssuer = "https://issuer.example"

// ofAccount declares a service account of another cluster.
func ofAccount(name string) func(*v1beta1.Principal) {
	return func(o *v1beta1.Principal) {
		issuer := someIssuer
		o.Spec.ServiceAccount = &v1beta1.PrincipalServiceAccount{Name: name, Issuer: &issuer}
	}
}

func ofGroup(name string) func(*v1beta1.Principal) {
	return func(o *v1beta1.Principal) { o.Spec.Group, o.Spec.PrincipalName = &v1beta1.PrincipalGroup{}, &name }
}

func ofLDAP(name string) func(*v1beta1.Principal) {
	return func(o *v1beta1.Principal) { o.Spec.LDAP = &v1beta1.PrincipalLDAP{Name: name} }
}

func holding(names ...string) func(*v1beta1.Principal) {
	return func(o *v1beta1.Principal) {
		for _, n := range names {
			o.Spec.Roles = append(o.Spec.Roles, v1beta1.PrincipalRole{Name: &n})
		}
	}
}

func inGroup(name string) func(*v1beta1.Principal) {
	return func(o *v1beta1.Principal) {
		o.Spec.Groups = append(o.Spec.Groups, v1beta1.PrincipalMembership{PrincipalRef: v1beta1.PrincipalObjectReference{Name: name}})
	}
}

func withRole(ref string) func(*v1beta1.Principal) {
	return func(o *v1beta1.Principal) {
		o.Spec.Roles = append(o.Spec.Roles, v1beta1.PrincipalRole{RoleRef: &v1beta1.RoleReference{Name: ref}})
	}
}

// fresh returns a unique name that begins with what.
func fresh(what string) string { return fmt.Sprintf("%s-%d", what, objects.Add(1)) }

// subjectOf returns the subject in tokens of a service account of the namespace default.
func subjectOf(account string) string { return "system:serviceaccount:default:" + account }

// held returns the principal with a type and name, or nil.
func (s *stage) held(ctx context.Context, kind, name string) *schema.Principal {
	GinkgoHelper()
	page, err := s.admin().ListPrincipals(ctx, schema.PrincipalQuery{Type: kind, Name: name})
	Expect(err).NotTo(HaveOccurred())
	for _, p := range page.Principals {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// access lists the names of a principal's roles and groups, and its flags.
func (s *stage) access(ctx context.Context, kind, name string) func() string {
	return func() string {
		p := s.held(ctx, kind, name)
		if p == nil {
			return "nobody"
		}
		var says []string
		for _, r := range s.roles(ctx) {
			for _, id := range p.RoleIDs {
				if r.ID == id {
					says = append(says, "role "+r.Name)
				}
			}
		}
		for _, id := range append(p.GroupIDs, p.Delegates...) {
			of, err := s.admin().GetPrincipal(ctx, schema.ByID{ID: id})
			Expect(err).NotTo(HaveOccurred())
			says = append(says, of.ClassName+" "+of.Name)
		}
		if p.Disabled {
			says = append(says, "disabled")
		}
		if p.Delegation {
			says = append(says, "lent")
		}
		return strings.Join(says, ", ")
	}
}

// leaf issues a client certificate and returns it as PEM.
func leaf(name string, ca *x509.Certificate, by *ecdsa.PrivateKey) string {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, &key.PublicKey, by)
	Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// issuingCA returns a CA that the key server trusts.
func (s *stage) issuingCA(ctx context.Context) (*x509.Certificate, *ecdsa.PrivateKey) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: fresh("Issuing CA")},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	Expect(err).NotTo(HaveOccurred())
	cert, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	_, err = s.admin().AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: der})
	Expect(err).NotTo(HaveOccurred())
	return cert, key
}

// certificates returns the certificates with which a subject can log in, as DER.
func (s *stage) certificates(ctx context.Context, subject string) func() [][]byte {
	return func() (bodies [][]byte) {
		found, err := s.admin().FindCertificatesByTransportPrincipal(ctx, schema.CertificatesRequest{Subject: subject, IncludeBodies: true})
		Expect(err).NotTo(HaveOccurred())
		for _, c := range found.Certificates {
			bodies = append(bodies, *c.Certificate)
		}
		return bodies
	}
}

// request returns a certificate request, as PEM.
func request(name string) string {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

var _ = Describe("Principal", func() {
	Describe("refusals", func() {
		It("never makes somebody of the same name somebody else", func(ctx context.Context) {
			account := fresh("account")
			_, err := shown.admin().CreateXAuthPrincipal(ctx, schema.CreateXAuthPrincipalRequest{
				Name: subjectOf(account), Issuer: "https://elsewhere.example", Subject: "somebody", RoleIDs: []schema.HexID{},
			})
			Expect(err).NotTo(HaveOccurred())
			obj := shown.principalOf(ofAccount(account), func(o *v1beta1.Principal) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, `has the identity "somebody" of issuer "https://elsewhere.example", but this object declares "`+subjectOf(account)+`" of issuer "`+someIssuer+`"`))
			Expect(obj.Status.PrincipalID).To(BeEmpty())
			remove(ctx, obj)
			Expect(shown.held(ctx, "xauth", subjectOf(account))).NotTo(BeNil())
		})

		It("says where tokens belong to a principal of another name", func(ctx context.Context) {
			account := fresh("account")
			_, err := shown.admin().CreateXAuthPrincipal(ctx, schema.CreateXAuthPrincipalRequest{
				Name: fresh("Named otherwise"), Issuer: someIssuer, Subject: subjectOf(account), RoleIDs: []schema.HexID{},
			})
			Expect(err).NotTo(HaveOccurred())
			obj := shown.principalOf(ofAccount(account))
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "may belong to a principal with another name: to take it over, delete this object"))
			remove(ctx, obj)
		})

		It("changes no audiences, which the key server cannot", func(ctx context.Context) {
			account := fresh("account")
			_, err := shown.admin().CreateXAuthPrincipal(ctx, schema.CreateXAuthPrincipalRequest{
				Name: subjectOf(account), Issuer: someIssuer, Subject: subjectOf(account), Audiences: []string{"others"}, RoleIDs: []schema.HexID{},
			})
			Expect(err).NotTo(HaveOccurred())
			obj := shown.principalOf(ofAccount(account), func(o *v1beta1.Principal) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "accepts tokens for others, but this object declares none"))
			Expect(obj.Status.Drift).To(ConsistOf(v1beta1.FieldDrift{Field: "serviceAccount.audiences", Declared: "none", Observed: "others"}))
			remove(ctx, obj)
		})

		It("does not overwrite a principal that exists and differs, until told to", func(ctx context.Context) {
			name := fresh("ann")
			_, err := shown.admin().CreateLDAPPrincipal(ctx, schema.CreateLDAPPrincipalRequest{Name: name, RoleIDs: []schema.HexID{shown.roles(ctx)["Auditor"].ID}})
			Expect(err).NotTo(HaveOccurred())
			obj := shown.principalOf(ofLDAP(name), holding("Encryptor"))
			apply(ctx, obj, beUnready(v1beta1.ReasonConflict, "exists already and differs in roles"))
			Expect(obj.Status.Drift).To(ConsistOf(v1beta1.FieldDrift{Field: "roles", Declared: "Encryptor", Observed: "Auditor"}))
			Expect(shown.access(ctx, "ldap", name)()).To(Equal("role Auditor"))
			edit(ctx, obj, func(o *v1beta1.Principal) { o.Spec.AdoptionPolicy = v1beta1.AdoptAlways })
			Eventually(readiness(ctx, obj)).Should(beCorrected())
			Expect(shown.access(ctx, "ldap", name)()).To(Equal("role Encryptor"))
			Expect(obj.Status.Provenance).To(Equal(v1beta1.Adopted))
			remove(ctx, obj)
			Expect(shown.held(ctx, "ldap", name)).NotTo(BeNil(), "what was adopted is not deleted")
		})

		It("puts nobody into what is no group, and lets no group act for anybody", func(ctx context.Context) {
			person, group := shown.principalOf(ofLDAP(fresh("bob"))), shown.principalOf(ofGroup(fresh("Team")))
			apply(ctx, person, beReady("created"))
			apply(ctx, group, beReady("created"))
			obj := shown.principalOf(ofLDAP(fresh("carl")), inGroup(person.Name))
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, "spec.groups: Principal default/"+person.Name+" is not a group"))
			edit(ctx, obj, func(o *v1beta1.Principal) {
				o.Spec.Groups = nil
				o.Spec.Delegation = &v1beta1.PrincipalDelegation{Delegates: []v1beta1.PrincipalDelegate{{PrincipalRef: v1beta1.PrincipalObjectReference{Name: group.Name}}}}
			})
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInvalidSpec, "is a group, and a delegate must be able to log in"))
			edit(ctx, obj, func(o *v1beta1.Principal) { o.Spec.Delegation.Delegates[0].PrincipalRef.Name = obj.Name })
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInvalidSpec, "a principal cannot be its own delegate"))
			remove(ctx, obj)
			remove(ctx, group)
			remove(ctx, person)
		})

		It("needs a name of its own where that of the account is too long", func(ctx context.Context) {
			obj := shown.principalOf(ofAccount(strings.Repeat("a", 120)))
			apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, "create it again with a shorter spec.principalName"))
			remove(ctx, obj)
		})

		It("hands out nothing beyond its grant, by its roles or by its groups", func(ctx context.Context) {
			kinds := []v1beta1.GrantedKind{"Principal"}
			s := newGrantingStage(ctx, grant("people", kinds, []string{"ldap/*", "group/*", "xauth/Robot *", "xauth/system:serviceaccount:default:robot*"}, "duty:key use", "List Operations"))
			group, err := s.admin().CreateGroup(ctx, schema.CreateGroupRequest{Name: "Auditors", RoleIDs: []schema.HexID{s.roles(ctx)["Auditor"].ID}})
			Expect(err).NotTo(HaveOccurred())
			auditor := s.principalOf(ofLDAP("dora"), holding("Auditor"))
			apply(ctx, auditor, beUnready(v1beta1.ReasonAccessDenied, "lacks the operation"))
			Expect(s.held(ctx, "ldap", "dora")).To(BeNil())
			Expect(auditor.Finalizers).To(BeEmpty())
			remove(ctx, auditor)

			observed := s.principalOf(ofGroup("Auditors"), func(o *v1beta1.Principal) { o.Spec.ManagementPolicy = v1beta1.Observe }, holding("Auditor"))
			apply(ctx, observed, beReady("re-read"))
			Expect(observed.Status.PrincipalID).To(Equal(group.Principal.ID.String()))
			member := s.principalOf(ofLDAP("emil"), inGroup(observed.Name))
			apply(ctx, member, beUnready(v1beta1.ReasonDependencyNotReady, "has neither created nor adopted its group"))
			Expect(s.held(ctx, "ldap", "emil")).To(BeNil())
			remove(ctx, member)
			remove(ctx, observed)

			By("asking for the subject, whatever the principal is called, and for an issuer that is given")
			name := "Robot 1"
			named := func(o *v1beta1.Principal) { o.Spec.PrincipalName = &name }
			cuckoo := s.principalOf(ofAccount("manager"), named)
			apply(ctx, cuckoo, beUnready(v1beta1.ReasonAccessDenied, `"xauth/system:serviceaccount:default:manager"`))
			Expect(readiness(ctx, cuckoo)().Message).To(ContainSubstring(`"issuer/` + someIssuer + `"`))
			remove(ctx, cuckoo)
			robot := s.principalOf(ofAccount("robot-1"), named, func(o *v1beta1.Principal) { o.Spec.ServiceAccount.Issuer = nil })
			apply(ctx, robot, beReady("created"))
			remove(ctx, robot)
		})
	})

	It("is a service account of this cluster, found by the API server's own word", func(ctx context.Context) {
		account := fresh("account")
		obj := shown.principalOf(ofAccount(account), holding("Encryptor"), func(o *v1beta1.Principal) {
			o.Spec.ServiceAccount.Issuer, o.Spec.ServiceAccount.Audiences = nil, []string{"second", "first"}
		})
		apply(ctx, obj, beReady(`created: the second read shows "`+subjectOf(account)+`" with 1 role and 0 groups`))
		held := shown.held(ctx, "xauth", subjectOf(account))
		over, err := rest.HTTPClientFor(restConfig)
		Expect(err).NotTo(HaveOccurred())
		issuer, err := IssuerOf(restConfig, over)
		Expect(err).NotTo(HaveOccurred())
		url, err := issuer.URL(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(held.Issuer).To(Equal(url))
		Expect(held.Audiences).To(Equal([]string{"first", "second"}))
		Expect(obj.Status).To(And(HaveField("PrincipalID", held.ID.String()), HaveField("Name", subjectOf(account)), HaveField("Type", v1beta1.PrincipalType("xauth")), HaveField("RoleCount", HaveValue(BeEquivalentTo(1)))))
		remove(ctx, obj)
		Expect(shown.held(ctx, "xauth", subjectOf(account))).To(BeNil())
	})

	It("is created, edited, repaired and deleted, all that it holds with it", func(ctx context.Context) {
		name, team, other := fresh("fred"), shown.principalOf(ofGroup(fresh("Team")), holding("Exchanger")), shown.principalOf(ofLDAP(fresh("gina")))
		role := shown.role(fresh("Life of"), []string{"HMAC Data"})
		apply(ctx, team, beReady("created"))
		apply(ctx, other, beReady("created"))
		apply(ctx, role, beReady("created"))
		obj := shown.principalOf(ofLDAP(name), withRole(role.Name), inGroup(team.Name), func(o *v1beta1.Principal) {
			o.Spec.Delegation = &v1beta1.PrincipalDelegation{Delegates: []v1beta1.PrincipalDelegate{{PrincipalRef: v1beta1.PrincipalObjectReference{Name: other.Name}}}}
		})
		apply(ctx, obj, beReady("created"))
		whole := "role " + *role.Spec.RoleName + ", GroupPrincipal " + team.Status.Name + ", LDAPPrincipal " + other.Status.Name + ", lent"
		Expect(shown.access(ctx, "ldap", name)()).To(Equal(whole))

		By("being disabled, and in no group")
		edit(ctx, obj, func(o *v1beta1.Principal) { o.Spec.Disabled, o.Spec.Groups = true, nil })
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(shown.access(ctx, "ldap", name)()).To(Equal("role " + *role.Spec.RoleName + ", LDAPPrincipal " + other.Status.Name + ", disabled, lent"))

		By("being lent to anybody, and to nobody")
		edit(ctx, obj, func(o *v1beta1.Principal) {
			o.Spec.Disabled, o.Spec.Delegation = false, &v1beta1.PrincipalDelegation{Anybody: true}
		})
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(shown.access(ctx, "ldap", name)()).To(Equal("role " + *role.Spec.RoleName + ", lent"))
		edit(ctx, obj, func(o *v1beta1.Principal) { o.Spec.Delegation = nil })
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(shown.access(ctx, "ldap", name)()).To(Equal("role " + *role.Spec.RoleName))

		By("repairing outside changes: a role, a group, a flag")
		held := shown.held(ctx, "ldap", name)
		_, err := shown.admin().UpdatePrincipalRoles(ctx, schema.UpdatePrincipalRolesRequest{ID: held.ID, RoleIDs: []schema.HexID{shown.roles(ctx)["Administrator"].ID}})
		Expect(err).To(beDone())
		Eventually(shown.access(ctx, "ldap", name)).Should(Equal("role " + *role.Spec.RoleName))
		_, err = shown.admin().AddGroupMember(ctx, schema.GroupMemberRequest{Group: read(schema.ParseHexID, team.Status.PrincipalID), Member: held.ID})
		Expect(err).To(beDone())
		Eventually(shown.access(ctx, "ldap", name)).Should(Equal("role " + *role.Spec.RoleName))
		yes := true
		_, err = shown.admin().UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: held.ID, Delegation: &yes})
		Expect(err).To(beDone())
		Eventually(shown.access(ctx, "ldap", name)).Should(Equal("role " + *role.Spec.RoleName))
		Eventually(eventsAbout(ctx, obj)).Should(ContainElements("DriftFound", "Updated"))

		By("repairing an outside deletion")
		_, err = shown.admin().DeletePrincipal(ctx, schema.DeletePrincipalRequest{ID: held.ID})
		Expect(err).To(beDone())
		Eventually(shown.access(ctx, "ldap", name)).Should(Equal("role " + *role.Spec.RoleName))
		Eventually(readiness(ctx, obj)).Should(beReady(""))

		remove(ctx, obj)
		Expect(shown.held(ctx, "ldap", name)).To(BeNil())
		for _, o := range []*v1beta1.Principal{other, team} {
			remove(ctx, o)
		}
		remove(ctx, role)
	})

	It("never has a role before it is disabled", func(ctx context.Context) {
		name := fresh("hans")
		obj := shown.principalOf(ofLDAP(name), holding("Encryptor"), func(o *v1beta1.Principal) { o.Spec.Disabled = true })
		apply(ctx, obj, beReady("created"))
		Expect(shown.access(ctx, "ldap", name)()).To(Equal("role Encryptor, disabled"))
		id := shown.held(ctx, "ldap", name).ID.String()
		limit := 1000
		page, err := shown.admin().ListAuditEntries(ctx, schema.AuditQuery{Object: id, Limit: &limit})
		Expect(err).NotTo(HaveOccurred())
		var wrote []string
		for _, e := range page.Entries {
			if e.Outcome == "allowed" && (e.Operation == "createPrincipal" || strings.HasPrefix(e.Operation, "updatePrincipal")) {
				wrote = append(wrote, e.Operation)
			}
		}
		Expect(wrote).To(HaveExactElements("createPrincipal", "updatePrincipalFlags", "updatePrincipalRoles"))
		remove(ctx, obj)
	})

	It("waits for roles and groups, and holds them", func(ctx context.Context) {
		roleName, outside := fresh("Awaited"), fresh("Outside")
		role, group := shown.role(roleName, []string{"HMAC Data"}), shown.principalOf(ofGroup(fresh("Team")))
		obj := shown.principalOf(ofLDAP(fresh("ida")), withRole(role.Name), inGroup(group.Name), holding(outside))
		apply(ctx, obj, beUnready(v1beta1.ReasonDependencyNotReady, "Role default/"+role.Name+" does not exist"))
		apply(ctx, role, beReady("created"))
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, fmt.Sprintf("has no role %q; correct spec.roles, or create the role", outside)))
		_, err := shown.admin().CreateRole(ctx, schema.CreateRoleRequest{Name: outside, Operations: []schema.HexID{}})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDependencyNotReady, "Principal default/"+group.Name+" does not exist"))
		apply(ctx, group, beReady("created"))
		Eventually(readiness(ctx, obj)).Should(beReady("created"))

		By("refusing to let either go first")
		Expect(kube.Delete(ctx, role)).To(Succeed())
		Expect(kube.Delete(ctx, group)).To(Succeed())
		Eventually(readiness(ctx, role)).Should(beUnready(v1beta1.ReasonInUse, "still needed by Principal default/"+obj.Name))
		Eventually(readiness(ctx, group)).Should(beUnready(v1beta1.ReasonInUse, "still needed by Principal default/"+obj.Name))
		remove(ctx, obj)
		Eventually(gone(ctx, role)).Should(BeTrue())
		Eventually(gone(ctx, group)).Should(BeTrue())
	})

	It("is held by a Role named on the key server, and by a template that it is a member of", func(ctx context.Context) {
		roleName, name := fresh("By name"), fresh("Team")
		role, group := shown.role(roleName, []string{"HMAC Data"}), shown.principalOf(ofGroup(name), holding(roleName))
		template := shown.aclTemplate(fresh("Held"), members(member("group/"+name, "READ")))
		apply(ctx, template, beUnready(v1beta1.ReasonDependencyNotReady, "no principal of type group"))
		apply(ctx, role, beReady("created"))
		apply(ctx, group, beReady("created"))
		Eventually(readiness(ctx, template)).Should(beReady("created"))
		Expect(kube.Delete(ctx, role)).To(Succeed())
		Expect(kube.Delete(ctx, group)).To(Succeed())
		Eventually(readiness(ctx, role)).Should(beUnready(v1beta1.ReasonInUse, "Principal default/"+group.Name))
		Eventually(readiness(ctx, group)).Should(beUnready(v1beta1.ReasonInUse, "ACLTemplate default/"+template.Name))
		remove(ctx, template)
		Eventually(gone(ctx, group)).Should(BeTrue())
		Eventually(gone(ctx, role)).Should(BeTrue())
	})

	It("that alone owns a key is not deleted, and says what to do", func(ctx context.Context) {
		name := fresh("judy")
		obj := shown.principalOf(ofLDAP(name))
		apply(ctx, obj, beReady("created"))
		held := shown.held(ctx, "ldap", name)
		admin := shown.admin()
		key, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		Expect(err).NotTo(HaveOccurred())
		grant := schema.ACLChangeRequest{TTag: key.TTag, SystemID: held.SystemID, PrincipalID: held.PrincipalID, Rights: schema.RightNamed("OWNER")}
		_, err = admin.GrantACL(ctx, grant)
		Expect(err).NotTo(HaveOccurred())
		self, err := admin.GetCurrentSession(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.RevokeACL(ctx, schema.ACLRevokeRequest{TTag: key.TTag, SystemID: self.Principal.SystemID, PrincipalID: self.Principal.PrincipalID})
		Expect(err).NotTo(HaveOccurred())
		Expect(kube.Delete(ctx, obj)).To(Succeed())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonInUse, "deletion waits: no other principal permanently owns key"))
		Expect(readiness(ctx, obj)().Message).To(ContainSubstring("?heir=ID"))
		Expect(shown.held(ctx, "ldap", name)).NotTo(BeNil())
		_, err = admin.DeletePrincipal(ctx, schema.DeletePrincipalRequest{ID: held.ID, Heir: (*schema.HexID)(&self.Principal.PrincipalID)})
		Expect(err).To(Satisfy(func(err error) bool { return apiclient.IsCode(err, "OWN_ACCOUNT") }), "an administrator inherits nothing himself")
		heir := shown.principalOf(ofLDAP(fresh("heir")))
		apply(ctx, heir, beReady("created"))
		to := read(schema.ParseHexID, heir.Status.PrincipalID)
		_, err = admin.DeletePrincipal(ctx, schema.DeletePrincipalRequest{ID: held.ID, Heir: &to})
		Expect(err).NotTo(HaveOccurred())
		Eventually(gone(ctx, obj)).Should(BeTrue())
	})

	It("finishes a creation that was cut short", func(ctx context.Context) {
		s := newStage(ctx)
		team := s.principalOf(ofGroup("Team"))
		apply(ctx, team, beReady("created"))
		s.onJoin(func() error { return &apiclient.Error{Status: 500, Code: "INTERNAL", Detail: "cut short"} })
		obj := s.principalOf(ofLDAP("kim"), holding("Encryptor"), inGroup(team.Name))
		apply(ctx, obj, beUnready(v1beta1.ReasonProgressing, "but not completely"))
		Expect(s.access(ctx, "ldap", "kim")()).To(Equal("role Encryptor"))
		s.onJoin(nil)
		Eventually(readiness(ctx, obj)).Should(beCorrected())
		Expect(s.access(ctx, "ldap", "kim")()).To(Equal("role Encryptor, GroupPrincipal Team"))
		Expect(obj.Status.Provenance).To(Equal(v1beta1.Created))
		remove(ctx, obj)
		Expect(s.held(ctx, "ldap", "kim")).To(BeNil())
	})

	It("asks nothing at rest", func(ctx context.Context) {
		s := newStage(ctx)
		obj := s.principalOf(ofLDAP("lea"), holding("Encryptor"))
		apply(ctx, obj, beReady("created"))
		var before int32
		Eventually(func() bool { was := before; before = s.people.Load(); return was == before }).WithPolling(500 * time.Millisecond).Should(BeTrue())
		Consistently(s.people.Load).Should(Equal(before))
		remove(ctx, obj)
	})

	It("observes without writing", func(ctx context.Context) {
		name := fresh("mona")
		obj := shown.principalOf(ofLDAP(name), func(o *v1beta1.Principal) { o.Spec.ManagementPolicy = v1beta1.Observe })
		apply(ctx, obj, beUnready(v1beta1.ReasonDrifted, "does not exist on the key server"))
		_, err := shown.admin().CreateLDAPPrincipal(ctx, schema.CreateLDAPPrincipalRequest{Name: name, RoleIDs: []schema.HexID{shown.roles(ctx)["Auditor"].ID}})
		Expect(err).NotTo(HaveOccurred())
		Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonDrifted, "differs in roles"))
		Expect(shown.access(ctx, "ldap", name)()).To(Equal("role Auditor"))
		remove(ctx, obj)
		Expect(shown.held(ctx, "ldap", name)).NotTo(BeNil())
	})

	Describe("by certificate", func() {
		It("refuses what is none, a CA's, and one of an issuer that nobody trusts", func(ctx context.Context) {
			ca, key := shown.issuingCA(ctx)
			configMap := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fresh("certificates")},
				Data: map[string]string{
					"none": "certificate", "ca": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})),
					"stranger": leaf(fresh("stranger"), &x509.Certificate{Subject: pkix.Name{CommonName: "Nobody's CA"}}, key),
				},
			}
			Expect(kube.Create(ctx, configMap)).To(Succeed())
			for at, says := range map[string]string{"none": "must be a PEM block of type CERTIFICATE", "ca": "is a CA certificate", "stranger": "is not trusted"} {
				obj := shown.principalOf(func(o *v1beta1.Principal) {
					o.Spec.Certificate = &v1beta1.PrincipalCertificate{Certificate: &v1beta1.ClientCertificateSource{ConfigMapKeyRef: &v1beta1.LocalKeyReference{Name: configMap.Name, Key: at}}}
				})
				apply(ctx, obj, beUnready(v1beta1.ReasonInvalidSpec, says))
				remove(ctx, obj)
			}
		})

		It("is enrolled, follows its renewal, and is nobody else", func(ctx context.Context) {
			ca, key := shown.issuingCA(ctx)
			name := fresh("agent")
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Data:       map[string][]byte{"tls.crt": []byte(leaf(name, ca, key))},
			}
			Expect(kube.Create(ctx, secret)).To(Succeed())
			obj := shown.principalOf(holding("Encryptor"), func(o *v1beta1.Principal) {
				o.Spec.Certificate = &v1beta1.PrincipalCertificate{Certificate: &v1beta1.ClientCertificateSource{SecretKeyRef: &v1beta1.LocalKeyReference{Name: name, Key: "tls.crt"}}}
			})
			apply(ctx, obj, beReady("created"))
			Expect(obj.Status).To(And(HaveField("Name", "/CN="+name), HaveField("Type", v1beta1.PrincipalType("certificate")), HaveField("NotAfter", Not(BeNil())), HaveField("Certificate", "")))
			Expect(shown.access(ctx, "certificate", "/CN="+name)()).To(Equal("role Encryptor"))
			Expect(shown.certificates(ctx, "/CN="+name)()).To(HaveLen(1))

			secret.Data["tls.crt"] = []byte(leaf(name, ca, key))
			Expect(kube.Update(ctx, secret)).To(Succeed())
			Eventually(shown.certificates(ctx, "/CN="+name)).Should(HaveLen(2))
			Eventually(readiness(ctx, obj)).Should(beReady(""))

			secret.Data["tls.crt"] = []byte(leaf(fresh("other"), ca, key))
			Expect(kube.Update(ctx, secret)).To(Succeed())
			Eventually(readiness(ctx, obj)).Should(beUnready(v1beta1.ReasonConflict, "a principal cannot change its name"))
			Expect(shown.held(ctx, "certificate", "/CN="+name)).NotTo(BeNil())
			remove(ctx, obj)
			Expect(shown.held(ctx, "certificate", "/CN="+name)).To(BeNil())
		})

		It("is issued from a request, and told in the status", func(ctx context.Context) {
			name, days := fresh("requester"), int32(30)
			first := request(name)
			obj := shown.principalOf(holding("Encryptor"), func(o *v1beta1.Principal) {
				o.Spec.Certificate = &v1beta1.PrincipalCertificate{Request: &v1beta1.CertificateRequestSource{Inline: &first}, ValidityDays: &days}
			})
			apply(ctx, obj, beReady("created"))
			block, _ := pem.Decode([]byte(obj.Status.Certificate))
			Expect(block).NotTo(BeNil())
			cert, err := x509.ParseCertificate(block.Bytes)
			Expect(err).NotTo(HaveOccurred())
			Expect(shown.certificates(ctx, "/CN="+name)()).To(ConsistOf(Equal(cert.Raw)))
			Expect(obj.Status.NotAfter.Time).To(BeTemporally("~", time.Now().AddDate(0, 0, 30), time.Hour))
			Expect(obj.Status.RenewAfter.Time).To(BeTemporally("~", time.Now().AddDate(0, 0, 20), time.Hour))
			Expect(shown.access(ctx, "certificate", "/CN="+name)()).To(Equal("role Encryptor"))

			By("another key")
			second := request(name)
			edit(ctx, obj, func(o *v1beta1.Principal) { o.Spec.Certificate.Request.Inline = &second })
			Eventually(shown.certificates(ctx, "/CN="+name)).Should(HaveLen(2))
			Eventually(func() string { _ = readiness(ctx, obj)(); return obj.Status.Certificate }).ShouldNot(Equal(string(pem.EncodeToMemory(block))))
			Eventually(readiness(ctx, obj)).Should(beReady(""))
			remove(ctx, obj)
		})
	})
})
