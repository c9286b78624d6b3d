// Package kustomize builds a kustomization with the component config/kustomize by kubectl.
package kustomize

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

const component = "../../config/kustomize"

// want has the names in each spec of testdata after the build, and the namespaces that belong to them. HASH replaces
// the hash of a generated object.
const want = `
ACLTemplate team-receipts spec/keyServerRef/name team-main
Key team-receipts spec/keyServerRef/name team-main
Key team-receipts spec/publish/configMap/name receipts-key
KeyServer team-main spec/caBundle/configMapKeyRef/name team-certificates-HASH
KeyServer team-main spec/caBundle/configMapKeyRef/namespace shop
KeyServer team-main spec/credentials/administrator/secretRef/name team-credentials-HASH
KeyServer team-main spec/credentials/administrator/secretRef/namespace shop
KeyServer team-main spec/credentials/securityOfficer/secretRef/name credentials
KeyServer team-main spec/credentials/securityOfficer/secretRef/namespace elsewhere
KeyServer team-peer spec/caBundle/secretKeyRef/name team-credentials-HASH
KeyServer team-peer spec/caBundle/secretKeyRef/namespace shop
KeyServer team-peer spec/credentials/securityOfficer/secretRef/name team-credentials-HASH
KeyServer team-peer spec/credentials/securityOfficer/secretRef/namespace shop
Pod team-signer spec/containers/name signer
Pod team-signer spec/volumes/configMap/name receipts-key
Pod team-signer spec/volumes/name key
Principal team-by-config-map spec/certificate/certificate/configMapKeyRef/name team-certificates-HASH
Principal team-by-config-map spec/keyServerRef/name team-main
Principal team-by-request spec/certificate/request/configMapKeyRef/name team-certificates-HASH
Principal team-by-request spec/keyServerRef/name team-main
Principal team-by-secret spec/certificate/certificate/secretKeyRef/name team-credentials-HASH
Principal team-by-secret spec/keyServerRef/name team-main
Principal team-signer spec/delegation/delegates/principalRef/name team-by-request
Principal team-signer spec/groups/principalRef/name team-signers
Principal team-signer spec/keyServerRef/name team-main
Principal team-signer spec/roles/name signer
Principal team-signer spec/roles/roleRef/name elsewhere
Principal team-signer spec/roles/roleRef/name team-signer
Principal team-signer spec/serviceAccount/name team-signer
Principal team-signers spec/keyServerRef/name team-main
PrincipalTrust team-exposed spec/keyServerRef/name team-main
PrincipalTrust team-exposed spec/principal/name system:serviceaccount:shop:team-signer
PrincipalTrust team-exposed spec/trustedServerRef/name team-by-peer
Role team-signer spec/keyServerRef/name team-main
RoleBinding team-signer-rbac roleRef/name team-signer-rbac
TrustedCA team-by-config-map spec/certificate/configMapKeyRef/name team-certificates-HASH
TrustedCA team-by-config-map spec/keyServerRef/name team-main
TrustedCA team-by-config-map spec/publish/configMap/name published-ca
TrustedCA team-by-config-map spec/revocation/crl/configMapKeyRef/name team-certificates-HASH
TrustedCA team-by-peer spec/certificate/peerRef/name team-peer
TrustedCA team-by-peer spec/keyServerRef/name team-main
TrustedCA team-by-secret spec/certificate/secretKeyRef/name team-credentials-HASH
TrustedCA team-by-secret spec/keyServerRef/name team-main
TrustedCA team-by-secret spec/publish/clusterTrustBundle/name published-ca
TrustedServer team-by-config-map spec/keyServerRef/name team-main
TrustedServer team-by-config-map spec/trustBlob/configMapKeyRef/name team-certificates-HASH
TrustedServer team-by-peer spec/keyServerRef/name team-main
TrustedServer team-by-peer spec/trustBlob/peerRef/name team-peer
TrustedServer team-by-secret spec/keyServerRef/name team-main
TrustedServer team-by-secret spec/trustBlob/secretKeyRef/name team-credentials-HASH
`

// names calls found with each name and namespace in a value, and its path.
func names(value any, path string, found func(path, name string)) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			names(item, path, found)
		}
	case map[string]any:
		for field, below := range v {
			at := strings.TrimPrefix(path+"/"+field, "/")
			if name, is := below.(string); is && (field == "name" || field == "namespace") {
				found(at, name)
			}
			names(below, at, found)
		}
	}
}

func TestNameReferences(t *testing.T) {
	dir := t.TempDir()
	rig.Must(t, os.CopyFS(dir, os.DirFS("testdata")))
	rig.Must(t, os.CopyFS(filepath.Join(dir, "component"), os.DirFS(component)))
	built, err := exec.CommandContext(t.Context(), controlplane.Kubectl(t), "kustomize", dir).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v", err)
	}
	hash := regexp.MustCompile(`^(team-(?:certificates|credentials)-).*`)
	var got []string
	for text := range strings.SplitSeq(string(built), "\n---\n") {
		object := map[string]any{}
		rig.Must(t, yaml.Unmarshal([]byte(text), &object))
		metadata := object["metadata"].(map[string]any)
		delete(object, "metadata")
		names(object, "", func(path, name string) {
			got = append(got, fmt.Sprintf("%s %s %s %s", object["kind"], metadata["name"], path, hash.ReplaceAllString(name, "${1}HASH")))
		})
	}
	slices.Sort(got)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), got); diff != "" {
		t.Errorf("(-want +built):\n%s", diff)
	}
}

// The kustomization of testdata has each field for which there is a rule.
func TestEveryRuleIsTried(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(component, "name_references.yaml"))
	rig.Must(t, err)
	var rules struct {
		NameReference []struct {
			FieldSpecs []struct{ Kind, Path string } `json:"fieldSpecs"`
		} `json:"nameReference"`
	}
	rig.Must(t, yaml.Unmarshal(text, &rules))
	for _, rule := range rules.NameReference {
		for _, field := range rule.FieldSpecs {
			line := regexp.MustCompile(fmt.Sprintf(`(?m)^%s\w* \S+ %s(/name)? team-`, field.Kind, field.Path))
			if !line.MatchString(want) {
				t.Errorf("%s %s is rewritten in no object of testdata", field.Kind, field.Path)
			}
		}
	}
}
