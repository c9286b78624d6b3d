package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// resolveTimeout limits the time for the resolution of a peer's server name.
const resolveTimeout = 3 * time.Second

// Self describes this key server, as other key servers see it.
type Self struct {
	ServerName string
	Port       uint16 // of the external listener; 0 if there is none
	Everywhere bool   // the listener accepts connections to all addresses of this machine
	// Certificate returns the current server certificate, issued by an own CA. All replicas have the same certificate.
	Certificate func(context.Context) *x509.Certificate
	Resolver    Resolver
	// Addresses returns the current addresses of this machine.
	Addresses func() ([]netip.Addr, error)
}

// Resolver finds the addresses of a host (net.Resolver).
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// TrustedServers implements keyserver.TrustedServers.
func (tr *Trust) TrustedServers(ctx context.Context, by keyserver.Caller) (list []keyserver.TrustedServer, err error) {
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListTrustedServers}, func() (err error) {
		list, err = tr.Store.TrustedServers(ctx)
		return err
	})
	return list, err
}

// AddTrustedServer implements keyserver.TrustedServers. It resolves the server name before the transaction. To replace
// a record, the caller also needs the right to remove a peer, because the effect is the same as removing and adding it.
func (tr *Trust) AddTrustedServer(ctx context.Context, by keyserver.Caller, n keyserver.NewTrustedServer) (added keyserver.TrustedServerAdded, err error) {
	r := peerRequest(by, keyserver.OpAddTrustedServer, n.Blob.System)
	var checks []gate.Check
	if n.Replace {
		r.Object += " in place of its record"
		checks = append(checks, tr.AlsoGranted(by, keyserver.OpRemoveTrustedServer))
	}
	err = tr.Perform(ctx, r, func() error {
		peer, chain, err := tr.describePeer(n)
		if err != nil {
			return err
		}
		if err := tr.refuseOwnAddress(ctx, peer.Name, peer.Port); err != nil {
			return err
		}
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) (err error) {
			added, err = tr.register(ctx, tx, peer, chain, n.Replace)
			return err
		})
	}, checks...)
	if err != nil {
		return keyserver.TrustedServerAdded{}, err
	}
	return added, nil
}

// UpdateTrustedServer implements keyserver.TrustedServers.
func (tr *Trust) UpdateTrustedServer(ctx context.Context, by keyserver.Caller, change keyserver.TrustedServerChange) error {
	return tr.Perform(ctx, peerRequest(by, keyserver.OpUpdateTrustedServer, change.System), func() error {
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return noPeer(tx.UpdateTrustedServer(ctx, change), change.System)
		})
	})
}

// RemoveTrustedServer implements keyserver.TrustedServers.
func (tr *Trust) RemoveTrustedServer(ctx context.Context, by keyserver.Caller, system keyserver.SystemID) (removed keyserver.TrustedServerRemoved, err error) {
	err = tr.Perform(ctx, peerRequest(by, keyserver.OpRemoveTrustedServer, system), func() error {
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) (err error) {
			removed, err = unregister(ctx, tx, system)
			return noPeer(err, system)
		})
	})
	if err != nil {
		return keyserver.TrustedServerRemoved{}, err
	}
	return removed, nil
}

// TrustInfo implements keyserver.TrustedServers.
func (tr *Trust) TrustInfo(ctx context.Context, by keyserver.Caller) (info keyserver.TrustInfo, err error) {
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadTrustInfo}, func() error {
		own := tr.Self.Certificate(ctx)
		line, err := tr.cas.Authorities(ctx)
		if err != nil {
			return err
		}
		chain, err := pki.EncodeChain(append([]*x509.Certificate{own}, line.Chain(tr.Clock())...)...)
		info = keyserver.TrustInfo{
			System: tr.System, ServerName: tr.Self.ServerName, Port: tr.Self.Port,
			Certificate: StoredForm(keyserver.ID{}, keyserver.StatusRegular, own), Chain: chain,
		}
		return err
	})
	return info, err
}

func peerRequest(by keyserver.Caller, op keyserver.Operation, system keyserver.SystemID) gate.Request {
	return gate.Request{By: by, Op: op, Object: strconv.FormatUint(uint64(system), 10)}
}

func noPeer(err error, system keyserver.SystemID) error {
	return gate.NotFound(err, fault.NotFound, "no registered peer has the system id %d", system)
}

