// Package ldap checks passwords by a bind to an LDAP directory (RFC 4511). It always uses TLS.
package ldap

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-ldap/ldap/v3"
)

// Config locates the directory and maps names to entries: by a template of the distinguished name, or by a search as a
// service account. Errors contain the names of the flags of serve, because administrators set these.
type Config struct {
	URL    string // ldaps://host, or ldap://host, which is always used with StartTLS
	CAFile string // PEM file; if empty, the system's CAs are trusted

	UserDN string // for instance uid=%s,ou=people,dc=example,dc=org

	BindDN           string
	BindPasswordFile string
	BaseDN           string
	Filter           string // for instance (uid=%s)
}

// nameVerb is the placeholder in UserDN and Filter for the escaped name.
const nameVerb = "%s"

// On reports whether a directory is configured.
func (c Config) On() bool { return c != Config{} }

// Mode returns how names are mapped to entries. The result is only for display.
func (c Config) Mode() string {
	if c.UserDN != "" {
		return "userDN"
	}
	return "search"
}

// Validate returns an error if the configuration is invalid for every directory. It does not connect to the directory.
func (c Config) Validate() error {
	if !c.On() {
		return nil
	}
	if _, err := c.address(); err != nil {
		return err
	}
	search := c.BindDN != "" || c.BindPasswordFile != "" || c.BaseDN != "" || c.Filter != ""
	switch {
	case c.UserDN != "" && search:
		return errors.New("--ldap-user-dn cannot be combined with --ldap-bind-dn, --ldap-bind-password-file, --ldap-base-dn or --ldap-filter; give only one of the two kinds")
	case c.UserDN != "":
		return checkDN("--ldap-user-dn", c.UserDN, true)
	case c.BindDN == "" || c.BindPasswordFile == "" || c.BaseDN == "" || c.Filter == "":
		return errors.New("--ldap-url requires --ldap-user-dn, or all of --ldap-bind-dn, --ldap-bind-password-file, --ldap-base-dn and --ldap-filter")
	}
	if _, err := ldap.CompileFilter(c.filter("name")); err != nil || strings.Count(c.Filter, nameVerb) != 1 {
		return fmt.Errorf("--ldap-filter is %q; it must be a filter with one %s for the name, for instance (uid=%s)", c.Filter, nameVerb, nameVerb)
	}
	return errors.Join(checkDN("--ldap-bind-dn", c.BindDN, false), checkDN("--ldap-base-dn", c.BaseDN, false))
}

func checkDN(flag, dn string, template bool) error {
	want := 0
	if template {
		want = 1
	}
	if _, err := ldap.ParseDN(strings.Replace(dn, nameVerb, "name", 1)); err == nil && strings.Count(dn, nameVerb) == want {
		return nil
	}
	if template {
		return fmt.Errorf("%s is %q; it must be a distinguished name with one %s for the name, for instance uid=%s,ou=people,dc=example,dc=org", flag, dn, nameVerb, nameVerb)
	}
	return fmt.Errorf("%s is %q; it must be a distinguished name", flag, dn)
}

type endpoint struct {
	host, address string
	startTLS      bool
}

func (c Config) address() (endpoint, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, errors.New("--ldap-url must be ldaps://HOST[:PORT], or ldap://HOST[:PORT] for StartTLS, and nothing more")
	}
	e := endpoint{host: u.Hostname()}
	port := ldap.DefaultLdapsPort
	switch u.Scheme {
	case "ldaps":
	case "ldap":
		e.startTLS, port = true, ldap.DefaultLdapPort
	default:
		return endpoint{}, errors.New("--ldap-url must start with ldaps://, or with ldap:// for StartTLS")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	e.address = net.JoinHostPort(e.host, port)
	return e, nil
}

func (c Config) dn(name string) string {
	return strings.Replace(c.UserDN, nameVerb, ldap.EscapeDN(name), 1)
}

func (c Config) filter(name string) string {
	return strings.Replace(c.Filter, nameVerb, ldap.EscapeFilter(name), 1)
}
