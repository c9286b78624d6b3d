package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const (
	// maxPeerAuthorities is the maximum number of learned CAs per peer. Older CAs are deleted. A peer has two or three
	// CAs at a time, and one of them is trusted since the peer was registered.
	maxPeerAuthorities = 4
	// learnEvery is the minimum interval at which CAs are learned from one peer. It limits the work that a peer can
	// cause with the CAs that it sends.
	learnEvery = time.Minute
)

// PeerAuthorities reads the CAs that were learned from peers.
func (r *PeerRegistry) PeerAuthorities(ctx context.Context) ([]keyserver.PeerAuthority, error) {
	return r.store.PeerAuthorities(ctx)
}

// LearnAuthorities stores CAs that were learned from the peer with the record of. It stores nothing if the record was
// deleted or has another key now. Before that, it writes an audit row for each CA.
func (r *PeerRegistry) LearnAuthorities(ctx context.Context, of keyserver.TrustedServer, learned []keyserver.PeerAuthority) error {
	known, err := r.store.PeerAuthoritiesOf(ctx, of.System)
	if err != nil {
		return err
	}
	learned = slices.DeleteFunc(slices.Clone(learned), func(a keyserver.PeerAuthority) bool { return isKnown(known, a) })
	if len(learned) == 0 || len(known) > 0 && r.clock().Sub(known[len(known)-1].LearnedAt) < learnEvery {
		return nil
	}
	for _, a := range learned {
		if err := r.recordLesson(ctx, a); err != nil {
			return err
		}
	}
	return r.store.Update(ctx, func(tx *sqlstore.Tx) error {
		now, err := tx.TrustedServer(ctx, of.System)
		if errors.Is(err, sqlstore.ErrNotFound) || err == nil && !sameKey(now.Certificate.DER, of.Certificate.DER) {
			return nil
		}
		if err != nil {
			return err
		}
		known, err := tx.PeerAuthoritiesOf(ctx, of.System)
		if err != nil {
			return err
		}
		for _, a := range learned {
			if isKnown(known, a) { // another replica has stored it
				continue
			}
			if err := tx.InsertPeerAuthority(ctx, a); err != nil {
				return err
			}
			known = append(known, a)
		}
		for len(known) > maxPeerAuthorities {
			if err := tx.DeletePeerAuthority(ctx, known[0]); err != nil {
				return err
			}
			known = known[1:]
		}
		return nil
	})
}

func (r *PeerRegistry) recordLesson(ctx context.Context, a keyserver.PeerAuthority) error {
	if r.rows == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return err
	}
	return r.rows.Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditLearnedAuthority, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: r.system}, Object: strconv.FormatUint(uint64(a.System), 10) + " " + pki.SlashName(cert.Subject),
	})
}

func isKnown(list []keyserver.PeerAuthority, a keyserver.PeerAuthority) bool {
	return slices.ContainsFunc(list, func(k keyserver.PeerAuthority) bool { return bytes.Equal(k.Certificate, a.Certificate) })
}

// sameKey reports whether two certificates have the same public key, which identifies a peer.
func sameKey(a, b []byte) bool {
	one, err := x509.ParseCertificate(a)
	if err != nil {
		return false
	}
	other, err := x509.ParseCertificate(b)
	return err == nil && bytes.Equal(one.RawSubjectPublicKeyInfo, other.RawSubjectPublicKeyInfo)
}

// learnedOf returns the learned CAs of a peer. They count like the trusted CAs if the peer is registered again with the
// same key.
func learnedOf(ctx context.Context, tx *sqlstore.Tx, system keyserver.SystemID, trusted []*x509.Certificate) ([]*x509.Certificate, error) {
	list, err := tx.PeerAuthoritiesOf(ctx, system)
	if err != nil {
		return nil, err
	}
	var learned []*x509.Certificate
	for _, a := range list {
		anchored := slices.ContainsFunc(trusted, func(ca *x509.Certificate) bool { return keyserver.DigestOf(ca.Raw) == a.Anchor })
		if cert, err := x509.ParseCertificate(a.Certificate); err == nil && anchored {
			learned = append(learned, cert)
		}
	}
	return learned, nil
}
