package schema

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

// Base64 is binary data in canonical base64: padded, the standard alphabet, no
// line breaks, no stray bits. No formatting verb prints its bytes, because it
// can be key material.
type Base64 []byte

var errBase64 = errors.New("must be canonical base64 (standard alphabet, padded, no line breaks, no stray bits)")

// MarshalText encodes the bytes.
func (b Base64) MarshalText() ([]byte, error) { return []byte(canonical.Encode(b)), nil }

// UnmarshalText accepts only the canonical spelling.
func (b *Base64) UnmarshalText(text []byte) error {
	raw, err := canonical.Decode(string(text))
	if err != nil {
		return errBase64
	}
	*b = raw
	return nil
}

// Format prints only the length, for every verb.
func (b Base64) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "(%d bytes)", len(b))
}

// Secret is text that must not be displayed: a password or a session id.
type Secret string

// Format prints a placeholder, for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(hidden)") }

// LogValue returns the same placeholder for structured logs, whose JSON form
// does not call Format.
func (s Secret) LogValue() slog.Value { return slog.StringValue("(hidden)") }

// Reveal returns the secret. The caller must make sure that it is not displayed.
func (s Secret) Reveal() string { return string(s) }
