package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// callMemory is how long the key server remembers a call of a peer that took effect, to recognize a repeated call. A
// peer repeats a call only within the time limit of one request.
const callMemory = 10 * time.Minute

// admitPeer is admit for a request of a peer. The peer has checked the roles of its principal before it sent the
// request. The checks of the operation evaluate the ACL of the key.
func (g *Gate) admitPeer(ctx context.Context, r Request) (access.Subject, error) {
	who, err := g.peerSubject(ctx, r)
	if err != nil {
		return who, err
	}
	err = g.guarded(ctx, r)
	if fault.CodeOf(err) == fault.ApprovalRequired { // an approval cannot cover a request of a peer
		err = fault.New(fault.AccessDenied, "operation %q needs an approval, so peers cannot request it; request it from the key server that owns the object", r.Op.Name).Audited(fault.ReasonApprovalRequired)
	}
	return who, err
}

// peerSubject returns the subject of a request of a peer. It refuses the request if the peer is not in force, or if a
// principal trust restricts the principal or one of its groups.
func (g *Gate) peerSubject(ctx context.Context, r Request) (access.Subject, error) {
	from := r.By.Peer.System
	if !r.Op.Forwarded() {
		return access.Subject{}, fault.New(fault.AccessDenied, "operation %q is not available to peers; request it from the key server that performs it", r.Op.Name).Audited(fault.ReasonNotForwarded)
	}
	peer, err := g.peerInForce(ctx, from)
	if err != nil {
		return access.Subject{}, err
	}
	who := access.Subject{Principal: r.By.Principal, Groups: r.By.Peer.Groups}
	if who.Principal == (keyserver.PrincipalRef{System: g.System, ID: peer.Transport}) { // a request of the peer itself
		if r.Op.ID != keyserver.OpLookupPrincipals.ID || len(who.Groups) > 0 {
			return access.Subject{}, fault.New(fault.AccessDenied, "operation %q is available to a principal of the peer, not to the peer itself; send it for a principal", r.Op.Name).
				Audited(fault.ReasonNotForwarded)
		}
		return who, nil
	}
	named := []keyserver.PrincipalRef{who.Principal} // a restriction may deny each of these
	if !r.By.Actor.ID.IsZero() {
		named = append(named, r.By.Actor)
	}
	if slices.ContainsFunc(slices.Concat(named, who.Groups), func(p keyserver.PrincipalRef) bool { return p.System != from }) {
		return access.Subject{}, fault.New(fault.AccessDenied, "the peer %d sent a request for a principal of another key server; it must only send requests for its own", from).
			Audited(fault.ReasonNotForwarded)
	}
	// A restriction of a group also restricts its members. Only the peer knows the groups of a principal.
	for _, p := range append(named, who.Groups...) {
		rows, err := g.CachedTrust(ctx, p.ID, from)
		if err != nil {
			return access.Subject{}, err
		}
		if verdict := access.Admitted(rows, p); !verdict.Allowed {
			return access.Subject{}, fault.New(fault.AccessDenied, "%s", verdict.Why).Audited(fault.ReasonRestricted)
		}
	}
	return who, nil
}

// peerInForce returns the record of a peer. It fails if the peer is not registered, or if its transport principal is
// disabled.
func (g *Gate) peerInForce(ctx context.Context, system keyserver.SystemID) (keyserver.TrustedServer, error) {
	peer, err := g.CachedPeer(ctx, system)
	if err == nil {
		var transport keyserver.Principal
		if transport, err = g.CachedPrincipal(ctx, peer.Transport); err == nil && transport.Flags.Disabled() {
			return peer, fault.New(fault.PrincipalOff, "the transport principal of the peer %d is disabled; ask an administrator to enable it", system).
				Audited(fault.ReasonPrincipalDisabled)
		}
	}
	if errors.Is(err, sqlstore.ErrNotFound) {
		return peer, fault.New(fault.AccessDenied, "the key server %d is not a registered peer; ask a Security Officer to register it", system).Audited(fault.ReasonNotForwarded)
	}
	return peer, err
}

// RunOnce runs the effect of a call unless the peer repeats a call that already took effect. It returns the result of
// effect, or true for a repeated call. It records the call in the transaction of the effect.
func (g *Gate) RunOnce(ctx context.Context, by keyserver.Caller, tx *sqlstore.Tx, effect func() (bool, error)) (bool, error) {
	if by.Peer == nil {
		return effect()
	}
	now := g.Clock()
	known, err := tx.PeerCallKnown(ctx, by.Peer.Key, now)
	switch {
	case err != nil:
		return false, err
	case known && by.Peer.Single:
		return false, fault.New(fault.InvalidArgument, "a call with the same call key already took effect, and a streamed call must not be repeated").
			Audited(fault.ReasonInvalidArgument)
	case known:
		return true, nil
	}
	done, err := effect()
	if err != nil || !done {
		return done, err
	}
	return true, tx.RecordPeerCall(ctx, by.Peer.System, by.Peer.Key, now, now.Add(callMemory))
}

// Repeated reports whether a peer repeats a call that already took effect. If so, a check may ignore a refusal that the
// first call itself may have caused. It must not ignore a refusal that a later change caused.
func (g *Gate) Repeated(ctx context.Context, by keyserver.Caller) (bool, error) {
	if by.Peer == nil || by.Peer.Single {
		return false, nil
	}
	return g.Store.PeerCallKnown(ctx, by.Peer.Key, g.Clock())
}

// Fill fills b with random bytes.
func Fill(random io.Reader, b []byte) error {
	if _, err := io.ReadFull(random, b); err != nil {
		return fmt.Errorf("read random bytes: %w", err)
	}
	return nil
}
