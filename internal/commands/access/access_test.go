package access

import (
	"errors"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// TestExplained checks that an error names only the flag that can prevent the error.
func TestExplained(t *testing.T) {
	denied, unknown := &client.Error{Code: "ACCESS_DENIED", Detail: "no role grants it"}, errors.New("tls: certificate signed by unknown authority")
	for name, c := range map[string]struct {
		from Access
		err  error
		flag string
	}{
		"UnknownAuthority":  {Access{URL: "https://a"}, unknown, "--ca-file"},
		"AnotherAuthority":  {Access{URL: "https://a", CA: "pem"}, unknown, ""},
		"DeclaredKeyServer": {Access{}, unknown, ""},
		"NoOfficer":         {Access{URL: "https://a", CA: "pem"}, denied, "--officer-username"},
		"Officer":           {Access{URL: "https://a", CA: "pem", Officer: &Login{}}, denied, ""},
		"Another":           {Access{URL: "https://a"}, errors.New("down"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.from.WithHint(c.err)
			if !errors.Is(got, c.err) || (c.flag == "") != (got.Error() == c.err.Error()) || !strings.Contains(got.Error(), c.flag) {
				t.Errorf("got %q, want %q named", got, c.flag)
			}
		})
	}
}
