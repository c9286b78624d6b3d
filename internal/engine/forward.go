package engine

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Peers reaches other key servers.
type Peers interface {
	// At answers the peer of a record, which need not be up.
	At(peer keyserver.TrustedServer) keyserver.Federated
}

// foreign reports which other key server owns the key of a link.
func (e *Engine) foreign(link keyserver.HiddenLink) (keyserver.SystemID, bool) {
	system, _, ok := link.Split()
	return system, ok && system != e.System
}

// forward is perform for a change of an object that another key server owns:
// the gate decides here what the caller's own key server has to decide, the
// owner decides the rest. Both write rows under one request id.
func (e *Engine) forward(ctx context.Context, r request, to keyserver.SystemID, absent fault.Code,
	send func(at keyserver.Federated, as keyserver.Caller) error, checks ...check,
) error {
	var peer keyserver.TrustedServer
	var as keyserver.Caller
	return e.perform(ctx, r, func() error {
		return send(e.Peers.At(peer), as)
	}, append(checks, e.sends(r.by, to, absent, &peer, &as))...)
}

// consult is forward for what changes nothing, or only counts a use. The row
// becomes durable while the owner works, which has made its own durable by the
// time that it answers; the answer is withheld until both are (ADR 20).
func (e *Engine) consult(ctx context.Context, r request, to keyserver.SystemID, absent fault.Code,
	send func(at keyserver.Federated, as keyserver.Caller) error, checks ...check,
) error {
	var peer keyserver.TrustedServer
	var as keyserver.Caller
	r.counts = false // the owner counts what its key is used for
	if refusal := e.authorise(ctx, r, append(checks, e.sends(r.by, to, absent, &peer, &as))); refusal != nil {
		return e.refused(ctx, r, refusal)
	}
	// A caller that goes away must not take the row of what the owner did along.
	durable, err := e.Auditor.Begin(context.WithoutCancel(ctx), r.row(keyserver.Allowed, ""))
	if err != nil {
		return err
	}
	err = send(e.Peers.At(peer), as)
	if lost := durable(); lost != nil {
		return withheld(lost)
	}
	if err != nil {
		return e.failed(ctx, r, err)
	}
	return nil
}

// withheld says what became of an answer whose row is not durable.
func withheld(lost error) error {
	if f := fault.As(lost); f != nil && f.Code == fault.AuditUnavailable {
		return fault.Temporary(f.Code, f.Scope, f.RetryAfter, "no audit row could be written here, so the answer of the peer is withheld; try again").Because(lost)
	}
	return lost
}

// sends is the check that a peer may be told of the caller, and of whoever
// really acts where that is somebody else. It answers the peer, and the caller as the peer is told of him. What a peer asks for goes
// no further: whoever trusts this key server need not trust those it trusts.
func (e *Engine) sends(by keyserver.Caller, to keyserver.SystemID, absent fault.Code, peer *keyserver.TrustedServer, as *keyserver.Caller) check {
	return func(ctx context.Context, who access.Subject) (err error) {
		if by.Peer != nil {
			return fault.New(fault.InvalidArgument, "the object belongs to the system id %d; what a peer asks for is not forwarded again", to).
				Audited(fault.ReasonNotForwarded)
		}
		*peer, err = e.peer(ctx, to)
		if e.Peers == nil { // there is no way to any
			err = sqlstore.ErrNotFound
		}
		if errors.Is(err, sqlstore.ErrNotFound) {
			err = fault.New(absent, "the system id %d is neither this key server's nor that of a registered peer", to).
				Audited(fault.ReasonObjectNotFound)
		}
		if err := e.step(keyserver.StepKey, err); err != nil {
			return err
		}
		if err := e.step(keyserver.StepExposure, e.mayTell(ctx, who, to, "the principal")); err != nil {
			return err
		}
		if !by.Actor.ID.IsZero() { // the peer is told who really acts, too
			actor, _, err := e.subject(ctx, keyserver.Caller{Principal: by.Actor})
			if err != nil {
				return err
			}
			if err := e.step(keyserver.StepExposure, e.mayTell(ctx, actor, to, "the principal that acts in the session")); err != nil {
				return err
			}
		}
		e.view.elsewhere(to)
		*as, err = e.introduce(by, who)
		return err
	}
}

