package schema

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/canonical"
)

// Base64 is binary data, spelled in canonical base64: padded, the standard
// alphabet, no line breaks, no stray bits. No formatting verb prints its
// bytes, because some of it is key material.
type Base64 []byte

var errBase64 = errors.New("must be canonical base64 (standard alphabet, padded, no line breaks, no stray bits)")

// MarshalText spells the bytes.
func (b Base64) MarshalText() ([]byte, error) { return []byte(canonical.Encode(b)), nil }

// UnmarshalText refuses every spelling but the canonical one.
func (b *Base64) UnmarshalText(text []byte) error {
	raw, err := canonical.Decode(string(text))
	if err != nil {
		return errBase64
	}
	*b = raw
	return nil
}

// Format prints the length only, whatever the verb.
func (b Base64) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "(%d bytes)", len(b))
}

// Secret is text that must not be seen: a password or a session id.
type Secret string

// Format prints a placeholder, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(hidden)") }

// LogValue prints the same placeholder in a structured log, whose JSON form
// asks no Format.
func (s Secret) LogValue() slog.Value { return slog.StringValue("(hidden)") }

// Reveal returns the secret. Whoever calls it answers for where it goes.
func (s Secret) Reveal() string { return string(s) }
