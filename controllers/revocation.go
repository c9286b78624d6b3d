package controllers

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// revocationIssuers lists the trusted CAs with their revocation policies and revocation lists, found by the id in the
// change feed and by the id of the certificate.
var revocationIssuers = connection.List[schema.RevocationIssuer]{
	Name: "revocation",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.RevocationIssuer, error) {
		l, err := c.Officer.ListRevocationIssuers(ctx)
		return l.Issuers, err
	},
	Keys: func(r schema.RevocationIssuer) []string {
		return []string{issuerID(r.Digest), byCertificate(r.CertificateID.String())}
	},
}

func byCertificate(id string) string { return "certificate " + id }

// issuerID returns the id of a CA in the change feed of revocation.
func issuerID(digest schema.IssuerDigest) string { return strings.ToLower(string(digest[:16])) }

// issuerDigest returns the id of a CA in the revocation routes (contract 2.9).
func issuerDigest(cert *x509.Certificate) schema.IssuerDigest {
	if key, ok := cert.PublicKey.(*ecdsa.PublicKey); ok && key.Params().BitSize >= 384 {
		sum := sha512.Sum384(cert.Raw)
		return schema.IssuerDigest(strings.ToUpper(hex.EncodeToString(sum[:])))
	}
	sum := sha256.Sum256(cert.Raw)
	return schema.IssuerDigest(strings.ToUpper(hex.EncodeToString(sum[:])))
}

// declaredRevocation is the declared revocation policy and list of a TrustedCA.
type declaredRevocation struct {
	issuer schema.IssuerDigest
	mode   v1beta1.RevocationMode
	maxAge time.Duration
	crl    *declaredCRL // nil if another client imports the lists
}

// declaredCRL is a declared revocation list, signed by the CA.
type declaredCRL struct {
	list  *x509.RevocationList
	where string // source of the list, for messages
	// overdue is a message if a newer list is due, so that the key server would reject this list.
	overdue string
}

// revocationNotes is data of a revocation reading for later calls.
type revocationNotes struct {
	issuer schema.RevocationIssuer
	// policy and list mean that the policy or the list must be sent. superseded are the replaced CAs whose policy must be
	// sent.
	policy, list bool
	superseded   []schema.IssuerDigest
	// notImported is a message if the key server keeps another list than the declared one.
	notImported string
}

// declareRevocation resolves spec.revocation, or returns nil if it is not set. It rejects lists whose content the key
// server would reject.
func declareRevocation(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA, ca *x509.Certificate) (*declaredRevocation, error) {
	spec := obj.Spec.Revocation
	if spec == nil {
		return nil, nil //nolint:nilnil // nothing is declared, and that is not an error
	}
	want := &declaredRevocation{issuer: issuerDigest(ca), mode: spec.Mode}
	if spec.MaxAge != nil {
		want.maxAge = spec.MaxAge.Duration
	}
	from := crlSource(obj)
	if from == nil {
		return want, nil
	}
	text, err := in.Sources.Public(ctx, *from)
	if err != nil {
		return nil, err
	}
	list, err := parseCRL(text)
	if err == nil {
		err = signedBy(list, ca, in.Now)
	}
	if err != nil {
		return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.revocation.crl: %s %s", from, err)
	}
	want.crl = &declaredCRL{list: list, where: from.String()}
	if !in.Now.Before(list.NextUpdate) {
		want.crl.overdue = fmt.Sprintf("the revocation list in %s (%s) is not imported, because its nextUpdate %s has passed; put the current list of the CA there", from, want.crl, date(list.NextUpdate))
	}
	return want, nil
}

// crlSource returns the Secret or ConfigMap with the revocation list, or nil.
func crlSource(obj *v1beta1.TrustedCA) *sources.Key {
	if r := obj.Spec.Revocation; r != nil && r.CRL != nil {
		return sources.In(obj.Namespace, nil, &r.CRL.ConfigMapKeyRef)
	}
	return nil
}

// Limits of a revocation list: its length, and how far its thisUpdate may be in the future. The key server has the same
// limits.
const (
	maxCRL    = 4 << 20
	clockSkew = 5 * time.Minute
)

