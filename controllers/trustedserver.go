package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// trustedServers is the list of registered peers, found by system id.
var trustedServers = connection.List[schema.TrustedServer]{
	Name: "trustedServer",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.TrustedServer, error) {
		l, err := c.Officer.ListTrustedServers(ctx, schema.TrustedServersQuery{IncludeBodies: true})
		// A row without a system id identifies no peer.
		return slices.DeleteFunc(l.TrustedServers, func(s schema.TrustedServer) bool { return s.SystemID == nil }), err
	},
	Keys: func(s schema.TrustedServer) []string { return []string{systemKey(*s.SystemID)} },
}

func systemKey(id schema.SystemID) string { return strconv.FormatUint(uint64(id), 10) }

type trustedServerAdapter struct{}

func init() { adapted(trustedServerAdapter{}) }

// Kind implements reconcile.Adapter.
func (trustedServerAdapter) Kind() reconcile.Kind {
	return reconcile.Kind{
		Name: "TrustedServer", Feed: trustedServers.Name,
		FormatID: func(id schema.HexID) string { return schema.DecimalID(id).String() },
		ParseID: func(text string) (schema.HexID, error) {
			id, err := schema.ParseDecimalID(text)
			return schema.HexID(id), err
		},
		Awaits: []string{trustedCAs.Name},
	}
}

// Sources implements reconcile.Adapter.
func (trustedServerAdapter) Sources(obj *v1beta1.TrustedServer) []sources.Ref {
	return trustBlobSource(obj).Refs()
}

// trustBlobSource returns the Secret or ConfigMap with the trust blob, or nil.
func trustBlobSource(obj *v1beta1.TrustedServer) *sources.Key {
	from := obj.Spec.TrustBlob
	return sources.In(obj.Namespace, from.SecretKeyRef, from.ConfigMapKeyRef)
}

// Owned implements reconcile.Adapter.
func (trustedServerAdapter) Owned(obj *v1beta1.TrustedServer) string {
	if obj.Status.SystemID == nil {
		return ""
	}
	return strconv.FormatInt(*obj.Status.SystemID, 10)
}

// Claims implements reconcile.Adapter: a TrustedServer claims a system id.
func (a trustedServerAdapter) Claims(obj *v1beta1.TrustedServer, want *declaredPeer) []string {
	switch {
	case want != nil:
		return []string{systemKey(want.system)}
	case obj.Spec.TrustBlob.Inline != nil:
		system, _, _ := strings.Cut(*obj.Spec.TrustBlob.Inline, "\t")
		return []string{system}
	case obj.Status.SystemID != nil:
		return []string{a.Owned(obj)}
	default:
		return nil
	}
}

// Scope implements reconcile.Adapter: a grant names a peer by its server name or by its system id, because one does not
// follow from the other.
func (a trustedServerAdapter) Scope(_ context.Context, in reconcile.Input, obj *v1beta1.TrustedServer, want *declaredPeer) (grants.Scope, error) {
	named := func(server, system string) (grants.Scope, error) {
		return grants.Scope{Names: []grants.Name{peerName(server, system)}}, nil
	}
	switch {
	case want != nil:
		return named(want.serverName, systemKey(want.system))
	case obj.Spec.TrustBlob.Inline != nil:
		if blob, err := schema.ParseTrustBlob(strings.TrimSpace(*obj.Spec.TrustBlob.Inline)); err == nil {
			return named(blob.ServerName, systemKey(schema.SystemID(blob.System)))
		}
	case obj.Status.SystemID != nil && in.Conn != nil:
		return named(obj.Status.ServerName, a.Owned(obj))
	}
	return grants.Scope{}, nil
}

// peerName returns the names of a peer that a grant can use.
func peerName(server, system string) grants.Name { return grants.Name{server, "id/" + system} }

// Needs implements reconcile.Consumer: a peer needs the CA of its certificate. It blocks the deletion of this CA only
// if it knows the CA's certificate.
func (trustedServerAdapter) Needs(obj *v1beta1.TrustedServer) []reconcile.Need {
	ks, s := obj.Spec.KeyServerRef.Name, obj.Status
	switch {
	case s.IssuerFingerprint != "":
		return []reconcile.Need{{Key: reconcile.IndexKey(ks, caFingerprint(s.IssuerFingerprint)), Holds: true}}
	case s.Issuer != "":
		return []reconcile.Need{{Key: reconcile.IndexKey(ks, caSubject(s.Issuer))}}
	default:
		return nil
	}
}

