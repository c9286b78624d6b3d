// Package canonical reads and writes canonical base64 (RFC 4648 section 4, padded, without line breaks or stray bits),
// the only encoding of binary values that contract 1.4 accepts. All available base64 decoders, even strict ones, skip
// carriage returns and line feeds. Therefore this package also checks lengths. The package also converts JSON into its
// canonical form (RFC 8785).
package canonical

import (
	"errors"

	"github.com/segmentio/asm/base64"
)

// ErrNotCanonical is returned for every text that is not canonical base64.
var ErrNotCanonical = errors.New("not canonical base64")

// Encode returns the canonical base64 of b.
func Encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// DecodedLen returns the number of bytes that text decodes to, computed only from its
// length and padding.
func DecodedLen(text []byte) int {
	n := len(text) / 4 * 3
	for i := len(text) - 1; i >= 0 && i >= len(text)-2 && text[i] == '='; i-- {
		n--
	}
	return n
}

// Decode returns the bytes of a canonical base64 text, or ErrNotCanonical.
func Decode(text string) ([]byte, error) {
	dst := make([]byte, len(text)/4*3+padRoom)
	n, err := DecodeInto(dst, []byte(text))
	if err != nil {
		return nil, err
	}
	return dst[:n:n], nil
}

// padRoom is additional room after the decoded bytes, because the vector decoder writes complete blocks.
const padRoom = 32

// DecodeInto decodes text into dst and returns the number of bytes, or ErrNotCanonical.
// dst must have room for len(text)/4*3 bytes. It does not allocate.
func DecodeInto(dst, text []byte) (int, error) {
	if len(text)%4 != 0 {
		return 0, ErrNotCanonical
	}
	if len(text) == 0 {
		return 0, nil
	}
	want := DecodedLen(text)
	n, err := base64.StdEncoding.Decode(dst, text)
	if err != nil || n != want || strayBits(text) {
		return 0, ErrNotCanonical
	}
	return n, nil
}

// strayBits reports whether the last group has nonzero bits that belong to no byte:
// "QQ==" and "QR==" decode to the same byte, and only the first is canonical.
func strayBits(text []byte) bool {
	l := len(text)
	switch {
	case text[l-1] != '=':
		return false
	case text[l-2] == '=':
		return sextet(text[l-3])&0x0f != 0
	default:
		return sextet(text[l-2])&0x03 != 0
	}
}

func sextet(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c - 'A'
	case c >= 'a' && c <= 'z':
		return c - 'a' + 26
	case c >= '0' && c <= '9':
		return c - '0' + 52
	case c == '+':
		return 62
	default:
		return 63
	}
}