// parseCRL parses exactly one complete list, in PEM or DER. Its errors have no subject ("is longer than 4 MiB"); the
// caller puts the source before them. They never quote the text.
func parseCRL(text []byte) (*x509.RevocationList, error) {
	if len(text) > maxCRL {
		return nil, errors.New("is longer than 4 MiB")
	}
	der, err := certtext.Object(text, certtext.CRLType)
	if err != nil {
		return nil, fmt.Errorf("%w; provide one complete list of this CA", err)
	}
	list, err := certtext.RevocationList(der)
	if err != nil {
		return nil, err
	}
	if critical(list.Extensions) {
		return nil, errors.New("has an unsupported critical extension, such as that of a delta or partial list; provide the complete list")
	}
	for _, e := range list.RevokedCertificateEntries {
		if critical(e.Extensions) {
			return nil, errors.New("has an entry with an unsupported critical extension, such as that of an indirect list; provide the CA's own list")
		}
	}
	if list.NextUpdate.IsZero() {
		return nil, errors.New("has no nextUpdate, which is required; create the list with one")
	}
	return list, nil
}

func critical(extensions []pkix.Extension) bool {
	for _, e := range extensions {
		if e.Critical {
			return true
		}
	}
	return false
}

// signedBy returns an error if the CA has not issued the list. Its errors have no subject, like those of parseCRL.
func signedBy(list *x509.RevocationList, ca *x509.Certificate, now time.Time) error {
	switch {
	case !bytes.Equal(list.RawIssuer, ca.RawSubject):
		return fmt.Errorf("was issued by %q, not by the declared CA %q", list.Issuer.String(), ca.Subject.String())
	case ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCRLSign == 0:
		return fmt.Errorf("was issued by the declared CA %q, whose certificate does not allow it to sign revocation lists: its key usage lacks CRL Sign", ca.Subject.String())
	case list.CheckSignatureFrom(ca) != nil:
		return fmt.Errorf("names the declared CA %q as its issuer, but is not signed with that CA's key", ca.Subject.String())
	case list.ThisUpdate.After(now.Add(clockSkew)):
		return fmt.Errorf("has the thisUpdate %s, which is in the future; check the clocks", date(list.ThisUpdate))
	}
	return nil
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// String names the list for messages.
func (d declaredCRL) String() string {
	var number []byte
	if d.list.Number != nil {
		number = d.list.Number.Bytes()
	}
	return listName(number, d.list.ThisUpdate)
}

func listName(number []byte, thisUpdate time.Time) string {
	if n := listNumber(number); n != "" {
		return "list " + n + " of " + date(thisUpdate)
	}
	return "list of " + date(thisUpdate)
}

// listNumber formats a CRL number in decimal digits. No number gives "".
func listNumber(number []byte) string {
	if len(number) == 0 {
		return ""
	}
	return new(big.Int).SetBytes(number).String()
}

func heldList(held *schema.CRL) string {
	if held == nil {
		return "none"
	}
	return listName(heldNumber(held), held.ThisUpdate)
}

func heldNumber(held *schema.CRL) []byte {
	if held.Number == nil {
		return nil
	}
	return *held.Number
}

// follows reports whether the list is newer than the present one. An equally new list is not newer. Otherwise two
// sources of lists with the same number would replace each other endlessly.
func (d declaredCRL) follows(held *schema.CRL) bool {
	if held == nil {
		return true
	}
	if number := heldNumber(held); len(number) > 0 {
		if d.list.Number == nil {
			return false
		}
		if by := d.list.Number.Cmp(new(big.Int).SetBytes(number)); by != 0 {
			return by > 0 && !d.list.ThisUpdate.Before(held.ThisUpdate)
		}
	}
	return d.list.ThisUpdate.After(held.ThisUpdate)
}

// observeRevocation compares the revocation policy and list of a CA with the declared ones. It also compares the
// policies of replaced CAs.
func observeRevocation(ctx context.Context, in reconcile.Input, want *declaredRevocation) (revocationNotes, []v1beta1.FieldDrift, error) {
	var noted revocationNotes
	listed := revocationIssuers.Of(in.Conn)
	issuer, ok, err := listed.Find(ctx, in.NotBefore, issuerID(want.issuer))
	if err == nil && !ok { // the change feed does not report new CAs to this list
		issuer, ok, err = listed.Find(ctx, in.Now, issuerID(want.issuer))
	}
	if err != nil {
		return noted, nil, err
	}
	if !ok {
		return noted, nil, &connection.Problem{Reason: v1beta1.ReasonProgressing, RequeueAfter: time.Second, Message: "the key server trusts the CA, but does not list it with a revocation policy yet; the manager tries again"}
	}
	noted.issuer = issuer
	drift := want.policyDrift("", issuer)
	noted.policy = len(drift) > 0
	if crl := want.crl; crl != nil && (issuer.CRL == nil || !bytes.Equal(issuer.CRL.Digest, digestOf(crl.list.Raw))) {
		switch {
		case !crl.follows(issuer.CRL):
			noted.notImported = fmt.Sprintf("the revocation list in %s (%s) is not imported, because it is not newer than that of the key server (%s)", crl.where, crl, heldList(issuer.CRL))
		case crl.overdue != "":
			noted.notImported = crl.overdue
		default:
			noted.list = true
			drift = append(drift, v1beta1.FieldDrift{Field: "revocation.crl", Declared: crl.String(), Observed: heldList(issuer.CRL)})
		}
	}
	for _, s := range in.Superseded {
		old, ok, err := listed.Find(ctx, in.NotBefore, byCertificate(s.ID))
		if err != nil {
			return noted, nil, err
		}
		if !ok || s.ClaimedBy != "" {
			continue
		}
		if differs := want.policyDrift("superseded["+s.ID+"].", old); len(differs) > 0 {
			noted.superseded = append(noted.superseded, old.Digest)
			drift = append(drift, differs...)
		}
	}
	return noted, drift, nil
}

func digestOf(der []byte) []byte {
	sum := sha256.Sum256(der)
	return sum[:]
}

func (d *declaredRevocation) policyDrift(at string, held schema.RevocationIssuer) (drift []v1beta1.FieldDrift) {
	if string(d.mode) != held.Mode {
		drift = append(drift, v1beta1.FieldDrift{Field: at + "revocation.mode", Declared: string(d.mode), Observed: held.Mode})
	}
	if age := time.Duration(held.MaxAgeSeconds) * time.Second; d.maxAge != age {
		drift = append(drift, v1beta1.FieldDrift{Field: at + "revocation.maxAge", Declared: d.maxAge.String(), Observed: age.String()})
	}
	return drift
}

// enforce sends the differences, and returns the state that was read back. It sets the policy
// even if the list was rejected: until then the CA's certificates are not checked.
func (d *declaredRevocation) enforce(ctx context.Context, c *connection.Connection, todo revocationNotes) (revocationNotes, error) {
	done := revocationNotes{issuer: todo.issuer, notImported: todo.notImported}
	var failed error
	if todo.list {
		imported, err := c.Officer.ImportCRL(ctx, schema.ImportCRLRequest{CRL: d.crl.list.Raw})
		failed = err
		for _, issuer := range imported.Issuers {
			if issuer.Digest == d.issuer {
				done.issuer.CRL = issuer.CRL
			}
		}
	}
	issuers := todo.superseded
	if todo.policy {
		issuers = append([]schema.IssuerDigest{d.issuer}, issuers...)
	}
	for _, issuer := range issuers {
		set, err := c.Officer.SetRevocationPolicy(ctx, schema.SetRevocationPolicyRequest{Digest: issuer, Mode: string(d.mode), MaxAgeSeconds: int64(d.maxAge / time.Second)})
		if failed == nil {
			failed = err
		}
		if err == nil && issuer == d.issuer {
			done.issuer.Mode, done.issuer.MaxAgeSeconds = set.Mode, set.MaxAgeSeconds
		}
	}
	return done, failed
}

// begin sends the policy and the list for a CA that was just added.
func (d *declaredRevocation) begin(ctx context.Context, c *connection.Connection) (revocationNotes, error) {
	todo := revocationNotes{issuer: schema.RevocationIssuer{Digest: d.issuer}, policy: true}
	if d.crl != nil {
		todo.notImported = d.crl.overdue
		todo.list = todo.notImported == ""
	}
	return d.enforce(ctx, c, todo)
}

// evidence describes the state after the writes, for messages.
func (n revocationNotes) evidence() string {
	text := "revocation policy " + n.issuer.Mode
	if n.issuer.CRL != nil {
		text += ", " + heldList(n.issuer.CRL)
	}
	return text
}

// record returns the status of the revocation.
func (n revocationNotes) record(now time.Time) *v1beta1.RevocationStatus {
	s := &v1beta1.RevocationStatus{
		Issuer: issuerID(n.issuer.Digest), Mode: v1beta1.RevocationMode(n.issuer.Mode),
		Evidence: v1beta1.NoEvidence, NotImported: n.notImported,
	}
	held := n.issuer.CRL
	if held == nil {
		return s
	}
	until := held.NextUpdate
	if age := time.Duration(n.issuer.MaxAgeSeconds) * time.Second; age > 0 && held.ThisUpdate.Add(age).Before(until) {
		until = held.ThisUpdate.Add(age)
	}
	s.Evidence = v1beta1.CurrentEvidence
	if !now.Before(until) {
		s.Evidence = v1beta1.StaleEvidence
	}
	currentUntil, thisUpdate := status.Stamp(until), status.Stamp(held.ThisUpdate)
	s.CurrentUntil, s.ThisUpdate = &currentUntil, &thisUpdate
	s.Number, s.Revoked = listNumber(heldNumber(held)), int64(held.Revoked)
	return s
}

// Terms implements reconcile.Aging. The expiry of a list matters if the policy requires a list, or if the object
// declares a list.
func (trustedCAAdapter) Terms(obj *v1beta1.TrustedCA) []reconcile.Term {
	spec, s := obj.Spec.Revocation, obj.Status.Revocation
	if spec == nil || s == nil || s.Mode == v1beta1.RevocationOff || (s.Mode == v1beta1.RevocationWhenAvailable && spec.CRL == nil) {
		return nil
	}
	says := func(text string) string {
		if s.Mode == v1beta1.RevocationRequired && s.Evidence != v1beta1.CurrentEvidence {
			text += "; the key server rejects all certificates of this CA"
		}
		if s.NotImported != "" {
			text += "; " + s.NotImported
		}
		return text
	}
	if s.CurrentUntil == nil || s.ThisUpdate == nil {
		reason := v1beta1.ReasonDependencyNotReady
		if spec.CRL != nil {
			reason = v1beta1.ReasonExpired
		}
		return []reconcile.Term{{Reason: reason, Message: says("the key server has no revocation list of this CA")}}
	}
	return []reconcile.Term{{
		Until: s.CurrentUntil.Time, Warn: min(warnBefore(obj.Spec.WarnBefore), s.CurrentUntil.Sub(s.ThisUpdate.Time)/4),
		Reason: v1beta1.ReasonExpired, Message: says("the revocation list is current until " + date(s.CurrentUntil.Time)),
	}}
}

// Follows implements reconcile.Follower.
func (trustedCAAdapter) Follows(obj *v1beta1.TrustedCA) []reconcile.Followed {
	if obj.Spec.Revocation == nil {
		return nil
	}
	var ids []reconcile.Followed
	follow := func(id string) {
		if id != "" {
			ids = append(ids, reconcile.Followed{Feed: revocationIssuers.Name, ID: id})
		}
	}
	if s := obj.Status.Revocation; s != nil {
		follow(s.Issuer)
	}
	for _, s := range obj.Status.Superseded {
		follow(s.RevocationIssuer)
	}
	return ids
}

// NeedsOnlyAdditions implements reconcile.Stepwise: the first write adds the CA, later writes send its policy and list.
func (trustedCAAdapter) NeedsOnlyAdditions(seen reconcile.External) bool {
	noted, is := seen.AdapterData.(revocationNotes)
	return is && noted.issuer.Mode == string(v1beta1.RevocationOff) && noted.issuer.MaxAgeSeconds == 0 && noted.issuer.CRL == nil && len(noted.superseded) == 0
}
