package verified

import (
	"strings"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// maxName is the longest name of any object, in characters.
const maxName = 128

// requireLink refuses a hidden link that names no key because it is empty: on
// the wire of a key server an empty link would mean "mint a new key" or "any".
func requireLink(field string, link keyserver.HiddenLink) error {
	if len(link) < keyserver.MinHiddenLink {
		return fault.New(fault.BadRequest, "%s must not be empty; send the canonical base64 of the key's hidden link", field)
	}
	if len(link) > keyserver.MaxHiddenLink {
		return fault.New(fault.BadRequest, "%s is longer than %d bytes and names no key", field, keyserver.MaxHiddenLink)
	}
	return nil
}

// cleanName trims a name and refuses what no listing could show plainly.
func cleanName(field, name string) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", fault.New(fault.BadRequest, "%s must not be empty", field)
	case utf8.RuneCountInString(name) > maxName:
		return "", fault.New(fault.BadRequest, "%s is longer than %d characters", field, maxName)
	case !keyserver.Printable(name):
		return "", fault.New(fault.BadRequest, "%s contains a character that cannot be printed", field)
	}
	return name, nil
}

// requireID refuses the zero id: it names nothing, and a key server may take
// it for a wildcard.
func requireID(field string, id keyserver.ID) error {
	if id.IsZero() {
		return fault.New(fault.BadRequest, "%s must not be zero; zero names no object", field)
	}
	return nil
}
