package schema

import (
	"errors"
	"strings"
)

// Recipient is a recipient of age (C2SP age), as age-keygen -y prints it.
type Recipient string

// maxRecipient is longer than any kind of recipient.
const maxRecipient = 4096

var errRecipient = errors.New("must be a recipient of age: it begins with age1, and age-keygen -y shows it")

// MarshalText encodes the recipient.
func (r Recipient) MarshalText() ([]byte, error) { return []byte(r), nil }

// UnmarshalText accepts text in the form of a recipient. An invalid recipient is found only when data is encrypted for
// it.
func (r *Recipient) UnmarshalText(text []byte) error {
	s := string(text)
	if len(s) > maxRecipient || len(s) < 10 || !strings.HasPrefix(s, "age1") || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return errRecipient
	}
	*r = Recipient(s)
	return nil
}

// BackupRequest asks for a backup.
type BackupRequest struct {
	Recipient Recipient `json:"recipient" doc:"age recipient whose identity decrypts the backup. The audit row contains it."`
}
