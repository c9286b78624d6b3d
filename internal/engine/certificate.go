package engine

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// FindCertificates implements keyserver.Certificates.
func (e *Engine) FindCertificates(ctx context.Context, by keyserver.Caller, l keyserver.CertificateLookup) (list []keyserver.Certificate, err error) {
	const limit = keyserver.MaxCertificates + 1
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpFindCertificates, Object: objectOf(l)}, func() (err error) {
		switch {
		case l.Digest != nil:
			var c keyserver.Certificate
			c, err = e.Store.Certificate(ctx, *l.Digest)
			list = []keyserver.Certificate{c}
			if errors.Is(err, sqlstore.ErrNotFound) {
				list, err = []keyserver.Certificate{}, nil
			}
		case !l.Principal.IsZero():
			list, err = e.Store.CertificatesOf(ctx, l.Principal, limit)
		case l.TransportSubject != "":
			list, err = e.Store.EnrolledCertificates(ctx, l.TransportSubject, limit)
		default:
			list, err = e.Store.CertificatesBySubject(ctx, l.Pattern, limit)
		}
		for i := range list {
			list[i].System = e.System
		}
		if len(list) == limit {
			list, err = nil, gate.Invalid("more than %d certificates match; narrow the search", keyserver.MaxCertificates)
		}
		return err
	})
	return list, err
}

func objectOf(l keyserver.CertificateLookup) string {
	switch {
	case l.Digest != nil:
		return l.Digest.ID().Base64()
	case !l.Principal.IsZero():
		return l.Principal.Hex()
	case l.TransportSubject != "":
		return l.TransportSubject
	default:
		return l.Pattern
	}
}

// IssueCertificate implements keyserver.Certificates.
func (e *Engine) IssueCertificate(ctx context.Context, by keyserver.Caller, n keyserver.CertificateRequest) (issued keyserver.Issued, err error) {
	r := gate.Request{By: by, Op: keyserver.OpIssueCertificate, Object: pki.RequestSubject(n.Request)}
	err = e.Perform(ctx, r, func() error {
		req, err := pki.ParseRequest(n.Request)
		if err != nil {
			return gate.Invalid("%s", err)
		}
		line, err := e.CAManager.Authorities(ctx)
		if err != nil {
			return err
		}
		cert, err := line.Issuer.IssueClient(req, time.Duration(n.ValidityDays)*24*time.Hour, e.Clock(), e.Random)
		if err != nil {
			return gate.Invalid("%s", err)
		}
		issued = issuedBy(line.Issuer.Certificate, cert, n.Request, keyserver.StatusSavedRequest)
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertCertificate(ctx, issued.Certificate) })
	})
	return issued, err
}

// issuedBy returns a certificate that ca signed, with the stored form of the certificate.
func issuedBy(ca, cert *x509.Certificate, req []byte, status keyserver.CertificateStatus) keyserver.Issued {
	c := describe(cert, ca, status)
	c.Request = req
	return keyserver.Issued{Certificate: c, Issuer: ca.Raw}
}

// describe returns the stored form of a client certificate.
func describe(cert, issuer *x509.Certificate, status keyserver.CertificateStatus) keyserver.Certificate {
	c := trust.StoredForm(keyserver.DigestOf(cert.Raw).ID(), status, cert)
	c.IssuerDigest = pki.RevocationDigest(issuer.Raw)
	return c
}

// RenewCertificate implements keyserver.Certificates. The new certificate has the same key and subject, so the same
// principal uses it.
func (e *Engine) RenewCertificate(ctx context.Context, by keyserver.Caller, digest keyserver.Digest) (issued keyserver.Issued, err error) {
	r := gate.Request{By: by, Op: keyserver.OpRenewCertificate, Object: digest.ID().Base64()}
	err = e.Perform(ctx, r, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			old, err := tx.Certificate(ctx, digest)
			if err == nil && !old.Current() {
				err = sqlstore.ErrNotFound
			}
			if err != nil {
				return gate.NotFound(err, fault.NotFound, "certificate: no current certificate has these bytes")
			}
			if issued, err = e.renew(ctx, old); err != nil {
				return err
			}
			if err := tx.ExpireCertificate(ctx, old.ID); err != nil {
				return err
			}
			return tx.InsertCertificate(ctx, issued.Certificate)
		})
	})
	return issued, err
}

func (e *Engine) renew(ctx context.Context, old keyserver.Certificate) (keyserver.Issued, error) {
	if len(old.Request) == 0 {
		return keyserver.Issued{}, fault.New(fault.NoSavedRequest,
			"the certificate of %s was not issued here, so no request is saved for it; reset the transport principal and enrol a new certificate", old.Subject).
			Audited(fault.ReasonInvalidArgument)
	}
	req, err := pki.ParseRequest(old.Request)
	if err != nil {
		return keyserver.Issued{}, err
	}
	line, err := e.CAManager.Authorities(ctx)
	if err != nil {
		return keyserver.Issued{}, err
	}
	cert, err := line.Issuer.RenewClient(req, old.NotBefore, old.NotAfter, e.Clock(), e.Random)
	if err != nil {
		return keyserver.Issued{}, gate.Invalid("%s", err)
	}
	issued := issuedBy(line.Issuer.Certificate, cert, old.Request, old.Status)
	issued.Certificate.Principal = old.Principal
	return issued, nil
}

