package tree

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Origin is the name of the log of a key server (C2SP tlog-checkpoint), and of the key
// that signs it.
func Origin(serverName string, system keyserver.SystemID) string {
	return fmt.Sprintf("%s/audit/%d", KeyName(serverName), system)
}

// KeyName is a name as that of a key may have it, with neither spaces nor plus signs.
func KeyName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '+' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '-'
		}
		return r
	}, name)
}

// NewKey makes the key of a log: private and public, each a line as C2SP signed-note
// spells it.
func NewKey(random io.Reader, origin string) ([]byte, error) {
	private, public, err := note.GenerateKey(random, origin)
	return []byte(private + "\n" + public), err
}

// Signer signs the checkpoints of one log.
type Signer struct {
	note.Signer
	note.Verifier
	Key string // as C2SP signed-note spells a public key
}

// ReadKey reads what NewKey made. Its errors say nothing of the key.
func ReadKey(pair []byte) (*Signer, error) {
	private, public, _ := strings.Cut(string(pair), "\n")
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, errors.New("the key of the audit tree cannot be read")
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return nil, errors.New("the public key of the audit tree cannot be read")
	}
	return &Signer{signer, verifier, public}, nil
}
