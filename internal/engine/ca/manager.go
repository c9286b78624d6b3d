package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/cache"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// Config has the dependencies of a Manager. Every field is required.
type Config struct {
	Store      *sqlstore.Store
	Keyring    *keyring.Keyring
	System     keyserver.SystemID
	ServerName string
	Clock      func() time.Time
	Random     io.Reader
}

// Manager manages the CAs of one key server. It is safe for concurrent use.
type Manager struct {
	Config
	caches      cache.Set
	authorities *cache.Cache[keyserver.SystemID, Authorities] // with a single entry, for the own system id
}

// New returns the Manager of a store.
func New(c Config) *Manager {
	o := &Manager{Config: c}
	o.authorities = cache.New[keyserver.SystemID, Authorities](&o.caches, 1, keyserver.ChangeAuthority)
	c.Store.OnChange(o.caches.Changed)
	return o
}

// reader is a store or a transaction.
type reader interface {
	Authorities(ctx context.Context) ([]trustrows.Authority, error)
}

// Authorities returns the CAs, including every committed change.
func (o *Manager) Authorities(ctx context.Context) (Authorities, error) {
	return o.authorities.Get(ctx, o.System, func() (Authorities, error) { return o.Load(ctx, o.Store) })
}

// Load reads the CAs, with the key of the active CA.
func (c Config) Load(ctx context.Context, in reader) (Authorities, error) {
	list, err := in.Authorities(ctx)
	if err != nil {
		return Authorities{}, err
	}
	var l Authorities
	for _, a := range list {
		m, err := read(a.Authority)
		if err != nil {
			return Authorities{}, err
		}
		l.Members = append(l.Members, m)
		if a.State != keyserver.AuthorityActive {
			continue
		}
		if l.Issuer, err = c.open(a); err != nil {
			return Authorities{}, fmt.Errorf("the authority %s: %w", a.ID.Base64(), err)
		}
	}
	if l.Issuer.Certificate == nil {
		return Authorities{}, errNone
	}
	return l, nil
}

var errNone = errors.New("the database has no active authority, which every key server needs; restore the database from a backup")

// Trusted reads the certificates of all own CAs, without their keys.
func Trusted(ctx context.Context, in reader) ([]*x509.Certificate, error) {
	list, err := in.Authorities(ctx)
	return parsed(list, func(a trustrows.Authority) []byte { return a.Certificate }), err
}

// trustReader is a store or a transaction.
type trustReader interface {
	TrustedCAs(ctx context.Context) ([]keyserver.Certificate, error)
}

// TrustedCAs reads the certificates of the trusted external CAs.
func TrustedCAs(ctx context.Context, in trustReader) ([]*x509.Certificate, error) {
	list, err := in.TrustedCAs(ctx)
	return parsed(list, func(c keyserver.Certificate) []byte { return c.DER }), err
}

// Issuers reads the CAs whose client certificates are accepted: the own CAs and the
// trusted external CAs.
func Issuers(ctx context.Context, in interface {
	reader
	trustReader
},
) ([]*x509.Certificate, error) {
	own, err := Trusted(ctx, in)
	if err != nil {
		return nil, err
	}
	trusted, err := TrustedCAs(ctx, in)
	return append(own, trusted...), err
}

// parsed parses certificates. It skips certificates that cannot be parsed, because they cannot prove anything.
func parsed[T any](list []T, der func(T) []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	for _, one := range list {
		if cert, err := x509.ParseCertificate(der(one)); err == nil {
			certs = append(certs, cert)
		}
	}
	return certs
}

func read(a keyserver.Authority) (Member, error) {
	m := Member{Authority: a}
	var err error
	if m.Parsed, err = x509.ParseCertificate(a.Certificate); err != nil {
		return m, fmt.Errorf("the certificate of the authority %s: %w", a.ID.Base64(), err)
	}
	for _, der := range a.Links {
		link, err := x509.ParseCertificate(der)
		if err != nil {
			return m, fmt.Errorf("a link of the authority %s: %w", a.ID.Base64(), err)
		}
		m.Linked = append(m.Linked, link)
	}
	return m, nil
}

// open unwraps the key of a CA. It fails if the key does not belong to the certificate.
func (c Config) open(a trustrows.Authority) (pki.Identity, error) {
	plain, err := c.Keyring.Unwrap(a.ID, c.System, a.WrappedKey)
	if err != nil {
		return pki.Identity{}, err
	}
	defer clear(plain)
	id, err := pki.ParseIdentity(a.Certificate, plain)
	if err == nil && !id.Key.PublicKey.Equal(id.Certificate.PublicKey) {
		err = errors.New("its private key does not match its certificate; restore the database from a backup")
	}
	return id, err
}

// Add stores a CA with its key.
func (c Config) Add(ctx context.Context, tx *sqlstore.Tx, id pki.Identity, a keyserver.Authority) (keyserver.ID, error) {
	var err error
	if a.ID, err = values.NewID(c.Random); err != nil {
		return a.ID, err
	}
	plain, err := id.MarshalKey()
	if err != nil {
		return a.ID, err
	}
	defer clear(plain)
	wrapped, err := c.Keyring.Wrap(a.ID, c.System, plain)
	if err != nil {
		return a.ID, err
	}
	a.Certificate = id.Certificate.Raw
	return a.ID, tx.InsertAuthority(ctx, trustrows.Authority{Authority: a, WrappedKey: wrapped})
}

