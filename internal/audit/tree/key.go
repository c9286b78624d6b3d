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

// Origin returns the name of a key server's log (C2SP tlog-checkpoint). The key of the log has the same name.
func Origin(serverName string, system keyserver.SystemID) string {
	return fmt.Sprintf("%s/audit/%d", KeyName(serverName), system)
}

// KeyName replaces characters that are not allowed in the name of a key, such as spaces and plus signs.
func KeyName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '+' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '-'
		}
		return r
	}, name)
}

// NewKey creates the key of a log: a line with the private key and a line with the public key, in the format of C2SP
// signed-note.
func NewKey(random io.Reader, origin string) ([]byte, error) {
	private, public, err := note.GenerateKey(random, origin)
	return []byte(private + "\n" + public), err
}

// Signer signs the checkpoints of one log.
type Signer struct {
	note.Signer
	note.Verifier
	Key string // the public key in the format of C2SP signed-note
}

// ReadKey parses the output of NewKey. Its errors do not contain the key.
func ReadKey(pair []byte) (*Signer, error) {
	private, public, _ := strings.Cut(string(pair), "\n")
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, errors.New("the key of the audit tree is not a C2SP signed-note key")
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return nil, errors.New("the public key of the audit tree is not a C2SP signed-note key")
	}
	return &Signer{signer, verifier, public}, nil
}
