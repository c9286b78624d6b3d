package witness

import (
	"context"
	"fmt"
	"strings"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Learn stores the first keys that a peer sends. If the peer sends different keys later, Learn rejects and reports
// them. The first keys stay valid until the peer is registered again.
func (w *Witness) Learn(ctx context.Context, peer keyserver.SystemID, keys keyserver.AuditKeys) error {
	if err := plausible(peer, keys); err != nil {
		return err
	}
	logs, err := w.Store.WitnessedLogs(ctx)
	if err != nil {
		return err
	}
	for _, l := range logs {
		if l.System != peer {
			continue
		}
		if l.Origin == keys.Origin && l.Key == keys.Key && l.WitnessKey == keys.Witness {
			return nil
		}
		refusal := fault.New(fault.NotTrusted, "peer %d presents another key of its audit tree or its witness than before; if the change is intended, remove the peer and register it again", peer)
		if err := w.conflict(ctx, l, peer, keyserver.LogKeyChanged); err != nil {
			return err
		}
		return refusal
	}
	return w.Store.UpdateWitnessedLog(ctx, keys.Origin, func(l *keyserver.WitnessedLog) error {
		if l.Key != "" {
			return fmt.Errorf("the log %s of peer %d is registered already", keys.Origin, peer)
		}
		l.System, l.Key, l.WitnessKey = peer, keys.Key, keys.Witness
		return nil
	})
}

// maxKey is the maximum length of the keys of peers, and thus of the names of their logs.
const maxKey = 1024

// plausible refuses keys that cannot belong to the peer, especially keys of another peer.
func plausible(peer keyserver.SystemID, keys keyserver.AuditKeys) error {
	bad := func(what string) error {
		return fmt.Errorf("peer %d presents %s", peer, what)
	}
	if len(keys.Key) > maxKey || len(keys.Witness) > maxKey {
		return bad("a key that is too long")
	}
	v, err := note.NewVerifier(keys.Key)
	if err != nil || v.Name() != keys.Origin {
		return bad("a key that does not belong to its audit tree")
	}
	if !strings.HasSuffix(keys.Origin, fmt.Sprintf("/audit/%d", peer)) {
		return bad("an audit tree that belongs to another key server")
	}
	c, err := cosignature.NewVerifierForCosignatureV1(keys.Witness)
	if err != nil || !strings.HasSuffix(c.Name(), fmt.Sprintf("/witness/%d", peer)) {
		return bad("a key of its witness that is not valid, or belongs to another key server")
	}
	return nil
}

// PeerLink sends requests to peers.
type PeerLink interface {
	AddCheckpoint(ctx context.Context, peer keyserver.TrustedServer, r Request) ([]byte, error)
}

// Peers returns the peers that are witnesses: their database record marks them as a witness, and their keys are known.
func (w *Witness) Peers(ctx context.Context, link PeerLink) ([]Remote, error) {
	logs, err := w.Store.WitnessedLogs(ctx)
	if err != nil {
		return nil, err
	}
	peers, err := w.Store.TrustedServers(ctx)
	if err != nil {
		return nil, err
	}
	var list []Remote
	for _, p := range peers {
		for _, l := range logs {
			if !p.Witness || l.System != p.System {
				continue
			}
			if v, err := cosignature.NewVerifierForCosignatureV1(l.WitnessKey); err == nil {
				list = append(list, &peerWitness{p, v, link})
			}
		}
	}
	return list, nil
}

type peerWitness struct {
	peer     keyserver.TrustedServer
	verifier note.Verifier
	link     PeerLink
}

func (c *peerWitness) Verifier() note.Verifier { return c.verifier }

func (c *peerWitness) AddCheckpoint(ctx context.Context, r Request) ([]byte, error) {
	return c.link.AddCheckpoint(ctx, c.peer, r)
}

func (c *peerWitness) ReportConflict(ctx context.Context, r Request) {
	_, _ = c.link.AddCheckpoint(ctx, c.peer, r) // the peer refuses the checkpoint
}
