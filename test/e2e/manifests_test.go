package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

func role(name, roleName string, operations ...string) string {
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1alpha1
kind: Role
metadata: {name: %s, namespace: default}
spec: {roleName: %q, operations: [%s]}
`, name, roleName, strings.Join(operations, ", "))
}

func trustedCA(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	is := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1alpha1
kind: TrustedCA
metadata: {name: %s, namespace: default}
spec: {certificate: {inline: %q}}
`, name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// template declares an ACL template with members of the administrator's rights
// or of groups.
func template(name, templateName string, members ...string) string {
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1alpha1
kind: ACLTemplate
metadata: {name: %s, namespace: default}
spec: {templateName: %q, members: [%s]}
`, name, templateName, strings.Join(members, ", "))
}

func member(principal string, rights ...string) string {
	return fmt.Sprintf("{principal: %q, rights: [%s]}", principal, strings.Join(rights, ", "))
}