// Provides implements reconcile.Provider.
func (a trustedServerAdapter) Provides(obj *v1beta1.TrustedServer) []string {
	keys := []string{objectKey(a.Kind().Name, obj.Namespace, obj.Name)}
	if id := a.Owned(obj); id != "" {
		keys = append(keys, reconcile.IndexKey(obj.Spec.KeyServerRef.Name, peerKey(id)))
	}
	return keys
}

// Peer implements reconcile.Peered.
func (trustedServerAdapter) Peer(obj *v1beta1.TrustedServer) *v1beta1.PeerReference {
	return obj.Spec.TrustBlob.PeerRef
}

// Declared implements reconcile.Adapter.
func (a trustedServerAdapter) Declared(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedServer) (declaredPeer, error) {
	text, where, err := a.text(ctx, in, obj)
	if err != nil {
		return declaredPeer{}, err
	}
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	blob, err := schema.ParseTrustBlob(text)
	if err != nil {
		return declaredPeer{}, connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s %s", where, err)
	}
	chain, err := parsePeerChain(blob.Chain)
	if err != nil {
		return declaredPeer{}, connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s %s", where, err)
	}
	want := declaredPeer{
		system: schema.SystemID(blob.System), blob: blob, serverName: blob.ServerName, port: int(blob.Port), chain: chain,
		friendlyName: obj.Spec.FriendlyName, description: obj.Spec.Description, witness: obj.Spec.Witness,
	}
	if peer := a.Peer(obj); peer != nil {
		want.follows = peer.Name
	}
	if owned := a.Owned(obj); owned != "" && owned != systemKey(want.system) {
		return want, connection.NewProblem(v1beta1.ReasonInvalidSpec,
			"%s has the system id %d, but this object manages the peer with the system id %s; for the other key server, delete this object and create it again", where, want.system, owned)
	}
	return want, nil
}

// text returns the declared trust blob (contract 5.6) and its source.
func (a trustedServerAdapter) text(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedServer) (text, where string, err error) {
	from := obj.Spec.TrustBlob
	if from.Inline != nil {
		return *from.Inline, "spec.trustBlob.inline", nil
	}
	if from.PeerRef != nil {
		return a.blobOf(ctx, in, obj, from.PeerRef.Name)
	}
	key := trustBlobSource(obj)
	raw, err := in.Sources.Public(ctx, *key)
	return string(raw), key.String(), err
}

// blobOf reads the trust blob of a KeyServer.
func (trustedServerAdapter) blobOf(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedServer, peer string) (text, where string, err error) {
	info, err := in.Peers.Info(ctx, in, obj.Namespace, peer)
	if err != nil {
		return "", "", err
	}
	if info.TrustBlob == nil {
		return "", "", connection.NewProblem(v1beta1.ReasonDependencyNotReady,
			"KeyServer %q has no trust blob: it has no external listener, or peers cannot reach its server name", peer)
	}
	return info.TrustBlob.String(), fmt.Sprintf("the trust blob of KeyServer %q", peer), nil
}

