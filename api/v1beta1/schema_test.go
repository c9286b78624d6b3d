package v1beta1_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

const (
	// These PEM texts pass the schema, which does not parse certificates.
	onePEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	keyPEM = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
)

var serial int

// object creates an object of a kind from its spec in YAML.
func object(kind, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	serial++
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(v1beta1.GroupVersion.String())
	u.SetKind(kind)
	u.SetName(fmt.Sprintf("case-%d", serial))
	if kind != "KeyServer" {
		u.SetNamespace("default")
	}
	var parsed map[string]any
	Expect(yaml.Unmarshal([]byte(spec), &parsed)).To(Succeed())
	u.Object["spec"] = parsed
	return u
}

func indent(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}

func inlineCA(pem string) string { return "certificate:\n  inline: |\n      " + indent(pem) + "\n" }

// blob returns a TrustedServer spec with a trust blob. The given fields replace the defaults from the left. The schema
// does not parse the chain.
func blob(fields ...string) string {
	all := []string{"7", "peer.example", "9443", "AAAA"}
	copy(all, fields)
	return "friendlyName: a\ntrustBlob: {inline: \"" + strings.Join(all, `\t`) + "\"}\n"
}

const credentials = "credentials: {administrator: {secretRef: {namespace: ns, name: admin}}}\n"

// granting returns a KeyServer spec with grants.
func granting(grants string) string {
	return credentials + "url: https://a\ngrants: [" + grants + "]\n"
}

