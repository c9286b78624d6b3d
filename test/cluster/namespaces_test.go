//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// ofEachKind has an object of each kind, and a second Role that stays on the key server. Its arguments are the
// certificate of a CA, and the trust blob of a peer with a certificate of this CA. Both are Go strings, which YAML reads
// as double-quoted scalars.
const ofEachKind = `
apiVersion: trust.keyserver.dev/v1beta1
kind: Role
metadata: {name: leaving}
spec: {roleName: Leaving, operations: [MAC Data]}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: Role
metadata: {name: kept}
spec: {roleName: Kept, operations: [MAC Data], deletionPolicy: Retain}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: Principal
metadata: {name: leaving}
spec: {serviceAccount: {name: leaving}, roles: [{roleRef: {name: leaving}}]}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: ACLTemplate
metadata: {name: leaving}
spec:
  templateName: Leaving
  members: [{principal: "xauth/system:serviceaccount:leaving:leaving", rights: [READ]}]
  directories: [/leaving/]
---
apiVersion: trust.keyserver.dev/v1beta1
kind: Key
metadata: {name: leaving}
spec:
  algorithm: HMAC-SHA384
  members: [{principal: "xauth/system:serviceaccount:leaving:leaving", rights: [READ]}]
  publish: {configMap: {name: leaving-key}}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedCA
metadata: {name: leaving}
spec: {certificate: {inline: %q}}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedServer
metadata: {name: leaving}
spec: {friendlyName: Leaving, trustBlob: {inline: %q}}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: PrincipalTrust
metadata: {name: leaving}
spec:
  principal: {type: xauth, name: "system:serviceaccount:leaving:leaving"}
  trustedServerRef: {name: leaving}
  flag: expose
`

// deleteNamespace deletes a namespace with an object of each kind while the manager runs. No finalizer blocks this, and
// deletionPolicy decides about the objects on the key server.
func deleteNamespace(t *testing.T, n *node) {
	peer := testserver.Start(t, func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = 3, "192.0.2.3", "127.0.0.1:0" // an address for documents (RFC 5737)
	})
	info, err := peer.Admin(t).GetLocalTrustInfo(t.Context())
	rig.Must(t, err)
	before := n.onKeyServer(t)
	n.kubectl(t, "create", "namespace", "leaving")
	n.grant(t, "leaving", `"duty:key use"`, `"*"`)
	n.apply(t, "leaving", fmt.Sprintf(ofEachKind, peer.CA(t), info.TrustBlob.String()))
	n.kubectl(t, "-n", "leaving", "wait", "--for=condition=Ready", "--timeout=2m", "trust", "--all")
	// One of each kind, and the role that is kept.
	if got := n.onKeyServer(t); len(got) != len(before)+8 {
		t.Errorf("the key server has %q, before the objects %q", got, before)
	}
	n.kubectl(t, "delete", "namespace", "leaving", "--timeout=2m")
	want := slices.Sorted(slices.Values(append(before, "role Kept", "key destroying")))
	if got := n.onKeyServer(t); !slices.Equal(got, want) {
		t.Errorf("the key server has %q, want %q", got, want)
	}
}

// onKeyServer returns the objects on the key server, sorted. A key has its state instead of an id.
func (n *node) onKeyServer(t *testing.T) (all []string) {
	t.Helper()
	admin := n.admin(t)
	roles, err := admin.ListRoles(t.Context())
	rig.Must(t, err)
	for _, r := range roles.Roles {
		all = append(all, "role "+r.Name)
	}
	principals, err := admin.ListPrincipals(t.Context(), schema.PrincipalQuery{Type: "xauth"})
	rig.Must(t, err)
	for _, p := range principals.Principals {
		all = append(all, "principal "+p.Name)
	}
	templates, err := admin.ListACLTemplates(t.Context(), schema.ACLTemplateQuery{})
	rig.Must(t, err)
	for _, a := range templates.Templates {
		all = append(all, "template "+a.Name)
	}
	cas, err := admin.ListTrustedCAs(t.Context(), schema.TrustedCAsQuery{})
	rig.Must(t, err)
	for _, c := range cas.TrustedCAs {
		all = append(all, "CA "+*c.Subject)
	}
	peers, err := admin.ListTrustedServers(t.Context(), schema.TrustedServersQuery{})
	rig.Must(t, err)
	for _, p := range peers.TrustedServers {
		all = append(all, fmt.Sprint("peer ", *p.SystemID))
	}
	trusts, err := admin.ListPrincipalTrusts(t.Context(), schema.PrincipalTrustsQuery{})
	rig.Must(t, err)
	for _, p := range trusts.PrincipalTrusts {
		all = append(all, fmt.Sprint("principal trust ", p.ID))
	}
	keys, err := admin.ListKeys(t.Context(), schema.KeyQuery{})
	rig.Must(t, err)
	for _, k := range keys.Keys {
		all = append(all, "key "+*k.State)
	}
	slices.Sort(all)
	return all
}

// deleteNamespaceWithoutGrant deletes a namespace after its grant. The deletion waits, and says why, until there is a
// grant or an annotation that keeps the object on the key server.
func deleteNamespaceWithoutGrant(t *testing.T, n *node) {
	before := n.onKeyServer(t)
	n.kubectl(t, "create", "namespace", "ungranted")
	n.grant(t, "ungranted", `"duty:key use"`, `"*"`)
	for _, name := range []string{"abandoned", "deleted"} {
		n.apply(t, "ungranted", fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: Role
metadata: {name: %[1]s}
spec: {roleName: %[1]s, operations: [MAC Data]}
`, name))
	}
	n.kubectl(t, "-n", "ungranted", "wait", "--for=condition=Ready", "--timeout=2m", "trust", "--all")
	n.apply(t, "default", "apiVersion: trust.keyserver.dev/v1beta1\nkind: KeyServer\nmetadata: {name: default}\n", "--field-manager", "grant-ungranted")
	n.kubectl(t, "delete", "namespace", "ungranted", "--wait=false")
	for _, name := range []string{"abandoned", "deleted"} {
		n.awaitField(t, "ungranted", "role.trust.keyserver.dev/"+name, reason, "AccessDenied")
	}
	rig.Soon(t, "the namespace says what it waits for", func() bool {
		out, err := n.try("", "kubectl", "get", "namespace", "ungranted", "-o", "jsonpath={.status.conditions[*].message}")
		return err == nil && strings.Contains(out, "trust.keyserver.dev/external in 2 resource instances")
	})
	n.kubectl(t, "-n", "ungranted", "annotate", "role.trust.keyserver.dev/abandoned", "trust.keyserver.dev/abandon=true")
	n.kubectl(t, "-n", "ungranted", "wait", "--for=delete", "role.trust.keyserver.dev/abandoned", "--timeout=2m")
	n.apply(t, "default", `
apiVersion: trust.keyserver.dev/v1beta1
kind: KeyServer
metadata: {name: default}
spec:
  grants:
    - {name: ungranted, namespaces: {names: [ungranted]}, kinds: [Role], names: ["*"]}
`, "--field-manager", "grant-ungranted")
	n.kubectl(t, "wait", "--for=delete", "namespace/ungranted", "--timeout=2m")
	if got, want := n.onKeyServer(t), slices.Sorted(slices.Values(append(before, "role abandoned"))); !slices.Equal(got, want) {
		t.Errorf("the key server has %q, want %q", got, want)
	}
}
