package ldap_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
)

// isRefused reports whether the error is a refusal and not a failure of the directory.
func isRefused(err error) bool {
	var why ldap.Refused
	return errors.As(err, &why)
}

// configs returns the two ways to find an entry, each with the two ways to start TLS.
func configs(t testing.TB, s *ldaptest.Server) map[string]ldap.Config {
	t.Helper()
	password := filepath.Join(t.TempDir(), "reader-password")
	if err := os.WriteFile(password, []byte(ldaptest.ReaderPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	byDN := ldap.Config{CAFile: s.CAFile, UserDN: ldaptest.UserDN}
	bySearch := ldap.Config{CAFile: s.CAFile, BindDN: ldaptest.ReaderDN, BindPasswordFile: password, BaseDN: ldaptest.Base, Filter: "(uid=%s)"}
	all := map[string]ldap.Config{}
	for name, c := range map[string]ldap.Config{"UserDN": byDN, "Search": bySearch} {
		for scheme, address := range map[string]string{"ldaps": s.Secure, "ldap": s.Plain} {
			c.URL = scheme + "://" + address
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			all[name+"/"+scheme] = c
		}
	}
	return all
}

func TestCheck(t *testing.T) {
	s := ldaptest.Start(t)
	for way, config := range configs(t, s) {
		t.Run(way, func(t *testing.T) {
			d := ldap.New(config, time.Now)
			for name, l := range map[string][2]string{
				"WrongPassword":      {ldaptest.Ann, "wrong"},
				"EmptyPassword":      {ldaptest.Ann, ""}, // the directory of the test would accept it as an anonymous bind
				"EmptyName":          {"", ldaptest.AnnPassword},
				"PasswordOfAnother":  {ldaptest.Ann, ldaptest.OddPassword},
				"PasswordWithZero":   {ldaptest.Ann, ldaptest.AnnPassword + "\x00"},
				"PasswordCut":        {ldaptest.Ann, ldaptest.AnnPassword[:5]},
				"UnknownName":        {"nobody", ldaptest.AnnPassword},
				"Wildcard":           {"*", ldaptest.AnnPassword},
				"Prefix":             {"an*", ldaptest.AnnPassword},
				"FilterInjection":    {"ann)(uid=*", ldaptest.AnnPassword},
				"FilterOr":           {"nobody)(|(uid=ann)", ldaptest.AnnPassword},
				"DNInjection":        {"ann,ou=people", ldaptest.AnnPassword},
				"WholeDN":            {"ann,ou=people," + ldaptest.Base, ldaptest.AnnPassword},
				"SecondAttribute":    {"ann+cn=Ann", ldaptest.AnnPassword},
				"EscapedByTheCaller": {`\61nn`, ldaptest.AnnPassword},
				"Zero":               {"ann\x00", ldaptest.AnnPassword},
				"NotUTF8":            {"ann\xff", ldaptest.AnnPassword},
			} {
				err := d.Check(t.Context(), l[0], l[1])
				if !isRefused(err) {
					t.Errorf("%s: got %v, want a refusal", name, err)
				} else if l[1] != "" && strings.Contains(err.Error(), l[1]) {
					t.Errorf("%s: the refusal holds the password", name)
				}
			}
			for name, password := range map[string]string{ldaptest.Ann: ldaptest.AnnPassword, ldaptest.Odd: ldaptest.OddPassword} {
				if err := d.Check(t.Context(), name, password); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := d.CheckDummy(t.Context()); !isRefused(err) {
				t.Errorf("the decoy: %v", err)
			}
		})
	}
}

// TestAmbiguousSearch checks that a search which finds more than one entry identifies no user.
func TestAmbiguousSearch(t *testing.T) {
	config := configs(t, ldaptest.Start(t))["Search/ldaps"]
	config.Filter = "(sn=%s)"
	if err := ldap.New(config, time.Now).Check(t.Context(), "Twin", ldaptest.AnnPassword); !isRefused(err) {
		t.Errorf("got %v", err)
	}
}

// TestUnavailable checks that a failure of the directory is not a Refused error.
func TestUnavailable(t *testing.T) {
	good := ldaptest.Start(t)
	other := ldaptest.Start(t)
	missing := filepath.Join(t.TempDir(), "missing")
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	certificates := map[string]*ldaptest.Server{"Expired": ldaptest.Start(t, ldaptest.Expired), "OtherHost": ldaptest.Start(t, ldaptest.Elsewhere)}
	for way, config := range configs(t, good) {
		cases := map[string]func(c *ldap.Config){
			"WrongCA":     func(c *ldap.Config) { c.CAFile = other.CAFile },
			"SystemCAs":   func(c *ldap.Config) { c.CAFile = "" },
			"NoCAFile":    func(c *ldap.Config) { c.CAFile = missing },
			"NotPEM":      func(c *ldap.Config) { c.CAFile = wrong },
			"NobodyThere": func(c *ldap.Config) { c.URL = c.URL[:strings.LastIndexByte(c.URL, ':')] + ":1" },
		}
		for name, s := range certificates {
			cases[name] = func(c *ldap.Config) {
				scheme, _, _ := strings.Cut(c.URL, "://")
				c.URL, c.CAFile = scheme+"://"+map[string]string{"ldap": s.Plain, "ldaps": s.Secure}[scheme], s.CAFile
			}
		}
		if config.BindDN != "" {
			cases["ReaderPassword"] = func(c *ldap.Config) { c.BindPasswordFile = wrong }
			cases["NoReaderPassword"] = func(c *ldap.Config) { c.BindPasswordFile = missing }
			cases["NoBase"] = func(c *ldap.Config) { c.BaseDN = "dc=example,dc=net" }
		}
		for name, change := range cases {
			t.Run(way+"/"+name, func(t *testing.T) {
				c := config
				change(&c)
				for what, check := range map[string]func(d *ldap.Directory) error{
					"Check": func(d *ldap.Directory) error { return d.Check(t.Context(), ldaptest.Ann, ldaptest.AnnPassword) },
					"Decoy": func(d *ldap.Directory) error { return d.CheckDummy(t.Context()) },
				} {
					err := check(ldap.New(c, time.Now))
					if err == nil || isRefused(err) {
						t.Errorf("%s: got %v", what, err)
					}
					if err != nil && (strings.Contains(err.Error(), ldaptest.AnnPassword) || strings.Contains(err.Error(), ldaptest.ReaderPassword)) {
						t.Errorf("%s: the error holds a password", what)
					}
				}
			})
		}
	}
}

// TestServerKilled checks that logins fail after a server was stopped, and succeed after its restart.
func TestServerKilled(t *testing.T) {
	s := ldaptest.Start(t)
	d := ldap.New(configs(t, s)["UserDN/ldaps"], time.Now)
	check := func() error { return d.Check(t.Context(), ldaptest.Ann, ldaptest.AnnPassword) }
	if err := check(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := check(); err == nil || isRefused(err) {
		t.Errorf("after the kill: %v", err)
	}
	s.Restart(t)
	if err := check(); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

// TestSilentDirectory uses a directory that accepts connections and sends nothing. It may delay a login only until its
// request ends, and at most MaxAtOnce logins may wait for it.
func TestSilentDirectory(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 2*ldap.MaxAtOnce)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for _, scheme := range []string{"ldap", "ldaps"} {
		t.Run(scheme, func(t *testing.T) {
			d := ldap.New(ldap.Config{URL: scheme + "://" + l.Addr().String(), UserDN: ldaptest.UserDN}, time.Now)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range ldap.MaxAtOnce {
				all.Go(func() {
					if err := d.Check(ctx, "ann", "password"); err == nil || isRefused(err) {
						t.Errorf("got %v", err)
					}
				})
			}
			for range ldap.MaxAtOnce {
				c := <-accepted
				defer c.Close()
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			if err := d.Check(gone, "ann", "password"); !errors.Is(err, context.Canceled) {
				t.Errorf("one too many: %v", err)
			}
			if n := len(accepted); n != 0 {
				t.Errorf("%d connections more than may be", n)
			}
			cancel()
			all.Wait()
		})
	}
}

// TestNoPlainText checks that a directory without StartTLS receives no password.
func TestNoPlainText(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	heard := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		text := make([]byte, 4096)
		n, _ := c.Read(text)
		// The response to StartTLS: unwillingToPerform.
		_, _ = c.Write([]byte{0x30, 0x0c, 0x02, 0x01, 0x01, 0x78, 0x07, 0x0a, 0x01, 0x35, 0x04, 0x00, 0x04, 0x00})
		more, _ := c.Read(text[n:])
		heard <- string(text[:n+more])
	}()
	d := ldap.New(ldap.Config{URL: "ldap://" + l.Addr().String(), UserDN: ldaptest.UserDN}, time.Now)
	if err := d.Check(t.Context(), "ann", "a planted password"); err == nil || isRefused(err) {
		t.Errorf("got %v", err)
	}
	if text := <-heard; strings.Contains(text, "planted") || strings.Contains(text, "ann") {
		t.Errorf("the wire had %q", text)
	}
}

func TestValidate(t *testing.T) {
	search := ldap.Config{URL: "ldaps://d.example", BindDN: "cn=a,dc=b", BindPasswordFile: "f", BaseDN: "dc=b", Filter: "(uid=%s)"}
	for name, tc := range map[string]struct {
		change func(c *ldap.Config)
		says   string // expected error; empty: none
	}{
		"Search":              {func(*ldap.Config) {}, ""},
		"Nothing":             {func(c *ldap.Config) { *c = ldap.Config{} }, ""},
		"StartTLS":            {func(c *ldap.Config) { c.URL = "ldap://d.example:389" }, ""},
		"UserDN":              {func(c *ldap.Config) { *c = ldap.Config{URL: c.URL, UserDN: ldaptest.UserDN} }, ""},
		"LongFilter":          {func(c *ldap.Config) { c.Filter = "(&(objectClass=person)(uid=%s))" }, ""},
		"NoURL":               {func(c *ldap.Config) { c.URL = "" }, "--ldap-url"},
		"OtherScheme":         {func(c *ldap.Config) { c.URL = "ldapi://d.example" }, "--ldap-url"},
		"NoHost":              {func(c *ldap.Config) { c.URL = "ldaps://" }, "--ldap-url"},
		"Credentials":         {func(c *ldap.Config) { c.URL = "ldaps://cn=a:secret@d.example" }, "--ldap-url"},
		"Path":                {func(c *ldap.Config) { c.URL = "ldaps://d.example/dc=b??sub" }, "--ldap-url"},
		"Both":                {func(c *ldap.Config) { c.UserDN = ldaptest.UserDN }, "--ldap-user-dn"},
		"Neither":             {func(c *ldap.Config) { *c = ldap.Config{URL: c.URL} }, "--ldap-user-dn"},
		"NoBindPassword":      {func(c *ldap.Config) { c.BindPasswordFile = "" }, "--ldap-bind-password-file"},
		"FilterWithoutName":   {func(c *ldap.Config) { c.Filter = "(uid=ann)" }, "--ldap-filter"},
		"FilterTwice":         {func(c *ldap.Config) { c.Filter = "(|(uid=%s)(cn=%s))" }, "--ldap-filter"},
		"FilterMalformed":     {func(c *ldap.Config) { c.Filter = "uid=%s)" }, "--ldap-filter"},
		"TemplateWithoutName": {func(c *ldap.Config) { *c = ldap.Config{URL: c.URL, UserDN: "uid=ann,dc=b"} }, "--ldap-user-dn"},
		"TemplateMalformed":   {func(c *ldap.Config) { *c = ldap.Config{URL: c.URL, UserDN: "%s@example.org"} }, "--ldap-user-dn"},
		"BaseMalformed":       {func(c *ldap.Config) { c.BaseDN = "example.org" }, "--ldap-base-dn"},
		"BindDNMalformed":     {func(c *ldap.Config) { c.BindDN = "reader" }, "--ldap-bind-dn"},
	} {
		t.Run(name, func(t *testing.T) {
			c := search
			tc.change(&c)
			err := c.Validate()
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%v quotes a secret", err)
			}
		})
	}
}
