package admission

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

// PEM types of the two key files.
const (
	privateType = "PRIVATE KEY" // PKCS#8
	publicType  = "PUBLIC KEY"  // PKIX
)

// maxKeyFile is the maximum number of bytes that are read of a key file. A key file has about 120 bytes.
const maxKeyFile = 16 << 10

// GenerateKey returns a new release key as PEM: the private key in PKCS#8, the public key in PKIX.
func GenerateKey(random io.Reader) (private, public []byte, err error) {
	if random == nil {
		random = rand.Reader
	}
	pub, key, err := ed25519.GenerateKey(random)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a release key: %w", err)
	}
	defer clear(key)
	if private, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return nil, nil, fmt.Errorf("encode the release key: %w", err)
	}
	defer clear(private)
	if public, err = x509.MarshalPKIXPublicKey(pub); err != nil {
		return nil, nil, fmt.Errorf("encode the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateType, Bytes: private}), pem.EncodeToMemory(&pem.Block{Type: publicType, Bytes: public}), nil
}

// ReadPrivateKey reads a PEM file with an Ed25519 private key in PKCS#8. Errors do not contain the content of the file.
func ReadPrivateKey(path string) (ed25519.PrivateKey, error) {
	der, err := readPEM(path, privateType)
	if err != nil {
		return nil, err
	}
	defer clear(der)
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if key, ok := parsed.(ed25519.PrivateKey); ok && err == nil {
		return key, nil
	}
	return nil, fmt.Errorf("%s must contain an Ed25519 private key in PKCS#8", path)
}

// ReadPublicKey reads a PEM file with an Ed25519 public key in PKIX.
func ReadPublicKey(path string) (ed25519.PublicKey, error) {
	der, err := readPEM(path, publicType)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if key, ok := parsed.(ed25519.PublicKey); ok && err == nil {
		return key, nil
	}
	return nil, fmt.Errorf("%s must contain an Ed25519 public key in PKIX", path)
}

// readPEM returns the only PEM block of a file. It fails if there are several blocks: they could be the old and the new
// key, and it is unknown which key to use.
func readPEM(path, kind string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	defer clear(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxKeyFile)
	}
	der, err := certtext.One(text, kind)
	if err != nil {
		return nil, fmt.Errorf("%s must contain one PEM block of type %s: it %w", path, kind, err)
	}
	return der, nil
}