var _ = DescribeTable("rejects at admission", func(ctx context.Context, kind, spec, says string) {
	err := cluster.Create(ctx, object(kind, spec))
	Expect(err).To(MatchError(ContainSubstring(says)))
},
	// KeyServer.
	Entry("a URL without a scheme", "KeyServer", credentials+"url: keyserver:8443", "must be an https URL such as"),
	Entry("plain http to another host", "KeyServer", credentials+"url: http://keyserver.example", "plain http is accepted for loopback addresses only"),
	Entry("a URL with a password", "KeyServer", credentials+"url: https://admin:secret@keyserver.example", "must not hold a user, a query or a fragment"),
	Entry("a URL with a query", "KeyServer", credentials+"url: https://keyserver.example/?a=b", "must not hold a user, a query or a fragment"),
	Entry("a URL that ends in /api", "KeyServer", credentials+"url: https://keyserver.example/api", "must not end in /api"),
	Entry("a URL that ends in /api/", "KeyServer", credentials+"url: https://keyserver.example/api/", "must not end in /api"),
	Entry("an empty URL", "KeyServer", credentials+`url: ""`, "spec.url"),
	Entry("no credentials", "KeyServer", "url: https://keyserver.example", "spec.credentials"),
	Entry("no identity in the credentials", "KeyServer", "url: https://a\ncredentials: {administrator: {}}", "give exactly one of secretRef and serviceAccount"),
	Entry("two identities in the credentials", "KeyServer", "url: https://a\ncredentials: {administrator: {secretRef: {namespace: a, name: b}, serviceAccount: {audience: c}}}",
		"give exactly one of secretRef and serviceAccount"),
	Entry("a service account without an audience", "KeyServer", "url: https://a\ncredentials: {administrator: {serviceAccount: {audience: ''}}}", "audience"),
	Entry("an external URL over plain http", "KeyServer", credentials+"url: https://a\nexternalURL: http://localhost", "must be an https URL"),
	Entry("an external URL with a query", "KeyServer", credentials+"url: https://a\nexternalURL: https://a/?b", "must not hold a user, a query or a fragment"),
	Entry("an external URL that ends in /api", "KeyServer", credentials+"url: https://a\nexternalURL: https://a/api", "must not end in /api"),
	Entry("a CA bundle without a source", "KeyServer", credentials+"url: https://a\ncaBundle: {}", "give exactly one of inline, secretKeyRef and configMapKeyRef"),
	Entry("a CA bundle with two sources", "KeyServer", credentials+"url: https://a\ncaBundle: {secretKeyRef: {namespace: a, name: b, key: c}, configMapKeyRef: {namespace: a, name: b, key: c}}",
		"give exactly one of inline, secretKeyRef and configMapKeyRef"),
	Entry("a CA bundle without a certificate", "KeyServer", credentials+"url: https://a\ncaBundle: {inline: hello}", "must hold at least one PEM block of type CERTIFICATE"),
	Entry("a CA bundle with a private key", "KeyServer", credentials+"url: https://a\ncaBundle:\n  inline: |\n      "+indent(onePEM+keyPEM), "must not hold a private key"),
	Entry("a grant without a name", "KeyServer", granting("{namespaces: {names: [a]}, kinds: [Role], names: [b]}"), "grants[0].name"),
	Entry("a grant with an invalid name", "KeyServer", granting("{name: A b, namespaces: {names: [a]}, kinds: [Role], names: [b]}"), "must be lower-case letters, digits and '-'"),
	Entry("a grant without namespaces", "KeyServer", granting("{name: g, kinds: [Role], names: [b]}"), "grants[0].namespaces"),
	Entry("a grant to no namespace", "KeyServer", granting("{name: g, namespaces: {}, kinds: [Role], names: [b]}"), "give names, selector, or both"),
	Entry("a grant to an empty list of namespaces", "KeyServer", granting("{name: g, namespaces: {names: []}, kinds: [Role], names: [b]}"), "give names, selector, or both"),
	Entry("a namespace that is a wildcard", "KeyServer", granting("{name: g, namespaces: {names: ['*']}, kinds: [Role], names: [b]}"), "for all of them, give an empty selector"),
	Entry("a namespace listed twice", "KeyServer", granting("{name: g, namespaces: {names: [a, a]}, kinds: [Role], names: [b]}"), "Duplicate value"),
	Entry("a grant with an empty list of kinds", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [], names: [b]}"), "grants[0].kinds"),
	Entry("a grant without kinds", "KeyServer", granting("{name: g, namespaces: {names: [a]}, names: [b]}"), "grants[0].kinds"),
	Entry("a grant of every kind at once", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: ['*'], names: [b]}"), `spec.grants[0].kinds[0]: Unsupported value: "*"`),
	Entry("a grant of KeyServers", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [KeyServer], names: [b]}"), "supported values"),
	Entry("a grant with an empty list of names", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [Role], names: []}"), "grants[0].names"),
	Entry("a grant without names", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [Role]}"), "grants[0].names"),
	Entry("a grant of an empty name", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [Role], names: ['']}"), "grants[0].names[0]"),
	Entry("a grant of every operation at once", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b], operations: ['*']}"), "must be an operation or a duty, without '*'; to grant all, list"),
	Entry("a grant of an unknown duty", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b], operations: [duty:keyUse]}"), "must be duty:administration, duty:trust, duty:key use or duty:audit"),
	Entry("a grant of an empty operation", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b], operations: ['']}"), "grants[0].operations[0]"),
	Entry("two grants with the same name", "KeyServer", granting("{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b]}, {name: g, namespaces: {names: [c]}, kinds: [Role], names: [d]}"), "Duplicate value"),
	Entry("more grants than the limit", "KeyServer", granting(strings.Repeat("{}, ", 33)), "must have at most 32 items"),

	// Fields of all kinds but KeyServer.
	Entry("an unknown management policy", "TrustedCA", inlineCA(onePEM)+"managementPolicy: Sometimes", `supported values: "Manage", "Observe"`),
	Entry("an unknown adoption policy", "TrustedCA", inlineCA(onePEM)+"adoptionPolicy: Perhaps", `supported values: "IfIdentical", "Always", "Never"`),
	Entry("an unknown deletion policy", "TrustedCA", inlineCA(onePEM)+"deletionPolicy: Orphan", `supported values: "DeleteIfCreated", "Delete", "Retain"`),
	Entry("a resync interval that is not a duration", "TrustedCA", inlineCA(onePEM)+"resyncInterval: often", "must be a duration from 5s to 24h"),
	Entry("a resync interval in days", "TrustedCA", inlineCA(onePEM)+"resyncInterval: 1d", "must be a duration from 5s to 24h"),
	Entry("a resync interval that is too short", "TrustedCA", inlineCA(onePEM)+"resyncInterval: 1s", "must be a duration from 5s to 24h"),
	Entry("a resync interval that is too long", "TrustedCA", inlineCA(onePEM)+"resyncInterval: 25h", "must be a duration from 5s to 24h"),
	Entry("an invalid name of a KeyServer", "TrustedCA", inlineCA(onePEM)+"keyServerRef: {name: Not_A_Name}", "must be the name of a KeyServer"),

	// TrustedCA.
	Entry("no certificate", "TrustedCA", "managementPolicy: Manage", "spec.certificate"),
	Entry("the issuer of the same KeyServer as certificate", "TrustedCA", "{keyServerRef: {name: b}, certificate: {peerRef: {name: b}}}", "spec.certificate.peerRef: Invalid value: certificate.peerRef must not name the KeyServer of keyServerRef"),
	Entry("a certificate of a KeyServer without a name", "TrustedCA", "{certificate: {peerRef: {}}}", "spec.certificate.peerRef.name"),
	Entry("a certificate without a source", "TrustedCA", "certificate: {}", "give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"),
	Entry("a certificate with two sources", "TrustedCA", "certificate: {secretKeyRef: {name: a, key: b}, configMapKeyRef: {name: a, key: b}}",
		"give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"),
	Entry("a certificate that is not PEM", "TrustedCA", "certificate: {inline: MIIB}", "must hold exactly one PEM block of type CERTIFICATE"),
	Entry("a bundle", "TrustedCA", inlineCA(onePEM+onePEM), "declare each CA in a separate object"),
	Entry("a certificate with its private key", "TrustedCA", inlineCA(onePEM+keyPEM), "must not hold a private key"),
	Entry("a reference without a key", "TrustedCA", "certificate: {secretKeyRef: {name: a}}", "spec.certificate.secretKeyRef.key"),
	Entry("a negative overlap", "TrustedCA", inlineCA(onePEM)+"rotation: {overlap: -1h}", "must be a duration from 0s to 8760h"),
	Entry("a publication without a target", "TrustedCA", inlineCA(onePEM)+"publish: {}", "give exactly one of clusterTrustBundle and configMap"),
	Entry("a publication with two targets", "TrustedCA", inlineCA(onePEM)+"publish: {clusterTrustBundle: {}, configMap: {name: a}}", "give exactly one of clusterTrustBundle and configMap"),
	Entry("a bundle of a signer", "TrustedCA", inlineCA(onePEM)+"publish: {clusterTrustBundle: {name: 'example.com:a:b'}}", "bundles of a signer, with a ':' in the name, are not supported"),
	Entry("a published ConfigMap without a name", "TrustedCA", inlineCA(onePEM)+"publish: {configMap: {}}", "spec.publish.configMap.name"),
	Entry("an invalid name of a published ConfigMap", "TrustedCA", inlineCA(onePEM)+"publish: {configMap: {name: A_B}}", "must be the name of a ConfigMap"),
	Entry("an invalid key of a published ConfigMap", "TrustedCA", inlineCA(onePEM)+"publish: {configMap: {name: a, key: a/b}}", "must be letters, digits, '-', '_' and '.'"),
	Entry("a publication in no namespace", "TrustedCA", inlineCA(onePEM)+"publish: {configMap: {name: a, namespaces: {}}}", "give names, selector, or both"),
	Entry("a revocation without a mode", "TrustedCA", inlineCA(onePEM)+"revocation: {}", "spec.revocation.mode"),
	Entry("an unknown revocation mode", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: Required}", `supported values: "off", "when-available", "required"`),
	Entry("a revocation mode that YAML takes for false", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: off}", "spec.revocation.mode"),
	Entry("a maximum age that is not a duration", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: required, maxAge: 1d}", "must be a duration of whole seconds from 0s to 8784h"),
	Entry("a maximum age of less than a second", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: required, maxAge: 1500ms}", "must be a duration of whole seconds from 0s to 8784h"),
	Entry("a maximum age of more than a year", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: required, maxAge: 8785h}", "must be a duration of whole seconds from 0s to 8784h"),
	Entry("a revocation list without a source", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: required, crl: {}}", "spec.revocation.crl.configMapKeyRef"),
	Entry("a revocation list without a key", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: required, crl: {configMapKeyRef: {name: a}}}", "spec.revocation.crl.configMapKeyRef.key"),
	Entry("an overlap that is too long", "TrustedCA", inlineCA(onePEM)+"rotation: {overlap: 9000h}", "must be a duration from 0s to 8760h"),

	// Role.
	Entry("neither name nor id", "Role", "operations: []", "give roleName, or roleId to take over an existing role, or both"),
	Entry("an empty name", "Role", `{roleName: "", operations: []}`, "spec.roleName"),
	Entry("a name with spaces around it", "Role", `{roleName: " a", operations: []}`, "must not begin or end with a space"),
	Entry("a name of two lines", "Role", `{roleName: "a\nb", operations: []}`, "control characters"),
	Entry("a name that is too long", "Role", "operations: []\nroleName: "+strings.Repeat("a", 129), "spec.roleName"),
	Entry("a short id", "Role", `{roleId: "12ab", operations: []}`, "must be the id of a role: 16 hexadecimal digits"),
	Entry("a base64 id", "Role", `{roleId: "AAAAAAAAAQE=", operations: []}`, "must be the id of a role: 16 hexadecimal digits"),
	Entry("the zero id", "Role", `{roleId: "0000000000000000", operations: []}`, "not all zero"),
	Entry("an operation twice", "Role", "{roleName: a, operations: [HMAC Data, HMAC Data]}", "Duplicate value"),
	Entry("an empty operation", "Role", `{roleName: a, operations: [""]}`, "spec.operations[0]"),
	Entry("an operation with spaces around it", "Role", `{roleName: a, operations: ["HMAC Data "]}`, "must not begin or end with a space"),

	// TrustedServer.
	Entry("no trust blob", "TrustedServer", "friendlyName: a", "spec.trustBlob"),
	Entry("a trust blob of the same KeyServer", "TrustedServer", "{friendlyName: a, trustBlob: {peerRef: {name: default}}}", "spec.trustBlob.peerRef: Invalid value: trustBlob.peerRef must not name the KeyServer of keyServerRef"),
	Entry("a trust blob of a KeyServer with a bad name", "TrustedServer", "{friendlyName: a, trustBlob: {peerRef: {name: A/b}}}", "must be the name of a KeyServer"),
	Entry("a trust blob of a KeyServer and inline", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "7\tpeer\t9443\tAAAA", peerRef: {name: b}}}`, "give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"),
	Entry("a trust blob without a source", "TrustedServer", "{friendlyName: a, trustBlob: {}}", "give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"),
	Entry("a trust blob with two sources", "TrustedServer", "{friendlyName: a, trustBlob: {secretKeyRef: {name: a, key: b}, configMapKeyRef: {name: a, key: b}}}",
		"give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"),
	Entry("a trust blob with spaces for tabs", "TrustedServer", "{friendlyName: a, trustBlob: {inline: 7 peer 9443 AAAA}}", "must have four fields separated by tabs"),
	Entry("a trust blob of five fields", "TrustedServer", blob("7", "peer.example", "9443", `AAAA\tmore`), "must have four fields separated by tabs"),
	Entry("a hexadecimal system id", "TrustedServer", blob("0x07"), "must begin with the system id"),
	Entry("a system id with leading zeros", "TrustedServer", blob("007"), "must begin with the system id"),
	Entry("a URL for a server name", "TrustedServer", blob("7", "https://peer"), "must have a host name or an IP address"),
	Entry("no server name", "TrustedServer", blob("7", ""), "must have a host name or an IP address"),
	Entry("port zero", "TrustedServer", blob("7", "peer", "0"), "must have a port"),
	Entry("a chain with line breaks", "TrustedServer", blob("7", "peer", "1", `AA\nAA`), "must have base64 without line breaks"),
	Entry("no friendly name", "TrustedServer", "trustBlob: {secretKeyRef: {name: a, key: b}}", "spec.friendlyName"),
	Entry("a friendly name with spaces around it", "TrustedServer", `{friendlyName: "a ", trustBlob: {secretKeyRef: {name: a, key: b}}}`, "must not begin or end with a space"),
	Entry("a description of two lines", "TrustedServer", `{friendlyName: a, description: "a\nb", trustBlob: {secretKeyRef: {name: a, key: b}}}`, "must not hold control characters"),

	// ACLTemplate.
	Entry("no template name", "ACLTemplate", "members: []", "spec.templateName"),
	Entry("a template name with spaces around it", "ACLTemplate", `{templateName: "a ", members: []}`, "must not begin or end with a space"),
	Entry("a member twice", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [READ]}, {principal: group/a, rights: [WRITE]}]}", "Duplicate value"),
	Entry("a member without a type", "ACLTemplate", "{templateName: a, members: [{principal: admin, rights: [READ]}]}", "must be TYPE/NAME with a type of"),
	Entry("a member of an unknown type", "ACLTemplate", "{templateName: a, members: [{principal: robot/a, rights: [READ]}]}", "must be TYPE/NAME with a type of"),
	Entry("a member without a name", "ACLTemplate", "{templateName: a, members: [{principal: group/, rights: [READ]}]}", "must be TYPE/NAME with a type of"),
	Entry("a member by hexadecimal id", "ACLTemplate", "{templateName: a, members: [{principal: id/1/00000000000001ab, rights: [READ]}]}", "both ids in decimal"),
	Entry("a member by id without a system", "ACLTemplate", "{templateName: a, members: [{principal: id/257, rights: [READ]}]}", "both ids in decimal"),
	Entry("a member without rights", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: []}]}", "spec.members[0].rights"),
	Entry("an unknown right", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [EXECUTE]}]}", `supported values: "READ", "WRITE", "OWNER", "MANDATORY_GROUP", "HOST_MATRIX"`),
	Entry("a right twice", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [READ, READ]}]}", "Duplicate value"),
	Entry("a negative limit", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [READ], maxUsage: -1}]}", "spec.members[0].maxUsage"),
	Entry("a limit that is not a number", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [READ], maxUsage: many}]}", "spec.members[0].maxUsage"),
	Entry("a start that is not a time", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [READ], startTime: soon}]}", "spec.members[0].startTime"),
	Entry("a start at the Unix epoch", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [READ], startTime: '1970-01-01T00:00:00Z'}]}", "must be after 1970-01-01T00:00:00Z"),
	Entry("an end before the start", "ACLTemplate", "{templateName: a, members: [{principal: group/a, rights: [READ], startTime: '2027-01-02T00:00:00Z', endTime: '2027-01-01T00:00:00Z'}]}", "endTime must be after startTime"),
	Entry("a directory twice", "ACLTemplate", "{templateName: a, members: [], directories: [/a/, /a/]}", "Duplicate value"),
	Entry("a directory with an empty segment", "ACLTemplate", "{templateName: a, members: [], directories: [/a//b/]}", "must be the plain path of a directory"),
	Entry("a directory with ..", "ACLTemplate", "{templateName: a, members: [], directories: [/a/../b/]}", "must be the plain path of a directory"),
	Entry("a directory of two lines", "ACLTemplate", `{templateName: a, members: [], directories: ["/a\nb"]}`, "must be the plain path of a directory"),

	// Key.
	Entry("a key of no algorithm", "Key", "members: []", "spec.algorithm"),
	Entry("a key of an unknown algorithm", "Key", "algorithm: RSA", `supported values: "HMAC-SHA384", "AES-256"`),
	Entry("both a path and a lineage", "Key", "{algorithm: AES-256, path: /a, lineage: AAAAAQAAAAAAAAEB}", "give path or lineage, not both"),
	Entry("an empty path", "Key", "{algorithm: AES-256, path: ''}", "spec.path"),
	Entry("a path with ..", "Key", "{algorithm: AES-256, path: /a/../b}", "must be a plain path"),
	Entry("a path with an empty segment", "Key", "{algorithm: AES-256, path: /a//b}", "must be a plain path"),
	Entry("a path of two lines", "Key", `{algorithm: AES-256, path: "/a\nb"}`, "must be a plain path"),
	Entry("a lineage by the id of its key", "Key", `{algorithm: AES-256, lineage: "00000000000001"}`, "must be the hidden link of the first key of a lineage"),
	Entry("a lineage in hexadecimal", "Key", `{algorithm: AES-256, lineage: "000000010000000000000101"}`, "must be the hidden link of the first key of a lineage"),
	Entry("a member of a key without a type", "Key", "{algorithm: AES-256, members: [{principal: alice, rights: [READ]}]}", "must be TYPE/NAME"),
	Entry("a member of a key twice", "Key", "{algorithm: AES-256, members: [{principal: group/a, rights: [READ]}, {principal: group/a, rights: [OWNER]}]}", "Duplicate value"),
	Entry("a rotation of nothing", "Key", "{algorithm: AES-256, rotation: {}}", "to have no rotation, leave rotation out"),
	Entry("a rotation of zeros", "Key", "{algorithm: AES-256, rotation: {everyDays: 0, verifyOnlyDays: 0}}", "to have no rotation, leave rotation out"),
	Entry("a rotation after more than 3650 days", "Key", "{algorithm: AES-256, rotation: {everyDays: 3651}}", "spec.rotation.everyDays"),
	Entry("the destruction of older keys that always verify", "Key", "{algorithm: AES-256, rotation: {everyDays: 1, destroyAfterDays: 1}}", "destroyAfterDays needs verifyOnlyDays"),
	Entry("an immediate destruction", "Key", "{algorithm: AES-256, destroyAfterDays: 0}", "spec.destroyAfterDays"),
	Entry("a destruction after more than 365 days", "Key", "{algorithm: AES-256, destroyAfterDays: 366}", "spec.destroyAfterDays"),
	Entry("a publication without a target", "Key", "{algorithm: AES-256, publish: {}}", "spec.publish.configMap"),
	Entry("an invalid name of a ConfigMap", "Key", "{algorithm: AES-256, publish: {configMap: {name: A_b}}}", "must be the name of a ConfigMap"),
	// Principal.
	Entry("a principal without an identity", "Principal", "roles: []", "give exactly one of serviceAccount, ldap, group and certificate"),
	Entry("a principal with two identities", "Principal", "{ldap: {name: a}, group: {}, principalName: a}", "give exactly one of serviceAccount, ldap, group and certificate"),
	Entry("a group without a name", "Principal", "group: {}", "give principalName, the name of the group"),
	Entry("another name for a user of the directory", "Principal", "{ldap: {name: a}, principalName: b}", "the name comes from ldap.name"),
	Entry("another name for a certificate", "Principal", "{certificate: {certificate: {secretKeyRef: {name: a, key: b}}}, principalName: b}", "the name is the subject of the certificate"),
	Entry("a service account without a name", "Principal", "serviceAccount: {namespace: a}", "spec.serviceAccount.name"),
	Entry("an invalid name of a service account", "Principal", "serviceAccount: {name: 'a:b'}", "must be the name of a service account"),
	Entry("an invalid name of a namespace", "Principal", "serviceAccount: {name: a, namespace: 'a:b'}", "must be the name of a namespace"),
	Entry("a service account with too long a name", "Principal", "serviceAccount: {namespace: a, name: "+strings.Repeat("a", 105)+"}", "is longer than 128 characters"),
	Entry("an issuer with a space", "Principal", "serviceAccount: {name: a, issuer: 'https://a '}", "must be printable ASCII without spaces"),
	Entry("an empty audience", "Principal", "serviceAccount: {name: a, audiences: ['']}", "spec.serviceAccount.audiences[0]"),
	Entry("an audience twice", "Principal", "serviceAccount: {name: a, audiences: [b, b]}", "Duplicate value"),
	Entry("more audiences than a token is compared with", "Principal", "serviceAccount: {name: a, audiences: ["+strings.Join(strings.Split("abcdefghijklmnopq", ""), ",")+"]}", "must have at most 16 items"),
	Entry("a principal name of two lines", "Principal", `{group: {}, principalName: "a\nb"}`, "must not begin or end with a space or hold control characters"),
	Entry("a principal name that is too long", "Principal", "{group: {}, principalName: "+strings.Repeat("a", 129)+"}", "spec.principalName"),
	Entry("a role without a name", "Principal", "{ldap: {name: a}, roles: [{}]}", "give exactly one of name and roleRef"),
	Entry("a role with two names", "Principal", "{ldap: {name: a}, roles: [{name: b, roleRef: {name: c}}]}", "give exactly one of name and roleRef"),
	Entry("an invalid name of a Role", "Principal", "{ldap: {name: a}, roles: [{roleRef: {name: B C}}]}", "must be the name of a Role"),
	Entry("a group by its name", "Principal", "{ldap: {name: a}, groups: [{name: b}]}", "spec.groups[0].principalRef"),
	Entry("an invalid name of a Principal", "Principal", "{ldap: {name: a}, groups: [{principalRef: {name: B_C}}]}", "must be the name of a Principal"),
	Entry("a group in a group", "Principal", "{group: {}, principalName: a, groups: [{principalRef: {name: b}}]}", "a group cannot be a member of a group"),
	Entry("a group that is disabled", "Principal", "{group: {}, principalName: a, disabled: true}", "a group cannot be disabled"),
	Entry("a group with a delegation", "Principal", "{group: {}, principalName: a, delegation: {anybody: true}}", "no principal can act for a group"),
	Entry("an empty delegation", "Principal", "{ldap: {name: a}, delegation: {}}", "give delegates, or anybody: true"),
	Entry("a delegation to an empty list", "Principal", "{ldap: {name: a}, delegation: {delegates: []}}", "give delegates, or anybody: true"),
	Entry("a delegation to anybody and to a list", "Principal", "{ldap: {name: a}, delegation: {anybody: true, delegates: [{principalRef: {name: b}}]}}", "give delegates, or anybody: true"),
	Entry("neither a certificate nor a request", "Principal", "certificate: {}", "give exactly one of request"),
	Entry("both a certificate and a request", "Principal", "certificate: {request: {configMapKeyRef: {name: a, key: b}}, certificate: {configMapKeyRef: {name: a, key: b}}}", "give exactly one of request"),
	Entry("a request in a Secret", "Principal", "certificate: {request: {secretKeyRef: {name: a, key: b}}}", "give exactly one of inline and configMapKeyRef"),
	Entry("a request with its key", "Principal", "certificate:\n  request:\n    inline: |\n      -----BEGIN CERTIFICATE REQUEST-----\n      -----END CERTIFICATE REQUEST-----\n      "+indent(keyPEM), "must not hold a private key"),
	Entry("a client certificate without a source", "Principal", "certificate: {certificate: {}}", "give exactly one of inline, secretKeyRef and configMapKeyRef"),
	Entry("a client certificate with its key", "Principal", "certificate:\n  certificate:\n    inline: |\n      "+indent(onePEM+keyPEM), "must not hold a private key"),
	Entry("a validity of an existing certificate", "Principal", "certificate: {certificate: {configMapKeyRef: {name: a, key: b}}, validityDays: 3}", "validityDays needs request"),
	Entry("a validity of zero days", "Principal", "certificate: {request: {configMapKeyRef: {name: a, key: b}}, validityDays: 0}", "spec.certificate.validityDays"),

	// PrincipalTrust.
	Entry("no peer", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000101"}}`, "give exactly one of trustedServerRef and systemId"),
	Entry("two peers", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000101"}, systemId: 7, trustedServerRef: {name: a}}`, "give exactly one of trustedServerRef and systemId"),
	Entry("an invalid name of a TrustedServer", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000101"}, trustedServerRef: {name: A_B}}`, "must be the name of a TrustedServer"),
	Entry("a system id that is too large", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000101"}, systemId: 4294967296}`, "spec.systemId"),
	Entry("a negative system id", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000101"}, systemId: -1}`, "spec.systemId"),
	Entry("no principal", "PrincipalTrust", "{flag: expose, principal: {}, systemId: 7}", "give exactly one of id, and type with name"),
	Entry("a principal by id and name", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000101", type: group, name: a}, systemId: 7}`, "give exactly one of id, and type with name"),
	Entry("a name without a type", "PrincipalTrust", "{flag: expose, principal: {name: a}, systemId: 7}", "type and name belong together"),
	Entry("a type without a name", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000101", type: group}, systemId: 7}`, "type and name belong together"),
	Entry("an unknown type", "PrincipalTrust", "{flag: expose, principal: {type: robot, name: a}, systemId: 7}", `supported values: "password", "certificate", "ldap", "xauth", "group"`),
	Entry("a decimal principal id", "PrincipalTrust", `{flag: expose, principal: {id: "257"}, systemId: 7}`, "must be the id of a principal: 16 hexadecimal digits"),
	Entry("the zero principal", "PrincipalTrust", `{flag: expose, principal: {id: "0000000000000000"}, systemId: 7}`, "not all zero"),
	Entry("no flag", "PrincipalTrust", `{principal: {id: "0000000000000101"}, systemId: 7}`, "spec.flag"),
	Entry("an unknown flag", "PrincipalTrust", `{flag: allow, principal: {id: "0000000000000101"}, systemId: 7}`, `supported values: "restrict", "expose"`),
)

var _ = DescribeTable("rejects changes of the external object's identity", func(ctx context.Context, kind, spec, change, says string) {
	was := object(kind, spec)
	Expect(cluster.Create(ctx, was)).To(Succeed())
	var changed map[string]any
	Expect(yaml.Unmarshal([]byte(change), &changed)).To(Succeed())
	was.Object["spec"] = changed
	Expect(cluster.Update(ctx, was)).To(MatchError(ContainSubstring(says)))
},
	Entry("another KeyServer", "Role", "{roleName: a, operations: []}", "{roleName: a, operations: [], keyServerRef: {name: other}}", "delete this object and create it again"),
	Entry("another role id", "Role", `{roleId: "0000000000000101", operations: []}`, `{roleId: "0000000000000102", operations: []}`, "spec.roleId: Invalid value: roleId cannot be changed, added or removed"),
	Entry("an added role id", "Role", "{roleName: a, operations: []}", `{roleName: a, roleId: "0000000000000101", operations: []}`, "spec.roleId: Invalid value: roleId cannot be changed, added or removed"),
	Entry("another algorithm", "Key", "algorithm: AES-256", "algorithm: HMAC-SHA384", "spec.algorithm: Invalid value: algorithm cannot be changed"),
	Entry("a key that becomes exportable", "Key", "algorithm: AES-256", "{algorithm: AES-256, exportable: true}", "spec.exportable: Invalid value: exportable cannot be changed"),
	Entry("another path", "Key", "{algorithm: AES-256, path: /a}", "{algorithm: AES-256, path: /b}", "spec.path: Invalid value: path cannot be changed"),
	Entry("a removed path", "Key", "{algorithm: AES-256, path: /a}", "algorithm: AES-256", "spec.path: Invalid value: path cannot be changed"),
	Entry("an added lineage", "Key", "algorithm: AES-256", "{algorithm: AES-256, lineage: AAAAAQAAAAAAAAEB}", "spec.lineage: Invalid value: lineage cannot be changed"),
	Entry("another system id", "TrustedServer", blob("7"), blob("8"), "spec.trustBlob.inline: Invalid value: the system id cannot be changed"),
	Entry("another principal", "PrincipalTrust", "{flag: expose, principal: {type: group, name: a}, systemId: 7}", "{flag: expose, principal: {type: group, name: b}, systemId: 7}", "delete this object and create it again"),
	Entry("another peer", "PrincipalTrust", "{flag: expose, principal: {type: group, name: a}, systemId: 7}", "{flag: expose, principal: {type: group, name: a}, systemId: 8}", "delete this object and create it again"),
	Entry("another TrustedServer", "PrincipalTrust", "{flag: expose, principal: {type: group, name: a}, trustedServerRef: {name: a}}", "{flag: expose, principal: {type: group, name: a}, trustedServerRef: {name: b}}", "delete this object and create it again"),
	Entry("another kind of reference to the peer", "PrincipalTrust", "{flag: expose, principal: {type: group, name: a}, systemId: 7}", "{flag: expose, principal: {type: group, name: a}, trustedServerRef: {name: b}}", "the peer cannot be changed"),
	Entry("another type of principal", "Principal", "ldap: {name: a}", "{group: {}, principalName: a}", "the type of a principal cannot be changed"),
	Entry("another principal name", "Principal", "{group: {}, principalName: a}", "{group: {}, principalName: b}", "spec.principalName: Invalid value: principalName cannot be changed"),
	Entry("an added principal name", "Principal", "serviceAccount: {name: a}", "{serviceAccount: {name: a}, principalName: b}", "spec.principalName: Invalid value: principalName cannot be changed, added or removed"),
	Entry("another user of the directory", "Principal", "ldap: {name: a}", "ldap: {name: b}", "cannot be changed; delete this object"),
	Entry("another service account", "Principal", "serviceAccount: {name: a}", "serviceAccount: {name: b}", "cannot be changed, and neither can audiences"),
	Entry("another issuer", "Principal", "serviceAccount: {name: a}", "serviceAccount: {name: a, issuer: https://b}", "cannot be changed, and neither can audiences"),
	Entry("another audience", "Principal", "serviceAccount: {name: a, audiences: [b]}", "serviceAccount: {name: a, audiences: [b, c]}", "because the key server has no way to change them"),
	Entry("a certificate for a request", "Principal", "certificate: {request: {configMapKeyRef: {name: a, key: b}}}", "certificate: {certificate: {configMapKeyRef: {name: a, key: b}}}", "cannot replace each other"),
	Entry("a removed role id", "Role", `{roleName: a, roleId: "0000000000000101", operations: []}`, "{roleName: a, operations: []}", "spec.roleId: Invalid value: roleId cannot be changed, added or removed"),
)

var _ = DescribeTable("accepts", func(ctx context.Context, kind, spec string) {
	Expect(cluster.Create(ctx, object(kind, spec))).To(Succeed())
},
	Entry("plain http to this machine", "KeyServer", credentials+"url: http://127.0.0.1:8443"),
	Entry("plain http to this machine, IPv6", "KeyServer", credentials+"url: 'http://[::1]:8443'"),
	Entry("a path before /api", "KeyServer", credentials+"url: https://gateway.example/keys"),
	Entry("a KeyServer without grants", "KeyServer", credentials+"url: https://a\ngrants: []"),
	Entry("a grant to every namespace", "KeyServer", granting("{name: g, namespaces: {selector: {}}, kinds: [Role], names: ['*'], operations: [HMAC Data, '0000000000000304', 'duty:key use'], adopt: true}")),
	Entry("a role without operations", "Role", "{roleName: a, operations: []}"),
	Entry("a role with nothing but its name", "Role", "roleName: a"),
	Entry("an operation that only a newer key server has", "Role", "{roleName: a, operations: [Attest Quantum State]}"),
	Entry("a publication in other namespaces, under the name of its source", "TrustedCA", "{certificate: {configMapKeyRef: {name: b, key: c}}, publish: {configMap: {name: b, namespaces: {names: [d]}}}}"),
	Entry("durations in the smallest units", "TrustedCA", inlineCA(onePEM)+"resyncInterval: 86400000ms\nrotation: {overlap: 1.5h30m}\nwarnBefore: 31536000s"),
	Entry("a role by id in capitals", "Role", `{roleId: "00000000000001AB", operations: []}`),
	Entry("the shortest overlap", "TrustedCA", inlineCA(onePEM)+"rotation: {overlap: 0s}"),
	Entry("a ClusterTrustBundle without a name", "TrustedCA", inlineCA(onePEM)+"publish: {clusterTrustBundle: {}}"),
	Entry("ConfigMaps in namespaces", "TrustedCA", inlineCA(onePEM)+"publish: {configMap: {name: a.b, key: ca-bundle.crt, namespaces: {names: [c], selector: {}}}}"),
	Entry("revocation that is off", "TrustedCA", inlineCA(onePEM)+`revocation: {mode: "off", maxAge: 0s}`),
	Entry("revocation with a list", "TrustedCA", inlineCA(onePEM)+"revocation: {mode: when-available, maxAge: 26h30m, crl: {configMapKeyRef: {name: a, key: b}}}"),
	Entry("a trust blob", "TrustedServer", blob()),
	Entry("a trust blob of another KeyServer", "TrustedServer", "{friendlyName: a, trustBlob: {peerRef: {name: b.example}}}"),
	Entry("a certificate of another KeyServer's issuer", "TrustedCA", "{certificate: {peerRef: {name: b}}}"),
	Entry("a trust blob as a block, with its line end", "TrustedServer", "friendlyName: a\ntrustBlob:\n  inline: |\n    7\tpeer\t9443\tAA==\n"),
	Entry("a trust blob with an IPv6 address", "TrustedServer", blob("0", "2001:db8::7")),
	Entry("a template without members", "ACLTemplate", "{templateName: a, members: []}"),
	Entry("a template with nothing but its name", "ACLTemplate", "templateName: a"),
	Entry("members of every spelling", "ACLTemplate", "{templateName: a, members: [{principal: certificate//C=DE/CN=a, rights: [READ]}, {principal: id/0/18446744073709551615, rights: [OWNER], maxUsage: 0}]}"),
	Entry("directories with and without a slash", "ACLTemplate", "{templateName: a, members: [], directories: [/, /a, b/c.d/, /.hidden/..x/]}"),
	Entry("a principal by id in capitals", "PrincipalTrust", `{flag: restrict, principal: {id: "00000000000001AB"}, systemId: 4294967295}`),
	Entry("a principal with nothing but its identity", "Principal", "serviceAccount: {name: a}"),
	Entry("a service account with a long name and a principal name", "Principal", "{serviceAccount: {namespace: a, name: "+strings.Repeat("a", 200)+"}, principalName: b}"),
	Entry("a principal that is disabled, in groups and delegated", "Principal", "{ldap: {name: a}, disabled: true, groups: [{principalRef: {name: b}}], roles: [{name: Encryptor}, {roleRef: {name: c}}], delegation: {delegates: [{principalRef: {name: d}}]}}"),
	Entry("a certificate request", "Principal", "certificate: {request: {configMapKeyRef: {name: a, key: b}}, validityDays: 30}"),
	Entry("the system id zero", "PrincipalTrust", "{flag: restrict, principal: {type: group, name: a}, systemId: 0}"),
	Entry("a key with nothing but its algorithm", "Key", "algorithm: AES-256"),
	Entry("a lineage to take over", "Key", "{algorithm: HMAC-SHA384, lineage: AAAAAQAAAAAAAAEB, members: [], rotation: {verifyOnlyDays: 1}}"),
	Entry("a compound duration", "TrustedCA", inlineCA(onePEM)+"resyncInterval: 1h30m"),
)

var _ = Describe("defaults", func() {
	It("are those that the reference documents", func(ctx context.Context) {
		u := object("TrustedCA", inlineCA(onePEM))
		Expect(cluster.Create(ctx, u)).To(Succeed())
		ca := &v1beta1.TrustedCA{}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(u), ca)).To(Succeed())
		Expect(ca.Spec.KeyServerRef.Name).To(Equal("default"))
		Expect(ca.Spec.ManagementPolicy).To(Equal(v1beta1.Manage))
		Expect(ca.Spec.AdoptionPolicy).To(Equal(v1beta1.AdoptIfIdentical))
		Expect(ca.Spec.DeletionPolicy).To(Equal(v1beta1.DeleteIfCreated))
		Expect(ca.Spec.ResyncInterval.Duration).To(Equal(10 * time.Minute))
		Expect(ca.Spec.Rotation.Overlap.Duration).To(Equal(24 * time.Hour))
	})

	It("count a new object as not observed yet, so that it does not look ready", func(ctx context.Context) {
		u := object("Role", "{roleName: a, operations: []}")
		Expect(cluster.Create(ctx, u)).To(Succeed())
		role := &v1beta1.Role{}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(u), role)).To(Succeed())
		Expect(role.Status.ObservedGeneration).To(BeEquivalentTo(-1))
	})

	It("grant nothing, not even to the namespace default", func(ctx context.Context) {
		u := object("KeyServer", credentials+"url: https://a")
		Expect(cluster.Create(ctx, u)).To(Succeed())
		ks := &v1beta1.KeyServer{}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(u), ks)).To(Succeed())
		Expect(ks.Spec.Grants).To(BeEmpty())
		Expect(ks.Spec.Credentials.Administrator.SecretRef.UsernameKey).To(Equal("username"))
		Expect(ks.Spec.Credentials.Administrator.SecretRef.PasswordKey).To(Equal("password"))
	})
})

