package witness

import (
	"errors"
	"fmt"
	"io"
	"strings"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Name returns the name of the key that a key server uses to cosign.
func Name(serverName string, system keyserver.SystemID) string {
	return fmt.Sprintf("%s/witness/%d", tree.KeyName(serverName), system)
}

// NewKey creates the key of a witness: a line with the private key and a line with the public key, in the format of
// C2SP signed-note.
func NewKey(random io.Reader, name string) ([]byte, error) {
	private, public, err := note.GenerateKey(random, name)
	if err != nil {
		return nil, err
	}
	public, err = cosignature.VKeyToCosignatureV1(public)
	return []byte(private + "\n" + public), err
}

// Signer creates cosignatures.
type Signer struct {
	note.Signer
	Key string // the public key that verifies the cosignatures, in the format of C2SP signed-note
}

// ReadKey parses the output of NewKey. Its errors do not contain the key.
func ReadKey(pair []byte) (*Signer, error) {
	private, public, _ := strings.Cut(string(pair), "\n")
	signer, err := cosignature.NewSignerForCosignatureV1(private)
	if err != nil {
		return nil, errors.New("the key of the witness is not a C2SP signed-note key")
	}
	return &Signer{signer, public}, nil
}

// cosign returns the signature lines of a cosignature (C2SP tlog-cosignature).
func (s *Signer) cosign(text string) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: text}, s.Signer)
	if err != nil {
		return nil, err
	}
	return signatures(signed), nil
}
