//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// partnerNamespace contains another key server, which another party operates as docs/resources.md shows.
const partnerNamespace = "partner"

const partner = `
apiVersion: v1
kind: Service
metadata: {name: keyserver}
spec:
  selector: {app: partner}
  ports:
    - {name: https, port: 443, targetPort: api}
    - {name: peers, port: 9443, targetPort: peers}
---
apiVersion: v1
kind: Pod
metadata: {name: partner, labels: {app: partner}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 5
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: api
      image: registry.example/keyserver-operator:v0.1.0
      args:
        - serve
        - --system-id=2
        - --listen=:8443
        - --external-listen=:9443
        - --external-url=https://keyserver.partner.svc
        - --server-name=keyserver.partner.svc.cluster.local
        - --data-dir=/data/keyserver
        - --bootstrap-password-file=/run/admin/password
      ports:
        - {name: api, containerPort: 8443}
        - {name: peers, containerPort: 9443}
      readinessProbe: {httpGet: {path: /api/ready, port: api, scheme: HTTPS}, periodSeconds: 1}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: admin, mountPath: /run/admin, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - {name: data, emptyDir: {sizeLimit: 64Mi}}
    - {name: admin, secret: {secretName: partner-admin, defaultMode: 0440}}
    - {name: tmp, emptyDir: {sizeLimit: 64Mi}}
`

const partnerDeclared = `
apiVersion: trust.keyserver.dev/v1beta1
kind: KeyServer
metadata: {name: partner}
spec:
  url: https://keyserver.partner.svc
  caBundle: {configMapKeyRef: {namespace: partner, name: partner-ca, key: ca.crt}}
  credentials: {administrator: {secretRef: {namespace: partner, name: partner-admin}}}
  grants:
    - {name: peers, namespaces: {names: [default]}, kinds: [PrincipalTrust, TrustedCA, TrustedServer], names: ["*"]}
`

// trusts declares one KeyServer as a peer of another one (docs/federation.md).
const trusts = `
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedCA
metadata: {name: %[2]s-at-%[1]s, namespace: default}
spec:
  keyServerRef: {name: %[1]s}
  certificate: {peerRef: {name: %[2]s}}
---
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedServer
metadata: {name: %[2]s-at-%[1]s, namespace: default}
spec:
  keyServerRef: {name: %[1]s}
  friendlyName: %[2]s
  trustBlob: {peerRef: {name: %[2]s}}
`

const exposed = `
apiVersion: trust.keyserver.dev/v1beta1
kind: PrincipalTrust
metadata: {name: signer-at-partner, namespace: default}
spec:
  keyServerRef: {name: default}
  principal: {type: xauth, name: "system:serviceaccount:payments:signer"}
  trustedServerRef: {name: partner-at-default}
  flag: expose
`

