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

// Name is that of the key by which a key server cosigns.
func Name(serverName string, system keyserver.SystemID) string {
	return fmt.Sprintf("%s/witness/%d", tree.KeyName(serverName), system)
}

// NewKey makes the key of a witness: private and public, each a line as C2SP
// signed-note spells it.
func NewKey(random io.Reader, name string) ([]byte, error) {
	private, public, err := note.GenerateKey(random, name)
	if err != nil {
		return nil, err
	}
	public, err = cosignature.VKeyToCosignatureV1(public)
	return []byte(private + "\n" + public), err
}

// Signer makes cosignatures.
type Signer struct {
	note.Signer
	Key string // that verifies them, as C2SP signed-note spells a public key
}

// ReadKey reads what NewKey made. Its errors say nothing of the key.
func ReadKey(pair []byte) (*Signer, error) {
	private, public, _ := strings.Cut(string(pair), "\n")
	signer, err := cosignature.NewSignerForCosignatureV1(private)
	if err != nil {
		return nil, errors.New("the key of the witness cannot be read")
	}
	return &Signer{signer, public}, nil
}

// cosign answers the lines of a cosignature (C2SP tlog-cosignature).
func (s *Signer) cosign(text string) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: text}, s.Signer)
	if err != nil {
		return nil, err
	}
	return signatures(signed), nil
}
