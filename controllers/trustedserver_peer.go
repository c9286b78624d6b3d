package controllers

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	apiclient "github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// declaredPeer is what a TrustedServer declares, its trust blob read.
type declaredPeer struct {
	system       schema.SystemID
	blob         schema.TrustBlob
	serverName   string
	port         int
	chain        peerChain
	friendlyName string
	description  *string // nil where it is left as it is
	witness      *bool   // nil where it is left as it is
	// follows names the KeyServer whose word this is: the record is replaced
	// when it says something else.
	follows string
}

// settle takes the registered certificate for the declared one where the two
// are for one public key: a peer is the key of its certificate, and whichever
// of two replicas is asked shows its own. Only a certificate that lasts longer
// than the registered one is worth another record, so that there is an end.
func (d *declaredPeer) settle(row schema.TrustedServer) {
	held, shown := certificateIn(row), d.chain.leaf
	if held == nil || !bytes.Equal(held.RawSubjectPublicKeyInfo, shown.RawSubjectPublicKeyInfo) {
		return
	}
	renewed := d.follows != "" && shown.NotAfter.After(held.NotAfter)
	if !renewed && d.serverName == deref(row.ServerName) && d.port == deref(row.Port) {
		d.chain.leaf = held
	}
}

// certificateIn is the certificate that a peer is registered with, nil where
// the row does not have it.
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

// compare lists where a registered peer differs from the declaration, and what
// of it a key server offers no change of.
func (d *declaredPeer) compare(row schema.TrustedServer) (drift, fixed []v1alpha1.FieldDrift) {
	differs := func(field, declared, observed string) {
		if declared != observed {
			drift = append(drift, v1alpha1.FieldDrift{Field: field, Declared: declared, Observed: observed})
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

// recorded reports whether the status was written for the same trust blob, so
// that a difference is not the peer's doing.
func (d *declaredPeer) recorded(s v1alpha1.TrustedServerStatus) bool {
	return s.Fingerprint == fingerprint(d.chain.leaf) && s.ServerName == d.serverName && int(deref(s.Port)) == d.port
}

// unchangeable says what it would take to correct what cannot be changed.
func (d *declaredPeer) unchangeable(fixed []v1alpha1.FieldDrift) string {
	return fmt.Sprintf("the peer with the system id %d is registered with another %s than the trust blob says, and a blob that was carried by hand may be the older of the two. "+
		"If the peer has changed, send the blob to POST /api/trusted-servers with replace, which keeps the access of its principals; "+
		"deleting this object and creating it anew purges that access. If the peer has not changed, correct spec.trustBlob",
		d.system, reconcile.FieldsOf(fixed))
}

// request is a registration of the peer.
func (d *declaredPeer) request() schema.AddTrustedServerRequest {
	return schema.AddTrustedServerRequest{TrustBlob: d.blob, FriendlyName: d.friendlyName, Description: deref(d.description), Witness: deref(d.witness)}
}

// refused says what a refusal of a registration means for the object. What a
// peer says of itself is not its owner's to correct.
func (d *declaredPeer) refused(err error, besides string) error {
	switch {
	case apiclient.CodeOf(err) != "INVALID_ARGUMENT":
		return err
	case !d.chain.complete():
		return connection.NewProblem(v1alpha1.ReasonDependencyNotReady,
			"the trust blob does not have the CA %q that its chain needs, and the key server refuses it: %s%s", d.chain.issuer(), connection.Plain(err), besides)
	case d.follows != "":
		return connection.NewProblem(v1alpha1.ReasonDependencyNotReady, "the key server refuses what KeyServer %q says of itself: %s%s", d.follows, connection.Plain(err), besides)
	default:
		return err
	}
}

// registered takes the verdict on a registration.
func (d *declaredPeer) registered(c *connection.Connection, saved schema.TrustedServerSaved) (reconcile.Outcome, error) {
	i := slices.IndexFunc(saved.TrustedServers, func(s schema.TrustedServer) bool {
		return s.SystemID != nil && *s.SystemID == d.system
	})
	if i < 0 {
		return reconcile.Outcome{}, connection.NewProblem(v1alpha1.ReasonNotVerified, "the peer that was read back is another one than was sent")
	}
	trustedServers.Of(c).Put(d.embodied(saved.TrustedServers[i]))
	return reconcile.Outcome{ID: systemKey(d.system), Evidence: because(saved.Detail, saved.ACLSideEffect)}, nil
}

// embodied is a row as it was read back after a write, with the certificate
// that its hash stands for.
func (d *declaredPeer) embodied(row schema.TrustedServer) schema.TrustedServer {
	if row.Certificate != nil && row.Certificate.Certificate == nil && fingerprintOf(*row.Certificate) == fingerprint(d.chain.leaf) {
		certificate, body := *row.Certificate, schema.Base64(d.chain.leaf.Raw)
		certificate.Certificate, row.Certificate = &body, &certificate
	}
	return row
}
