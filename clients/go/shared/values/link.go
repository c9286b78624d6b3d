package values

import (
	"encoding/binary"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

// Limits of the length of a hidden link in bytes. Contract 2.7 requires at least one byte. The maximum prevents clients
// from storing data in a link.
const (
	MinHiddenLink = 1
	MaxHiddenLink = 64
	hiddenLinkLen = 4 + 8
)

// HiddenLink is the opaque handle of a key: the decoded bytes of ttag and hiddenLink. It
// is a string so that it can be a map key.
type HiddenLink string

// NewHiddenLink returns the handle of a key: the id of the owning system in 4 big-endian
// bytes, then the key id.
func NewHiddenLink(system SystemID, key ID) HiddenLink {
	b := make([]byte, 0, hiddenLinkLen)
	b = binary.BigEndian.AppendUint32(b, uint32(system))
	return HiddenLink(append(b, key[:]...))
}

// Split returns the parts of a well-formed link. Requests may also contain a link of another length. Such a link names
// no key.
func (l HiddenLink) Split() (SystemID, ID, bool) {
	if len(l) != hiddenLinkLen {
		return 0, ID{}, false
	}
	system := SystemID(binary.BigEndian.Uint32([]byte(l[:4])))
	return system, ID([]byte(l[4:])), true
}

// Base64 returns the link in canonical base64.
func (l HiddenLink) Base64() string { return canonical.Encode([]byte(l)) }

// String returns the link in canonical base64, for logs and audit objects.
func (l HiddenLink) String() string { return l.Base64() }
