package goclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// A token file is read at each login, so that a rotated token is used.
func TestKubernetesCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	c := client.KubernetesCredentials(file)
	for name, content := range map[string]string{"Empty": "", "Blank": " \n", "Long": strings.Repeat("a", 16385)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if in, err := c.Login(t.Context()); err == nil || strings.Contains(err.Error(), "aaaa") {
			t.Errorf("%s: got %v, %v", name, in, err)
		}
	}
	for _, token := range []string{"first.token.planted", "second.token.planted"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := c.Login(t.Context())
		if err != nil || in.Method != schema.MethodKubernetes || in.Token.Reveal() != token {
			t.Errorf("got %v, %v", in, err)
		}
		if printed := fmt.Sprintf("%v %+v %#v %s %v %+v", c, c, c, c, in, in); strings.Contains(printed, "planted") {
			t.Errorf("the token is printed in %s", printed)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Login(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLDAPCredentials(t *testing.T) {
	d := ldaptest.Start(t)
	s := testserver.Start(t, func(c *server.Config) {
		c.Providers.LDAP = ldap.Config{URL: "ldap://" + d.Plain, CAFile: d.CAFile, UserDN: ldaptest.UserDN}
	})
	if _, err := s.Admin(t).CreateLDAPPrincipal(t.Context(), schema.CreateLDAPPrincipalRequest{Name: ldaptest.Ann, RoleIDs: []schema.HexID{}}); err != nil {
		t.Fatal(err)
	}
	password := "wrong"
	credentials := client.LDAPCredentials(ldaptest.Ann, func(context.Context) (string, error) { return password, nil })
	c, err := client.New(client.Options{BaseURL: s.URL(), RootCAs: s.Pool(t), Credentials: credentials})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetCurrentSession(t.Context()); !client.IsCode(err, "INVALID_CREDENTIALS") {
		t.Errorf("got %v", err)
	}
	password = ldaptest.AnnPassword
	if self, err := c.GetCurrentSession(t.Context()); err != nil || self.Kind != "ldap" || self.Principal.Name != ldaptest.Ann {
		t.Errorf("got %+v, %v", self, err)
	}
	d.Kill()
	if err := c.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetCurrentSession(t.Context()); !client.IsCode(err, "IDENTITY_PROVIDER_UNAVAILABLE") {
		t.Errorf("got %v", err)
	}
	if printed := fmt.Sprintf("%v %+v %#v", credentials, credentials, credentials); strings.Contains(printed, ldaptest.AnnPassword) {
		t.Errorf("the password is printed in %s", printed)
	}
}