// EnrollCertificates implements keyserver.Certificates. It enrolls all certificates or none.
func (e *Engine) EnrollCertificates(ctx context.Context, by keyserver.Caller, n keyserver.Enrolment) (done []keyserver.Enrolled, err error) {
	ids := make([]string, len(n.Certificates))
	for i, der := range n.Certificates {
		ids[i] = keyserver.DigestOf(der).ID().Base64()
	}
	r := gate.Request{By: by, Op: keyserver.OpEnrollCertificate, Object: strings.Join(ids, " ")}
	err = e.Write(ctx, r, func(tx *sqlstore.Tx) error {
		leaves, err := e.parseClients(n.Certificates)
		if err != nil {
			return err
		}
		done = make([]keyserver.Enrolled, len(leaves))
		issuers, err := ca.Issuers(ctx, tx)
		if err != nil {
			return err
		}
		from, err := e.grantor(ctx, tx, by)
		if err != nil {
			return err
		}
		for i, leaf := range leaves {
			if done[i], err = e.enrol(ctx, tx, by, from, leaf, issuers, n.Roles); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func (e *Engine) parseClients(ders [][]byte) ([]*x509.Certificate, error) {
	leaves := make([]*x509.Certificate, len(ders))
	for i, der := range ders {
		cert, err := certtext.Certificate(der)
		if err != nil {
			return nil, gate.Invalid("certificates[%d] %s", i, err)
		}
		if err := pki.CheckClient(cert, e.Clock()); err != nil {
			return nil, gate.Invalid("certificates[%d] cannot be enrolled: %s", i, err)
		}
		leaves[i] = cert
	}
	return leaves, nil
}

// enrol assigns one certificate to the transport principal of its subject. It changes nothing if the certificate is
// already enrolled. The holder of the certificate's key gets all operations of the principal, so the caller must be
// permitted to give these operations.
func (e *Engine) enrol(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, from grantor,
	leaf *x509.Certificate, issuers []*x509.Certificate, roles []keyserver.ID,
) (keyserver.Enrolled, error) {
	var none keyserver.Enrolled
	subject := pki.SlashName(leaf.Subject)
	issuer, err := pki.IssuerOf(leaf, issuers, e.Clock())
	if err != nil {
		return none, gate.Invalid("%s cannot be enrolled: %s", subject, err)
	}
	stored, err := tx.Certificate(ctx, keyserver.DigestOf(leaf.Raw))
	known := err == nil
	switch {
	case err != nil && !errors.Is(err, sqlstore.ErrNotFound):
		return none, err
	case known && !stored.Current():
		return none, gate.Invalid("%s cannot be enrolled: this certificate was replaced by a renewal; enrol the new one", subject)
	}
	p, created, err := e.transportPrincipal(ctx, tx, by, subject, roles)
	switch {
	case err != nil:
		return none, err
	case known && !stored.Principal.IsZero():
		return keyserver.Enrolled{Principal: stored.Principal}, nil
	}
	if err := mayGiveAll(ctx, tx, from, p); err != nil {
		return none, err
	}
	switch {
	case known:
		err = tx.EnrolCertificate(ctx, stored.ID, p)
	default:
		c := describe(leaf, issuer, keyserver.StatusRegular)
		c.Principal = p
		err = tx.InsertCertificate(ctx, c)
	}
	return keyserver.Enrolled{Principal: p, Created: created}, err
}

// transportPrincipal returns the principal of a subject. If there is none, it creates one, enabled and without the
// delegation flag, and reports true.
func (e *Engine) transportPrincipal(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, subject string, roles []keyserver.ID) (keyserver.ID, bool, error) {
	p, err := tx.PrincipalByName(ctx, keyserver.CertificatePrincipal, subject)
	switch {
	case err == nil && len(roles) > 0 && !slices.Equal(keyserver.NormalizeIDs(roles), keyserver.NormalizeIDs(p.Roles)):
		return keyserver.ID{}, false, fault.New(fault.AlreadyExists,
			"transport principal %s exists and keeps its roles; leave roleIds out, or set them with PUT /api/principals/{id}/roles", p.ID).
			Audited(fault.ReasonInvalidArgument)
	case err == nil:
		return p.ID, false, nil
	case !errors.Is(err, sqlstore.ErrNotFound):
		return keyserver.ID{}, false, err
	}
	id, err := values.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, false, err
	}
	return id, true, e.insertPrincipal(ctx, tx, by, keyserver.Principal{
		ID: id, System: e.System, Type: keyserver.CertificatePrincipal, Name: subject,
		Flags: keyserver.FlagEnable, Roles: keyserver.NormalizeIDs(roles),
	}, "")
}

// ResetTransportPrincipal implements keyserver.Certificates.
func (e *Engine) ResetTransportPrincipal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (done keyserver.TransportReset, err error) {
	r := gate.Request{By: by, Op: keyserver.OpResetTransportPrincipal, Object: id.Hex()}
	err = e.Perform(ctx, r, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			p, err := tx.Principal(ctx, id)
			switch {
			case err == nil && p.Type != keyserver.CertificatePrincipal, errors.Is(err, sqlstore.ErrNotFound):
				return fault.New(fault.NotFound, "no transport principal has the id %s", id).Audited(fault.ReasonObjectNotFound)
			case err != nil:
				return err
			}
			if err := p.RefuseChange(); err != nil {
				return err
			}
			if done.Certificates, err = tx.DeleteCertificatesOf(ctx, id); err != nil {
				return err
			}
			done.Sessions, err = tx.DeleteSessionsOf(ctx, p.Ref())
			return err
		})
	})
	return done, err
}
