package witness

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"
)

// textOf is the text of a note, without signatures.
func textOf(signed []byte) []byte {
	return signed[:bytes.LastIndex(signed, []byte("\n\n"))+1]
}

// signatures are the lines behind the text of a note.
func signatures(signed []byte) []byte {
	return signed[bytes.LastIndex(signed, []byte("\n\n"))+2:]
}

// signedBy reports whether a note has a good signature by a key.
func signedBy(signed []byte, by note.Verifier) bool {
	_, err := note.Open(signed, note.VerifierList(by))
	return err == nil
}

func countSigned(signed []byte, by []note.Verifier) int {
	n := 0
	for _, v := range by {
		if signedBy(signed, v) {
			n++
		}
	}
	return n
}

// cosignatureOf is the line of a witness among those that it answered.
func cosignatureOf(checkpoint, lines []byte, by note.Verifier) ([]byte, error) {
	n, err := note.Open(append(append(bytes.Clone(textOf(checkpoint)), '\n'), lines...), note.VerifierList(by))
	if err != nil {
		return nil, errors.New("what it answered is no cosignature by its key")
	}
	return fmt.Appendf(nil, "— %s %s\n", n.Sigs[0].Name, n.Sigs[0].Base64), nil
}

// keyPart is how many characters of a signature name its key: four bytes, of which
// base64 needs so many and shares the last with what follows.
const keyPart = 5

// merge adds signatures to a note, but those of a key that has signed already.
func merge(signed, lines []byte) []byte {
	have := map[string]bool{}
	for line := range bytes.Lines(signatures(signed)) {
		have[signer(line)] = true
	}
	out := bytes.Clone(signed)
	for line := range bytes.Lines(lines) {
		if who := signer(line); who != "" && !have[who] {
			have[who] = true
			out = append(out, line...)
		}
	}
	return out
}

// signer is what of a line of a signature says whose it is.
func signer(line []byte) string {
	parts := bytes.Split(line, []byte(" "))
	if len(parts) != 3 || len(parts[2]) < keyPart {
		return ""
	}
	return string(parts[1]) + " " + string(parts[2][:keyPart])
}