// Observe implements reconcile.Adapter.
func (a trustedServerAdapter) Observe(ctx context.Context, in reconcile.Input, obj *v1beta1.TrustedServer, want *declaredPeer) (reconcile.External, error) {
	id := a.Owned(obj)
	if want != nil {
		id = systemKey(want.system)
	}
	seen := reconcile.External{What: fmt.Sprintf("peer %q (system id %s)", obj.Spec.FriendlyName, id)}
	row, ok, err := trustedServers.Of(in.Conn).Find(ctx, in.NotBefore, id)
	if err != nil {
		return seen, err
	}
	var waits string
	var noted peerNotes
	if want != nil && !in.Deleting {
		if waits, noted.vouched, err = a.vouched(ctx, in, want.chain); err != nil {
			return seen, err
		}
	}
	seen.AdapterData = noted
	if !ok {
		if waits != "" {
			seen.Blockers = append(seen.Blockers, reconcile.Dependency(reconcile.Absent, waits))
		}
		return seen, nil
	}
	seen.Exists, seen.ID, seen.Names = true, id, []grants.Name{peerName(deref(row.ServerName), id)}
	seen.Evidence = "the list of peers has the system id " + id + " with the declared server name, port, public key and friendly name"
	if want != nil {
		want.preferRegistered(row)
		var fixed []v1beta1.FieldDrift
		seen.Drift, fixed = want.compare(row)
		switch {
		case len(fixed) == 0:
		case want.follows == "":
			seen.Blockers = append(seen.Blockers, reconcile.Fixed(want.unchangeable(fixed)))
		default:
			seen.Renewed, noted.replace = !want.recorded(obj.Status), true
			if waits != "" { // a replacement needs the CA, too
				seen.Blockers = append(seen.Blockers, reconcile.Dependency(reconcile.Always, waits+staysRegistered))
			}
		}
	}
	if in.Deleting {
		var says string
		if says, noted.orphans, err = a.consequence(ctx, in, id); err == nil {
			noted.leaving = true
			seen.Blockers = append(seen.Blockers, reconcile.Consequence(says))
		}
	}
	seen.AdapterData = noted
	return seen, err
}

// peerNotes is data of a peer reading for later use.
type peerNotes struct {
	vouched string // fingerprint of the trusted CA in the peer's chain
	// replace means that the peer's record must be replaced.
	replace bool
	// leaving means that the peer will be removed. orphans are the ids of the principal trusts that stay without a peer.
	leaving bool
	orphans []string
}

func notesOn(seen reconcile.External) peerNotes {
	noted, _ := seen.AdapterData.(peerNotes)
	return noted
}

// vouched returns the fingerprint of the trusted CA that the
// chain leads to, or a message about the missing CA.
func (trustedServerAdapter) vouched(ctx context.Context, in reconcile.Input, chain peerChain) (waits, anchor string, err error) {
	listed := trustedCAs.Of(in.Conn)
	for _, ca := range chain.path {
		sum := fingerprint(ca)
		if _, ok, err := listed.Find(ctx, in.NotBefore, sum); err != nil || ok {
			return "", sum, err
		}
	}
	if !chain.complete() {
		return "", "", nil // a CA outside of the blob may have issued it; the key server decides
	}
	return fmt.Sprintf("the peer's certificate was issued by %q, which KeyServer %q does not trust; declare that CA as a TrustedCA",
		chain.issuer(), in.Conn.Name), "", nil
}

// staysRegistered is added to messages if a peer's record cannot be replaced.
const staysRegistered = "; until then the registration of the peer stays unchanged"

// consequence describes what else the removal of a peer removes. It also returns the ids of the principal trusts that
// stay.
func (trustedServerAdapter) consequence(ctx context.Context, in reconcile.Input, system string) (string, []string, error) {
	trusts := principalTrusts.Of(in.Conn)
	if err := trusts.Refresh(ctx, in.NotBefore); err != nil {
		return "", nil, err
	}
	var orphans []string
	trusts.Each(func(t schema.PrincipalTrust) {
		if t.TrustedServerSystemID != nil && systemKey(*t.TrustedServerSystemID) == system {
			orphans = append(orphans, t.ID.String())
		}
	})
	slices.Sort(orphans)
	says := purges
	if len(orphans) > 0 {
		says += fmt.Sprintf("; %s without a peer: %s", plural(len(orphans), "principal trust")+" left behind", brief.List(orphans))
	}
	return says, orphans, nil
}

// purges describes the effect of each removal on access.
const purges = "the ACL entries of its principals are purged; they are restored when the system id is registered again"

// Create implements reconcile.Adapter.
func (trustedServerAdapter) Create(ctx context.Context, c *connection.Connection, want declaredPeer) (reconcile.Outcome, error) {
	saved, err := c.Officer.AddTrustedServer(ctx, want.request())
	if err != nil {
		return reconcile.Outcome{}, want.refused(err, "")
	}
	return want.registered(c, saved)
}

