package controllers

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// trustedCAs is the list of trusted CAs, found by id and by fingerprint.
var trustedCAs = connection.List[schema.TrustedCA]{
	Name: "trustedCA",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.TrustedCA, error) {
		l, err := c.Officer.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
		return l.TrustedCAs, err
	},
	Keys: func(ca schema.TrustedCA) []string {
		return []string{certificateID(ca.Certificate), fingerprintOf(ca.Certificate)}
	},
}

// declaredCA is the declaration of a TrustedCA with its references resolved.
type declaredCA struct {
	der         []byte
	fingerprint string // lower-case hexadecimal SHA-256
	subject     string
	cert        *x509.Certificate
	revocation  *declaredRevocation // nil if the revocation stays unchanged
}

type trustedCAAdapter struct{}

func init() { adapted(trustedCAAdapter{}) }

// Kind implements reconcile.Adapter.
func (trustedCAAdapter) Kind() reconcile.Kind {
	return reconcile.Kind{
		Name: "TrustedCA", Feed: trustedCAs.Name,
		FormatID: func(id schema.HexID) string { return schema.Base64ID(id).String() },
		ParseID: func(text string) (schema.HexID, error) {
			id, err := schema.ParseBase64ID(text)
			return schema.HexID(id), err
		},
		Follows: []string{revocationIssuers.Name},
	}
}

// Sources implements reconcile.Adapter.
func (trustedCAAdapter) Sources(obj *v1beta1.TrustedCA) []sources.Ref {
	return append(certificateSource(obj).Refs(), crlSource(obj).Refs()...)
}

// certificateSource returns the Secret or ConfigMap with the certificate, or nil.
func certificateSource(obj *v1beta1.TrustedCA) *sources.Key {
	from := obj.Spec.Certificate
	return sources.In(obj.Namespace, from.SecretKeyRef, from.ConfigMapKeyRef)
}

// Owned implements reconcile.Adapter.
func (trustedCAAdapter) Owned(obj *v1beta1.TrustedCA) string { return obj.Status.CertificateID }

// Claims implements reconcile.Adapter: a TrustedCA claims a certificate. If the certificate is in a Secret or
// ConfigMap, the status has the last known one.
func (trustedCAAdapter) Claims(obj *v1beta1.TrustedCA, want *declaredCA) []string {
	switch {
	case want != nil:
		return []string{want.fingerprint}
	case obj.Spec.Certificate.Inline != nil:
		if ca, err := parseCA([]byte(*obj.Spec.Certificate.Inline)); err == nil {
			return []string{ca.fingerprint}
		}
	case obj.Status.Fingerprint != "":
		return []string{obj.Status.Fingerprint}
	}
	return nil
}

// Scope implements reconcile.Adapter. The author of a certificate chooses its subject freely, so a grant may also name
// the fingerprint.
func (trustedCAAdapter) Scope(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA, want *declaredCA) (grants.Scope, error) {
	published, err := publishedNames(ctx, in, obj)
	if err != nil {
		return grants.Scope{}, err
	}
	named := func(subject, fingerprint string) (grants.Scope, error) {
		return grants.Scope{Names: append([]grants.Name{{subject, "sha256:" + fingerprint}}, published...)}, nil
	}
	s := obj.Status
	switch {
	case s.CertificateID != "" && !obj.DeletionTimestamp.IsZero():
		return named(s.Subject, s.Fingerprint)
	case want != nil:
		return named(want.subject, want.fingerprint)
	case obj.Spec.Certificate.Inline != nil:
		if ca, err := parseCA([]byte(*obj.Spec.Certificate.Inline)); err == nil {
			return named(ca.subject, ca.fingerprint)
		}
	case s.Fingerprint != "" && in.Conn != nil:
		return named(s.Subject, s.Fingerprint)
	}
	return grants.Scope{Names: published}, nil
}

// Provides implements reconcile.Provider. Other objects need a CA by its fingerprint, or by its subject if they do not
// know the certificate.
func (trustedCAAdapter) Provides(obj *v1beta1.TrustedCA) []string {
	if obj.Status.CertificateID == "" {
		return nil
	}
	ks := obj.Spec.KeyServerRef.Name
	return []string{reconcile.IndexKey(ks, caSubject(obj.Status.Subject)), reconcile.IndexKey(ks, caFingerprint(obj.Status.Fingerprint))}
}

