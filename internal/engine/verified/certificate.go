package verified

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of requests.
const (
	maxValidityDays = 3650
	maxEnrolment    = 64 // certificates in one request
	maxSubject      = 1024
)

// Kinds of lookup of certificates (contract 12.1).
const (
	LookupBySubject            = "by-subject"
	LookupByTransportPrincipal = "by-transport-principal"
)

// CertificatesFound is the result of a lookup of certificates.
type CertificatesFound struct {
	Lookup       string
	Subject      string                 // subject in the request
	Principal    keyserver.PrincipalRef // of all the certificates; zero if they have no principal or several principals
	Certificates []keyserver.Certificate
	Detail       string
}

// CertificateIssued is the result of issuing or renewing a certificate.
type CertificateIssued struct {
	Saved       bool
	Chain       []byte                // PKCS#7 with the certificate and its issuer
	Certificate keyserver.Certificate // as read back
	Detail      string
}

// EnrolledPrincipal is a transport principal with its certificates.
type EnrolledPrincipal struct {
	Principal    keyserver.Principal
	Certificates []keyserver.Certificate
	Created      bool
}

// CertificatesEnrolled is the result of an enrolment.
type CertificatesEnrolled struct {
	Saved      bool
	Principals []EnrolledPrincipal // as read back, each once, in the order of the certificates
	Detail     string
}

// TransportReset is the result of resetting a transport principal.
type TransportReset struct {
	Reset               bool
	CertificatesRemoved int
	Principal           keyserver.Principal // as read back
	Detail              string
}

// CertificatesBySubject finds certificates by subject. The wildcard % in the pattern matches any text.
func (s *Service) CertificatesBySubject(ctx context.Context, by keyserver.Caller, pattern string) (CertificatesFound, error) {
	if err := refuseSubject(pattern); err != nil {
		return CertificatesFound{}, err
	}
	r := CertificatesFound{Lookup: LookupBySubject, Subject: pattern}
	list, err := s.ks.FindCertificates(ctx, by, keyserver.CertificateLookup{Pattern: pattern})
	r.Certificates, r.Detail = list, fmt.Sprintf("%d certificates have a matching subject; %% matches any text, every other character only itself", len(list))
	return r, err
}

// CertificatesByTransportPrincipal finds the enrolled certificates that have exactly the
// given subject.
func (s *Service) CertificatesByTransportPrincipal(ctx context.Context, by keyserver.Caller, subject string) (CertificatesFound, error) {
	if err := refuseSubject(subject); err != nil {
		return CertificatesFound{}, err
	}
	r := CertificatesFound{Lookup: LookupByTransportPrincipal, Subject: subject}
	list, err := s.ks.FindCertificates(ctx, by, keyserver.CertificateLookup{TransportSubject: subject})
	if err != nil {
		return CertificatesFound{}, err
	}
	r.Certificates = list
	r.Detail = fmt.Sprintf("%d enrolled certificates have exactly this subject", len(list))
	if len(list) == 0 {
		r.Detail = "no enrolled certificate has exactly this subject; subjects with more name components do not match, so try wildcardEquivalent"
		return r, nil
	}
	if owner := list[0].Principal; !slices.ContainsFunc(list, func(c keyserver.Certificate) bool { return c.Principal != owner }) {
		r.Principal = keyserver.PrincipalRef{System: list[0].System, ID: owner}
	}
	return r, nil
}

// refuseSubject returns an error for a subject that no certificate can have. It also rejects the empty subject, which a
// key server could treat as "any".
func refuseSubject(subject string) error {
	switch {
	case subject == "":
		return fault.New(fault.BadRequest, "subject: must not be empty; send it in slash form, for instance /CN=agent")
	case len(subject) > maxSubject, !utf8.ValidString(subject):
		return fault.New(fault.BadRequest, "subject: must be valid UTF-8 of at most %d bytes", maxSubject)
	}
	return nil
}

