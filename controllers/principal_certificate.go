package controllers

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/slash"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// declaredLeaf is the client certificate that a Principal declares.
type declaredLeaf struct {
	name string // subject of the certificate, which is the name of the principal
	now  time.Time
	// request is the request from which the key server issues the certificate. It is nil if the object declares the
	// certificate itself.
	request      *x509.CertificateRequest
	validityDays *int
	// cert is the declared or the last issued certificate. It is nil until one is issued.
	cert *x509.Certificate
}

// enrolledLeaves are the current certificates of one principal.
type enrolledLeaves struct {
	principal string
	certs     []*x509.Certificate
}

// leaves caches the certificates with which a principal can log in. The key is the principal's id followed by its name.
// The change feed reports only changes of the principal, so changed certificates are found at the resync.
var leaves = connection.Lookup[enrolledLeaves]{
	Feed: principals.Feed, Name: "certificates of a principal",
	Read: func(ctx context.Context, c *connection.Connection, key string) (enrolledLeaves, error) {
		const id = 16
		out := enrolledLeaves{principal: key[:id]}
		found, err := c.Admin.FindCertificatesByTransportPrincipal(ctx, schema.CertificatesRequest{Subject: key[id:], IncludeBodies: true})
		if err != nil {
			return out, err
		}
		for _, f := range found.Certificates {
			if cert := currentCertificate(f); cert != nil {
				out.certs = append(out.certs, cert)
			}
		}
		return out, nil
	},
	ID: func(l enrolledLeaves) string { return l.principal },
}

// currentCertificate parses the body of a certificate. It returns nil if a renewal has replaced the certificate, or if
// the response has no valid body.
func currentCertificate(c schema.Certificate) *x509.Certificate {
	if c.Certificate == nil || deref(c.StatusLabel) == "Expired" {
		return nil
	}
	cert, err := x509.ParseCertificate(*c.Certificate)
	if err != nil {
		return nil
	}
	return cert
}

// leafSource returns the Secret or ConfigMap with the certificate or the request. It is nil for an inline value.
func leafSource(obj *v1beta1.Principal) *sources.Key {
	from := deref(obj.Spec.Certificate)
	if from.Request != nil {
		return sources.In(obj.Namespace, nil, from.Request.ConfigMapKeyRef)
	}
	return sources.In(obj.Namespace, deref(from.Certificate).SecretKeyRef, deref(from.Certificate).ConfigMapKeyRef)
}

// inlineLeaf returns the inline certificate or the inline request, or nil.
func inlineLeaf(obj *v1beta1.Principal) *string {
	from := deref(obj.Spec.Certificate)
	if from.Request != nil {
		return from.Request.Inline
	}
	return deref(from.Certificate).Inline
}

// leafDeclared reads the certificate or the request.
func leafDeclared(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal) (*declaredLeaf, error) {
	var text []byte
	var where string
	if inline := inlineLeaf(obj); inline != nil {
		text, where = []byte(*inline), "spec.certificate.certificate.inline"
		if obj.Spec.Certificate.Request != nil {
			where = "spec.certificate.request.inline"
		}
	} else {
		from := leafSource(obj)
		var err error
		if text, err = in.Sources.Public(ctx, *from); err != nil {
			return nil, err
		}
		where = from.String()
	}
	leaf, err := parseLeaf(text, obj)
	if err != nil {
		return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s %s", where, err)
	}
	if leaf.name == "" { // grants and the key server identify the principal by this name
		return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s has an empty subject; the subject is the name of the principal, so set it", where)
	}
	leaf.now = in.Now
	return leaf, nil
}

// parseLeaf parses the first certificate of a chain, or one request. Its errors have no subject; the caller puts the
// source before them. They never quote the text, because a reference may name a private key by mistake.
func parseLeaf(text []byte, obj *v1beta1.Principal) (*declaredLeaf, error) {
	from := obj.Spec.Certificate
	if from.Request == nil {
		chain, err := certtext.Certificates(text)
		if err != nil {
			return nil, fmt.Errorf("must be a PEM block of type CERTIFICATE, with or without its chain, but it %w", err)
		}
		cert := chain[0]
		if cert.BasicConstraintsValid && cert.IsCA {
			return nil, errors.New("is a CA certificate; declare a client certificate")
		}
		return &declaredLeaf{name: slash.Name(cert.Subject), cert: cert}, nil
	}
	der, err := certtext.One(text, certtext.RequestType)
	if err != nil {
		return nil, fmt.Errorf("%w; declare each request in a separate object", err)
	}
	request, err := certtext.Request(der)
	if err != nil {
		return nil, err
	}
	leaf := &declaredLeaf{name: slash.Name(request.Subject), request: request}
	if from.ValidityDays != nil {
		days := int(*from.ValidityDays)
		leaf.validityDays = &days
	}
	return leaf, nil
}

// renewalOf returns the renewal time: the end of two thirds of the certificate's lifetime, truncated to seconds as in
// the status.
func renewalOf(cert *x509.Certificate) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return status.Stamp(cert.NotBefore.Add(life * 2 / 3)).Time
}

