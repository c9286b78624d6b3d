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

// ExportKey implements keyserver.Keys. Only an owner may export a key. The material leaves the key server only
// encrypted for the holder of an enrolled certificate.
func (ks *Keys) ExportKey(ctx context.Context, by keyserver.Caller, x keyserver.KeyExport) (keyserver.ExportedKey, error) {
	var recipient keyserver.ExportedKey
	r := gate.Request{By: by, Op: keyserver.OpExportKey, Link: x.Link, Object: x.Link.Base64() + " for " + x.Recipient.String(), Counts: true}
	err := gate.PerformOn(ctx, ks.Gate, r, ks.resolveExport(by, x.Link), func(key target) error {
		return ks.seal(ctx, key.id, &recipient)
	}, ks.recipientCheck(x.Recipient, &recipient), ks.Unchanged(by))
	if err != nil {
		return keyserver.ExportedKey{}, err
	}
	return recipient, nil
}

// resolveExport returns a Resolver for the key that the link names. The Resolver fails unless the key is exportable and
// the caller may use it now as an owner.
func (ks *Keys) resolveExport(by keyserver.Caller, link keyserver.HiddenLink) gate.Resolver[target] {
	uses := ks.resolveUse(by, link, keyserver.Owner)
	return func(ctx context.Context, who access.Subject) (target, error) {
		key, err := uses(ctx, who)
		if err != nil || key.life.Exportable {
			return key, err
		}
		return key, ks.Step(keyserver.StepState, fault.New(fault.KeyNotExportable, "the key was minted with exportable false, which is permanent; mint an exportable key instead").
			Audited(fault.ReasonNotExportable))
	}
}

// recipientCheck returns a check that a principal may receive an exported key: an enabled transport principal of this
// key server with a certificate in force. The check stores the principal and its certificate in out.
func (ks *Keys) recipientCheck(to keyserver.PrincipalRef, out *keyserver.ExportedKey) gate.Check {
	return func(ctx context.Context, _ access.Subject) error {
		if ks.Explains() { // a question does not name a recipient
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
			return gate.Invalid("principal %s cannot receive a key: a principal of type %s has no certificate; name a transport principal", to, p.Type)
		case p.Flags.Disabled():
			return gate.Invalid("principal %s cannot receive a key: it is disabled; ask an administrator to enable it", to)
		}
		out.Recipient = p
		out.Certificate, err = ks.certificateInForceOf(ctx, p)
		return err
	}
}

// certificateInForceOf returns the newest certificate in force of a transport principal, or an error if there is none.
func (ks *Keys) certificateInForceOf(ctx context.Context, p keyserver.Principal) (keyserver.Certificate, error) {
	list, err := ks.Store.CertificatesOf(ctx, p.ID, keyserver.MaxCertificates)
	if err != nil {
		return keyserver.Certificate{}, err
	}
	best, good, err := ks.BestOf(ctx, list)
	if err == nil && !good {
		return best, gate.Invalid("principal %s cannot receive a key: none of its enrolled certificates is current, within its dates, of a trusted CA, and accepted by the revocation policy of the CA; enrol another one", p.Ref())
	}
	return best, err
}

// seal encrypts the key for the certificate in out. It reads the key from the store, because no cache has the bytes of
// keys.
func (ks *Keys) seal(ctx context.Context, key keyserver.ID, out *keyserver.ExportedKey) error {
	cert, err := x509.ParseCertificate(out.Certificate.DER)
	if err != nil {
		return fmt.Errorf("parse a stored certificate: %w", err)
	}
	record, err := ks.Store.Key(ctx, key)
	if err != nil {
		return gate.NotFound(err, fault.KeyNotFound, "the hidden link does not identify a key of this key server")
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