// CreateFirst creates the first CA, which is active immediately.
func (c Config) CreateFirst(ctx context.Context, tx *sqlstore.Tx) (pki.Identity, error) {
	now := c.Clock()
	id, err := pki.NewCA(fmt.Sprintf("%s internal CA (system %d)", c.ServerName, c.System), now, c.Random)
	if err != nil {
		return id, err
	}
	_, err = c.Add(ctx, tx, id, keyserver.Authority{Generation: 1, State: keyserver.AuthorityActive, PreparedAt: now, ActivatedAt: now})
	return id, err
}

// nextName returns a unique name for the next CA. Two CAs with the same name and different keys would confuse libraries
// that find an issuer by its name. The name has random digits, because several CAs may be created on one day.
func (c Config) nextName(now time.Time) (string, error) {
	var digits [4]byte
	if _, err := io.ReadFull(c.Random, digits[:]); err != nil {
		return "", fmt.Errorf("create the name of an authority: %w", err)
	}
	return fmt.Sprintf("%s internal CA of %s %x (system %d)", c.ServerName, now.UTC().Format(time.DateOnly), digits, c.System), nil
}

// Prepare creates the next CA.
func (o *Manager) Prepare(ctx context.Context) (id keyserver.ID, err error) {
	err = o.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		l, err := o.Load(ctx, tx)
		if err != nil {
			return err
		}
		if err := MayPrepare(l.Members); err != nil {
			return err
		}
		id, err = o.prepare(ctx, tx, l)
		return err
	})
	return id, err
}

func (o *Manager) prepare(ctx context.Context, tx *sqlstore.Tx, l Authorities) (keyserver.ID, error) {
	now := o.Clock()
	a := keyserver.Authority{State: keyserver.AuthorityPrepared, PreparedAt: now, Generation: 1 + l.Members[len(l.Members)-1].Generation}
	name, err := o.nextName(now)
	if err != nil {
		return a.ID, err
	}
	next, err := pki.NewCA(name, now, o.Random)
	if err != nil {
		return a.ID, err
	}
	if now.Before(l.End()) { // an expired CA is trusted by no client, so a link from it is useless
		link, err := l.Issuer.Link(next.Certificate, now, o.Random)
		if err != nil {
			return a.ID, err
		}
		a.Links = append(a.Links, link.Raw)
		if active, ok := find(l.Members, keyserver.AuthorityActive); ok {
			for _, c := range current(active.Linked, now) {
				a.Links = append(a.Links, c.Raw)
			}
		}
		a.Links = a.Links[:min(len(a.Links), maxLinks)]
	}
	return o.Add(ctx, tx, next, a)
}

// Activate makes the prepared CA the active one. See MayActivate for early.
func (o *Manager) Activate(ctx context.Context, early bool) (id keyserver.ID, err error) {
	err = o.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		l, err := o.Load(ctx, tx)
		if err != nil {
			return err
		}
		next, err := MayActivate(l.Members, early, o.Clock())
		if err != nil {
			return err
		}
		id = next.ID
		return o.activate(ctx, tx, l, next)
	})
	return id, err
}

func (o *Manager) activate(ctx context.Context, tx *sqlstore.Tx, l Authorities, next Member) error {
	now := o.Clock()
	if before, ok := find(l.Members, keyserver.AuthorityActive); ok {
		before.State, before.RetiringAt = keyserver.AuthorityRetiring, now
		if err := tx.ChangeAuthority(ctx, before.Authority); err != nil {
			return err
		}
	}
	next.State, next.ActivatedAt = keyserver.AuthorityActive, now
	return tx.ChangeAuthority(ctx, next.Authority)
}

// Retire ends the trust in a CA and deletes its key.
func (o *Manager) Retire(ctx context.Context, id keyserver.ID) (done keyserver.AuthorityRetired, err error) {
	err = o.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		l, err := o.Load(ctx, tx)
		if err != nil {
			return err
		}
		m, err := MayRetire(l.Members, id)
		if err != nil {
			return err
		}
		if done.InForce, err = tx.CertificatesInForce(ctx, pki.RevocationDigest(m.Certificate), o.Clock()); err != nil {
			return err
		}
		return tx.DeleteAuthority(ctx, id)
	})
	return done, err
}

// Next returns the step that is due now (see Due).
func (o *Manager) Next(ctx context.Context) (Step, error) {
	l, err := o.Authorities(ctx)
	if err != nil {
		return Step{}, err
	}
	now, members := o.Clock(), slices.Clone(l.Members)
	for i, m := range members {
		if m.State != keyserver.AuthorityRetiring {
			continue
		}
		n, err := o.Store.CertificatesInForce(ctx, pki.RevocationDigest(m.Certificate), now)
		if err != nil {
			return Step{}, err
		}
		members[i].InForce = n > 0
	}
	return Due(members, now), nil
}

// Execute executes a step. It fails if another replica has already executed it.
func (o *Manager) Execute(ctx context.Context, s Step) error {
	var err error
	switch s.Action {
	case Prepare:
		_, err = o.Prepare(ctx)
	case Activate:
		_, err = o.Activate(ctx, true) // true, because Next has checked how long the CA was prepared
	case Retire:
		_, err = o.Retire(ctx, s.ID)
	}
	return err
}