func invalidPeer(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, format, args...).Audited(fault.ReasonInvalidArgument)
}

// describePeer returns the record of a new peer, with new ids.
func (tr *Trust) describePeer(n keyserver.NewTrustedServer) (peer keyserver.TrustedServer, chain pki.Chain, err error) {
	if n.Blob.System == tr.System {
		return peer, chain, invalidPeer("the system id %d is this key server's own; send the trust blob of another key server", tr.System)
	}
	if chain, err = pki.ParseChain(n.Blob.Chain); err != nil {
		return peer, chain, invalidPeer("the trust blob is refused: %s", err)
	}
	if err := pki.CheckSubject(pki.SlashName(chain.Leaf.Subject)); err != nil {
		return peer, chain, invalidPeer("the peer's certificate cannot name its transport principal: %s", err)
	}
	transport, err := values.NewID(tr.Random)
	if err != nil {
		return peer, chain, err
	}
	certificate, err := values.NewID(tr.Random)
	if err != nil {
		return peer, chain, err
	}
	return keyserver.TrustedServer{
		System: n.Blob.System, Name: n.Blob.ServerName, Port: n.Blob.Port,
		FriendlyName: n.FriendlyName, Description: n.Description, Witness: n.Witness, Transport: transport,
		Certificate: StoredForm(certificate, keyserver.StatusTrustedServer, chain.Leaf), Chain: n.Blob.Chain,
	}, chain, nil
}

