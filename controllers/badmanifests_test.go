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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// badManifest is a manifest with a common mistake, and the error that the user must get.
type badManifest struct {
	mistake string
	kind    string
	spec    string // without keyServerRef
	// reason is the reason of the condition Ready. It is empty if the API server rejects the manifest.
	reason v1beta1.Reason
	// says are parts of the message: the field, and the problem or the remedy.
	says []string
}

var badManifests = []badManifest{
	{"a URL with the path of the API", "KeyServer", `{url: "https://127.0.0.1:1/api", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}}`, "",
		[]string{"spec.url", "must not end in /api"}},
	{"a password in a URL", "KeyServer", `{url: "https://admin:secret@127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}}`, "",
		[]string{"spec.url", "must not hold a user"}},
	{"plain http to another machine", "KeyServer", `{url: "http://keyserver.example", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}}`, "",
		[]string{"spec.url", "https"}},
	{"a grant to all namespaces by a wildcard", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}},
		grants: [{name: g, namespaces: {names: ["*"]}, kinds: [Role], names: ["*"]}]}`, "", []string{"spec.grants[0].namespaces.names[0]", "empty selector"}},
	{"credentials in a Secret that is not there", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}}`,
		v1beta1.ReasonDependencyNotReady, []string{"Secret default/nobody", "does not exist"}},
	{"a CA bundle in a ConfigMap that is not there", "KeyServer", `{url: "https://127.0.0.1:1", caBundle: {configMapKeyRef: {namespace: default, name: nobody, key: ca.crt}},
		credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}}`, v1beta1.ReasonDependencyNotReady, []string{"ConfigMap default/nobody", "does not exist"}},
	{"a token for an audience that the manager has none for", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {serviceAccount: {audience: "https://other.example"}}}}`,
		v1beta1.ReasonDependencyNotReady, []string{"https://other.example", "--token-file"}},

	// A required field is missing, or a field is misspelt.
	{"an empty role", "Role", `{}`, "", []string{"spec", "give roleName, or roleId"}},
	{"a misspelt field", "Role", `{rolename: a, operations: []}`, "", []string{`unknown field "spec.rolename"`}},
	{"a list that is a text", "Role", `{roleName: a, operations: HMAC Data}`, "", []string{"spec.operations", "array"}},
	{"a number that is a text", "TrustedServer", `{friendlyName: a, systemId: "7", trustBlob: {inline: a}}`, "", []string{"spec"}},
	{"a policy in lower case", "Role", `{roleName: a, operations: [], adoptionPolicy: always}`, "", []string{"spec.adoptionPolicy", `"IfIdentical", "Always", "Never"`}},
	{"an interval in days", "Role", `{roleName: a, operations: [], resyncInterval: 1d}`, "", []string{"spec.resyncInterval", "duration from 5s to 24h"}},
	{"a name with a space at its end", "Role", `{roleName: "a ", operations: []}`, "", []string{"spec.roleName", "must not begin or end with a space"}},
	{"a name of two lines", "Role", `{roleName: "a\nb", operations: []}`, "", []string{"spec.roleName", "control characters"}},
	{"a name longer than names are", "Role", `{roleName: ` + strings.Repeat("a", 129) + `, operations: []}`, "", []string{"spec.roleName", "128"}},
	{"an id that is none", "Role", `{roleId: "12", operations: []}`, "", []string{"spec.roleId", "16 hexadecimal digits"}},
	{"an operation twice", "Role", `{roleName: a, operations: [HMAC Data, HMAC Data]}`, "", []string{"spec.operations[1]", "Duplicate"}},

	// Only the key server can find these mistakes. The manager reports them and does not write.
	{"an operation that there is not", "Role", `{roleName: Bad 1, operations: [HMAC Date]}`, v1beta1.ReasonInvalidSpec,
		[]string{"spec.operations", `"HMAC Date"`, `did you mean "HMAC Data"?`}},
	{"an operation in lower case", "Role", `{roleName: Bad 2, operations: [hmac data]}`, v1beta1.ReasonInvalidSpec, []string{"spec.operations", `"hmac data"`}},
	{"a role that is built in", "Role", `{roleName: Administrator, operations: [], adoptionPolicy: Always}`, v1beta1.ReasonConflict,
		[]string{`"Administrator"`, "built in", "managementPolicy"}},
	{"a role by an id that nobody has", "Role", `{roleId: 00000000000000aa, operations: []}`, v1beta1.ReasonInvalidSpec, []string{"00000000000000aa", "spec.roleId"}},

	{"a CA from nowhere", "TrustedCA", `{certificate: {}}`, "", []string{"spec.certificate", "exactly one of"}},
	{"a CA from two places", "TrustedCA", `{certificate: {inline: a, secretKeyRef: {name: a, key: b}}}`, "", []string{"spec.certificate"}},
	{"a CA that is a private key", "TrustedCA", `{certificate: {inline: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}}`, "", []string{"spec.certificate.inline"}},
	{"a CA that is no PEM", "TrustedCA", `{certificate: {inline: "MIIB"}}`, "", []string{"spec.certificate.inline"}},
	{"a CA that does not parse", "TrustedCA", `{certificate: {inline: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}`, v1beta1.ReasonInvalidSpec, []string{"spec.certificate"}},
	{"a CA from a ConfigMap that is not there", "TrustedCA", `{certificate: {configMapKeyRef: {name: nowhere, key: ca.crt}}}`, v1beta1.ReasonDependencyNotReady, []string{"ConfigMap default/nowhere", "does not exist"}},
	{"a CA from a key that is not there", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}}`, v1beta1.ReasonDependencyNotReady, []string{`ConfigMap default/bad-manifests has no key "ca.crt"`}},
	{"a CA from a Secret that is not there", "TrustedCA", `{certificate: {secretKeyRef: {name: nowhere, key: ca.crt}}}`, v1beta1.ReasonDependencyNotReady, []string{"Secret default/nowhere", "does not exist"}},
	{"a CA from what is no certificate", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: text}}}`, v1beta1.ReasonInvalidSpec, []string{"ConfigMap default/bad-manifests"}},
	{"an overlap that is no duration", "TrustedCA", `{certificate: {configMapKeyRef: {name: a, key: b}}, rotation: {overlap: a week}}`, "", []string{"spec.rotation.overlap"}},
	{"a certificate that is no CA's", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: leaf.crt}}}`, v1beta1.ReasonInvalidSpec, []string{"CA"}},
	{"a CA of a KeyServer that is not there", "TrustedCA", `{keyServerRef: {name: nowhere}, certificate: {configMapKeyRef: {name: a, key: b}}}`, v1beta1.ReasonDependencyNotReady, []string{`KeyServer "nowhere" does not exist`}},
	{"a CA of its own KeyServer", "TrustedCA", `{keyServerRef: {name: a}, certificate: {peerRef: {name: a}}}`, "", []string{"peerRef"}},

	{"a peer without a blob", "TrustedServer", `{friendlyName: a}`, "", []string{"spec.trustBlob"}},
	{"a peer by a blob that is none", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "hello"}}`, "", []string{"spec.trustBlob"}},
	{"a peer by a blob that does not parse", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "7\tpeer.example\t9443\tAAAA"}}`, v1beta1.ReasonInvalidSpec, []string{"trustBlob"}},
	{"a peer that is a KeyServer which is not there", "TrustedServer", `{friendlyName: a, trustBlob: {peerRef: {name: nowhere}}}`, v1beta1.ReasonDependencyNotReady, []string{`KeyServer "nowhere"`}},

	{"a principal of no type", "PrincipalTrust", `{principal: {name: a}, systemId: 7, flag: expose}`, "", []string{"spec.principal"}},
	{"a trust of no peer", "PrincipalTrust", `{principal: {type: password, name: admin}, flag: expose}`, "", []string{"spec"}},
	{"a trust of a peer that is not there", "PrincipalTrust", `{principal: {type: password, name: admin}, flag: expose, trustedServerRef: {name: nowhere}}`, v1beta1.ReasonDependencyNotReady, []string{"TrustedServer", "nowhere"}},

	{"a principal of two kinds", "Principal", `{ldap: {name: a}, group: {}, principalName: a}`, "", []string{"spec", "exactly one of serviceAccount, ldap, group and certificate"}},
	{"a group without a name", "Principal", `{group: {}}`, "", []string{"give principalName"}},
	{"a group in a group", "Principal", `{group: {}, principalName: a, groups: [{principalRef: {name: b}}]}`, "", []string{"a group cannot be a member of a group"}},
	{"a service account by its subject", "Principal", `{serviceAccount: {name: "system:serviceaccount:a:b"}}`, "", []string{"spec.serviceAccount.name", "lower-case letters"}},
	{"a role by a name and a reference", "Principal", `{ldap: {name: a}, roles: [{name: a, roleRef: {name: b}}]}`, "", []string{"spec.roles[0]", "exactly one of name and roleRef"}},
	{"delegation to nobody", "Principal", `{ldap: {name: a}, delegation: {}}`, "", []string{"spec.delegation", "anybody: true"}},
	{"a role that there is not", "Principal", `{ldap: {name: bad-1}, roles: [{name: Nobody's}]}`, v1beta1.ReasonDependencyNotReady, []string{"spec.roles", `"Nobody's"`}},
	{"a Role that there is not", "Principal", `{ldap: {name: bad-2}, roles: [{roleRef: {name: nowhere}}]}`, v1beta1.ReasonDependencyNotReady, []string{"Role default/nowhere", "does not exist"}},
	{"a group that there is not", "Principal", `{ldap: {name: bad-3}, groups: [{principalRef: {name: nowhere}}]}`, v1beta1.ReasonDependencyNotReady, []string{"Principal default/nowhere", "does not exist"}},
	{"a certificate that is no certificate", "Principal", `{certificate: {certificate: {configMapKeyRef: {name: bad-manifests, key: text}}}}`, v1beta1.ReasonInvalidSpec, []string{"ConfigMap default/bad-manifests"}},

	{"a certificate request of nobody", "Principal", `{certificate: {request: {configMapKeyRef: {name: bad-manifests, key: nobody.csr}}}}`, v1beta1.ReasonInvalidSpec, []string{"ConfigMap default/bad-manifests", "empty subject"}},

	{"a key of no algorithm", "Key", `{}`, "", []string{"spec.algorithm", "Required"}},
	{"a key of another algorithm", "Key", `{algorithm: RSA}`, "", []string{"spec.algorithm", `"HMAC-SHA384", "AES-256"`}},
	{"a key under two dots", "Key", `{algorithm: AES-256, path: /a/../b}`, "", []string{"spec.path"}},
	{"a key that is destroyed at once", "Key", `{algorithm: AES-256, destroyAfterDays: 0}`, "", []string{"spec.destroyAfterDays", "1"}},
	{"a member who is not there, of a key", "Key", `{algorithm: AES-256, members: [{principal: password/nobody, rights: [READ]}]}`, v1beta1.ReasonDependencyNotReady, []string{"password", `"nobody"`}},
	{"a manager that gives its key away", "Key", `{algorithm: AES-256, members: [{principal: password/admin, rights: [READ]}]}`, v1beta1.ReasonInvalidSpec, []string{"spec.members", `"password/admin"`, "OWNER"}},
	{"a line that there is not", "Key", `{algorithm: AES-256, lineage: AAAAAQAAAAAAAAPp}`, v1beta1.ReasonInvalidSpec, []string{"AAAAAQAAAAAAAAPp", "spec.lineage"}},

	{"a policy of revocation that YAML reads as false", "TrustedCA", `{certificate: {configMapKeyRef: {name: a, key: b}}, revocation: {mode: off}}`, "", []string{"spec.revocation.mode"}},

	{"a template without a name", "ACLTemplate", `{members: []}`, "", []string{"spec.templateName", "Required"}},
	{"a member without rights", "ACLTemplate", `{templateName: a, members: [{principal: password/admin, rights: []}]}`, "", []string{"spec.members[0].rights"}},
	{"a right that there is not", "ACLTemplate", `{templateName: a, members: [{principal: password/admin, rights: [USE]}]}`, "", []string{"spec.members[0].rights[0]", `"READ"`}},
	{"a member by its bare name", "ACLTemplate", `{templateName: a, members: [{principal: admin, rights: [READ]}]}`, "", []string{"spec.members[0].principal", "TYPE/NAME"}},
	{"a member of a type that there is not", "ACLTemplate", `{templateName: a, members: [{principal: user/admin, rights: [READ]}]}`, "", []string{"spec.members[0].principal", "TYPE/NAME"}},
	{"a member twice", "ACLTemplate", `{templateName: a, members: [{principal: password/admin, rights: [READ]}, {principal: password/admin, rights: [WRITE]}]}`, "", []string{"spec.members[1]", "Duplicate"}},
	{"a time that ends before it begins", "ACLTemplate", `{templateName: a, members: [{principal: password/b, rights: [READ], startTime: "2030-01-01T00:00:00Z", endTime: "2029-01-01T00:00:00Z"}]}`, "",
		[]string{"spec.members[0]", "endTime must be after startTime"}},
	{"a time that is none", "ACLTemplate", `{templateName: a, members: [{principal: password/b, rights: [READ], endTime: tomorrow}]}`, "", []string{"spec.members[0].endTime"}},
	{"a directory with two dots", "ACLTemplate", `{templateName: a, directories: [/a/../b]}`, "", []string{"spec.directories[0]", "plain path"}},
	{"a member who is not there", "ACLTemplate", `{templateName: Bad 3, members: [{principal: password/nobody, rights: [READ]}]}`, v1beta1.ReasonDependencyNotReady, []string{"password", `"nobody"`}},
	{"a manager that locks itself out", "ACLTemplate", `{templateName: Bad 4, members: [{principal: password/admin, rights: [READ]}]}`, v1beta1.ReasonInvalidSpec, []string{"spec.members", `"password/admin"`, "WRITE"}},
	{"one principal by two names", "ACLTemplate", `{templateName: Bad 5, members: [{principal: password/admin, rights: [OWNER]}, {principal: id/1/ADMIN, rights: [OWNER]}]}`, v1beta1.ReasonInvalidSpec, []string{"spec.members: ", "are the same principal"}},
}

