package gate

import (
	"context"
	"errors"
	"math"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Peers has the clients for other key servers.
type Peers interface {
	// At returns the client for a peer. It does not check that the peer can be reached.
	At(peer keyserver.TrustedServer) keyserver.Federated
}

// Foreign returns the system id in a link, and reports whether it belongs to another key server.
func (g *Gate) Foreign(link keyserver.HiddenLink) (keyserver.SystemID, bool) {
	system, _, ok := link.Split()
	return system, ok && system != g.System
}

// Forward is Perform for a change of an object on another key server, the owner. This gate checks the principal, its
// roles and the approval policy. The owner checks everything else. Both key servers write audit rows with the same
// request id.
func (g *Gate) Forward(ctx context.Context, r Request, to keyserver.SystemID, absent fault.Code,
	send func(at keyserver.Federated, as keyserver.Caller) error, checks ...Check,
) error {
	var peer keyserver.TrustedServer
	var as keyserver.Caller
	return g.Perform(ctx, r, func() error {
		return send(g.Peers.At(peer), as)
	}, append(checks, g.exposureCheck(r.By, to, absent, &peer, &as))...)
}

// Consult is Forward for an operation that only reads, or only counts a use. Its audit row becomes durable while the
// owner of the object works. The owner makes its own row durable before it responds. So both rows are durable before
// Consult returns the result (ADR 20).
func (g *Gate) Consult(ctx context.Context, r Request, to keyserver.SystemID, absent fault.Code,
	send func(at keyserver.Federated, as keyserver.Caller) error, checks ...Check,
) error {
	var peer keyserver.TrustedServer
	var as keyserver.Caller
	r.Counts = false // the owner counts the use
	if refusal := g.authorize(ctx, r, append(checks, g.exposureCheck(r.By, to, absent, &peer, &as))); refusal != nil {
		return g.refused(ctx, r, refusal)
	}
	// Write the row even if the caller disconnects, because the owner does the operation anyway.
	durable, err := g.auditor.Begin(context.WithoutCancel(ctx), r.row(keyserver.Allowed, ""))
	if err != nil {
		return err
	}
	err = send(g.Peers.At(peer), as)
	if lost := durable(); lost != nil {
		return withheld(lost)
	}
	if err != nil {
		return g.Failed(ctx, r, err)
	}
	return nil
}

// withheld returns the error for a response of a peer that is not passed on, because the audit row here is not durable.
func withheld(lost error) error {
	if f := fault.As(lost); f != nil && f.Code == fault.AuditUnavailable {
		return fault.Temporary(f.Code, f.Scope, f.RetryAfter, "this key server could not write the audit row, so the response of the peer is withheld; try again").Because(lost)
	}
	return lost
}

// exposureCheck returns a check that the peer may learn about the caller, and about the principal that acts for the caller. The
// check stores the peer in peer, and the caller as the peer knows it in as. It refuses requests of other peers: a key
// server that trusts this one need not trust the peers of this one.
func (g *Gate) exposureCheck(by keyserver.Caller, to keyserver.SystemID, absent fault.Code, peer *keyserver.TrustedServer, as *keyserver.Caller) Check {
	return func(ctx context.Context, who access.Subject) (err error) {
		if by.Peer != nil {
			return fault.New(fault.InvalidArgument, "the object belongs to the system id %d, and a request of a peer is not forwarded again; send it to that key server", to).
				Audited(fault.ReasonNotForwarded)
		}
		*peer, err = g.CachedPeer(ctx, to)
		if g.Peers == nil { // there is no client for peers
			err = sqlstore.ErrNotFound
		}
		if errors.Is(err, sqlstore.ErrNotFound) {
			err = fault.New(absent, "the system id %d does not belong to this key server or to a registered peer", to).
				Audited(fault.ReasonObjectNotFound)
		}
		if err := g.Step(keyserver.StepKey, err); err != nil {
			return err
		}
		if err := g.Step(keyserver.StepExposure, g.checkExposed(ctx, who, to, "the principal")); err != nil {
			return err
		}
		if !by.Actor.ID.IsZero() { // the peer also learns the acting principal
			actor, _, err := g.subject(ctx, keyserver.Caller{Principal: by.Actor})
			if err != nil {
				return err
			}
			if err := g.Step(keyserver.StepExposure, g.checkExposed(ctx, actor, to, "the delegate of the session")); err != nil {
				return err
			}
		}
		g.view.noteRemoteStep(to)
		*as, err = g.peerCaller(by, who)
		return err
	}
}

// checkExposed fails unless the peer may learn about the subject. role describes the subject in the error message.
func (g *Gate) checkExposed(ctx context.Context, who access.Subject, peer keyserver.SystemID, role string) error {
	rows, err := g.trustsOf(ctx, who, peer)
	if err != nil {
		return err
	}
	if verdict := access.Exposed(rows, who, peer); !verdict.Allowed {
		return fault.New(fault.AccessDenied, "the object belongs to the peer %d, and %s %s; ask a Security Officer to expose it with POST /api/principal-trusts", peer, role, verdict.Why).
			Audited(fault.ReasonNotExposed)
	}
	return nil
}

// peerCaller returns the caller as the peer knows it, with a new call key.
func (g *Gate) peerCaller(by keyserver.Caller, who access.Subject) (keyserver.Caller, error) {
	as := keyserver.Caller{
		Principal: who.Principal, Name: by.Name, Type: by.Type, Kind: keyserver.PeerSession, RequestID: by.RequestID, Actor: by.Actor,
		Peer: &keyserver.PeerCall{System: g.System, Groups: who.Groups},
	}
	err := Fill(g.Random, as.Peer.Key[:])
	return as, err
}

// CachedPeer reads the record of a registered peer through the cache.
func (g *Gate) CachedPeer(ctx context.Context, system keyserver.SystemID) (keyserver.TrustedServer, error) {
	return g.peers.Get(ctx, values.IDFromUint64(uint64(system)))
}

// readPeer reads the record of a registered peer by its system id.
func (g *Gate) readPeer(ctx context.Context, system keyserver.ID) (keyserver.TrustedServer, error) {
	return g.Store.TrustedServer(ctx, keyserver.SystemID(system.Uint64()&math.MaxUint32))
}

// trustKey identifies a principal trust.
type trustKey struct {
	principal keyserver.ID
	peer      keyserver.SystemID
}

// trustsOf reads the principal trusts of a subject for a peer through the cache: the row of the principal if there is
// one, otherwise the rows of its groups.
func (g *Gate) trustsOf(ctx context.Context, who access.Subject, peer keyserver.SystemID) ([]keyserver.PrincipalTrust, error) {
	rows, err := g.CachedTrust(ctx, who.Principal.ID, peer)
	if err != nil || len(rows) > 0 { // the principal's own row takes precedence
		return rows, err
	}
	for _, group := range who.Groups {
		more, err := g.CachedTrust(ctx, group.ID, peer)
		if err != nil {
			return nil, err
		}
		rows = append(rows[:len(rows):len(rows)], more...)
	}
	return rows, nil
}

// CachedTrust reads the principal trust of one principal for a peer, if there is one.
func (g *Gate) CachedTrust(ctx context.Context, principal keyserver.ID, peer keyserver.SystemID) ([]keyserver.PrincipalTrust, error) {
	if g.view != nil {
		return g.view.trust(ctx, principal, peer)
	}
	return g.trusts.Get(ctx, trustKey{principal, peer}, func() ([]keyserver.PrincipalTrust, error) {
		return g.Store.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{Principal: &principal, Server: &peer, Limit: 1})
	})
}