func caSubject(name string) string    { return "CA named " + name }
func caFingerprint(sum string) string { return "CA " + sum }

// Declared implements reconcile.Adapter.
func (a trustedCAAdapter) Declared(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA) (declaredCA, error) {
	ca, err := a.certificate(ctx, in, obj)
	if err != nil {
		return ca, err
	}
	ca.revocation, err = declareRevocation(ctx, in, obj, ca.cert)
	return ca, err
}

func (a trustedCAAdapter) certificate(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA) (declaredCA, error) {
	if peer := a.Peer(obj); peer != nil {
		return a.issuerOf(ctx, in, obj, peer.Name)
	}
	text, where, err := a.text(ctx, in, obj)
	if err != nil {
		return declaredCA{}, err
	}
	ca, err := parseCA(text)
	if err != nil {
		return ca, connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s %s", where, err)
	}
	return ca, nil
}

// Peer implements reconcile.Peered.
func (trustedCAAdapter) Peer(obj *v1beta1.TrustedCA) *v1beta1.PeerReference {
	return obj.Spec.Certificate.PeerRef
}

// issuerOf returns the CA that issued the certificate of a peer.
func (trustedCAAdapter) issuerOf(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA, peer string) (declaredCA, error) {
	info, err := in.Peers.Info(ctx, in, obj.Namespace, peer)
	if err != nil {
		return declaredCA{}, err
	}
	chain, err := parsePeerChain(info.Chain)
	if err != nil {
		return declaredCA{}, connection.NewProblem(v1beta1.ReasonInvalidSpec, "the trust info of KeyServer %q %s", peer, err)
	}
	if len(chain.path) == 0 {
		return declaredCA{}, connection.NewProblem(v1beta1.ReasonInvalidSpec,
			"spec.certificate.peerRef: the trust info of KeyServer %q does not contain the CA %q that issued its certificate; declare that CA from another source", peer, chain.issuer())
	}
	return declareCA(chain.path[0]), nil
}

// text reads the certificate, and returns it with its source.
func (a trustedCAAdapter) text(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA) (text []byte, where string, err error) {
	from := obj.Spec.Certificate
	if from.Inline != nil {
		return []byte(*from.Inline), "spec.certificate.inline", nil
	}
	key := certificateSource(obj)
	text, err = in.Sources.Public(ctx, *key)
	return text, key.String(), err
}

// Observe implements reconcile.Adapter. A certificate never changes. Drift is its absence, or a difference in the
// declared revocation.
func (trustedCAAdapter) Observe(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedCA, want *declaredCA) (reconcile.External, error) {
	var keys []string
	seen := reconcile.External{What: "CA " + quoted(obj.Status.Subject)}
	switch {
	case in.Deleting && obj.Status.CertificateID != "":
		keys = []string{obj.Status.CertificateID}
	case want != nil:
		keys = []string{want.fingerprint}
		seen.What = "CA " + quoted(want.subject)
		seen.Renewed = want.fingerprint != obj.Status.Fingerprint
	}
	listed := trustedCAs.Of(in.Conn)
	row, ok, err := listed.Find(ctx, in.NotBefore, keys...)
	if err != nil {
		return seen, err
	}
	if old, still, _ := listed.Find(ctx, in.NotBefore, obj.Status.CertificateID); still && want != nil {
		if f := fingerprintOf(old.Certificate); f != want.fingerprint {
			seen.Replaces = f
		}
	}
	if !ok {
		return seen, nil
	}
	seen.Exists, seen.ID = true, certificateID(row.Certificate)
	seen.What += " (certificateId " + seen.ID + ")"
	seen.Evidence = "the list of trusted CAs has a certificate with the same SHA-256, certificateId " + seen.ID
	if want == nil || want.revocation == nil || in.Deleting {
		return seen, nil
	}
	noted, drift, err := observeRevocation(ctx, in, want.revocation)
	if err != nil {
		return seen, err
	}
	seen.Renewed = seen.Renewed || noted.list // a new list in the ConfigMap is not an outside change
	seen.AdapterData, seen.Drift = noted, drift
	seen.Evidence += "; " + noted.evidence()
	return seen, nil
}

