package trust

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TrustedCAs implements keyserver.TrustedCAs.
func (tr *Trust) TrustedCAs(ctx context.Context, by keyserver.Caller) (list []keyserver.Certificate, err error) {
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListTrustedCAs}, func() (err error) {
		list, err = tr.Store.TrustedCAs(ctx)
		return err
	})
	return list, err
}

// AddTrustedCA implements keyserver.TrustedCAs.
func (tr *Trust) AddTrustedCA(ctx context.Context, by keyserver.Caller, der []byte) ([]keyserver.ID, error) {
	id, err := values.NewID(tr.Random)
	if err != nil {
		return nil, err
	}
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpAddTrustedCA, Object: id.Base64()}, func() error {
		ca, err := describeCA(id, der)
		if err != nil {
			return err
		}
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			if err := tx.InsertTrustedCA(ctx, ca); errors.Is(err, sqlstore.ErrDuplicate) {
				return fault.New(fault.AlreadyTrusted, "the certificate is already trusted").Audited(fault.ReasonInvalidArgument)
			} else if err != nil {
				return err
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return []keyserver.ID{id}, nil
}

// RemoveTrustedCA implements keyserver.TrustedCAs.
func (tr *Trust) RemoveTrustedCA(ctx context.Context, by keyserver.Caller, id keyserver.ID) ([]keyserver.ID, error) {
	err := tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpRemoveTrustedCA, Object: id.Base64()}, func() error {
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return gate.NotFound(tx.DeleteTrustedCA(ctx, id), fault.NotTrusted, "no trusted CA has the certificateId %s", id.Base64())
		})
	})
	if err != nil {
		return nil, err
	}
	return []keyserver.ID{id}, nil
}

// describeCA returns the stored form of a CA certificate, or an error if it cannot be trusted.
func describeCA(id keyserver.ID, der []byte) (keyserver.Certificate, error) {
	cert, err := certtext.Certificate(der)
	if err != nil {
		return keyserver.Certificate{}, gate.Invalid("certificate: %s", err)
	}
	if err := pki.CheckCA(cert); err != nil {
		return keyserver.Certificate{}, gate.Invalid("%s cannot be trusted: %s", pki.SlashName(cert.Subject), err)
	}
	return StoredForm(id, keyserver.StatusCA, cert), nil
}

// WarnOfWeakCAs logs each trusted CA that is too weak to be added today. Older releases accepted such CAs. They stay
// trusted until an administrator removes them.
func WarnOfWeakCAs(ctx context.Context, store *sqlstore.Store, logger *slog.Logger) error {
	cas, err := store.TrustedCAs(ctx)
	for _, ca := range cas {
		cert, err := x509.ParseCertificate(ca.DER)
		if err == nil {
			err = pki.CheckCA(cert)
		}
		if err != nil {
			logger.WarnContext(ctx, "a trusted CA would be rejected today; remove it and add a better one",
				"certificateId", ca.ID.Base64(), "subject", ca.Subject, "cause", err)
		}
	}
	return err
}

// StoredForm returns the stored form of any certificate.
func StoredForm(id keyserver.ID, status keyserver.CertificateStatus, cert *x509.Certificate) keyserver.Certificate {
	return keyserver.Certificate{
		ID: id, Status: status,
		Subject: pki.SlashName(cert.Subject), Issuer: pki.SlashName(cert.Issuer),
		KeyType: pki.KeyTypeName(cert), Serial: cert.SerialNumber.Bytes(),
		NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, DER: cert.Raw,
	}
}
