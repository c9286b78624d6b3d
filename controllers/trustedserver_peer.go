package controllers

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// declaredPeer is the declaration of a TrustedServer after its trust blob is parsed.
type declaredPeer struct {
	system       schema.SystemID
	blob         schema.TrustBlob
	serverName   string
	port         int
	chain        peerChain
	friendlyName string
	description  *string // nil if it stays unchanged
	witness      *bool   // nil if it stays unchanged
	// follows is the KeyServer from which the trust blob was read, or "". If that KeyServer changes its trust blob, the
	// record is replaced.
	follows string
}

// preferRegistered uses the registered certificate instead of the declared one if both have the same public key: each replica of
// a peer has its own certificate for the peer's key. Only a certificate that is valid longer replaces the record, so
// that replicas do not cause endless replacements.
func (d *declaredPeer) preferRegistered(row schema.TrustedServer) {
	held, shown := certificateIn(row), d.chain.leaf
	if held == nil || !bytes.Equal(held.RawSubjectPublicKeyInfo, shown.RawSubjectPublicKeyInfo) {
		return
	}
	renewed := d.follows != "" && shown.NotAfter.After(held.NotAfter)
	if !renewed && d.serverName == deref(row.ServerName) && d.port == deref(row.Port) {
		d.chain.leaf = held
	}
}

// certificateIn returns the certificate in a peer's record, or nil.
func certificateIn(row schema.TrustedServer) *x509.Certificate {
	if row.Certificate == nil || row.Certificate.Certificate == nil {
		return nil
	}
	held, err := x509.ParseCertificate(*row.Certificate.Certificate)
	if err != nil {
		return nil
	}
	return held
}

// compare lists the differences between a peer's record and the declaration. fixed are the differences that the key
// server cannot correct.
func (d *declaredPeer) compare(row schema.TrustedServer) (drift, fixed []v1beta1.FieldDrift) {
	differs := func(field, declared, observed string) {
		if declared != observed {
			drift = append(drift, v1beta1.FieldDrift{Field: field, Declared: declared, Observed: observed})
		}
	}
	differs("trustBlob.serverName", d.serverName, deref(row.ServerName))
	differs("trustBlob.port", strconv.Itoa(d.port), strconv.Itoa(deref(row.Port)))
	if row.Certificate != nil {
		if held := fingerprintOf(*row.Certificate); held != "" {
			differs("trustBlob.certificate", fingerprint(d.chain.leaf), held)
		}
	}
	fixed = slices.Clone(drift)
	differs("friendlyName", d.friendlyName, deref(row.FriendlyName))
	if d.description != nil {
		differs("description", *d.description, deref(row.Description))
	}
	if d.witness != nil {
		differs("witness", strconv.FormatBool(*d.witness), strconv.FormatBool(deref(row.Witness)))
	}
	return drift, fixed
}

// recorded reports whether the status was written for the same trust blob. If not, a difference is not an outside
// change.
func (d *declaredPeer) recorded(s v1beta1.TrustedServerStatus) bool {
	return s.Fingerprint == fingerprint(d.chain.leaf) && s.ServerName == d.serverName && int(deref(s.Port)) == d.port
}

// unchangeable returns a message with the remedy for fields that the key server cannot change.
func (d *declaredPeer) unchangeable(fixed []v1beta1.FieldDrift) string {
	return fmt.Sprintf("spec.trustBlob: the record of peer %d has a different %s. If the peer has changed, "+
		"send the blob to POST /api/trusted-servers with replace, which keeps the access of its principals. "+
		"If the blob is older than the record, correct spec.trustBlob",
		d.system, reconcile.FieldsOf(fixed))
}

// request returns the request to register the peer.
func (d *declaredPeer) request() schema.AddTrustedServerRequest {
	return schema.AddTrustedServerRequest{TrustBlob: d.blob, FriendlyName: d.friendlyName, Description: deref(d.description), Witness: deref(d.witness)}
}

// refused converts the error of a registration to a problem. The object's author cannot correct errors in data that
// comes from the peer.
func (d *declaredPeer) refused(err error, besides string) error {
	switch {
	case apiclient.CodeOf(err) != "INVALID_ARGUMENT":
		return err
	case !d.chain.complete():
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady,
			"the key server rejects the trust blob, which lacks the CA %q of its chain: %s%s", d.chain.issuer(), connection.StableMessage(err), besides)
	case d.follows != "":
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "the key server rejects the trust blob of KeyServer %q: %s%s", d.follows, connection.StableMessage(err), besides)
	default:
		return err
	}
}

// registered converts the response of a registration to an outcome.
func (d *declaredPeer) registered(c *connection.Connection, saved schema.TrustedServerSaved) (reconcile.Outcome, error) {
	i := slices.IndexFunc(saved.TrustedServers, func(s schema.TrustedServer) bool {
		return s.SystemID != nil && *s.SystemID == d.system
	})
	if i < 0 {
		return reconcile.Outcome{}, connection.NewProblem(v1beta1.ReasonNotVerified, "the second read does not show the system id that was sent")
	}
	trustedServers.Of(c).Put(d.withCertificate(saved.TrustedServers[i]))
	return reconcile.Outcome{ID: systemKey(d.system), Evidence: joinTexts(saved.Detail, saved.ACLSideEffect)}, nil
}

// withCertificate returns a row of a write response, with the declared certificate added if its hash matches.
func (d *declaredPeer) withCertificate(row schema.TrustedServer) schema.TrustedServer {
	if row.Certificate != nil && row.Certificate.Certificate == nil && fingerprintOf(*row.Certificate) == fingerprint(d.chain.leaf) {
		certificate, body := *row.Certificate, schema.Base64(d.chain.leaf.Raw)
		certificate.Certificate, row.Certificate = &body, &certificate
	}
	return row
}
