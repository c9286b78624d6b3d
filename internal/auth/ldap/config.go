// Package ldap checks passwords by binding to an LDAP directory (RFC
// 4511), over TLS and in no other way.
package ldap

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-ldap/ldap/v3"
)

// Config says where the directory is and how a name becomes an entry: by a
// template of its distinguished name, or by a search as an account of the
// service's own. Errors name the flags of serve, because people set those.
type Config struct {
	URL    string // ldaps://host, or ldap://host, which is used with StartTLS only
	CAFile string // PEM; empty: the system's

	UserDN string // for instance uid=%s,ou=people,dc=example,dc=org

	BindDN           string
	BindPasswordFile string
	BaseDN           string
	Filter           string // for instance (uid=%s)
}

// placeholder is where the name goes, escaped.
const placeholder = "%s"

// On reports whether a directory is configured at all.
func (c Config) On() bool { return c != Config{} }

// Mode says how names become entries, for people.
func (c Config) Mode() string {
	if c.UserDN != "" {
		return "userDN"
	}
	return "search"
}

// Validate refuses what no directory could make sense of. It touches nothing.
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
		return errors.New("--ldap-user-dn and a search (--ldap-bind-dn, --ldap-bind-password-file, --ldap-base-dn, --ldap-filter) exclude each other; give one of them")
	case c.UserDN != "":
		return checkDN("--ldap-user-dn", c.UserDN, true)
	case c.BindDN == "" || c.BindPasswordFile == "" || c.BaseDN == "" || c.Filter == "":
		return errors.New("--ldap-url needs --ldap-user-dn, or all of --ldap-bind-dn, --ldap-bind-password-file, --ldap-base-dn and --ldap-filter")
	}
	if _, err := ldap.CompileFilter(c.filter("name")); err != nil || strings.Count(c.Filter, placeholder) != 1 {
		return fmt.Errorf("--ldap-filter is %q; it must be a filter with one %s for the name, for instance (uid=%s)", c.Filter, placeholder, placeholder)
	}
	return errors.Join(checkDN("--ldap-bind-dn", c.BindDN, false), checkDN("--ldap-base-dn", c.BaseDN, false))
}

func checkDN(flag, dn string, template bool) error {
	want := 0
	if template {
		want = 1
	}
	if _, err := ldap.ParseDN(strings.Replace(dn, placeholder, "name", 1)); err == nil && strings.Count(dn, placeholder) == want {
		return nil
	}
	if template {
		return fmt.Errorf("%s is %q; it must be a distinguished name with one %s for the name, for instance uid=%s,ou=people,dc=example,dc=org", flag, dn, placeholder, placeholder)
	}
	return fmt.Errorf("%s is %q, which is not a distinguished name", flag, dn)
}

// endpoint is where the directory listens.
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

// dn is the entry of a name, by the template.
func (c Config) dn(name string) string {
	return strings.Replace(c.UserDN, placeholder, ldap.EscapeDN(name), 1)
}

// filter finds the entry of a name.
func (c Config) filter(name string) string {
	return strings.Replace(c.Filter, placeholder, ldap.EscapeFilter(name), 1)
}