// refuseOwnAddress returns an error if the server name resolves to this machine or cannot be resolved. Why a name
// cannot be resolved is only logged: all such errors have the same text (contract 13.2).
func (tr *Trust) refuseOwnAddress(ctx context.Context, name string, port uint16) error {
	resolving, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := tr.Self.Resolver.LookupNetIP(resolving, "ip", name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || len(found) == 0 {
		return fault.New(fault.InvalidArgument, "the peer's server name cannot be resolved; check the name and the name servers").
			Audited(fault.ReasonInvalidArgument).Because(err)
	}
	own, err := tr.Self.Addresses()
	if err != nil {
		return err
	}
	if leadsTo(found, own) || tr.Self.Everywhere && port == tr.Self.Port && slices.ContainsFunc(found, netip.Addr.IsLoopback) {
		return invalidPeer("the peer's server name resolves to an address of this key server; send the trust blob of another key server")
	}
	return nil
}

// leadsTo reports whether one of the found addresses belongs to this machine. The unspecified address always does.
func leadsTo(found, own []netip.Addr) bool {
	plain := func(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
	return slices.ContainsFunc(found, func(a netip.Addr) bool {
		return plain(a).IsUnspecified() || slices.ContainsFunc(own, func(o netip.Addr) bool { return plain(o) == plain(a) })
	})
}

// register stores a peer. If the peer is already registered and replace is set, the new record changes how the peer is
// reached and identified. The rights of the peer and of its principals do not change.
func (tr *Trust) register(ctx context.Context, tx *sqlstore.Tx, peer keyserver.TrustedServer, chain pki.Chain, replace bool) (keyserver.TrustedServerAdded, error) {
	var none keyserver.TrustedServerAdded
	peers, err := tx.TrustedServers(ctx)
	if err != nil {
		return none, err
	}
	at := slices.IndexFunc(peers, func(p keyserver.TrustedServer) bool { return p.System == peer.System })
	registered := at >= 0
	if registered && !replace {
		return none, fault.New(fault.AlreadyExists, "a peer with the system id %d is already registered; remove it first, or send replace", peer.System).Audited(fault.ReasonInvalidArgument)
	}
	if err := refuseKeyOfAnother(peers, peer.System, chain.Leaf); err != nil {
		return none, err
	}
	trusted, err := ca.TrustedCAs(ctx, tx)
	if err != nil {
		return none, err
	}
	same := registered && sameKey(peers[at].Certificate.DER, chain.Leaf.Raw)
	if same {
		learned, err := learnedOf(ctx, tx, peer.System, trusted)
		if err != nil {
			return none, err
		}
		trusted = append(trusted, learned...)
	}
	if err := chain.Verify(trusted, tr.Clock()); err != nil {
		return none, invalidPeer("the peer's chain is refused: %s", err)
	}
	if registered && !same { // CAs that were learned with the former key do not count any more
		if err := tx.DeletePeerAuthorities(ctx, peer.System); err != nil {
			return none, err
		}
	}
	if registered {
		return replacePeer(ctx, tx, peers[at], peer)
	}
	if len(peers) >= keyserver.MaxTrustedServers {
		return none, fault.New(fault.InvalidArgument, "%d peers are registered, the limit; remove one first", len(peers)).Audited(fault.ReasonLimit)
	}
	return tr.insertPeer(ctx, tx, peer)
}

// refuseKeyOfAnother returns an error if another peer has the key of the certificate. Only its key identifies a peer,
// so neither of two peers with one key would be accepted.
func refuseKeyOfAnother(peers []keyserver.TrustedServer, system keyserver.SystemID, leaf *x509.Certificate) error {
	for _, p := range peers {
		if p.System == system {
			continue
		}
		recorded, err := x509.ParseCertificate(p.Certificate.DER)
		if err == nil && bytes.Equal(recorded.RawSubjectPublicKeyInfo, leaf.RawSubjectPublicKeyInfo) {
			return fault.New(fault.AlreadyExists, "the peer %d already has the key of this certificate; each peer must have its own key", p.System).
				Audited(fault.ReasonInvalidArgument)
		}
	}
	return nil
}

// insertPeer stores a peer and its transport principal. If the peer was removed earlier, insertPeer restores the ACL
// entries of its principals.
func (tr *Trust) insertPeer(ctx context.Context, tx *sqlstore.Tx, peer keyserver.TrustedServer) (keyserver.TrustedServerAdded, error) {
	added := keyserver.TrustedServerAdded{Transport: peer.Transport}
	err := tx.InsertPrincipal(ctx, keyserver.Principal{
		ID: peer.Transport, System: tr.System, Type: keyserver.CertificatePrincipal,
		Name: peer.Certificate.Subject, Flags: keyserver.FlagEnable,
	}, "")
	if err != nil {
		return added, nameTaken(err, peer.Certificate.Subject)
	}
	if err := tx.InsertTrustedServer(ctx, peer); err != nil {
		return added, err
	}
	added.Restored, err = tx.RestoreACLEntries(ctx, peer.System)
	return added, err
}

// replacePeer replaces the record of a peer. The transport principal keeps its flags and roles, so a disabled peer
// stays disabled. The ACL entries of the peer's principals do not change.
func replacePeer(ctx context.Context, tx *sqlstore.Tx, old, peer keyserver.TrustedServer) (keyserver.TrustedServerAdded, error) {
	added := keyserver.TrustedServerAdded{Transport: old.Transport, Replaced: true}
	if name := peer.Certificate.Subject; name != old.Certificate.Subject {
		if err := tx.RenamePrincipal(ctx, old.Transport, name); err != nil {
			return added, nameTaken(err, name)
		}
	}
	return added, tx.ReplaceTrustedServer(ctx, peer)
}

func nameTaken(err error, name string) error {
	if errors.Is(err, sqlstore.ErrDuplicate) {
		return fault.New(fault.AlreadyExists, "the name %s of the peer's transport principal already belongs to another certificate principal; delete that principal first", name).
			Audited(fault.ReasonInvalidArgument)
	}
	return err
}

// unregister removes a peer and its transport principal, and purges the ACL entries of the peer's principals. It keeps
// and returns the principal trusts for the peer.
func unregister(ctx context.Context, tx *sqlstore.Tx, system keyserver.SystemID) (keyserver.TrustedServerRemoved, error) {
	var removed keyserver.TrustedServerRemoved
	peer, err := tx.TrustedServer(ctx, system)
	if err != nil {
		return removed, err
	}
	removed.Transport = peer.Transport
	orphans := keyserver.PrincipalTrustFilter{Server: &system, Limit: keyserver.MaxUnwindowed}
	if removed.Orphans, err = tx.PrincipalTrusts(ctx, orphans); err != nil {
		return removed, err
	}
	if removed.OrphanCount, err = tx.PrincipalTrustCount(ctx, orphans); err != nil {
		return removed, err
	}
	if removed.Purged, err = tx.PurgeACLEntries(ctx, system); err != nil {
		return removed, err
	}
	return removed, tx.DeleteTrustedServer(ctx, system)
}
