package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func role(name, roleName string, operations ...string) string {
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: Role
metadata: {name: %s, namespace: default}
spec: {roleName: %q, operations: [%s]}
`, name, roleName, strings.Join(operations, ", "))
}

func trustedCA(t *testing.T, name string) string {
	t.Helper()
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedCA
metadata: {name: %s, namespace: default}
spec: {certificate: {inline: %q}}
`, name, rig.NewCA(t, name).PEM)
}

// template returns the manifest of an ACL template. Its members are rights of the administrator or of groups.
func template(name, templateName string, members ...string) string {
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: ACLTemplate
metadata: {name: %s, namespace: default}
spec: {templateName: %q, members: [%s]}
`, name, templateName, strings.Join(members, ", "))
}

func member(principal string, rights ...string) string {
	return fmt.Sprintf("{principal: %q, rights: [%s]}", principal, strings.Join(rights, ", "))
}