// Create implements reconcile.Adapter.
func (trustedCAAdapter) Create(ctx context.Context, c *connection.Connection, want declaredCA) (reconcile.Outcome, error) {
	added, err := c.Officer.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: want.der})
	if err != nil {
		return reconcile.Outcome{}, err
	}
	row := schema.TrustedCA{Certificate: *added.TrustedCA}
	if hash := fingerprintOf(row.Certificate); hash != "" && hash != want.fingerprint {
		return reconcile.Outcome{}, connection.NewProblem(v1beta1.ReasonNotVerified, "the second read shows another certificate than the one that was sent")
	}
	if row.CertHash == nil {
		hash := schema.Base64(mustHex(want.fingerprint))
		row.CertHash = &hash
	}
	trustedCAs.Of(c).Put(row)
	out := reconcile.Outcome{
		ID: certificateID(row.Certificate),
		Evidence: fmt.Sprintf("matched by %s; %s listed before, %d after",
			added.MatchedBy, plural(added.ListCountBefore, "CA"), added.ListCountAfter),
	}
	if r := want.revocation; r != nil {
		var noted revocationNotes
		noted, out.Unfinished = r.begin(ctx, c)
		out.AdapterData = noted
		out.Evidence += "; " + noted.evidence()
	}
	return out, nil
}

// Update implements reconcile.Adapter. It corrects only the declared revocation.
func (trustedCAAdapter) Update(ctx context.Context, c *connection.Connection, want declaredCA, seen reconcile.External) (reconcile.Outcome, error) {
	todo, is := seen.AdapterData.(revocationNotes)
	if !is || want.revocation == nil {
		return reconcile.Outcome{}, errors.New("a certificate cannot be updated")
	}
	done, err := want.revocation.enforce(ctx, c, todo)
	return reconcile.Outcome{ID: seen.ID, Evidence: "the second read shows " + done.evidence(), AdapterData: done}, err
}

// Delete implements reconcile.Adapter.
func (trustedCAAdapter) Delete(ctx context.Context, c *connection.Connection, _ *v1beta1.TrustedCA, id string) (reconcile.Outcome, error) {
	certificate, err := parseID(schema.ParseBase64ID, id)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	removed, err := c.Officer.RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: certificate})
	if err != nil {
		return reconcile.Outcome{}, err
	}
	trustedCAs.Of(c).Drop(id)
	return reconcile.Outcome{ID: id, Evidence: fmt.Sprintf("a fresh read no longer lists it; %s listed before, %d after",
		plural(removed.ListCountBefore, "CA"), removed.ListCountAfter)}, nil
}

// Record implements reconcile.Adapter.
func (trustedCAAdapter) Record(obj *v1beta1.TrustedCA, want *declaredCA, seen reconcile.External, owner bool, now time.Time) {
	s := &obj.Status
	if want == nil {
		return
	}
	if owner && seen.ID != s.CertificateID {
		s.Superseded = slices.DeleteFunc(s.Superseded, func(o v1beta1.SupersededCA) bool { return o.CertificateID == seen.ID })
		s.CertificateID = seen.ID
	}
	from, until := status.Stamp(want.cert.NotBefore), status.Stamp(want.cert.NotAfter)
	s.Fingerprint, s.Subject, s.NotBefore, s.NotAfter = want.fingerprint, want.subject, &from, &until
	if owner {
		keepUntilValid(s.Superseded, from.Time, until.Time, now, overlapOf(obj))
	}
	if noted, is := seen.AdapterData.(revocationNotes); is && owner {
		s.Revocation = noted.record(now)
	} else if want.revocation == nil || !owner {
		s.Revocation = nil
	}
}

// Expiry implements reconcile.Expirer.
func (trustedCAAdapter) Expiry(obj *v1beta1.TrustedCA) (notBefore, notAfter *metav1.Time, warn time.Duration) {
	return obj.Status.NotBefore, obj.Status.NotAfter, warnBefore(obj.Spec.WarnBefore)
}

// warnBefore returns the given time. For objects that are older than the schema's default it returns this default.
func warnBefore(given *metav1.Duration) time.Duration {
	if given == nil {
		return 30 * 24 * time.Hour
	}
	return given.Duration
}

// Superseded implements reconcile.Rotator.
func (trustedCAAdapter) Superseded(obj *v1beta1.TrustedCA) []reconcile.SupersededClaim {
	out := make([]reconcile.SupersededClaim, len(obj.Status.Superseded))
	for i, s := range obj.Status.Superseded {
		out[i] = reconcile.SupersededClaim{
			Superseded: reconcile.Superseded{ID: s.CertificateID, Provenance: s.Provenance, RemoveAfter: s.RemoveAfter.Time},
			Claim:      s.Fingerprint,
		}
	}
	return out
}

