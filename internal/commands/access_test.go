package commands

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// A failure names the flag that helps, and no other.
func TestExplained(t *testing.T) {
	denied, unknown := &client.Error{Code: "ACCESS_DENIED", Detail: "no role grants it"}, errors.New("tls: certificate signed by unknown authority")
	for name, c := range map[string]struct {
		from access
		err  error
		flag string
	}{
		"UnknownAuthority":  {access{url: "https://a"}, unknown, "--ca-file"},
		"AnotherAuthority":  {access{url: "https://a", ca: "pem"}, unknown, ""},
		"DeclaredKeyServer": {access{}, unknown, ""},
		"NoOfficer":         {access{url: "https://a", ca: "pem"}, denied, "--officer-username"},
		"Officer":           {access{url: "https://a", ca: "pem", officer: &login{}}, denied, ""},
		"Another":           {access{url: "https://a"}, errors.New("down"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.from.explained(c.err)
			if !errors.Is(got, c.err) || (c.flag == "") != (got.Error() == c.err.Error()) || !strings.Contains(got.Error(), c.flag) {
				t.Errorf("got %q, want %q named", got, c.flag)
			}
		})
	}
}
