package witness

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"
)

func textOf(signed []byte) []byte {
	return signed[:bytes.LastIndex(signed, []byte("\n\n"))+1]
}

func signatures(signed []byte) []byte {
	return signed[bytes.LastIndex(signed, []byte("\n\n"))+2:]
}

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

// cosignatureOf verifies the response of a witness and returns its signature line.
func cosignatureOf(checkpoint, lines []byte, by note.Verifier) ([]byte, error) {
	n, err := note.Open(append(append(bytes.Clone(textOf(checkpoint)), '\n'), lines...), note.VerifierList(by))
	if err != nil {
		return nil, errors.New("its response is not a cosignature by its key")
	}
	return fmt.Appendf(nil, "— %s %s\n", n.Sigs[0].Name, n.Sigs[0].Base64), nil
}

// keyPart is the number of characters of a signature that identify its key. The key id has four bytes. In base64, they
// need five characters and a part of the sixth.
const keyPart = 5

// merge adds signature lines to a note, except lines of keys that have already signed the note.
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

// signer returns the part of a signature line that identifies the key.
func signer(line []byte) string {
	parts := bytes.Split(line, []byte(" "))
	if len(parts) != 3 || len(parts[2]) < keyPart {
		return ""
	}
	return string(parts[1]) + " " + string(parts[2][:keyPart])
}
