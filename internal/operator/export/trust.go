package export

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// trustPage is the maximum page size of principal trusts.
const trustPage = 500

func init() { collectors["TrustedCA"] = collector{(*exporter).trustedCAs, "trustedCA"} }

func (e *exporter) trustedCAs(ctx context.Context) ([]candidate, error) {
	list, err := e.Officer.ListTrustedCAs(ctx, schema.TrustedCAsQuery{IncludeBodies: true})
	if err != nil {
		return nil, err
	}
	revoking, err := e.Officer.ListRevocationIssuers(ctx)
	if err != nil && !apiclient.IsUnsupported(err) {
		return nil, err
	}
	issuers := map[schema.Base64ID]schema.RevocationIssuer{}
	for _, r := range revoking.Issuers {
		issuers[r.CertificateID] = r
	}
	found := make([]candidate, len(list.TrustedCAs))
	for i, ca := range list.TrustedCAs {
		found[i] = candidateCA(ca)
		if issuer, has := issuers[idOf(ca)]; has && found[i].cannot == "" {
			e.revoke(found[i], issuer)
		}
	}
	return found, nil
}

func idOf(ca schema.TrustedCA) schema.Base64ID {
	if ca.CertificateID == nil {
		return schema.Base64ID{}
	}
	return *ca.CertificateID
}

// revoke adds the revocation policy of a CA to its candidate. If no policy was ever set, none is declared.
func (e *exporter) revoke(c candidate, issuer schema.RevocationIssuer) {
	if issuer.CRL != nil {
		e.leaveOut(LeftOut{What: c.what, Part: "its revocation list", Why: "revocation lists change; put it into a ConfigMap and set spec.revocation.crl to that"})
	}
	obj, is := c.object.(*v1beta1.TrustedCA)
	if !is || (issuer.Mode == string(v1beta1.RevocationOff) && issuer.MaxAgeSeconds == 0) {
		return
	}
	obj.Spec.Revocation = &v1beta1.Revocation{Mode: v1beta1.RevocationMode(issuer.Mode)}
	if issuer.MaxAgeSeconds > 0 {
		obj.Spec.Revocation.MaxAge = &metav1.Duration{Duration: time.Duration(issuer.MaxAgeSeconds) * time.Second}
	}
}

func candidateCA(ca schema.TrustedCA) candidate {
	id := "unnamed"
	if ca.CertificateID != nil {
		id = schema.HexID(*ca.CertificateID).String()
	}
	c := candidate{what: "trusted CA " + id, id: id}
	if ca.CertificateID != nil {
		c.marked = schema.HexID(*ca.CertificateID)
	}
	if ca.Certificate.Certificate == nil {
		c.cannot = "the key server does not return its certificate"
		return c
	}
	cert, err := x509.ParseCertificate(*ca.Certificate.Certificate)
	if err != nil || !cert.BasicConstraintsValid || !cert.IsCA {
		c.cannot = "its certificate is not an X.509 CA certificate"
		return c
	}
	sum := sha256.Sum256(cert.Raw)
	c.id, c.title = hex.EncodeToString(sum[:8]), cert.Subject.CommonName
	if c.title == "" {
		c.title = cert.Subject.String()
	}
	c.what = fmt.Sprintf("trusted CA %q", cert.Subject)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	c.object = &v1beta1.TrustedCA{Spec: v1beta1.TrustedCASpec{Certificate: v1beta1.CertificateSource{Inline: &text}}}
	return c
}

func init() { collectors["TrustedServer"] = collector{(*exporter).trustedServers, "trustedServer"} }

func (e *exporter) trustedServers(ctx context.Context) ([]candidate, error) {
	list, err := e.Officer.ListTrustedServers(ctx, schema.TrustedServersQuery{IncludeBodies: true})
	if err != nil {
		return nil, err
	}
	found := make([]candidate, len(list.TrustedServers))
	for i, peer := range list.TrustedServers {
		found[i] = e.candidatePeer(peer)
	}
	return found, nil
}