var _ = Describe("field selectors", func() {
	It("find the objects of a KeyServer", func(ctx context.Context) {
		u := object("Role", "{roleName: a, keyServerRef: {name: selected}}")
		Expect(cluster.Create(ctx, u)).To(Succeed())
		for _, kind := range v1beta1.Kinds {
			if !kind.Managed() {
				continue
			}
			found := kind.NewList()
			Expect(cluster.List(ctx, found, client.MatchingFields{"spec.keyServerRef.name": "selected"})).To(Succeed(), kind.Name)
			if roles, is := found.(*v1beta1.RoleList); is {
				Expect(roles.Items).To(ConsistOf(HaveField("Name", u.GetName())))
			}
		}
	})
})

var _ = Describe("server-side apply", func() {
	It("lets two managers own different operations of one role", func(ctx context.Context) {
		name := object("Role", "{}").GetName()
		apply := func(owner, spec string) {
			u := object("Role", spec)
			u.SetName(name)
			Expect(cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner))).To(Succeed())
		}
		operations := func() []string {
			role := &v1beta1.Role{}
			Expect(cluster.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, role)).To(Succeed())
			return role.Spec.Operations
		}
		apply("one", "{roleName: shared, operations: [HMAC Data, Authorize Key]}")
		apply("two", "{operations: [List Roles]}")
		Expect(operations()).To(ConsistOf("HMAC Data", "Authorize Key", "List Roles"))
		apply("one", "{roleName: shared, operations: [HMAC Data]}")
		Expect(operations()).To(ConsistOf("HMAC Data", "List Roles"))
	})

	It("lets two managers own different members of one ACL template", func(ctx context.Context) {
		name := object("ACLTemplate", "{}").GetName()
		apply := func(owner, spec string) {
			u := object("ACLTemplate", spec)
			u.SetName(name)
			Expect(cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner))).To(Succeed())
		}
		members := func() []v1beta1.ACLTemplateMember {
			t := &v1beta1.ACLTemplate{}
			Expect(cluster.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, t)).To(Succeed())
			return t.Spec.Members
		}
		named := func(principal string, rights ...v1beta1.Right) any {
			return And(HaveField("Principal", principal), HaveField("Rights", ConsistOf(rights)))
		}
		apply("one", "{templateName: shared, members: [{principal: group/a, rights: [READ]}, {principal: group/b, rights: [READ]}], directories: [/a]}")
		apply("two", "{members: [{principal: group/c, rights: [WRITE]}, {principal: group/b, rights: [OWNER]}], directories: [/b]}")
		Expect(members()).To(ConsistOf(named("group/a", "READ"), named("group/b", "READ", "OWNER"), named("group/c", "WRITE")))
		apply("one", "{templateName: shared, members: [], directories: [/a]}")
		Expect(members()).To(ConsistOf(named("group/b", "OWNER"), named("group/c", "WRITE")))
	})

	It("gives a reference or a source of a field to one manager as a whole", func(ctx context.Context) {
		name := object("KeyServer", "{}").GetName()
		apply := func(owner, spec string, options ...client.ApplyOption) error {
			u := object("KeyServer", spec)
			u.SetName(name)
			return cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), append(options, client.FieldOwner(owner))...)
		}
		Expect(apply("one", credentials+"url: https://a\ncaBundle: {configMapKeyRef: {namespace: a, name: b, key: c}}")).To(Succeed())
		Expect(apply("two", "credentials: {administrator: {secretRef: {usernameKey: login}}}")).To(MatchError(ContainSubstring(`conflict with "one"`)))
		Expect(apply("two", "caBundle: {secretKeyRef: {namespace: d, name: e, key: f}}", client.ForceOwnership)).To(Succeed())
		ks := &v1beta1.KeyServer{}
		Expect(cluster.Get(ctx, client.ObjectKey{Name: name}, ks)).To(Succeed())
		Expect(ks.Spec.CABundle).To(Equal(&v1beta1.CABundle{SecretKeyRef: &v1beta1.NamespacedKeyReference{Namespace: "d", Name: "e", Key: "f"}}))
	})

	It("accepts an emptied list", func(ctx context.Context) {
		apply := func(u *unstructured.Unstructured, spec string) {
			GinkgoHelper()
			v := object(u.GetKind(), spec)
			v.SetName(u.GetName())
			Expect(cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(v), client.FieldOwner("one"))).To(Succeed())
		}
		r := object("Role", "{}")
		role := &v1beta1.Role{}
		t := object("ACLTemplate", "{}")
		template := &v1beta1.ACLTemplate{}
		for _, emptied := range []string{"", ", %s: []"} {
			apply(r, "{roleName: emptied, operations: [HMAC Data]}")
			Expect(cluster.Get(ctx, client.ObjectKeyFromObject(r), role)).To(Succeed())
			Expect(role.Spec.Operations).To(HaveLen(1))
			apply(r, "{roleName: emptied"+strings.ReplaceAll(emptied, "%s", "operations")+"}")
			Expect(cluster.Get(ctx, client.ObjectKeyFromObject(r), role)).To(Succeed())
			Expect(role.Spec.Operations).To(And(BeEmpty(), Not(BeNil())), "the default is stored")

			apply(t, "{templateName: emptied, members: [{principal: group/a, rights: [READ]}], directories: [/a]}")
			Expect(cluster.Get(ctx, client.ObjectKeyFromObject(t), template)).To(Succeed())
			Expect(template.Spec.Members).To(HaveLen(1))
			Expect(template.Spec.Directories).To(HaveLen(1))
			apply(t, "{templateName: emptied"+strings.ReplaceAll(emptied, "%s", "members")+", directories: []}")
			Expect(cluster.Get(ctx, client.ObjectKeyFromObject(t), template)).To(Succeed())
			Expect(template.Spec.Members).To(And(BeEmpty(), Not(BeNil())), "the default is stored")
			Expect(template.Spec.Directories).To(BeNil(), "as the reference says, it is omitted")
		}
	})

	It("accepts a status whose required texts are empty", func(ctx context.Context) {
		u := object("TrustedCA", inlineCA(onePEM))
		Expect(cluster.Create(ctx, u)).To(Succeed())
		ca := &v1beta1.TrustedCA{}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(u), ca)).To(Succeed())
		ca.Status.Drift = []v1beta1.FieldDrift{{}}
		ca.Status.Published = []v1beta1.PublishedReference{{}}
		ca.Status.Superseded = []v1beta1.SupersededCA{{RemoveAfter: ca.CreationTimestamp}}
		ca.Status.Revocation = &v1beta1.RevocationStatus{Evidence: v1beta1.NoEvidence}
		Expect(cluster.Status().Update(ctx, ca)).To(Succeed())
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(u), ca)).To(Succeed())
		Expect(ca.Status.Drift).To(HaveLen(1))
	})

	It("accepts the status of a newer key server", func(ctx context.Context) {
		u := object("TrustedCA", inlineCA(onePEM))
		Expect(cluster.Create(ctx, u)).To(Succeed())
		ca := &v1beta1.TrustedCA{}
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(u), ca)).To(Succeed())
		ca.Status.Revocation = &v1beta1.RevocationStatus{Issuer: "a", Mode: "unknown-mode", Evidence: v1beta1.NoEvidence}
		Expect(cluster.Status().Update(ctx, ca)).To(Succeed())
	})

	It("reports a conflict on a field that another manager owns", func(ctx context.Context) {
		u := object("Role", "{roleName: mine, operations: []}")
		Expect(cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("one"))).To(Succeed())
		v := object("Role", "{roleName: yours}")
		v.SetName(u.GetName())
		err := cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(v), client.FieldOwner("two"))
		Expect(err).To(MatchError(ContainSubstring("conflict with \"one\"")))
	})
})