// newest returns the certificate for the key of the request that expires last, or nil.
func (l *declaredLeaf) newest(certs []*x509.Certificate) *x509.Certificate {
	var best *x509.Certificate
	for _, c := range certs {
		if bytes.Equal(c.RawSubjectPublicKeyInfo, l.request.RawSubjectPublicKeyInfo) && (best == nil || c.NotAfter.After(best.NotAfter)) {
			best = c
		}
	}
	return best
}

// due reports whether a certificate has to be replaced.
func (l *declaredLeaf) due(cert *x509.Certificate) bool { return !l.now.Before(renewalOf(cert)) }

// differsInLeaf reports a difference if the certificate is not enrolled or
// has to be renewed. Other certificates of the principal are not declared.
func differsInLeaf(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, leaf *declaredLeaf, held schema.Principal, seen *reconcile.External) error {
	enrolled, err := leaves.Of(in.Conn).Get(ctx, in.NotBefore, held.ID.String()+held.Name)
	if err != nil {
		return err
	}
	differs := func(declared, observed string) {
		seen.Drift = append(seen.Drift, v1beta1.FieldDrift{Field: "certificate", Declared: declared, Observed: observed})
	}
	if leaf.request == nil {
		if !slices.ContainsFunc(enrolled.certs, leaf.cert.Equal) {
			differs("sha256:"+fingerprint(leaf.cert), "not enrolled")
			seen.Renewed = obj.Status.NotAfter == nil || !obj.Status.NotAfter.Time.Equal(leaf.cert.NotAfter)
		}
		return nil
	}
	leaf.cert = leaf.newest(enrolled.certs)
	switch {
	case leaf.cert == nil:
		differs("a certificate for the key of the request", "none")
		seen.Renewed = !leaf.issued(obj.Status.Certificate)
	case leaf.due(leaf.cert):
		differs("renewed after "+renewalOf(leaf.cert).UTC().Format(time.RFC3339), "valid until "+leaf.cert.NotAfter.UTC().Format(time.RFC3339))
		seen.Renewed = true
	}
	return nil
}

// issued reports whether a certificate of the status is for the request.
func (l *declaredLeaf) issued(text string) bool {
	certs, err := certtext.Certificates([]byte(text))
	return err == nil && l.newest(certs) != nil
}

// enrollCertificate enrolls the certificate. If there is a request, it issues the certificate first. making means that the call
// must create the principal, with the given roles.
func enrollCertificate(ctx context.Context, c *connection.Connection, leaf *declaredLeaf, with []schema.HexID, making bool) (schema.Principal, error) {
	if leaf.request != nil {
		cert, err := issue(ctx, c, leaf)
		if err != nil {
			return schema.Principal{}, err
		}
		leaf.cert = cert
	}
	done, err := c.Admin.EnrollCertificates(ctx, schema.EnrollCertificatesRequest{Certificates: []schema.DER{leaf.cert.Raw}, RoleIDs: with})
	if err != nil {
		return schema.Principal{}, err
	}
	as := done.Principals[0]
	forgetPrincipal(c, as.ID.String())
	if making && !as.Created {
		return as.Principal, &connection.Problem{Reason: v1beta1.ReasonProgressing, Outdated: true,
			Message: fmt.Sprintf("another client created certificate principal %q at the same time; the manager reads it again", as.Name)}
	}
	return as.Principal, nil
}

// issue returns a certificate that the key server issues from the request. It reuses a certificate that was issued for
// the same request and is not due. So repeated failures of later steps do not issue more certificates.
func issue(ctx context.Context, c *connection.Connection, leaf *declaredLeaf) (*x509.Certificate, error) {
	found, err := c.Admin.FindCertificatesBySubject(ctx, schema.CertificatesRequest{Subject: leaf.name, IncludeBodies: true})
	if err != nil {
		return nil, err
	}
	for _, f := range found.Certificates {
		cert := currentCertificate(f)
		if cert != nil && f.Request != nil && bytes.Equal(*f.Request, leaf.request.Raw) && !leaf.due(cert) {
			return cert, nil
		}
	}
	issued, err := c.Admin.IssueCertificate(ctx, schema.IssueCertificateRequest{Request: leaf.request.Raw, ValidityDays: leaf.validityDays})
	if err != nil {
		return nil, err
	}
	cert, err := certtext.Certificate(issued.Certificate)
	if err != nil {
		return nil, connection.NewProblem(v1beta1.ReasonNotVerified, "the certificate that the key server issued %s", err)
	}
	return cert, nil
}

// record writes the dates of the certificate, and an issued certificate, into the status.
func (l *declaredLeaf) record(s *v1beta1.PrincipalStatus) {
	if l.cert == nil {
		return
	}
	from, until := status.Stamp(l.cert.NotBefore), status.Stamp(l.cert.NotAfter)
	s.NotBefore, s.NotAfter = &from, &until
	if l.request != nil {
		renew := status.Stamp(renewalOf(l.cert))
		s.RenewAfter = &renew
		s.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.cert.Raw}))
	}
}