// Update implements reconcile.Adapter. It sends only the differences.
func (a trustedServerAdapter) Update(ctx context.Context, c *connection.Connection, want declaredPeer, seen reconcile.External) (reconcile.Outcome, error) {
	if notesOn(seen).replace {
		return a.replace(ctx, c, want, seen)
	}
	change := schema.UpdateTrustedServerRequest{SystemID: want.system}
	for _, d := range seen.Drift {
		switch d.Field {
		case "friendlyName":
			change.FriendlyName = &want.friendlyName
		case "description":
			change.Description = want.description
		case "witness":
			change.Witness = want.witness
		}
	}
	saved, err := c.Officer.UpdateTrustedServer(ctx, change)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	trustedServers.Of(c).Put(want.withCertificate(*saved.TrustedServer))
	return reconcile.Outcome{ID: seen.ID, Evidence: saved.Detail}, nil
}

// replace replaces a peer's record in one step. It does not change access: if a principal has excluded the peer, the
// peer stays excluded until this principal admits it again. If the key server rejects the request, the old record
// stays.
func (trustedServerAdapter) replace(ctx context.Context, c *connection.Connection, want declaredPeer, seen reconcile.External) (reconcile.Outcome, error) {
	row, _, err := trustedServers.Of(c).Find(ctx, time.Time{}, seen.ID)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if want.description == nil {
		want.description = row.Description
	}
	in := want.request()
	in.Replace = true
	saved, err := c.Officer.AddTrustedServer(ctx, in)
	if err != nil {
		return reconcile.Outcome{}, want.refused(err, staysRegistered)
	}
	made, err := want.registered(c, saved)
	made.Evidence = joinTexts("registered again", made.Evidence)
	return made, err
}

// Delete implements reconcile.Adapter. The event describes its side effects.
func (trustedServerAdapter) Delete(ctx context.Context, c *connection.Connection, _ *v1beta1.TrustedServer, id string) (reconcile.Outcome, error) {
	system, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return reconcile.Outcome{}, connection.NewProblem(v1beta1.ReasonConflict, "status.systemId: %q must be a decimal number of at most 32 bits", id)
	}
	gone, err := c.Officer.RemoveTrustedServer(ctx, schema.BySystemID{SystemID: schema.SystemID(system)})
	if err != nil {
		return reconcile.Outcome{}, err
	}
	trustedServers.Of(c).Drop(id)
	return reconcile.Outcome{ID: id, Evidence: joinTexts(gone.Detail, gone.ACLSideEffect, gone.PrincipalTrustSideEffect, gone.TransportPrincipalSideEffect)}, nil
}

// Record implements reconcile.Adapter.
func (trustedServerAdapter) Record(obj *v1beta1.TrustedServer, want *declaredPeer, seen reconcile.External, owner bool, _ time.Time) {
	s := &obj.Status
	noted := notesOn(seen)
	if noted.leaving {
		s.Removal = &v1beta1.PeerRemoval{
			ACLSideEffect:               purges,
			OrphanedPrincipalTrusts:     noted.orphans[:min(len(noted.orphans), 64)],
			OrphanedPrincipalTrustCount: int32(len(noted.orphans)), //nolint:gosec // no list is that long
		}
	}
	if want == nil {
		return
	}
	if owner {
		system := int64(want.system)
		s.SystemID = &system
	}
	port, notAfter := int32(want.port), status.Stamp(want.chain.leaf.NotAfter) //nolint:gosec // a port
	s.ServerName, s.Port, s.NotAfter = want.serverName, &port, &notAfter
	s.Fingerprint, s.Issuer, s.IssuerFingerprint = fingerprint(want.chain.leaf), want.chain.issuer(), noted.vouched
}

// Expiry implements reconcile.Expirer. notBefore is nil, because the key server rejects certificates that are not yet
// valid.
func (trustedServerAdapter) Expiry(obj *v1beta1.TrustedServer) (notBefore, notAfter *metav1.Time, warn time.Duration) {
	return nil, obj.Status.NotAfter, warnBefore(obj.Spec.WarnBefore)
}

func deref[V any](p *V) (v V) {
	if p != nil {
		v = *p
	}
	return v
}

// joinTexts joins texts of the key server about its actions.
func joinTexts(says ...string) string {
	return strings.Join(slices.DeleteFunc(says, func(s string) bool { return s == "" }), "; ")
}
