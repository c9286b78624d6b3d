package ldap

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/certtext"
)

const (
	// timeout bounds all exchanges of one check together.
	timeout = 10 * time.Second
	// MaxAtOnce is how many checks are under way at once. Each has a connection
	// of its own, because a bind makes a connection somebody's.
	MaxAtOnce = 16

	maxFile   = 64 << 10 // bytes of a password or CA file
	maxPacket = 1 << 20  // bytes of one answer of the directory
)

// The library lets a directory announce 2 GiB, and makes room for it.
func init() { ber.MaxPacketLengthBytes = maxPacket } //nolint:reassign // the library takes its limit no other way

// Refused says why the directory does not recognise a name and its password.
type Refused string

// Error implements error.
func (r Refused) Error() string { return "the directory refuses the login: " + string(r) }

// Directory checks passwords. It holds no connection between checks.
type Directory struct {
	config Config
	slots  chan struct{}
	clock  func() time.Time
}

// New returns a directory. It speaks to nobody yet, so that a directory that is
// down stops no start.
func New(c Config, clock func() time.Time) *Directory {
	return &Directory{config: c, slots: make(chan struct{}, MaxAtOnce), clock: clock}
}

// Check answers nil if the password is the name's, or Refused. Every other
// error says that the directory could not be asked. An empty password is
// refused here: a directory takes a bind with one for anonymous and succeeds
// (RFC 4513 section 5.1.2).
func (d *Directory) Check(ctx context.Context, name, password string) error {
	if name == "" || password == "" {
		return Refused("name and password must not be empty")
	}
	return d.exchange(ctx, func(c *ldap.Conn) error { return d.check(c, name, password) })
}

// Decoy has the same exchanges with the directory as Check, about no entry and
// with no password of anybody.
func (d *Directory) Decoy(ctx context.Context) error {
	const nobody = "keyserver-decoy/no such name"
	return d.exchange(ctx, func(c *ldap.Conn) error { return d.check(c, nobody, nobody) })
}

func (d *Directory) check(c *ldap.Conn, name, password string) error {
	if d.config.UserDN != "" {
		return bind(c, d.config.dn(name), password)
	}
	dn, err := d.search(c, name)
	if err != nil {
		return err
	}
	if dn == "" {
		// As much work as for a name that is there; whether it succeeds is nothing.
		if err := bind(c, d.config.BaseDN, password); err != nil && !isRefused(err) {
			return err
		}
		return Refused("no entry, or more than one, has the name")
	}
	return bind(c, dn, password)
}

// search returns the only entry of a name, or "".
func (d *Directory) search(c *ldap.Conn, name string) (string, error) {
	secret, err := readFile(d.config.BindPasswordFile)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(secret), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s holds no password", d.config.BindPasswordFile)
	}
	if err := c.Bind(d.config.BindDN, password); err != nil {
		return "", fmt.Errorf("bind as --ldap-bind-dn: %w", err)
	}
	const one = 1
	found, err := c.Search(ldap.NewSearchRequest(d.config.BaseDN, ldap.ScopeWholeSubtree, ldap.NeverDerefAliases,
		one+1, int(timeout.Seconds()), false, d.config.filter(name), []string{"1.1"}, nil)) // 1.1: no attributes
	switch {
	case ldap.IsErrorWithCode(err, ldap.LDAPResultSizeLimitExceeded):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("search below --ldap-base-dn: %w", err)
	case len(found.Entries) != one || found.Entries[0].DN == "":
		return "", nil
	}
	return found.Entries[0].DN, nil
}

// notRecognised are the results by which directories refuse a bind because of
// whom it is for. Others are about the directory itself.
var notRecognised = []uint16{
	ldap.LDAPResultInvalidCredentials, ldap.LDAPResultNoSuchObject, ldap.LDAPResultInvalidDNSyntax,
	ldap.LDAPResultInappropriateAuthentication, ldap.LDAPResultInsufficientAccessRights,
	ldap.LDAPResultConstraintViolation, ldap.LDAPResultUnwillingToPerform,
}

func bind(c *ldap.Conn, dn, password string) error {
	err := c.Bind(dn, password)
	if ldap.IsErrorAnyOf(err, notRecognised...) {
		var result *ldap.Error
		errors.As(err, &result)
		return Refused(ldap.LDAPResultCodeMap[result.ResultCode])
	}
	return err
}

func isRefused(err error) bool {
	var refused Refused
	return errors.As(err, &refused)
}

// exchange has one connection for do, within the bounds of time and number.
func (d *Directory) exchange(ctx context.Context, do func(*ldap.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return fmt.Errorf("%d logins wait for the directory already: %w", MaxAtOnce, ctx.Err())
	}
	to, err := d.config.address()
	if err != nil {
		return err
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.address)
	if err != nil {
		return err
	}
	// The library knows no contexts: closing the connection ends what waits.
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	c, err := d.secure(ctx, raw, to)
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	defer func() { _ = c.Close() }() // all was said
	return do(c)
}

// secure returns the connection after the other end has shown a certificate for
// its host. Nothing but StartTLS itself is said before.
func (d *Directory) secure(ctx context.Context, raw net.Conn, to endpoint) (*ldap.Conn, error) {
	config, err := d.tls(to.host)
	if err != nil {
		return nil, err
	}
	if to.startTLS {
		c := ldap.NewConn(raw, false)
		c.Start()
		if err := c.StartTLS(config); err != nil {
			return nil, errors.Join(fmt.Errorf("StartTLS with the directory: %w", err), c.Close())
		}
		return c, nil
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with the directory: %w", err)
	}
	c := ldap.NewConn(conn, true)
	c.Start()
	return c, nil
}

func (d *Directory) tls(host string) (*tls.Config, error) {
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, Time: d.clock}
	if d.config.CAFile == "" {
		return config, nil
	}
	text, err := readFile(d.config.CAFile)
	if err != nil {
		return nil, err
	}
	if config.RootCAs, err = certtext.Pool(text); err != nil {
		return nil, fmt.Errorf("%s %w", d.config.CAFile, err)
	}
	return config, nil
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read: nothing can be lost
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		return nil, fmt.Errorf("%s holds more than %d bytes", path, maxFile)
	}
	return text, err
}