// maxSuperseded limits the number of replaced CAs. If rotations are faster than the overlaps, the oldest is removed
// early.
const maxSuperseded = 32

// Supersede implements reconcile.Rotator.
func (trustedCAAdapter) Supersede(obj *v1beta1.TrustedCA, old reconcile.SupersededClaim, now time.Time) {
	s := &obj.Status
	issuer := ""
	if s.Revocation != nil { // at this point the status is about the replaced CA
		issuer = s.Revocation.Issuer
	}
	s.Superseded = append(s.Superseded, v1beta1.SupersededCA{
		CertificateID: old.ID, Fingerprint: old.Claim, Provenance: old.Provenance,
		RemoveAfter: status.Stamp(now.Add(overlapOf(obj))), RevocationIssuer: issuer,
	})
	if len(s.Superseded) > maxSuperseded {
		s.Superseded[0].RemoveAfter = status.Stamp(now)
	}
}

// keepUntilValid keeps the last entry of replaced trusted until the new CA is valid, and for the overlap after that.
// Earlier entries were replaced by the last entry. If the new CA is valid now, every entry stays at most for the
// overlap from now. from and until are the validity period of the new CA.
func keepUntilValid(replaced []v1beta1.SupersededCA, from, until, now time.Time, overlap time.Duration) {
	if len(replaced) == 0 {
		return
	}
	last := &replaced[len(replaced)-1]
	switch {
	case now.Before(from):
		last.RemoveAfter = status.Stamp(from.Add(overlap))
	case !now.Before(until): // the new CA has expired: keep the old one until another CA is declared
		last.RemoveAfter = status.Stamp(until.AddDate(100, 0, 0))
	default:
		for i := range replaced {
			if end := now.Add(overlap); replaced[i].RemoveAfter.After(end) {
				replaced[i].RemoveAfter = status.Stamp(end)
			}
		}
	}
}

const defaultOverlap = 24 * time.Hour

func overlapOf(obj *v1beta1.TrustedCA) time.Duration {
	if o := obj.Spec.Rotation.Overlap; o != nil {
		return max(o.Duration, 0)
	}
	return defaultOverlap
}

// RemoveSuperseded implements reconcile.Rotator.
func (trustedCAAdapter) RemoveSuperseded(obj *v1beta1.TrustedCA, id string) {
	obj.Status.Superseded = slices.DeleteFunc(obj.Status.Superseded, func(s v1beta1.SupersededCA) bool { return s.CertificateID == id })
}

// parseCA parses exactly one PEM certificate of a CA. Its errors have no subject; the caller puts the source before
// them. They never quote the text, because a reference may name a private key by mistake.
func parseCA(text []byte) (declaredCA, error) {
	der, err := certtext.One(text, certtext.CertificateType)
	if err != nil {
		return declaredCA{}, fmt.Errorf("%w; declare each CA in a separate object", err)
	}
	cert, err := certtext.Certificate(der)
	if err != nil {
		return declaredCA{}, err
	}
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return declaredCA{}, errors.New("is not a CA certificate: its basic constraints do not say CA")
	}
	return declareCA(cert), nil
}

func declareCA(cert *x509.Certificate) declaredCA {
	return declaredCA{
		der: cert.Raw, fingerprint: fingerprint(cert),
		subject: cert.Subject.String(), cert: cert,
	}
}

func certificateID(c schema.Certificate) string {
	if c.CertificateID == nil {
		return ""
	}
	return c.CertificateID.String()
}

// fingerprintOf returns the fingerprint of the certificate's body. Without a body it returns the hash in the response.
func fingerprintOf(c schema.Certificate) string {
	if c.Certificate != nil && len(*c.Certificate) > 0 {
		sum := sha256.Sum256(*c.Certificate)
		return hex.EncodeToString(sum[:])
	}
	if c.CertHash != nil {
		return hex.EncodeToString(*c.CertHash)
	}
	return ""
}

func mustHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic("a fingerprint is hexadecimal by construction")
	}
	return b
}

func quoted(s string) string {
	if s == "" {
		return "certificate"
	}
	return fmt.Sprintf("%q", s)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
