package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestProvidersShowNoCredential checks that the configuration for POST /api/config/get contains the names of the
// providers, but no credential and no path of one.
func TestProvidersShowNoCredential(t *testing.T) {
	c := Config{Providers: Providers{
		OIDCIssuer: "https://user:" + secret + "@issuer.example/" + secret, OIDCAudiences: []string{"one", "two"}, OIDCKeysFile: secret, OIDCCAFile: secret, Kubeconfig: secret,
		LDAP: ldap.Config{
			URL: "ldaps://user:" + secret + "@d.example/" + secret, CAFile: secret, UserDN: secret,
			BindDN: secret, BindPasswordFile: secret, BaseDN: secret, Filter: secret,
		},
	}}
	p, found := keyserver.ProjectConfig(settings(c, 7, listeners{}), nil)
	out := fmt.Sprintf("%+v", p)
	if !found || strings.Contains(out, secret) {
		t.Errorf("a credential leaves: %s", out)
	}
	for _, public := range []string{"https://issuer.example", "one,two", "verifiedBy:file", "ldaps://d.example"} {
		if !strings.Contains(out, public) {
			t.Errorf("%q is not shown: %s", public, out)
		}
	}
}

// TestProvidersAreNotAskedAtTheStart checks that unreachable providers do not prevent a start, because they may become
// available later.
func TestProvidersAreNotAskedAtTheStart(t *testing.T) {
	nobody := Providers{
		OIDCIssuer: "https://127.0.0.1:1", OIDCAudiences: []string{"a"}, OIDCKeysFile: "nowhere/jwks.json",
		LDAP: ldap.Config{URL: "ldaps://127.0.0.1:1", UserDN: "uid=%s,dc=example"},
	}
	for _, file := range []string{nobody.OIDCKeysFile, ""} {
		nobody.OIDCKeysFile = file
		if err := nobody.validate(); err != nil {
			t.Fatal(err)
		}
		got, err := (&Server{cfg: Config{Providers: nobody, Clock: time.Now}}).providers()
		if err != nil || got.Tokens == nil || got.Directory == nil {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	got, err := (&Server{cfg: Config{Clock: time.Now}}).providers()
	if err != nil || got.Tokens != nil || got.Directory != nil {
		t.Errorf("nothing is configured: %+v, %v", got, err)
	}
}