// IssueCertificate requests a certificate for a PKCS#10 request. It verifies that the new certificate is stored with
// the request and has the key of the request.
func (s *Service) IssueCertificate(ctx context.Context, by keyserver.Caller, n keyserver.CertificateRequest) (CertificateIssued, error) {
	req, err := pki.ParseRequest(n.Request)
	switch {
	case err != nil:
		return CertificateIssued{}, fault.New(fault.BadRequest, "request: %s", err)
	case n.ValidityDays < 0 || n.ValidityDays > maxValidityDays:
		return CertificateIssued{}, fault.New(fault.BadRequest, "validityDays: must be 1 to %d; leave it out for the key server's own choice", maxValidityDays)
	}
	return s.issue(ctx, by, req, nil, func(ctx context.Context) (keyserver.Issued, error) {
		return s.ks.IssueCertificate(ctx, by, n)
	})
}

// RenewCertificate requests a new certificate with the stored request of an old one. It verifies the new certificate,
// and that the old certificate is expired.
func (s *Service) RenewCertificate(ctx context.Context, by keyserver.Caller, der []byte) (CertificateIssued, error) {
	if _, err := certtext.Certificate(der); err != nil {
		return CertificateIssued{}, fault.New(fault.BadRequest, "certificate: %s", err)
	}
	digest := keyserver.DigestOf(der)
	old, err := s.certificate(ctx, by, digest)
	switch {
	case err != nil:
		return CertificateIssued{}, err
	case old == nil || !old.Current():
		return CertificateIssued{}, fault.New(fault.NotFound, "certificate: no current certificate has these bytes; find it with POST /api/certificates/by-subject")
	case len(old.Request) == 0:
		return CertificateIssued{}, fault.New(fault.NoSavedRequest,
			"the certificate was not issued here, so no request is saved for it; reset its principal with POST /api/transport-principals/reset and enrol a fresh certificate")
	}
	req, err := x509.ParseCertificateRequest(old.Request)
	if err != nil {
		return CertificateIssued{}, err
	}
	return s.issue(ctx, by, req, &digest, func(ctx context.Context) (keyserver.Issued, error) {
		return s.ks.RenewCertificate(ctx, by, digest)
	})
}

// certificateState is the state before or after a certificate is issued: the new certificate, and the old one that it
// replaces. A missing certificate is nil.
type certificateState struct{ fresh, old *keyserver.Certificate }

func (s *Service) issue(ctx context.Context, by keyserver.Caller, req *x509.CertificateRequest, replaced *keyserver.Digest,
	send func(context.Context) (keyserver.Issued, error),
) (CertificateIssued, error) {
	var issued keyserver.Issued
	return verifiedWrite[certificateState, CertificateIssued]{
		read: func(ctx context.Context) (state certificateState, err error) {
			if len(issued.Certificate.DER) > 0 {
				if state.fresh, err = s.certificate(ctx, by, keyserver.DigestOf(issued.Certificate.DER)); err != nil {
					return state, err
				}
			}
			if replaced != nil {
				state.old, err = s.certificate(ctx, by, *replaced)
			}
			return state, err
		},
		write: func(ctx context.Context, _ certificateState) (err error) {
			issued, err = send(ctx)
			return err
		},
		unread: fault.ReadbackFailed,
		verdict: func(_, after certificateState) (CertificateIssued, error) {
			return judgeIssued(req, issued, replaced != nil, after)
		},
	}.do(ctx)
}

