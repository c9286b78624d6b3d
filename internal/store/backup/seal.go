package backup

import (
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// maxSealed is the maximum size of a decrypted key-encryption key in bytes.
const maxSealed = 1 << 16

// Seal encrypts a short text for a recipient.
func Seal(to io.Writer, recipient age.Recipient, plain []byte) error {
	w, err := age.Encrypt(to, recipient)
	if err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	if _, err := w.Write(plain); err != nil {
		return err
	}
	return w.Close()
}

// Unseal decrypts the output of Seal. The caller has to wipe the result.
func Unseal(from, identity io.Reader) ([]byte, error) {
	identities, err := parseIdentities(identity)
	if err != nil {
		return nil, err
	}
	r, err := age.Decrypt(from, identities...)
	if err != nil {
		return nil, errors.New("the key-encryption key next to the backup cannot be decrypted with this identity")
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxSealed))
	if err != nil {
		return nil, damaged("the key-encryption key next to it cannot be read")
	}
	return plain, nil
}
