package keys

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// ExportKey implements keyserver.Keys. The material leaves only encrypted for
// the holder of an enrolled certificate, and only at the word of an owner.
func (ks *Keys) ExportKey(ctx context.Context, by keyserver.Caller, x keyserver.KeyExport) (keyserver.ExportedKey, error) {
	var key *heldKey
	var recipient keyserver.ExportedKey
	r := gate.Request{By: by, Op: keyserver.OpExportKey, Link: x.Link, Object: x.Link.Base64() + " for " + x.Recipient.String(), Counts: true}
	err := ks.Perform(ctx, r, func() error {
		return ks.seal(ctx, key.id, &recipient)
	}, ks.uses(by, x.Link, keyserver.Owner, &key), ks.leaves(&key), ks.receives(x.Recipient, &recipient), ks.Unchanged(by))
	if err != nil {
		return keyserver.ExportedKey{}, err
	}
	return recipient, nil
}

// receives is the check that a principal can be given a key: it is a transport
// principal of this key server, enabled, with a certificate in force.
func (ks *Keys) receives(to keyserver.PrincipalRef, out *keyserver.ExportedKey) gate.Check {
	return func(ctx context.Context, _ access.Subject) error {
		if ks.Explains() { // a question has no caller to name
			return nil
		}
		p, err := ks.CachedPrincipal(ctx, to.ID)
		switch {
		case err == nil && to.System != ks.System, errors.Is(err, sqlstore.ErrNotFound):
			return fault.New(fault.NotFound, "no principal has the systemId %d and the principalId %s", to.System, to.ID.Decimal()).
				Audited(fault.ReasonObjectNotFound)
		case err != nil:
			return err
		case p.Type != keyserver.CertificatePrincipal:
			return gate.Invalid("principal %s cannot receive a key: it has no certificate, being of type %s", to, p.Type)
		case p.Flags.Disabled():
			return gate.Invalid("principal %s cannot receive a key: it is disabled", to)
		}
		out.Recipient = p
		out.Certificate, err = ks.certificateInForceOf(ctx, p)
		return err
	}
}

// certificateInForceOf finds the certificate of a transport principal that was
// made last among those in force, which a login with it would be asked as well.
func (ks *Keys) certificateInForceOf(ctx context.Context, p keyserver.Principal) (keyserver.Certificate, error) {
	list, err := ks.Store.CertificatesOf(ctx, p.ID, keyserver.MaxCertificates)
	if err != nil {
		return keyserver.Certificate{}, err
	}
	best, good, err := ks.BestOf(ctx, list)
	if err == nil && !good {
		return best, gate.Invalid("principal %s cannot receive a key: none of its certificates is in force: enrolled, not replaced, within its dates, of a CA that is trusted now, and not revoked", p.Ref())
	}
	return best, err
}

// seal reads the key from the store, because no cache holds its bytes.
func (ks *Keys) seal(ctx context.Context, key keyserver.ID, out *keyserver.ExportedKey) error {
	cert, err := x509.ParseCertificate(out.Certificate.DER)
	if err != nil {
		return fmt.Errorf("parse a stored certificate: %w", err)
	}
	record, err := ks.Store.Key(ctx, key)
	if err != nil {
		return gate.NotFound(err, fault.KeyNotFound, "the hidden link names no key of this key server")
	}
	plain, err := ks.keyring.Unwrap(key, ks.System, record.Wrapped)
	if err != nil {
		return fmt.Errorf("unwrap key %s: %w", key, err)
	}
	defer clear(plain)
	out.JWE, out.Algorithm, err = keyring.SealFor(cert, plain)
	if errors.Is(err, keyring.ErrNoEncryption) {
		return gate.Invalid("%s", err)
	}
	return err
}
