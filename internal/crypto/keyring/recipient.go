package keyring

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// ErrNoEncryption means that the key of a certificate can be used for signatures, but not for encryption.
var ErrNoEncryption = errors.New("the key of the certificate cannot be used for encryption; use RSA, or EC on P-256, P-384 or P-521")

// x5tS256 is the header that names the recipient's certificate (RFC 7516, section 4.1.8).
const x5tS256 = "x5t#S256"

// SealFor encrypts the bytes of a key for the owner of a certificate. It returns a compact JWE with AES-256-GCM, and
// the algorithm that wraps its content key: RSA-OAEP-256 or ECDH-ES+A256KW. The caller clears plain.
func SealFor(recipient *x509.Certificate, plain []byte) (jwe, algorithm string, err error) {
	to := jose.Recipient{Key: recipient.PublicKey}
	switch key := recipient.PublicKey.(type) {
	case *rsa.PublicKey:
		to.Algorithm = jose.RSA_OAEP_256
	case *ecdsa.PublicKey:
		if key.Params().BitSize < 256 {
			return "", "", ErrNoEncryption
		}
		to.Algorithm = jose.ECDH_ES_A256KW
	default:
		return "", "", ErrNoEncryption
	}
	thumbprint := sha256.Sum256(recipient.Raw)
	options := (&jose.EncrypterOptions{}).WithContentType("application/octet-stream").
		WithHeader(x5tS256, base64.RawURLEncoding.EncodeToString(thumbprint[:]))
	encrypter, err := jose.NewEncrypter(jose.A256GCM, to, options)
	if err != nil {
		return "", "", fmt.Errorf("prepare the encryption for a recipient: %w", err)
	}
	object, err := encrypter.Encrypt(plain)
	if err != nil {
		return "", "", errors.New("encrypt the key for a recipient: the JOSE library failed")
	}
	jwe, err = object.CompactSerialize()
	if err != nil {
		return "", "", fmt.Errorf("encode the encrypted key: %w", err)
	}
	return jwe, string(to.Algorithm), nil
}
