package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// callMemory is how long the call of a peer is remembered that took effect. A
// peer repeats a call only within the time limit of one request of its own.
const callMemory = 10 * time.Minute

// authorisePeer is the gate's decision for the principal of a peer. Whether
// one of its roles grants the operation, its own key server has decided before
// it asked; what the key's list says is decided here, by the further checks.
func (e *Engine) authorisePeer(ctx context.Context, r request, checks []check) error {
	who, err := e.peerSubject(ctx, r)
	if err != nil {
		return err
	}
	for _, c := range checks {
		if err := c(ctx, who); err != nil {
			return err
		}
	}
	return nil
}

// peerSubject decides whether this key server listens to a peer, and to that
// principal of it.
func (e *Engine) peerSubject(ctx context.Context, r request) (subject, error) {
	from := r.by.Peer.System
	if !slices.ContainsFunc(keyserver.ForwardedOperations, func(op keyserver.Operation) bool { return op.ID == r.op.ID }) {
		return subject{}, fault.New(fault.AccessDenied, "%s is not done for peers", r.op.Name).Audited(fault.ReasonNotForwarded)
	}
	peer, err := e.peerInForce(ctx, from)
	if err != nil {
		return subject{}, err
	}
	who := subject{principal: r.by.Principal, groups: r.by.Peer.Groups}
	if who.principal == (keyserver.PrincipalRef{System: e.System, ID: peer.Transport}) { // the peer itself asks
		if r.op.ID != keyserver.OpLookupPrincipals.ID || len(who.groups) > 0 {
			return subject{}, fault.New(fault.AccessDenied, "%s is done for a principal of the peer, not for the peer", r.op.Name).
				Audited(fault.ReasonNotForwarded)
		}
		return who, nil
	}
	if who.principal.System != from || slices.ContainsFunc(who.groups, func(g keyserver.PrincipalRef) bool { return g.System != from }) {
		return subject{}, fault.New(fault.AccessDenied, "the peer %d speaks for the principals of another key server", from).
			Audited(fault.ReasonNotForwarded)
	}
	rows, err := e.trust(ctx, who.principal.ID, from)
	if err != nil {
		return subject{}, err
	}
	if verdict := admitted(rows, who.principal); !verdict.allowed {
		return subject{}, fault.New(fault.AccessDenied, "%s", verdict.why).Audited(fault.ReasonRestricted)
	}
	return who, nil
}

// peerInForce refuses a peer that is registered no more, and one whose
// transport principal is disabled.
func (e *Engine) peerInForce(ctx context.Context, system keyserver.SystemID) (keyserver.TrustedServer, error) {
	peer, err := e.peer(ctx, system)
	if err == nil {
		var transport keyserver.Principal
		if transport, err = e.principal(ctx, peer.Transport); err == nil && transport.Flags.Disabled() {
			return peer, fault.New(fault.PrincipalOff, "the transport principal of the peer %d is disabled", system).
				Audited(fault.ReasonPrincipalDisabled)
		}
	}
	if errors.Is(err, sqlstore.ErrNotFound) {
		return peer, fault.New(fault.AccessDenied, "the key server %d is no registered peer", system).Audited(fault.ReasonNotForwarded)
	}
	return peer, err
}

// once runs the effect of a call unless a peer repeats a call that took effect
// before. It reports what the effect reports, or true for a repetition. Effect
// and memory are one transaction.
func (e *Engine) once(ctx context.Context, by keyserver.Caller, tx *sqlstore.Tx, effect func() (bool, error)) (bool, error) {
	if by.Peer == nil {
		return effect()
	}
	known, err := tx.PeerCallKnown(ctx, by.Peer.Key)
	if err != nil || known {
		return known, err
	}
	done, err := effect()
	if err != nil || !done {
		return done, err
	}
	now := e.Clock()
	return true, tx.RememberPeerCall(ctx, by.Peer.Key, now, now.Add(callMemory))
}

// unlessRepeated lets a repetition of a call that took effect pass although
// the effect itself would now refuse it: the last use is used up.
func (e *Engine) unlessRepeated(ctx context.Context, by keyserver.Caller, refusal error) error {
	if by.Peer == nil || fault.As(refusal) == nil {
		return refusal
	}
	known, err := e.Store.PeerCallKnown(ctx, by.Peer.Key)
	if err != nil {
		return err
	}
	if known {
		return nil
	}
	return refusal
}

// fill draws random bytes.
func fill(random io.Reader, b []byte) error {
	if _, err := io.ReadFull(random, b); err != nil {
		return fmt.Errorf("draw random bytes: %w", err)
	}
	return nil
}