// mayTell refuses unless a peer may be told about a subject; role is what that
// is in the session.
func (e *Engine) mayTell(ctx context.Context, who access.Subject, peer keyserver.SystemID, role string) error {
	rows, err := e.trustsOf(ctx, who, peer)
	if err != nil {
		return err
	}
	if verdict := access.Exposed(rows, who, peer); !verdict.Allowed {
		return fault.New(fault.AccessDenied, "the object belongs to the peer %d, and %s %s; a Security Officer can expose it with POST /api/principal-trusts", peer, role, verdict.Why).
			Audited(fault.ReasonNotExposed)
	}
	return nil
}

// introduce is a caller as a peer is told of him, with a key for this one call.
func (e *Engine) introduce(by keyserver.Caller, who access.Subject) (keyserver.Caller, error) {
	as := keyserver.Caller{
		Principal: who.Principal, Name: by.Name, Type: by.Type, Kind: keyserver.PeerSession, RequestID: by.RequestID, Actor: by.Actor,
		Peer: &keyserver.PeerCall{System: e.System, Groups: who.Groups},
	}
	err := fill(e.Random, as.Peer.Key[:])
	return as, err
}

// peer reads the record of a registered peer through the cache.
func (e *Engine) peer(ctx context.Context, system keyserver.SystemID) (keyserver.TrustedServer, error) {
	return e.peers.Get(ctx, keyserver.IDFromUint64(uint64(system)), func() (keyserver.TrustedServer, error) { return e.Store.TrustedServer(ctx, system) })
}

// trustKey names a row of the principal trusts.
type trustKey struct {
	principal keyserver.ID
	peer      keyserver.SystemID
}

// trustsOf reads, through the cache, the rows of a subject and its groups for
// a peer.
func (e *Engine) trustsOf(ctx context.Context, who access.Subject, peer keyserver.SystemID) ([]keyserver.PrincipalTrust, error) {
	rows, err := e.trust(ctx, who.Principal.ID, peer)
	if err != nil || len(rows) > 0 { // a row of the principal itself comes first
		return rows, err
	}
	for _, group := range who.Groups {
		more, err := e.trust(ctx, group.ID, peer)
		if err != nil {
			return nil, err
		}
		rows = append(rows[:len(rows):len(rows)], more...)
	}
	return rows, nil
}

// trust reads the row of one principal for a peer, if there is one.
func (e *Engine) trust(ctx context.Context, principal keyserver.ID, peer keyserver.SystemID) ([]keyserver.PrincipalTrust, error) {
	if e.view != nil {
		return e.view.trust(ctx, principal, peer)
	}
	return e.trusts.Get(ctx, trustKey{principal, peer}, func() ([]keyserver.PrincipalTrust, error) {
		return e.Store.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{Principal: &principal, Server: &peer, Limit: 1})
	})
}

func (e *Engine) forwardKey(ctx context.Context, r request, to keyserver.SystemID) (meta keyserver.KeyMetadata, err error) {
	err = e.consult(ctx, r, to, fault.KeyNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		meta, err = at.Key(ctx, as, r.link)
		return err
	}, e.transportOnly(r.by))
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return meta, nil
}

func (e *Engine) forwardAuthorize(ctx context.Context, r request, to keyserver.SystemID, use keyserver.Use) (grant keyserver.Grant, err error) {
	err = e.consult(ctx, r, to, fault.KeyNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		grant, err = at.AuthorizeKey(ctx, as, use)
		return err
	})
	if err != nil {
		return keyserver.Grant{}, err
	}
	return grant, nil
}

func (e *Engine) forwardHMAC(ctx context.Context, r request, to keyserver.SystemID, in keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	err = e.consult(ctx, r, to, fault.KeyNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		mac, err = at.HMAC(ctx, as, in)
		return err
	})
	if err != nil {
		return [keyserver.MACSize]byte{}, err
	}
	return mac, nil
}

func (e *Engine) forwardACL(ctx context.Context, r request, to keyserver.SystemID) (acl keyserver.ACL, err error) {
	err = e.consult(ctx, r, to, fault.ACLNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		acl, err = at.ACL(ctx, as, r.link)
		return err
	})
	if err != nil {
		return keyserver.ACL{}, err
	}
	return acl, nil
}
