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

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

const (
	// timeout is the time limit for all exchanges of one check together.
	timeout = 10 * time.Second
	// MaxAtOnce is the maximum number of concurrent checks. Each needs its own connection
	// because a bind changes the identity of the connection.
	MaxAtOnce = 16

	maxFile   = 64 << 10 // bytes of a password or CA file
	maxPacket = 1 << 20  // bytes of one response of the directory
)

// The library allocates as many bytes as the directory announces. Its default limit is 2 GiB.
func init() { ber.MaxPacketLengthBytes = maxPacket } //nolint:reassign // the library takes its limit no other way

// Refused is the reason why the directory rejects a name and its password.
type Refused string

func (r Refused) Error() string { return "the directory refuses the login: " + string(r) }

// Directory checks passwords. It opens a connection for each check.
type Directory struct {
	config Config
	slots  chan struct{}
	clock  func() time.Time
}

// New returns a directory. It opens no connection, so that the key server can start while the directory is unavailable.
func New(c Config, clock func() time.Time) *Directory {
	return &Directory{config: c, slots: make(chan struct{}, MaxAtOnce), clock: clock}
}

// Check returns nil if the password belongs to the name, and Refused if not. All other errors mean that the directory
// did not decide. Check itself refuses an empty password: a directory would treat such a bind as anonymous and accept
// it (RFC 4513 section 5.1.2).
func (d *Directory) Check(ctx context.Context, name, password string) error {
	if name == "" || password == "" {
		return Refused("name and password must not be empty")
	}
	return d.exchange(ctx, func(c *ldap.Conn) error { return d.check(c, name, password) })
}

// CheckDummy sends the same requests to the directory as Check, with a name and a password that do not exist.
func (d *Directory) CheckDummy(ctx context.Context) error {
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
		// This takes the directory as much work as the bind of an existing name. The result is ignored.
		if err := bind(c, d.config.BaseDN, password); err != nil && !isRefused(err) {
			return err
		}
		return Refused("no entry or more than one has this name")
	}
	return bind(c, dn, password)
}

// search returns the DN of the entry with a name, or "" if there is not exactly one.
func (d *Directory) search(c *ldap.Conn, name string) (string, error) {
	secret, err := readFile(d.config.BindPasswordFile)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(secret), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s contains no password", d.config.BindPasswordFile)
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

// notRecognised contains the result codes that directories return for wrong credentials in a bind. All other codes are
// failures of the directory.
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

// exchange runs do with a new connection, with limits for time and concurrency.
func (d *Directory) exchange(ctx context.Context, do func(*ldap.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return fmt.Errorf("%d logins use the directory at the same time, the limit: %w", MaxAtOnce, ctx.Err())
	}
	to, err := d.config.address()
	if err != nil {
		return err
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.address)
	if err != nil {
		return err
	}
	// The library does not support contexts. Closing the connection ends its pending reads.
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	c, err := d.secure(ctx, raw, to)
	if err != nil {
		return errors.Join(err, raw.Close())
	}
	defer func() { _ = c.Close() }() // the exchange is complete
	return do(c)
}

// secure returns the TLS connection after it has verified the directory's certificate. Before that, it sends only
// StartTLS.
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
	defer func() { _ = file.Close() }() // opened only for reading
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, err
}