// peers checks that a workload can use a key of a peer in another namespace: from Pod to Pod, over
// mutual TLS, under the NetworkPolicies.
func peers(t *testing.T, n *node) {
	replace := strings.NewReplacer("curlimages/curl:8.17.0", "registry.example/workload:1")
	n.document(t, "workloads.md", replace, "Give the namespace a grant", "Declare role, principal and key", "Run the Pod")
	n.deleteNamespaceAtEnd(t, "payments")
	n.kubectl(t, "create", "namespace", partnerNamespace)
	n.kubectl(t, "-n", partnerNamespace, "create", "rolebinding", "keyserver-manager-secrets",
		"--clusterrole=keyserver-manager-secrets", "--serviceaccount="+namespace+":keyserver-manager")
	const password = "the first password of the partner"
	n.kubectl(t, "-n", partnerNamespace, "create", "secret", "generic", "partner-admin", "--type=kubernetes.io/basic-auth",
		"--from-literal=username=admin", "--from-literal=password="+password)
	n.apply(t, partnerNamespace, partner)
	n.kubectl(t, "-n", partnerNamespace, "wait", "--for=condition=Ready", "--timeout=2m", "pod/partner")
	uid := n.field(t, partnerNamespace, "pod/partner", "{.metadata.uid}")
	ca := n.mustOnNode(t, "", "cat "+filepath.Join("/var/lib/kubelet/pods", uid, "volumes/kubernetes.io~empty-dir/data/keyserver/ca.crt"))
	n.kubectl(t, "-n", partnerNamespace, "create", "configmap", "partner-ca", "--from-literal=ca.crt="+ca)
	n.enforces(t)
	n.apply(t, "default", partnerDeclared)
	n.awaitField(t, "default", "keyserver/partner", ready, "True")
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		n.undeclare(t, "default")
		n.kubectl(t, "delete", "keyserver", "partner", "--timeout=2m")
		n.kubectl(t, "delete", "namespace", partnerNamespace, "--timeout=2m")
	})

	at := n.client(t, partnerNamespace, ca, client.PasswordCredentials("admin", func(context.Context) (string, error) { return password, nil }))
	kept := false
	key, err := at.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384", Exportable: &kept})
	rig.Must(t, err)
	signer := n.client(t, namespace, n.field(t, namespace, "configmap/keyserver-ca", `{.data.ca\.crt}`), n.accountOf(t, "payments", "signer"))
	refused := func(code string) {
		t.Helper()
		rig.Succeeds(t, func() error {
			if _, err := signer.MAC(t.Context(), key.TTag, strings.NewReader("message")); !client.IsCode(err, code) {
				return fmt.Errorf("a key of the partner: %w; want %s", err, code)
			}
			return nil
		})
	}
	if _, err := signer.MAC(t.Context(), key.TTag, strings.NewReader("message")); err == nil {
		t.Error("a key of a key server that is no peer is used")
	}
	n.apply(t, "default", fmt.Sprintf(trusts, "default", "partner"))
	n.apply(t, "default", fmt.Sprintf(trusts, "partner", "default"))
	n.kubectl(t, "wait", "--for=condition=Ready", "--timeout=2m", "tserver/partner-at-default", "tserver/default-at-partner")
	refused("ACCESS_DENIED") // it is not exposed to the peer
	n.apply(t, "default", exposed)
	n.kubectl(t, "wait", "--for=condition=Ready", "--timeout=2m", "ptrust/signer-at-partner")
	refused("ACL_DENIED") // the peer knows it, but the ACL does not have it
	me, err := schema.ParseHexID(n.field(t, "payments", "principal.trust.keyserver.dev/signer", "{.status.principalId}"))
	rig.Must(t, err)
	found, err := n.admin(t).GetPrincipal(t.Context(), schema.ByID{ID: me})
	rig.Must(t, err)
	_, err = at.GrantACL(t.Context(), schema.ACLChangeRequest{TTag: key.TTag, SystemID: found.SystemID, PrincipalID: found.PrincipalID, Rights: schema.RightNamed("READ")})
	rig.Must(t, err)
	rig.Succeeds(t, func() error {
		out, err := signer.MAC(t.Context(), key.TTag, strings.NewReader("message"))
		if err == nil && out.TTag != key.TTag {
			err = fmt.Errorf("it was computed by %s", out.TTag)
		}
		return err
	})

	// A policy blocks the peer port. Requests for keys of the peer fail, and local requests work.
	n.apply(t, partnerNamespace, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: api-alone}
spec:
  podSelector: {}
  ingress: [{ports: [{port: api}]}]
`)
	partnerIP := n.field(t, partnerNamespace, "pod/partner", "{.status.podIP}")
	rig.Soon(t, "the port for peers is closed", func() bool {
		open, err := n.open(way{"payments", "signer", net.JoinHostPort(partnerIP, "9443")})
		return err == nil && !open
	})
	rig.Succeeds(t, func() error { // an open connection stays usable until one side closes it
		if _, err := signer.MAC(t.Context(), key.TTag, strings.NewReader("message")); err == nil {
			n.killContainer(t, partnerNamespace, "partner", "api")
			return fmt.Errorf("a key of the partner is used")
		}
		return nil
	})
	own := schema.HiddenLink("")
	rig.Must(t, own.UnmarshalText([]byte(n.field(t, "payments", "configmap/receipts-key", "{.data.lineage}"))))
	_, err = signer.MAC(t.Context(), own, strings.NewReader("message"))
	rig.Must(t, err)
	n.kubectl(t, "-n", partnerNamespace, "delete", "networkpolicy", "api-alone")
	rig.Succeeds(t, func() error {
		_, err := signer.MAC(t.Context(), key.TTag, strings.NewReader("message"))
		return err
	})
}
