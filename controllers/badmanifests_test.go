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
	{"a URL without a scheme", "KeyServer", `{url: "keyserver:8443", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}}`, "", []string{"spec.url", "must be an https URL"}},
	{"a port that there cannot be", "KeyServer", `{url: "https://127.0.0.1:99999", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}}`, "", []string{"spec.url", "a port from 1 to 65535"}},
	{"an external URL with a query", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, externalURL: "https://127.0.0.1:1/?a=b"}`, "", []string{"spec.externalURL", "must not hold a user, a query or a fragment"}},
	{"two identities of the manager", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: a, name: b}, serviceAccount: {audience: c}}}}`, "", []string{"spec.credentials.administrator", "exactly one of secretRef and serviceAccount"}},
	{"a security officer by a service account", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}, securityOfficer: {serviceAccount: {audience: a}}}}`, "", []string{`unknown field "spec.credentials.securityOfficer.serviceAccount"`}},
	{"credentials in a Secret of no namespace", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {name: nobody}}}}`, "", []string{"spec.credentials.administrator.secretRef.namespace", "Required"}},
	{"a Secret by namespace and name", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: default/nobody}}}}`, "", []string{"spec.credentials.administrator.secretRef.name", "must be the name of a Secret"}},
	{"a namespace in capitals", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: Default, name: nobody}}}}`, "", []string{"spec.credentials.administrator.secretRef.namespace", "must be the name of a namespace"}},
	{"the password as the name of the principal", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody, usernameKey: password}}}}`, "", []string{"spec.credentials.administrator.secretRef", "usernameKey and passwordKey must differ"}},
	{"a key with a space in it", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, caBundle: {configMapKeyRef: {namespace: default, name: bad-manifests, key: ca crt}}}`, "", []string{"spec.caBundle.configMapKeyRef.key", "must be a key of a Secret or ConfigMap"}},
	{"a CA bundle from two places", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, caBundle: {inline: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", configMapKeyRef: {namespace: default, name: bad-manifests, key: ca.crt}}}`, "", []string{"spec.caBundle", "exactly one of inline, secretKeyRef and configMapKeyRef"}},
	{"a CA bundle that is no PEM", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, caBundle: {configMapKeyRef: {namespace: default, name: bad-manifests, key: text}}}`, v1beta1.ReasonInvalidSpec, []string{`key "text" of ConfigMap default/bad-manifests`, "no PEM certificate"}},
	{"a CA bundle that does not parse", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, caBundle: {inline: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}`, v1beta1.ReasonInvalidSpec, []string{"spec.caBundle.inline", "line 1"}},
	{"a former cluster by its name", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, ownership: {succeeds: [old-cluster]}}`, "", []string{"spec.ownership.succeeds[0]", "UID of the namespace kube-system"}},
	{"a grant of a kind in lower case", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, grants: [{name: g, namespaces: {names: [a]}, kinds: [role], names: [b]}]}`, "", []string{"spec.grants[0].kinds[0]", `"Role"`}},
	{"a grant to no namespace", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, grants: [{name: g, namespaces: {}, kinds: [Role], names: [b]}]}`, "", []string{"spec.grants[0].namespaces", "give names, selector, or both"}},
	{"two grants of one name", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, grants: [{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b]}, {name: g, namespaces: {names: [a]}, kinds: [Role], names: [b]}]}`, "", []string{"spec.grants[1]", "Duplicate"}},
	{"a grant of no names", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, grants: [{name: g, namespaces: {names: [a]}, kinds: [Role], names: []}]}`, "", []string{"spec.grants[0].names"}},
	{"a grant of a duty in capitals", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, grants: [{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b], operations: ["Duty:key use"]}]}`, "", []string{"spec.grants[0].operations[0]", "duty:key use"}},
	{"a grant of operations by a wildcard", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, grants: [{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b], operations: ["HMAC *"]}]}`, "", []string{"spec.grants[0].operations[0]", "without '*'"}},
	{"a grant of an operation with a space at its end", "KeyServer", `{url: "https://127.0.0.1:1", credentials: {administrator: {secretRef: {namespace: default, name: nobody}}}, grants: [{name: g, namespaces: {names: [a]}, kinds: [Role], names: [b], operations: ["HMAC Data "]}]}`, "", []string{"spec.grants[0].operations[0]", "must not begin or end with a space"}},

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
	{"an interval without a unit", "Role", `{roleName: a, operations: [], resyncInterval: 600}`, "", []string{"spec.resyncInterval", "string"}},
	{"an interval that is too short", "Role", `{roleName: a, operations: [], resyncInterval: 0s}`, "", []string{"spec.resyncInterval", "duration from 5s to 24h"}},
	{"a KeyServer that is a text", "Role", `{roleName: a, operations: [], keyServerRef: default}`, "", []string{"spec.keyServerRef", "object"}},
	{"a KeyServer in capitals", "Role", `{roleName: a, operations: [], keyServerRef: {name: Default}}`, "", []string{"spec.keyServerRef.name", "lower-case letters"}},
	{"a deletion policy of another project", "Role", `{roleName: a, operations: [], deletionPolicy: Orphan}`, "", []string{"spec.deletionPolicy", `"Retain"`}},
	{"an id of zeros", "Role", `{roleId: "0000000000000000", operations: []}`, "", []string{"spec.roleId", "not all zero"}},
	{"an empty operation", "Role", `{roleName: a, operations: [""]}`, "", []string{"spec.operations[0]", "at least 1"}},
	{"a duty in a role", "Role", `{roleName: a, operations: ["duty:key use"]}`, "", []string{"spec.operations[0]", "only grants of a KeyServer can name a duty"}},

	// Only the key server can find these mistakes. The manager reports them and does not write.
	{"an operation that there is not", "Role", `{roleName: Bad 1, operations: [HMAC Date]}`, v1beta1.ReasonInvalidSpec,
		[]string{"spec.operations", `"HMAC Date"`, `did you mean "HMAC Data"?`}},
	{"an operation in lower case", "Role", `{roleName: Bad 2, operations: [hmac data]}`, v1beta1.ReasonInvalidSpec, []string{"spec.operations", `"hmac data"`}},
	{"a role that is built in", "Role", `{roleName: Administrator, operations: [], adoptionPolicy: Always}`, v1beta1.ReasonConflict,
		[]string{`"Administrator"`, "built in", "managementPolicy"}},
	{"a role by an id that nobody has", "Role", `{roleId: 00000000000000aa, operations: []}`, v1beta1.ReasonInvalidSpec, []string{"00000000000000aa", "spec.roleId"}},
	{"an operation by its name in the audit log", "Role", `{roleName: Bad 6, operations: [hmacData]}`, v1beta1.ReasonInvalidSpec, []string{"spec.operations", `did you mean "HMAC Data"?`}},
	{"an operation by an id that nobody has", "Role", `{roleName: Bad 7, operations: [00000000000000aa]}`, v1beta1.ReasonInvalidSpec, []string{"spec.operations", `"00000000000000aa"`, "GET /api/operations"}},
	{"two operations that there are not", "Role", `{roleName: Bad 8, operations: [HMAC Date, List Rolls]}`, v1beta1.ReasonInvalidSpec, []string{"spec.operations", `did you mean "HMAC Data", "List Roles"?`}},
	{"an operation of a newer key server", "Role", `{roleName: Bad 9, operations: [Attest Quantum State]}`, v1beta1.ReasonInvalidSpec, []string{"spec.operations", `"Attest Quantum State"`, "GET /api/operations lists them"}},

	{"a CA from nowhere", "TrustedCA", `{certificate: {}}`, "", []string{"spec.certificate", "exactly one of"}},
	{"a CA from two places", "TrustedCA", `{certificate: {inline: a, secretKeyRef: {name: a, key: b}}}`, "", []string{"spec.certificate"}},
	{"a CA that is a private key", "TrustedCA", `{certificate: {inline: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}}`, "", []string{"spec.certificate.inline"}},
	{"a CA that is no PEM", "TrustedCA", `{certificate: {inline: "MIIB"}}`, "", []string{"spec.certificate.inline"}},
	{"a CA that does not parse", "TrustedCA", `{certificate: {inline: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}`, v1beta1.ReasonInvalidSpec, []string{"spec.certificate"}},
	{"a CA from a ConfigMap that is not there", "TrustedCA", `{certificate: {configMapKeyRef: {name: nowhere, key: ca.crt}}}`, v1beta1.ReasonDependencyNotReady, []string{"ConfigMap default/nowhere", "does not exist"}},
	{"a CA from a key that is not there", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: tls.crt}}}`, v1beta1.ReasonDependencyNotReady, []string{`ConfigMap default/bad-manifests has no key "tls.crt"`}},
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
	{"a peer of itself", "TrustedServer", `{keyServerRef: {name: a}, friendlyName: a, trustBlob: {peerRef: {name: a}}}`, "", []string{"trustBlob.peerRef", "a key server is not its own peer"}},
	{"a peer without a name", "TrustedServer", `{trustBlob: {peerRef: {name: a}}}`, "", []string{"spec.friendlyName", "Required"}},
	{"a description of two lines", "TrustedServer", `{friendlyName: a, description: "a\nb", trustBlob: {peerRef: {name: a}}}`, "", []string{"spec.description", "control characters"}},
	{"a switch that is a text", "TrustedServer", `{friendlyName: a, witness: "true", trustBlob: {peerRef: {name: a}}}`, "", []string{"spec.witness", "boolean"}},
	{"a blob with spaces for tabs", "TrustedServer", `{friendlyName: a, trustBlob: {inline: 7 peer.example 9443 AAAA}}`, "", []string{"spec.trustBlob.inline", "four fields separated by tabs"}},
	{"a system id of more than 32 bits", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "4294967296\tpeer.example\t9443\tAAAA"}}`, "", []string{"spec.trustBlob.inline", "from 0 to 4294967295"}},
	{"a peer by its URL", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "7\thttps://peer.example\t9443\tAAAA"}}`, "", []string{"spec.trustBlob.inline", "host name or an IP address"}},
	{"a peer with two ports", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "7\tpeer.example:9443\t9443\tAAAA"}}`, v1beta1.ReasonInvalidSpec, []string{"spec.trustBlob.inline", "host name or an IP address"}},
	{"a port of more than 16 bits", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "7\tpeer.example\t65536\tAAAA"}}`, "", []string{"spec.trustBlob.inline", "port from 1 to 65535"}},
	{"a blob with a line break", "TrustedServer", `{friendlyName: a, trustBlob: {inline: "7\tpeer.example\t9443\tAA\nAA"}}`, "", []string{"spec.trustBlob.inline", "base64 without line breaks"}},
	{"a blob from what is none", "TrustedServer", `{friendlyName: a, trustBlob: {configMapKeyRef: {name: bad-manifests, key: text}}}`, v1beta1.ReasonInvalidSpec, []string{`key "text" of ConfigMap default/bad-manifests`, "four fields separated by tabs"}},

	{"a principal of no type", "PrincipalTrust", `{principal: {name: a}, systemId: 7, flag: expose}`, "", []string{"spec.principal"}},
	{"a trust of no peer", "PrincipalTrust", `{principal: {type: password, name: admin}, flag: expose}`, "", []string{"spec"}},
	{"a trust of a peer that is not there", "PrincipalTrust", `{principal: {type: password, name: admin}, flag: expose, trustedServerRef: {name: nowhere}}`, v1beta1.ReasonDependencyNotReady, []string{"TrustedServer", "nowhere"}},
	{"a flag in capitals", "PrincipalTrust", `{principal: {type: password, name: admin}, systemId: 7, flag: Expose}`, "", []string{"spec.flag", `"expose"`}},
	{"a type in capitals", "PrincipalTrust", `{principal: {type: Password, name: admin}, systemId: 7, flag: expose}`, "", []string{"spec.principal.type", `"password"`}},
	{"a principal by id and name", "PrincipalTrust", `{principal: {id: 00000000000000ab, type: password, name: admin}, systemId: 7, flag: expose}`, "", []string{"spec.principal", "exactly one of id"}},
	{"a principal by a decimal id", "PrincipalTrust", `{principal: {id: "171"}, systemId: 7, flag: expose}`, "", []string{"spec.principal.id", "16 hexadecimal digits"}},
	{"a trust of two peers", "PrincipalTrust", `{principal: {type: password, name: admin}, systemId: 7, trustedServerRef: {name: a}, flag: expose}`, "", []string{"spec", "exactly one of trustedServerRef and systemId"}},
	{"a trust of a system id below zero", "PrincipalTrust", `{principal: {type: password, name: admin}, systemId: -1, flag: expose}`, "", []string{"spec.systemId", "0"}},
	{"a trust of a principal that is not there", "PrincipalTrust", `{principal: {type: password, name: "admin "}, systemId: 7, flag: expose}`, v1beta1.ReasonDependencyNotReady, []string{"spec.principal: ", `"admin "`, "correct the name"}},
	{"a trust of an unknown system id", "PrincipalTrust", `{principal: {type: password, name: admin}, systemId: 7, flag: expose}`, v1beta1.ReasonDependencyNotReady, []string{"system id 7", "declare it as a TrustedServer"}},

	{"a principal of two kinds", "Principal", `{ldap: {name: a}, group: {}, principalName: a}`, "", []string{"spec", "exactly one of serviceAccount, ldap, group and certificate"}},
	{"a group without a name", "Principal", `{group: {}}`, "", []string{"spec.principalName", "give principalName"}},
	{"a group in a group", "Principal", `{group: {}, principalName: a, groups: [{principalRef: {name: b}}]}`, "", []string{"spec.groups", "a group cannot be a member of a group"}},
	{"a service account by its subject", "Principal", `{serviceAccount: {name: "system:serviceaccount:a:b"}}`, "", []string{"spec.serviceAccount.name", "lower-case letters"}},
	{"a role by a name and a reference", "Principal", `{ldap: {name: a}, roles: [{name: a, roleRef: {name: b}}]}`, "", []string{"spec.roles[0]", "exactly one of name and roleRef"}},
	{"delegation to nobody", "Principal", `{ldap: {name: a}, delegation: {}}`, "", []string{"spec.delegation", "anybody: true"}},
	{"a role that there is not", "Principal", `{ldap: {name: bad-1}, roles: [{name: Nobody's}]}`, v1beta1.ReasonDependencyNotReady, []string{"spec.roles", `"Nobody's"`}},
	{"a Role that there is not", "Principal", `{ldap: {name: bad-2}, roles: [{roleRef: {name: nowhere}}]}`, v1beta1.ReasonDependencyNotReady, []string{"Role default/nowhere", "does not exist"}},
	{"a group that there is not", "Principal", `{ldap: {name: bad-3}, groups: [{principalRef: {name: nowhere}}]}`, v1beta1.ReasonDependencyNotReady, []string{"Principal default/nowhere", "does not exist"}},
	{"a certificate that is no certificate", "Principal", `{certificate: {certificate: {configMapKeyRef: {name: bad-manifests, key: text}}}}`, v1beta1.ReasonInvalidSpec, []string{"ConfigMap default/bad-manifests"}},

	{"a certificate request of nobody", "Principal", `{certificate: {request: {configMapKeyRef: {name: bad-manifests, key: nobody.csr}}}}`, v1beta1.ReasonInvalidSpec, []string{"ConfigMap default/bad-manifests", "empty subject"}},
	{"a group that YAML reads as nothing", "Principal", `{group: , principalName: a}`, "", []string{"spec", "exactly one of serviceAccount, ldap, group and certificate"}},
	{"a group that is disabled", "Principal", `{group: {}, principalName: a, disabled: true}`, "", []string{"spec.disabled", "a group cannot be disabled"}},
	{"a group that others act for", "Principal", `{group: {}, principalName: a, delegation: {anybody: true}}`, "", []string{"spec.delegation", "leave delegation out"}},
	{"a user by two names", "Principal", `{ldap: {name: a}, principalName: b}`, "", []string{"spec.principalName", "the name comes from ldap.name"}},
	{"a service account whose name is too long", "Principal", `{serviceAccount: {namespace: a, name: ` + strings.Repeat("a", 105) + `}}`, "", []string{"spec.principalName", "longer than 128 characters"}},
	{"an issuer with a space", "Principal", `{serviceAccount: {name: a, issuer: "https://a.example "}}`, "", []string{"spec.serviceAccount.issuer", "printable ASCII without spaces"}},
	{"an audience twice", "Principal", `{serviceAccount: {name: a, audiences: [b, b]}}`, "", []string{"spec.serviceAccount.audiences[1]", "Duplicate"}},
	{"delegation to anybody and to a list", "Principal", `{ldap: {name: a}, delegation: {anybody: true, delegates: [{principalRef: {name: b}}]}}`, "", []string{"spec.delegation", "give delegates, or anybody: true"}},
	{"delegation to who is not there", "Principal", `{ldap: {name: bad-4}, delegation: {delegates: [{principalRef: {name: nowhere}}]}}`, v1beta1.ReasonDependencyNotReady, []string{"Principal default/nowhere", "does not exist"}},
	{"a group by its bare name", "Principal", `{ldap: {name: a}, groups: [{name: b}]}`, "", []string{`unknown field "spec.groups[0].name"`}},
	{"a role with a space at its end", "Principal", `{ldap: {name: a}, roles: [{name: "Encryptor "}]}`, "", []string{"spec.roles[0].name", "must not begin or end with a space"}},
	{"a built-in role in lower case", "Principal", `{ldap: {name: bad-5}, roles: [{name: administrator}]}`, v1beta1.ReasonDependencyNotReady, []string{"spec.roles", `"administrator"`, `did you mean "Administrator"?`}},
	{"a certificate and a request", "Principal", `{certificate: {request: {configMapKeyRef: {name: a, key: b}}, certificate: {configMapKeyRef: {name: a, key: b}}}}`, "", []string{"spec.certificate", "exactly one of request and certificate"}},
	{"the validity of a certificate that exists", "Principal", `{certificate: {certificate: {configMapKeyRef: {name: a, key: b}}, validityDays: 30}}`, "", []string{"spec.certificate.validityDays", "needs request"}},
	{"a validity of a century", "Principal", `{certificate: {request: {configMapKeyRef: {name: a, key: b}}, validityDays: 36500}}`, "", []string{"spec.certificate.validityDays", "3650"}},
	{"a request from a Secret", "Principal", `{certificate: {request: {secretKeyRef: {name: a, key: b}}}}`, "", []string{`unknown field "spec.certificate.request.secretKeyRef"`}},
	{"a request with an old header", "Principal", `{certificate: {request: {inline: "-----BEGIN NEW CERTIFICATE REQUEST-----\nAAAA\n-----END NEW CERTIFICATE REQUEST-----\n"}}}`, "", []string{"spec.certificate.request.inline", "type CERTIFICATE REQUEST"}},
	{"a request that is a certificate", "Principal", `{certificate: {request: {configMapKeyRef: {name: bad-manifests, key: leaf.crt}}}}`, v1beta1.ReasonInvalidSpec, []string{`key "leaf.crt" of ConfigMap default/bad-manifests`, "not CERTIFICATE REQUEST"}},
	{"a certificate that is a CA", "Principal", `{certificate: {certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}}}`, v1beta1.ReasonInvalidSpec, []string{"ConfigMap default/bad-manifests", "declare a client certificate"}},
	{"a certificate for a server", "Principal", `{certificate: {certificate: {configMapKeyRef: {name: bad-manifests, key: leaf.crt}}}}`, v1beta1.ReasonInvalidSpec, []string{"lacks clientAuth"}},

	{"a key of no algorithm", "Key", `{}`, "", []string{"spec.algorithm", "Required"}},
	{"a key of another algorithm", "Key", `{algorithm: RSA}`, "", []string{"spec.algorithm", `"HMAC-SHA384", "AES-256"`}},
	{"a key under two dots", "Key", `{algorithm: AES-256, path: /a/../b}`, "", []string{"spec.path"}},
	{"a key that is destroyed at once", "Key", `{algorithm: AES-256, destroyAfterDays: 0}`, "", []string{"spec.destroyAfterDays", "1"}},
	{"a member who is not there, of a key", "Key", `{algorithm: AES-256, members: [{principal: password/nobody, rights: [READ]}]}`, v1beta1.ReasonDependencyNotReady, []string{"password", `"nobody"`}},
	{"a manager that gives its key away", "Key", `{algorithm: AES-256, members: [{principal: password/admin, rights: [READ]}]}`, v1beta1.ReasonInvalidSpec, []string{"spec.members", `"password/admin"`, "OWNER"}},
	{"a line that there is not", "Key", `{algorithm: AES-256, lineage: AAAAAQAAAAAAAAPp}`, v1beta1.ReasonInvalidSpec, []string{"AAAAAQAAAAAAAAPp", "spec.lineage"}},
	{"a key in two places", "Key", `{algorithm: AES-256, path: /a/b, lineage: AAAAAQAAAAAAAAPp}`, "", []string{"give path or lineage, not both"}},
	{"a key below no directory", "Key", `{algorithm: AES-256, path: bad/nowhere}`, v1beta1.ReasonDependencyNotReady, []string{"spec.path", `"bad/nowhere"`, "declare a directory in an ACLTemplate"}},
	{"a line in hexadecimal", "Key", `{algorithm: AES-256, lineage: "000000010000000000000101"}`, "", []string{"spec.lineage", "16 characters of base64"}},
	{"a rotation of nothing", "Key", `{algorithm: AES-256, rotation: {}}`, "", []string{"spec.rotation", "leave rotation out"}},
	{"a rotation with a unit", "Key", `{algorithm: AES-256, rotation: {everyDays: 90d}}`, "", []string{"spec.rotation.everyDays", "integer"}},
	{"a rotation after a century", "Key", `{algorithm: AES-256, rotation: {everyDays: 36500}}`, "", []string{"spec.rotation.everyDays", "3650"}},
	{"old keys that verify forever and are destroyed", "Key", `{algorithm: AES-256, rotation: {everyDays: 30, destroyAfterDays: 30}}`, "", []string{"spec.rotation.destroyAfterDays", "destroyAfterDays needs verifyOnlyDays"}},
	{"a key that is published as a Secret", "Key", `{algorithm: AES-256, publish: {secret: {name: a}}}`, "", []string{`unknown field "spec.publish.secret"`}},
	{"a manager that may use its key five times", "Key", `{algorithm: AES-256, members: [{principal: password/admin, rights: [OWNER], maxUsage: 5}]}`, v1beta1.ReasonInvalidSpec, []string{"spec.members", "without maxUsage"}},
	{"a member of a system of more than 32 bits", "Key", `{algorithm: AES-256, members: [{principal: id/4294967296/1, rights: [READ]}]}`, "", []string{"spec.members[0].principal", "at most 4294967295"}},
	{"a member by an id of more than 64 bits", "Key", `{algorithm: AES-256, members: [{principal: id/1/99999999999999999999, rights: [READ]}]}`, v1beta1.ReasonInvalidSpec, []string{"spec.members", "id/1/99999999999999999999", "too large"}},
	{"a number of uses below zero", "Key", `{algorithm: AES-256, members: [{principal: password/b, rights: [READ], maxUsage: -1}]}`, "", []string{"spec.members[0].maxUsage", "0"}},

	{"a policy of revocation that YAML reads as false", "TrustedCA", `{certificate: {configMapKeyRef: {name: a, key: b}}, revocation: {mode: off}}`, "", []string{"spec.revocation.mode"}},
	{"two CAs in one object", "TrustedCA", `{certificate: {inline: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}`, "", []string{"spec.certificate.inline", "declare each CA in a separate object"}},
	{"two CAs in one key of a ConfigMap", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: two.crt}}}`, v1beta1.ReasonInvalidSpec, []string{"ConfigMap default/bad-manifests", "declare each CA in a separate object"}},
	{"a CA from a ConfigMap without a key", "TrustedCA", `{certificate: {configMapKeyRef: {name: a}}}`, "", []string{"spec.certificate.configMapKeyRef.key", "Required"}},
	{"a CA from a Secret by namespace and name", "TrustedCA", `{certificate: {secretKeyRef: {name: default/a, key: b}}}`, "", []string{"spec.certificate.secretKeyRef.name", "must be the name of a Secret or ConfigMap"}},
	{"a CA from a Secret of another namespace", "TrustedCA", `{certificate: {secretKeyRef: {namespace: a, name: b, key: c}}}`, "", []string{`unknown field "spec.certificate.secretKeyRef.namespace"`}},
	{"a CA of a peer that is not there", "TrustedCA", `{certificate: {peerRef: {name: nowhere}}}`, v1beta1.ReasonDependencyNotReady, []string{"peerRef", `KeyServer "nowhere" does not exist`}},
	{"an overlap of eternity", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, rotation: {overlap: 999999999h}}`, "", []string{"spec.rotation.overlap", `"999999999h": must be a duration from 0s to 8760h`}},
	{"an overlap of more than a year", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, rotation: {overlap: 8761h}}`, "", []string{"spec.rotation.overlap", "duration from 0s to 8760h"}},
	{"a warning in days", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, warnBefore: 30d}`, "", []string{"spec.warnBefore", "such as 720h"}},
	{"a policy of revocation in capitals", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, revocation: {mode: Required}}`, "", []string{"spec.revocation.mode", `"required"`}},
	{"an age in milliseconds", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, revocation: {mode: required, maxAge: 1500ms}}`, "", []string{"spec.revocation.maxAge", "whole seconds"}},
	{"a revocation list from a ConfigMap that is not there", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, revocation: {mode: required, crl: {configMapKeyRef: {name: nowhere, key: a}}}}`, v1beta1.ReasonDependencyNotReady, []string{"ConfigMap default/nowhere", "does not exist"}},
	{"a revocation list that is a certificate", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, revocation: {mode: required, crl: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}}}`, v1beta1.ReasonInvalidSpec, []string{"spec.revocation.crl", "X509 CRL"}},
	{"a publication to nowhere", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, publish: {}}`, "", []string{"spec.publish", "exactly one of clusterTrustBundle and configMap"}},
	{"a publication over its own certificate", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, publish: {configMap: {name: bad-manifests}}}`, "", []string{"spec.publish.configMap.name", "publish.configMap must not name the ConfigMap that certificate"}},
	{"a publication over its own revocation list", "TrustedCA", `{certificate: {peerRef: {name: a}}, revocation: {mode: required, crl: {configMapKeyRef: {name: crl, key: a}}}, publish: {configMap: {name: crl}}}`, "", []string{"spec.publish.configMap.name", "publish.configMap must not name the ConfigMap that certificate or revocation.crl is read from"}},
	{"a publication under a path", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, publish: {configMap: {name: a, key: etc/ca.crt}}}`, "", []string{"spec.publish.configMap.key", "must be letters, digits"}},
	{"a publication in the bundle of a signer", "TrustedCA", `{certificate: {configMapKeyRef: {name: bad-manifests, key: ca.crt}}, publish: {clusterTrustBundle: {name: "example.com:a:b"}}}`, "", []string{"spec.publish.clusterTrustBundle.name", "bundles of a signer"}},

	{"a template without a name", "ACLTemplate", `{members: []}`, "", []string{"spec.templateName", "Required"}},
	{"a member without rights", "ACLTemplate", `{templateName: a, members: [{principal: password/admin, rights: []}]}`, "", []string{"spec.members[0].rights"}},
	{"a right that there is not", "ACLTemplate", `{templateName: a, members: [{principal: password/admin, rights: [USE]}]}`, "", []string{"spec.members[0].rights[0]", `"READ"`}},
	{"a member by its bare name", "ACLTemplate", `{templateName: a, members: [{principal: admin, rights: [READ]}]}`, "", []string{"spec.members[0].principal", "TYPE/NAME"}},
	{"a member of a type that there is not", "ACLTemplate", `{templateName: a, members: [{principal: user/admin, rights: [READ]}]}`, "", []string{"spec.members[0].principal", "TYPE/NAME"}},
	{"a member twice", "ACLTemplate", `{templateName: a, members: [{principal: password/admin, rights: [READ]}, {principal: password/admin, rights: [WRITE]}]}`, "", []string{"spec.members[1]", "Duplicate"}},
	{"a time that ends before it begins", "ACLTemplate", `{templateName: a, members: [{principal: password/b, rights: [READ], startTime: "2030-01-01T00:00:00Z", endTime: "2029-01-01T00:00:00Z"}]}`, "",
		[]string{"spec.members[0].endTime", "endTime must be after startTime"}},
	{"a time that is none", "ACLTemplate", `{templateName: a, members: [{principal: password/b, rights: [READ], endTime: tomorrow}]}`, "", []string{"spec.members[0].endTime"}},
	{"a directory with two dots", "ACLTemplate", `{templateName: a, directories: [/a/../b]}`, "", []string{"spec.directories[0]", "plain path"}},
	{"a right twice", "ACLTemplate", `{templateName: a, members: [{principal: password/b, rights: [READ, READ]}]}`, "", []string{"spec.members[0].rights[1]", "Duplicate"}},
	{"a time before time", "ACLTemplate", `{templateName: a, members: [{principal: password/b, rights: [READ], startTime: "0001-01-01T00:00:00Z"}]}`, "", []string{"spec.members[0].startTime", "must be after 1970-01-01"}},
	{"a directory twice", "ACLTemplate", `{templateName: a, directories: [/a, /a]}`, "", []string{"spec.directories[1]", "Duplicate"}},
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
			Data:       map[string]string{"text": "hello", "ca.crt": newCA().pem, "two.crt": newCA().pem + newCA().pem, "leaf.crt": newLeaf(), "nobody.csr": request("")},
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

	It("are reported if only the key server knows the operations", func(ctx context.Context) {
		role := newStage(ctx).role("Bad Operation", []string{"HMAC Date"})
		Expect(kube.Create(ctx, role)).To(Succeed())
		Eventually(readiness(ctx, role)).Should(beUnready(v1beta1.ReasonInvalidSpec, `did you mean "HMAC Data"?`))
		remove(ctx, role)
	})
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
