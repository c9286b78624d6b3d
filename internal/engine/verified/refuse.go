package verified

import (
	"strings"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// maxName is the maximum length of names, in characters.
const maxName = 128

// requireLink returns an error for an empty hidden link, because in the protocol of a key server it would mean "mint a
// new key" or "any". It also rejects a link that is too short or too long for a key.
func requireLink(field string, link keyserver.HiddenLink) error {
	if len(link) < values.MinHiddenLink {
		return fault.New(fault.BadRequest, "%s: must not be empty; send the canonical base64 of the key's hidden link", field)
	}
	if len(link) > values.MaxHiddenLink {
		return fault.New(fault.BadRequest, "%s: must be at most %d bytes; a longer one identifies no key", field, values.MaxHiddenLink)
	}
	return nil
}

// cleanName trims a name. It returns an error for a name that cannot be shown in a list.
func cleanName(field, name string) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", fault.New(fault.BadRequest, "%s: must not be empty", field)
	case utf8.RuneCountInString(name) > maxName:
		return "", fault.New(fault.BadRequest, "%s: must be at most %d characters", field, maxName)
	case !keyserver.Printable(name):
		return "", fault.New(fault.BadRequest, "%s: contains an unprintable character; remove it", field)
	}
	return name, nil
}

// requireID returns an error for the zero id. No object has this id, and a key server may treat it as a wildcard.
func requireID(field string, id keyserver.ID) error {
	if id.IsZero() {
		return fault.New(fault.BadRequest, "%s: must not be zero; zero names no object", field)
	}
	return nil
}
