package trust

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/cache"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// PeerRegistry decides which key servers are accepted as peers. It uses the records of peers, the trusted CAs and the
// revocations. Create it before the engine, because the engine calls peers.
type PeerRegistry struct {
	store   *sqlstore.Store
	clock   func() time.Time
	issuers *cache.Cache[string, gate.Evidence]
	rows    gate.Auditor // nil if learned CAs are not audited
	system  keyserver.SystemID
}

// RecordTo sets the audit log for CAs that are learned from peers.
func (r *PeerRegistry) RecordTo(rows gate.Auditor, own keyserver.SystemID) {
	r.rows, r.system = rows, own
}

// NewPeerRegistry returns the registry of a store. Create it before components that read it after a change: the store
// informs components in the order of their creation.
func NewPeerRegistry(store *sqlstore.Store, clock func() time.Time) *PeerRegistry {
	r := &PeerRegistry{store: store, clock: clock}
	var all cache.Set
	r.issuers = cache.New[string, gate.Evidence](&all, gate.MaxCachedIssuers, keyserver.ChangeRevocation)
	store.OnChange(all.Changed)
	return r
}

// TrustedCAs reads every trusted CA.
func (r *PeerRegistry) TrustedCAs(ctx context.Context) ([]keyserver.Certificate, error) {
	return r.store.TrustedCAs(ctx)
}

// TrustedServers reads every registered peer.
func (r *PeerRegistry) TrustedServers(ctx context.Context) ([]keyserver.TrustedServer, error) {
	return r.store.TrustedServers(ctx)
}

// Revoked applies the revocation policy of a trusted CA to a certificate that the CA signed. It
// returns the reason of a refusal, or "" if the certificate is accepted.
func (r *PeerRegistry) Revoked(ctx context.Context, cert, issuer *x509.Certificate) (why string, err error) {
	digest := pki.RevocationDigest(issuer.Raw)
	known, err := r.issuers.Get(ctx, digest, func() (gate.Evidence, error) {
		state, serials, err := r.store.Revocation(ctx, digest)
		if state.Policy.Mode == keyserver.RevocationOff {
			serials = nil // not needed here, and may be large
		}
		return gate.Evidence{Policy: state.Policy, CRL: state.CRL, Revoked: serials}, err
	})
	if err != nil {
		return "", err
	}
	subject, of := pki.SlashName(cert.Subject), pki.SlashName(issuer.Subject)
	switch known.Judge(cert.SerialNumber.Bytes(), r.clock()) {
	case "":
		return "", nil
	case fault.CertificateRevoked:
		return fmt.Sprintf("the certificate of %s is revoked by its issuer, %s", subject, of), nil
	case fault.RevocationUnavailable:
		return fmt.Sprintf("the policy for %s requires revocation evidence about the certificate of %s, and there is none; import its CRL", of, subject), nil
	default:
		return fmt.Sprintf("the policy for %s requires revocation evidence about the certificate of %s, and it is stale; import its current CRL", of, subject), nil
	}
}