func (e *exporter) candidatePeer(peer schema.TrustedServer) candidate {
	if peer.SystemID == nil {
		return candidate{what: "a peer", cannot: "the key server does not return its system id"}
	}
	system := *peer.SystemID
	c := candidate{what: fmt.Sprintf("peer with the system id %d", system), id: strconv.FormatUint(uint64(system), 10)}
	binary.BigEndian.PutUint64(c.marked[:], uint64(system))
	switch {
	case peer.TrustBlob == nil:
		c.cannot = "the key server does not return its trust blob"
		return c
	case peer.FriendlyName == nil:
		c.cannot = "it has no friendly name"
		return c
	}
	blob := peer.TrustBlob.String()
	obj := &v1beta1.TrustedServer{Spec: v1beta1.TrustedServerSpec{
		TrustBlob: v1beta1.TrustBlobSource{Inline: &blob}, FriendlyName: *peer.FriendlyName,
	}}
	if peer.Description != nil && *peer.Description != "" {
		obj.Spec.Description = peer.Description
		// If spec.description is missing, the manager leaves the description unchanged.
		c.spares = append(c.spares, once("spec.description", "its description", func() { obj.Spec.Description = nil }))
	}
	if peer.Witness != nil && *peer.Witness {
		obj.Spec.Witness = peer.Witness
	}
	c.title, c.object = *peer.FriendlyName, obj
	c.named = func(name string) { e.peers[system] = name }
	return c
}

func init() { collectors["PrincipalTrust"] = collector{(*exporter).principalTrusts, "principalTrust"} }

func (e *exporter) principalTrusts(ctx context.Context) ([]candidate, error) {
	rows, err := e.trustRows(ctx)
	if err != nil {
		return nil, err
	}
	var ids []schema.HexID
	for _, t := range rows {
		if t.PrincipalID != nil {
			ids = append(ids, *t.PrincipalID)
		}
	}
	if err := e.people.lookUp(ctx, ids); err != nil {
		return nil, err
	}
	found := make([]candidate, len(rows))
	for i, t := range rows {
		found[i] = e.candidateTrust(t)
	}
	return found, nil
}

func (e *exporter) trustRows(ctx context.Context) ([]schema.PrincipalTrust, error) {
	var all []schema.PrincipalTrust
	for limit := trustPage; ; {
		offset := len(all)
		page, err := e.Officer.ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{Limit: &limit, Offset: &offset})
		if err != nil {
			return nil, err
		}
		all = append(all, page.PrincipalTrusts...)
		if len(page.PrincipalTrusts) < limit {
			return all, nil
		}
	}
}

// candidateTrust declares the principal by its name if the name is known. It declares the peer by its TrustedServer
// object if that object is exported, too.
func (e *exporter) candidateTrust(t schema.PrincipalTrust) candidate {
	c := candidate{what: "principal trust " + t.ID.String(), id: t.ID.String(), marked: t.ID}
	if t.PrincipalID == nil || t.TrustedServerSystemID == nil || t.FlagLabel == nil {
		c.cannot = "the key server does not return its principal, its peer or its flag"
		return c
	}
	obj := &v1beta1.PrincipalTrust{Spec: v1beta1.PrincipalTrustSpec{Flag: v1beta1.TrustFlag(*t.FlagLabel)}}
	id := t.PrincipalID.String()
	c.title = id
	obj.Spec.Principal.ID = &id
	if who := e.people.byID[*t.PrincipalID]; who != nil {
		kind := v1beta1.PrincipalType(who.kind)
		c.title = who.name
		obj.Spec.Principal = v1beta1.PrincipalReference{Type: &kind, Name: &who.name}
		c.spares = append(c.spares, once("spec.principal", "", func() { obj.Spec.Principal = v1beta1.PrincipalReference{ID: &id} }))
	}
	system := int64(*t.TrustedServerSystemID)
	if name := e.peers[*t.TrustedServerSystemID]; name != "" {
		obj.Spec.TrustedServerRef = &v1beta1.TrustedServerReference{Name: name}
	} else {
		obj.Spec.SystemID = &system
	}
	c.title, c.object = fmt.Sprintf("%.24s at %d", slug(c.title), system), obj
	return c
}
