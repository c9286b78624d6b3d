package verified

import (
	"bytes"
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MatchedOnServerName is the name of the field that TrustedServersNamed compares.
const MatchedOnServerName = "serverName"

// maxDescription is the maximum length of a description, in characters.
const maxDescription = 1024

// TrustedServerSaved is the result of registering a peer.
type TrustedServerSaved struct {
	Servers       []keyserver.TrustedServer // after the write
	System        keyserver.SystemID
	Saved         bool
	ACLSideEffect string // empty if the registration cannot be read back
	Detail        string
}

// TrustedServerUpdated is the result of changing a peer's record.
type TrustedServerUpdated struct {
	Server *keyserver.TrustedServer // as read back; nil if the record does not exist
	Saved  bool
	Detail string
}

// TrustedServerGone is the result of removing a peer.
type TrustedServerGone struct {
	Removed                      *keyserver.SystemID       // nil if the peer is still listed
	Servers                      []keyserver.TrustedServer // after the write
	Orphans                      []keyserver.PrincipalTrust
	ACLSideEffect                string
	PrincipalTrustSideEffect     string
	TransportPrincipalSideEffect string
	Detail                       string
}

// TrustedServers lists the registered peers.
func (s *Service) TrustedServers(ctx context.Context, by keyserver.Caller) ([]keyserver.TrustedServer, error) {
	return s.ks.TrustedServers(ctx, by)
}

// TrustedServersNamed returns the peers that are registered with a server name. It returns NOT_FOUND if there are none.
func (s *Service) TrustedServersNamed(ctx context.Context, by keyserver.Caller, name string) ([]keyserver.TrustedServer, error) {
	if name == "" {
		return nil, fault.New(fault.BadRequest, "name: must not be empty; leave it out to list every peer")
	}
	all, err := s.ks.TrustedServers(ctx, by)
	if err != nil {
		return nil, err
	}
	var found []keyserver.TrustedServer
	for _, p := range all {
		if p.Name == name {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, "no peer is registered under that server name; list them with GET /api/trusted-servers")
	}
	return found, nil
}

// TrustInfo reads the data for the registration of this key server on other key servers.
func (s *Service) TrustInfo(ctx context.Context, by keyserver.Caller) (keyserver.TrustInfo, error) {
	return s.ks.TrustInfo(ctx, by)
}

// AddTrustedServer registers a peer or, if n.Replace is set, replaces its record. It verifies the result in the list of
// peers.
func (s *Service) AddTrustedServer(ctx context.Context, by keyserver.Caller, n keyserver.NewTrustedServer) (TrustedServerSaved, error) {
	leaf, err := refuseNewPeer(&n)
	if err != nil {
		return TrustedServerSaved{}, err
	}
	var told keyserver.TrustedServerAdded
	return verifiedWrite[[]keyserver.TrustedServer, TrustedServerSaved]{
		read: func(ctx context.Context) ([]keyserver.TrustedServer, error) { return s.ks.TrustedServers(ctx, by) },
		refuse: func(before []keyserver.TrustedServer) error {
			if p, ok := findPeer(before, n.Blob.System); ok && !n.Replace {
				return fault.New(fault.AlreadyExists, "system id %d is already registered, as %q; remove that peer first, or send replace", p.System, p.FriendlyName)
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.TrustedServer) (err error) {
			told, err = s.ks.AddTrustedServer(ctx, by, n)
			return err
		},
		verdict: func(before, after []keyserver.TrustedServer) (TrustedServerSaved, error) {
			return judgeAddedPeer(n, leaf, told, before, after)
		},
	}.do(ctx)
}

// UpdateTrustedServer changes a peer's friendly name, its description, or both.
func (s *Service) UpdateTrustedServer(ctx context.Context, by keyserver.Caller, change keyserver.TrustedServerChange) (TrustedServerUpdated, error) {
	if err := refusePeerChange(&change); err != nil {
		return TrustedServerUpdated{}, err
	}
	return verifiedWrite[[]keyserver.TrustedServer, TrustedServerUpdated]{
		read:   func(ctx context.Context) ([]keyserver.TrustedServer, error) { return s.ks.TrustedServers(ctx, by) },
		refuse: func(before []keyserver.TrustedServer) error { return refuseNoPeer(before, change.System) },
		write: func(ctx context.Context, _ []keyserver.TrustedServer) error {
			return s.ks.UpdateTrustedServer(ctx, by, change)
		},
		verdict: func(_, after []keyserver.TrustedServer) (TrustedServerUpdated, error) {
			return judgeChangedPeer(change, after)
		},
	}.do(ctx)
}

// RemoveTrustedServer removes a peer. It verifies the result in the list of peers. The key server reports the side
// effects in the result.
func (s *Service) RemoveTrustedServer(ctx context.Context, by keyserver.Caller, system keyserver.SystemID) (TrustedServerGone, error) {
	var told keyserver.TrustedServerRemoved
	return verifiedWrite[[]keyserver.TrustedServer, TrustedServerGone]{
		read:   func(ctx context.Context) ([]keyserver.TrustedServer, error) { return s.ks.TrustedServers(ctx, by) },
		refuse: func(before []keyserver.TrustedServer) error { return refuseNoPeer(before, system) },
		write: func(ctx context.Context, _ []keyserver.TrustedServer) (err error) {
			told, err = s.ks.RemoveTrustedServer(ctx, by, system)
			return err
		},
		verdict: func(_, after []keyserver.TrustedServer) (TrustedServerGone, error) {
			return judgeRemovedPeer(system, told, after)
		},
	}.do(ctx)
}

// judgeAddedPeer returns the verdict on a registration. The peer with the requested system id must have all fields that
// were sent. Otherwise the key server has registered another peer.
func judgeAddedPeer(n keyserver.NewTrustedServer, leaf []byte, told keyserver.TrustedServerAdded, before, after []keyserver.TrustedServer) (TrustedServerSaved, error) {
	r := TrustedServerSaved{Servers: after, System: n.Blob.System}
	old, known := findPeer(before, n.Blob.System)
	p, ok := findPeer(after, n.Blob.System)
	switch {
	case !ok:
		r.Detail = fmt.Sprintf("the key server accepted the peer, but a fresh list of %d peers does not have its system id", len(after))
	case p.Name != n.Blob.ServerName || p.Port != n.Blob.Port || p.FriendlyName != n.FriendlyName || p.Description != n.Description || p.Witness != n.Witness:
		r.Detail = "a fresh list shows another server name, port, friendly name, description or witness for the system id"
	case len(p.Certificate.DER) > 0 && !bytes.Equal(p.Certificate.DER, leaf):
		r.Detail = "a fresh list shows another certificate for the system id"
	case known && told.Replaced && p.Transport != old.Transport:
		r.Detail = "a fresh list shows another transport principal for the system id than before"
	default:
		r.Saved, r.Detail = true, "a fresh list shows the peer with every field as sent"
		r.ACLSideEffect = addedPeerEffect(r.System, told)
		return r, nil
	}
	return r, fault.New(fault.NotPersisted, "%s", r.Detail)
}

func addedPeerEffect(system keyserver.SystemID, told keyserver.TrustedServerAdded) string {
	switch {
	case told.Replaced:
		return fmt.Sprintf("the record of the system id %d was replaced; ACL rows of its principals, and its transport principal with flags and roles, are unchanged", system)
	case told.Restored > 0:
		return fmt.Sprintf("restored %s of principals of the system id %d, purged when it was removed", rows(told.Restored, "ACL row"), system)
	default:
		return fmt.Sprintf("no purged ACL row of the system id %d existed, so none was restored", system)
	}
}

func judgeChangedPeer(change keyserver.TrustedServerChange, after []keyserver.TrustedServer) (TrustedServerUpdated, error) {
	var r TrustedServerUpdated
	p, ok := findPeer(after, change.System)
	if ok {
		r.Server = &p
	}
	switch {
	case !ok:
		r.Detail = "the key server accepted the change, but a fresh list does not have the peer"
	case change.FriendlyName != nil && p.FriendlyName != *change.FriendlyName:
		r.Detail = fmt.Sprintf("a fresh list shows the friendlyName %q", p.FriendlyName)
	case change.Description != nil && p.Description != *change.Description:
		r.Detail = fmt.Sprintf("a fresh list shows the description %q", p.Description)
	case change.Witness != nil && p.Witness != *change.Witness:
		r.Detail = fmt.Sprintf("a fresh list shows witness as %t", p.Witness)
	default:
		r.Saved, r.Detail = true, "a fresh read shows every field as sent"
		return r, nil
	}
	return r, fault.New(fault.NotPersisted, "%s", r.Detail)
}

func judgeRemovedPeer(system keyserver.SystemID, told keyserver.TrustedServerRemoved, after []keyserver.TrustedServer) (TrustedServerGone, error) {
	r := TrustedServerGone{Servers: after}
	if _, still := findPeer(after, system); still {
		r.Detail = "the key server accepted the removal, but a fresh list still has the peer"
		return r, fault.New(fault.NotRemoved, "%s", r.Detail)
	}
	r.Removed, r.Orphans, r.Detail = &system, told.Orphans, "a fresh list no longer has the peer"
	r.ACLSideEffect = fmt.Sprintf("purged: %s for principals of the system id %d; registering the peer again restores them",
		rows(told.Purged, "ACL row"), system)
	r.PrincipalTrustSideEffect = fmt.Sprintf("left behind: %s for the system id %d; remove them with DELETE /api/principal-trusts/{id}",
		rows(told.OrphanCount, "principal trust"), system)
	if n := len(told.Orphans); n < told.OrphanCount {
		r.PrincipalTrustSideEffect += fmt.Sprintf("; the first %d are listed", n)
	}
	r.TransportPrincipalSideEffect = fmt.Sprintf("transport principal %s, created with the peer, was removed with it", told.Transport)
	return r, nil
}

// rows formats a number with the name of the counted things.
func rows(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// refuseNewPeer returns an error for a record that no key server could use. It returns the peer's own certificate.
func refuseNewPeer(n *keyserver.NewTrustedServer) (leaf []byte, err error) {
	chain, err := pki.ParseChain(n.Blob.Chain)
	if err != nil {
		return nil, fault.New(fault.BadRequest, "trustBlob: %s", err)
	}
	if _, err := values.ParseTrustBlob(n.Blob.String()); err != nil {
		return nil, fault.New(fault.BadRequest, "trustBlob: %s", err)
	}
	if n.FriendlyName, err = cleanName("friendlyName", n.FriendlyName); err != nil {
		return nil, err
	}
	return chain.Leaf.Raw, refuseDescription(n.Description)
}

func refusePeerChange(change *keyserver.TrustedServerChange) error {
	if change.FriendlyName == nil && change.Description == nil && change.Witness == nil {
		return fault.New(fault.BadRequest, "friendlyName: is missing, and so are description and witness; send at least one of them")
	}
	if change.FriendlyName != nil {
		name, err := cleanName("friendlyName", *change.FriendlyName)
		if err != nil {
			return err
		}
		change.FriendlyName = &name
	}
	if change.Description != nil {
		return refuseDescription(*change.Description)
	}
	return nil
}

func refuseDescription(text string) error {
	switch {
	case utf8.RuneCountInString(text) > maxDescription:
		return fault.New(fault.BadRequest, "description: must be at most %d characters", maxDescription)
	case !keyserver.Printable(text):
		return fault.New(fault.BadRequest, "description: contains an unprintable character; remove it")
	}
	return nil
}

func refuseNoPeer(list []keyserver.TrustedServer, system keyserver.SystemID) error {
	if _, ok := findPeer(list, system); !ok {
		return fault.New(fault.NotFound, "no registered peer has the system id %d; list them with GET /api/trusted-servers", system)
	}
	return nil
}

func findPeer(list []keyserver.TrustedServer, system keyserver.SystemID) (keyserver.TrustedServer, bool) {
	for _, p := range list {
		if p.System == system {
			return p, true
		}
	}
	return keyserver.TrustedServer{}, false
}