// judgeIssued returns the verdict on a new certificate. The stored certificate must have its request, the key and name
// in the request, and the signature of its issuer. The certificate that it replaces must not be current any more.
func judgeIssued(req *x509.CertificateRequest, issued keyserver.Issued, replaces bool, after certificateState) (CertificateIssued, error) {
	r := CertificateIssued{}
	if after.fresh == nil {
		r.Detail = "the key server accepted the request, but a fresh read does not show the new certificate"
		return r, fault.New(fault.NotSaved, "%s", r.Detail)
	}
	r.Certificate = *after.fresh
	cert, err := x509.ParseCertificate(after.fresh.DER)
	issuer, issuerErr := x509.ParseCertificate(issued.Issuer)
	switch {
	case err != nil || issuerErr != nil || cert.CheckSignatureFrom(issuer) != nil:
		r.Detail = "a fresh read shows a certificate that is not signed by the reported issuer"
	case !bytes.Equal(cert.RawSubjectPublicKeyInfo, req.RawSubjectPublicKeyInfo) || pki.SlashName(cert.Subject) != pki.SlashName(req.Subject):
		r.Detail = "a fresh read shows a certificate for another key or name than in the request"
	case !bytes.Equal(after.fresh.Request, req.Raw):
		r.Detail = "the certificate is stored, but the request is not saved with it"
	case replaces && (after.old == nil || after.old.Current()):
		r.Detail = "the new certificate is stored, but the old one is not marked as expired"
	default:
		if r.Chain, err = pki.EncodeChain(cert, issuer); err != nil {
			return r, err
		}
		r.Saved, r.Detail = true, "a fresh read shows the certificate with its request; "+standingOf(*after.fresh)
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}

func standingOf(c keyserver.Certificate) string {
	if c.Principal.IsZero() {
		return "enrol it with POST /api/certificates/enroll before it can log in"
	}
	return "it is enrolled for the same transport principal as the old certificate, which is now expired"
}

// certificate reads a certificate by its digest. It returns nil if there is none.
func (s *Service) certificate(ctx context.Context, by keyserver.Caller, digest keyserver.Digest) (*keyserver.Certificate, error) {
	list, err := s.ks.FindCertificates(ctx, by, keyserver.CertificateLookup{Digest: &digest})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// EnrollCertificates enrols all of the certificates or none. To verify them, it reads the principal of each
// certificate, and the certificates of that principal.
func (s *Service) EnrollCertificates(ctx context.Context, by keyserver.Caller, n keyserver.Enrolment) (CertificatesEnrolled, error) {
	if err := refuseEnrolment(n.Certificates); err != nil {
		return CertificatesEnrolled{}, err
	}
	n.Roles = keyserver.NormalizeIDs(n.Roles)
	var done []keyserver.Enrolled
	return verifiedWrite[[]EnrolledPrincipal, CertificatesEnrolled]{
		read: func(ctx context.Context) ([]EnrolledPrincipal, error) { return s.enrolled(ctx, by, done) },
		write: func(ctx context.Context, _ []EnrolledPrincipal) (err error) {
			done, err = s.ks.EnrollCertificates(ctx, by, n)
			return err
		},
		unread:  fault.ReadbackFailed,
		verdict: func(_, after []EnrolledPrincipal) (CertificatesEnrolled, error) { return judgeEnrolled(n, done, after) },
	}.do(ctx)
}

// enrolled reads each principal of an enrolment once.
func (s *Service) enrolled(ctx context.Context, by keyserver.Caller, done []keyserver.Enrolled) ([]EnrolledPrincipal, error) {
	var list []EnrolledPrincipal
	for _, d := range done {
		i := slices.IndexFunc(list, func(p EnrolledPrincipal) bool { return p.Principal.ID == d.Principal })
		if i >= 0 {
			list[i].Created = list[i].Created || d.Created
			continue
		}
		p, err := s.principalIfAny(ctx, by, d.Principal)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue // the verdict reports the missing principal
		}
		certs, err := s.ks.FindCertificates(ctx, by, keyserver.CertificateLookup{Principal: d.Principal})
		if err != nil {
			return nil, err
		}
		list = append(list, EnrolledPrincipal{Principal: *p, Certificates: certs, Created: d.Created})
	}
	return list, nil
}

func judgeEnrolled(n keyserver.Enrolment, done []keyserver.Enrolled, after []EnrolledPrincipal) (CertificatesEnrolled, error) {
	r := CertificatesEnrolled{Principals: after}
	for i, der := range n.Certificates {
		if i >= len(done) || !holdsCertificate(after, done[i].Principal, der) {
			r.Detail = fmt.Sprintf("the key server accepted the enrolment, but a fresh read does not show certificates[%d] as current for the transport principal of its subject", i)
			return r, fault.New(fault.NotSaved, "%s", r.Detail)
		}
		if p := enrolledAs(after, done[i].Principal); done[i].Created && !slices.Equal(keyserver.NormalizeIDs(p.Principal.Roles), n.Roles) {
			r.Detail = fmt.Sprintf("a fresh read shows other roles than sent for the principal of certificates[%d]", i)
			return r, fault.New(fault.NotSaved, "%s", r.Detail)
		}
	}
	r.Saved = true
	r.Detail = "a fresh read shows every certificate as current for its transport principal; enrolment does not set the delegation flag"
	return r, nil
}

func enrolledAs(list []EnrolledPrincipal, id keyserver.ID) EnrolledPrincipal {
	for _, p := range list {
		if p.Principal.ID == id {
			return p
		}
	}
	return EnrolledPrincipal{}
}

// holdsCertificate reports whether the principal with the id has the subject of the certificate, and the certificate
// itself.
func holdsCertificate(list []EnrolledPrincipal, id keyserver.ID, der []byte) bool {
	p := enrolledAs(list, id)
	cert, err := x509.ParseCertificate(der)
	if err != nil || p.Principal.Type != keyserver.CertificatePrincipal || p.Principal.Name != pki.SlashName(cert.Subject) {
		return false
	}
	return slices.ContainsFunc(p.Certificates, func(c keyserver.Certificate) bool { return bytes.Equal(c.DER, der) && c.Current() })
}

// refuseEnrolment returns an error if an enrolment has no certificate, too many, or the same certificate twice. The key
// server decides which certificates it accepts.
func refuseEnrolment(ders [][]byte) error {
	if len(ders) == 0 || len(ders) > maxEnrolment {
		return fault.New(fault.BadRequest, "certificates: must have 1 to %d elements", maxEnrolment)
	}
	seen := map[keyserver.Digest]bool{}
	for i, der := range ders {
		if _, err := certtext.Certificate(der); err != nil {
			return fault.New(fault.BadRequest, "certificates[%d]: %s", i, err)
		}
		digest := keyserver.DigestOf(der)
		if seen[digest] {
			return fault.New(fault.BadRequest, "certificates[%d]: is a duplicate; send each certificate once", i)
		}
		seen[digest] = true
	}
	return nil
}

// resetState is the state before or after a reset.
type resetState struct {
	principal    *keyserver.Principal
	certificates []keyserver.Certificate
}

// ResetTransportPrincipal removes the certificates of a transport principal and ends its sessions. It verifies that the
// principal has no certificates.
func (s *Service) ResetTransportPrincipal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (TransportReset, error) {
	if err := requireID("principalId", id); err != nil {
		return TransportReset{}, err
	}
	var sent keyserver.TransportReset
	return verifiedWrite[resetState, TransportReset]{
		read: func(ctx context.Context) (state resetState, err error) {
			if state.principal, err = s.principalIfAny(ctx, by, id); err == nil && state.principal != nil {
				state.certificates, err = s.ks.FindCertificates(ctx, by, keyserver.CertificateLookup{Principal: id})
			}
			return state, err
		},
		refuse: func(before resetState) error { return refuseReset(before.principal, id) },
		write: func(ctx context.Context, _ resetState) (err error) {
			sent, err = s.ks.ResetTransportPrincipal(ctx, by, id)
			return err
		},
		unread:  fault.ReadbackFailed,
		verdict: func(before, after resetState) (TransportReset, error) { return judgeReset(sent, before, after) },
	}.do(ctx)
}

func refuseReset(p *keyserver.Principal, id keyserver.ID) error {
	if p == nil || p.Type != keyserver.CertificatePrincipal {
		return fault.New(fault.NotFound, "no transport principal has the id %s; list them with GET /api/principals?type=certificate", id)
	}
	return p.RefuseChange()
}

func judgeReset(sent keyserver.TransportReset, before, after resetState) (TransportReset, error) {
	r := TransportReset{Principal: *before.principal, CertificatesRemoved: len(before.certificates) - len(after.certificates)}
	if after.principal == nil || len(after.certificates) > 0 {
		r.Detail = fmt.Sprintf("the key server accepted the reset, but a fresh read still shows %d certificates of the principal", len(after.certificates))
		if after.principal == nil {
			r.Detail = "the key server accepted the reset of the certificates, but the principal no longer exists"
		}
		return r, fault.New(fault.NotRemoved, "%s", r.Detail)
	}
	r.Reset, r.Principal = true, *after.principal
	r.Detail = fmt.Sprintf("a fresh read shows no certificate of the principal; %d sessions ended; enrol a new certificate with POST /api/certificates/enroll", sent.Sessions)
	return r, nil
}
