package localcluster

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
)

// keyPair is the certificate that etcd and kube-apiserver use as server and as client. Its CA signs only this
// certificate, and the key of the CA is not stored.
type keyPair struct {
	ca, certificate, key string // paths of files
	caPEM                []byte
	roots                *x509.CertPool
	pair                 tls.Certificate
}

func newKeyPair(dir string) (keyPair, error) {
	now := time.Now()
	ca, err := pki.NewCA("local control plane", now, rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	identity, err := ca.IssueServer("local control plane", []string{loopback, "localhost"}, nil, now, rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	der, err := identity.MarshalKey()
	if err != nil {
		return keyPair{}, fmt.Errorf("encode a key: %w", err)
	}
	k := keyPair{
		ca: filepath.Join(dir, "ca.crt"), certificate: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"),
		caPEM: pki.EncodePEM(ca.Certificate.Raw), roots: x509.NewCertPool(),
		pair: tls.Certificate{Certificate: [][]byte{identity.Certificate.Raw}, PrivateKey: identity.Key},
	}
	k.roots.AddCert(ca.Certificate)
	for path, content := range map[string][]byte{
		k.ca: k.caPEM, k.certificate: pki.EncodePEM(identity.Certificate.Raw),
		k.key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return keyPair{}, err
		}
	}
	return k, nil
}