var _ = Describe("Bad manifests", func() {
	DescribeTable("are refused or reported with the field and the reason, and nothing is sent", func(ctx context.Context, version runtimeschema.GroupVersion) {
		s := newStage(ctx)
		admin, err := s.admin().GetCurrentSession(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(client.IgnoreAlreadyExists(kube.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad-manifests"},
			Data:       map[string]string{"text": "hello", "leaf.crt": newLeaf(), "nobody.csr": request("")},
		}))).To(Succeed())

		before, err := s.admin().ListChanges(ctx, schema.ChangesQuery{})
		Expect(err).NotTo(HaveOccurred())
		var wrong []string
		told := func(bad *badManifest, message string) {
			for _, says := range bad.says {
				if !strings.Contains(message, says) {
					wrong = append(wrong, fmt.Sprintf("%s: %q is not in %s", bad.mistake, says, message))
				}
			}
		}
		admitted := map[*badManifest]*unstructured.Unstructured{}
		for i := range badManifests {
			bad := &badManifests[i]
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetGroupVersionKind(version.WithKind(bad.kind))
			if bad.kind != keyServerKind.Name {
				u.SetNamespace("default")
			}
			u.SetName(fmt.Sprintf("bad-%s-%d", version.Version, i))
			spec := map[string]any{}
			Expect(yaml.Unmarshal([]byte(strings.ReplaceAll(bad.spec, "ADMIN", admin.Principal.PrincipalID.String())), &spec)).To(Succeed(), bad.mistake)
			if spec["keyServerRef"] == nil && bad.kind != keyServerKind.Name {
				spec["keyServerRef"] = map[string]any{"name": s.name}
			}
			u.Object["spec"] = spec
			err := client.WithFieldValidation(kube, metav1.FieldValidationStrict).Create(ctx, u)
			if bad.reason == "" {
				Expect(err).To(HaveOccurred(), bad.mistake)
				told(bad, err.Error())
				continue
			}
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: not admitted: %s", bad.mistake, err))
				continue
			}
			admitted[bad] = u
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, u))).To(Succeed()) })
		}
		for bad, u := range admitted {
			Eventually(readiness(ctx, typed(u))).Should(HaveField("Reason", bad.reason), bad.mistake)
			told(bad, readiness(ctx, typed(u))().Message)
		}
		Expect(wrong).To(BeEmpty())
		after, err := s.admin().ListChanges(ctx, schema.ChangesQuery{After: &before.Cursor})
		Expect(err).NotTo(HaveOccurred())
		for _, c := range after.Changes {
			Expect(c.Kind).To(Equal("session"), "a bad manifest has changed something: %+v", c)
		}
	},
		Entry("in the present version", v1beta1.GroupVersion),
		Entry("in the deprecated version", v1beta1.Deprecated),
	)
})

// typed converts u to the Go type of its kind.
func typed(u *unstructured.Unstructured) client.Object {
	GinkgoHelper()
	kind, known := v1beta1.KindNamed(u.GetKind())
	Expect(known).To(BeTrue())
	obj, is := kind.New().(client.Object)
	Expect(is).To(BeTrue())
	obj.SetNamespace(u.GetNamespace())
	obj.SetName(u.GetName())
	return obj
}

// newLeaf returns a certificate that is not a CA certificate.
func newLeaf() string {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "leaf.example"}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
