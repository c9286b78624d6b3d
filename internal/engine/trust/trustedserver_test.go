package trust_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func TestPeerIsRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		good := f.TrustedPeer(t)
		named := func(name string) keyserver.NewTrustedServer {
			n := good
			n.Blob.ServerName = name
			return n
		}
		f.Hosts["two-addresses"] = "192.0.2.7 2001:db8::1"
		f.Hosts["mapped"] = "::ffff:192.0.2.1"
		f.Hosts["zoned"] = "::1%lo"
		f.Hosts["no-address"] = ""
		own, broken := good, good
		own.Blob.System, broken.Blob.Chain = f.Prepared.System, []byte{0x30, 0}
		nameless := enginetest.Must(pki.NewCA("nameless", f.Clock.Now(), rand.Reader))(t)
		auditor := f.Add(t, keyserver.PasswordPrincipal, "auditor", []keyserver.ID{keyserver.RoleAuditor}, nil)
		cases := map[string]struct {
			by     keyserver.Caller
			peer   keyserver.NewTrustedServer
			code   fault.Code
			reason fault.Reason
			says   string
		}{
			"OtherDuty":    {auditor, good, fault.AccessDenied, fault.ReasonRoleDenied, "Add Trusted Server"},
			"OwnSystem":    {f.Admin, own, fault.InvalidArgument, fault.ReasonInvalidArgument, "own"},
			"OwnAddress":   {f.Admin, named("192.0.2.1"), fault.InvalidArgument, fault.ReasonInvalidArgument, "address of this key server"},
			"OneOfTwo":     {f.Admin, named("two-addresses"), fault.InvalidArgument, fault.ReasonInvalidArgument, "address of this key server"},
			"Mapped":       {f.Admin, named("mapped"), fault.InvalidArgument, fault.ReasonInvalidArgument, "address of this key server"},
			"Zoned":        {f.Admin, named("zoned"), fault.InvalidArgument, fault.ReasonInvalidArgument, "address of this key server"},
			"Unspecified":  {f.Admin, named("::"), fault.InvalidArgument, fault.ReasonInvalidArgument, "address of this key server"},
			"Unspecified4": {f.Admin, named("::ffff:0.0.0.0"), fault.InvalidArgument, fault.ReasonInvalidArgument, "address of this key server"},
			"Unknown":      {f.Admin, named("nobody"), fault.InvalidArgument, fault.ReasonInvalidArgument, "the peer's server name cannot be resolved; check the name and the name servers"},
			"NoAddress":    {f.Admin, named("no-address"), fault.InvalidArgument, fault.ReasonInvalidArgument, "the peer's server name cannot be resolved; check the name and the name servers"},
			"BrokenChain":  {f.Admin, broken, fault.InvalidArgument, fault.ReasonInvalidArgument, "PKCS#7"},
			"NoSubject":    {f.Admin, f.PeerOf(t, nameless, ""), fault.InvalidArgument, fault.ReasonInvalidArgument, "subject"},
			"LongSubject":  {f.Admin, f.PeerOf(t, nameless, strings.Repeat("a", 1021)), fault.InvalidArgument, fault.ReasonInvalidArgument, "at most 1024"},
			"Unprintable":  {f.Admin, f.PeerOf(t, nameless, "a\x01b"), fault.InvalidArgument, fault.ReasonInvalidArgument, "cannot be displayed"},
			"UntrustedCA":  {f.Admin, f.PeerOf(t, nameless, "peer"), fault.InvalidArgument, fault.ReasonInvalidArgument, "not trusted"},
			"OwnCA":        {f.Admin, f.PeerOf(t, f.Prepared.CA, "peer"), fault.InvalidArgument, fault.ReasonInvalidArgument, "not trusted"},
			"TakenSubject": {f.Admin, taken(t, f), fault.AlreadyExists, fault.ReasonInvalidArgument, "/CN=taken"},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				_, err := f.AddTrustedServer(ctx, tc.by, tc.peer)
				f.Refused(t, err, tc.code, tc.reason)
				if !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%q does not say %q", err, tc.says)
				}
			})
		}
		if list := enginetest.Must(f.Store.TrustedServers(ctx))(t); len(list) != 0 {
			t.Errorf("a refused peer is registered: %+v", list)
		}
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, good))(t)
		_, err := f.AddTrustedServer(ctx, f.Admin, good)
		f.Refused(t, err, fault.AlreadyExists, fault.ReasonInvalidArgument)
		f.Clock.Advance(398 * 24 * time.Hour)
		enginetest.Must(f.RemoveTrustedServer(ctx, f.Admin, enginetest.PeerSystem))(t)
		_, err = f.AddTrustedServer(ctx, f.Admin, good)
		f.Refused(t, err, fault.InvalidArgument, fault.ReasonInvalidArgument)
	})
}

// replaced returns a new record of the same peer, with another key, name and port.
func replaced(t *testing.T, f *enginetest.Fixture, ca pki.Identity) keyserver.NewTrustedServer {
	t.Helper()
	n := f.PeerOf(t, ca, "peer renamed")
	f.Hosts["moved.example"] = "192.0.2.8"
	n.Blob.ServerName, n.Blob.Port, n.FriendlyName, n.Description, n.Replace = "moved.example", 9555, "moved", "to the other room", true
	return n
}

// TestReplacedPeerStaysWhoItIs checks that a new record changes how a peer is reached and identified, but not its
// rights. For example, a disabled peer stays disabled.
func TestReplacedPeerStaysWhoItIs(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := enginetest.Must(pki.NewCA("CA of the peer", f.Clock.Now(), rand.Reader))(t)
		enginetest.Must(f.AddTrustedCA(ctx, f.Admin, ca.Certificate.Raw))(t)
		first := f.PeerOf(t, ca, "peer")
		first.Replace = true // nothing to replace yet
		added := enginetest.Must(f.AddTrustedServer(ctx, f.Admin, first))(t)
		if added.Replaced {
			t.Error("a peer that was not registered was replaced")
		}
		who := keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(70)}
		link := f.Mint(t, f.Admin, nil)
		f.Grant(t, link, who, keyserver.Read, keyserver.NoUsageLimit)
		before := enginetest.Must(f.ACL(ctx, f.Admin, link))(t)
		roles := []keyserver.ID{keyserver.RoleAuditor}
		if err := f.SetPrincipalRoles(ctx, f.Admin, keyserver.PrincipalRoles{ID: added.Transport, Roles: roles}); err != nil {
			t.Fatal(err)
		}
		if err := f.UpdatePrincipalFlags(ctx, f.Admin, keyserver.FlagChange{ID: added.Transport, Mask: keyserver.FlagEnable}); err != nil {
			t.Fatal(err)
		}
		trust := enginetest.Must(f.CreatePrincipalTrust(ctx, f.Admin, keyserver.PrincipalTrust{Principal: f.Admin.Principal.ID, Server: enginetest.PeerSystem, Flag: keyserver.Expose}))(t)
		use := func() error {
			_, err := f.AuthorizeKey(ctx, enginetest.CallOf("x", "a"), keyserver.Use{Link: link})
			return err
		}
		f.Refused(t, use(), fault.PrincipalOff, fault.ReasonPrincipalDisabled)

		n := replaced(t, f, ca)
		again := enginetest.Must(f.AddTrustedServer(ctx, f.Admin, n))(t)
		if row := f.LastRow(t); !strings.Contains(row.Object, "in place of") {
			t.Errorf("the audit row does not tell it from a first registration: %+v", row)
		}
		if again != (keyserver.TrustedServerAdded{Transport: added.Transport, Replaced: true}) {
			t.Errorf("the first answer %+v, the second %+v", added, again)
		}
		f.Refused(t, use(), fault.PrincipalOff, fault.ReasonPrincipalDisabled)
		transport := enginetest.Must(f.Store.Principal(ctx, added.Transport))(t)
		if transport.Name != "/CN=peer renamed" || !transport.Flags.Disabled() || !slices.Equal(transport.Roles, roles) {
			t.Errorf("the transport principal is %+v", transport)
		}
		peers := enginetest.Must(f.TrustedServers(ctx, f.Admin))(t)
		if len(peers) != 1 || peers[0].Name != "moved.example" || peers[0].Port != 9555 || peers[0].FriendlyName != "moved" ||
			peers[0].Description != "to the other room" || !slices.Equal(peers[0].Chain, n.Blob.Chain) || peers[0].Certificate.Subject != "/CN=peer renamed" {
			t.Errorf("the record is %+v", peers)
		}
		if after := enginetest.Must(f.ACL(ctx, f.Admin, link))(t); !cmp.Equal(after, before) {
			t.Errorf("the list changed: %s", cmp.Diff(before, after))
		}
		if rows := enginetest.Must(f.PrincipalTrusts(ctx, f.Admin, keyserver.PrincipalTrustFilter{}))(t); len(rows) != 1 || rows[0].ID != trust {
			t.Errorf("the principal trusts are %+v", rows)
		}
		if err := f.UpdatePrincipalFlags(ctx, f.Admin, keyserver.FlagChange{ID: added.Transport, Mask: keyserver.FlagEnable, Value: keyserver.FlagEnable}); err != nil {
			t.Fatal(err)
		}
		if err := use(); err != nil {
			t.Errorf("let in again: %v", err)
		}
	})
}

// TestReplacementIsRefused checks that the replacement of a record has the same requirements as a registration. A
// refused replacement does not change the record.
func TestReplacementIsRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := enginetest.Must(pki.NewCA("CA of the peer", f.Clock.Now(), rand.Reader))(t)
		enginetest.Must(f.AddTrustedCA(ctx, f.Admin, ca.Certificate.Raw))(t)
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.PeerOf(t, ca, "peer")))(t)
		before := enginetest.Must(f.Store.TrustedServers(ctx))(t)
		stranger := enginetest.Must(pki.NewCA("nobody's CA", f.Clock.Now(), rand.Reader))(t)
		adds := enginetest.Must(f.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: "adds", Operations: []keyserver.ID{keyserver.OpAddTrustedServer.ID}}))(t)
		half := f.Add(t, keyserver.PasswordPrincipal, "half", []keyserver.ID{adds}, nil)
		good := replaced(t, f, ca)
		with := func(change func(*keyserver.NewTrustedServer)) keyserver.NewTrustedServer {
			n := good
			change(&n)
			return n
		}
		cases := map[string]struct {
			by     keyserver.Caller
			peer   keyserver.NewTrustedServer
			code   fault.Code
			reason fault.Reason
		}{
			"AddsOnly":     {half, good, fault.AccessDenied, fault.ReasonRoleDenied},
			"NotAsked":     {f.Admin, with(func(n *keyserver.NewTrustedServer) { n.Replace = false }), fault.AlreadyExists, fault.ReasonInvalidArgument},
			"UntrustedCA":  {f.Admin, replaced(t, f, stranger), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"OwnAddress":   {f.Admin, with(func(n *keyserver.NewTrustedServer) { n.Blob.ServerName = "192.0.2.1" }), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"Unresolved":   {f.Admin, with(func(n *keyserver.NewTrustedServer) { n.Blob.ServerName = "nobody" }), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"TakenSubject": {f.Admin, with(func(n *keyserver.NewTrustedServer) { n.Blob.Chain = taken(t, f).Blob.Chain }), fault.AlreadyExists, fault.ReasonInvalidArgument},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				_, err := f.AddTrustedServer(ctx, tc.by, tc.peer)
				f.Refused(t, err, tc.code, tc.reason)
				if after := enginetest.Must(f.Store.TrustedServers(ctx))(t); !cmp.Equal(after, before) {
					t.Errorf("the record changed: %s", cmp.Diff(before, after))
				}
			})
		}
	})
}

// TestAKeyIsOnePeers checks that two peers cannot have certificates with the same key, because neither would be
// accepted.
func TestAKeyIsOnePeers(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := enginetest.Must(pki.NewCA("CA of peers", f.Clock.Now(), rand.Reader))(t)
		enginetest.Must(f.AddTrustedCA(ctx, f.Admin, ca.Certificate.Raw))(t)
		key := enginetest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		first := f.PeerWithKey(t, ca, "first", key)
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, first))(t)
		second := f.PeerOf(t, ca, "second")
		second.Blob.System = enginetest.PeerSystem + 1
		twin := second
		twin.Blob.Chain = f.PeerWithKey(t, ca, "twin", key).Blob.Chain

		_, err := f.AddTrustedServer(ctx, f.Admin, twin)
		f.Refused(t, err, fault.AlreadyExists, fault.ReasonInvalidArgument)
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, second))(t)
		twin.Replace = true
		_, err = f.AddTrustedServer(ctx, f.Admin, twin)
		f.Refused(t, err, fault.AlreadyExists, fault.ReasonInvalidArgument)

		renewed := f.PeerWithKey(t, ca, "first renewed", key)
		renewed.Replace = true
		if added := enginetest.Must(f.AddTrustedServer(ctx, f.Admin, renewed))(t); !added.Replaced {
			t.Error("a peer does not keep its own key")
		}
	})
}

// taken returns a peer with the name of an existing transport principal.
func taken(t *testing.T, f *enginetest.Fixture) keyserver.NewTrustedServer {
	t.Helper()
	f.Add(t, keyserver.CertificatePrincipal, "/CN=taken", nil, nil)
	ca := enginetest.Must(pki.NewCA("another CA", f.Clock.Now(), rand.Reader))(t)
	enginetest.Must(f.AddTrustedCA(ctx, f.Admin, ca.Certificate.Raw))(t)
	return f.PeerOf(t, ca, "taken")
}

// hanging is a resolver that responds only when its context ends.
type hanging struct{}

func (hanging) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestResolutionFailsInTheSameWords checks that all errors of name resolution have the same text, and that name
// resolution has a time limit.
func TestResolutionFailsInTheSameWords(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	peer := f.TrustedPeer(t)
	peer.Blob.ServerName = "nobody"
	_, unknown := f.AddTrustedServer(ctx, f.Admin, peer)
	f.Self.Resolver = hanging{}
	_, late := f.AddTrustedServer(ctx, f.Admin, peer)
	if unknown == nil || late == nil || unknown.Error() != late.Error() {
		t.Errorf("an unknown name reads %v, a hanging resolver %v", unknown, late)
	}
	gone, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := f.AddTrustedServer(gone, f.Admin, peer); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that went away: %v", err)
	}
	f.Self.Resolver = f.Hosts
	f.Self.Addresses = func() ([]netip.Addr, error) { return nil, errors.New("no interfaces") }
	peer.Blob.ServerName = "peer.example"
	if _, err := f.AddTrustedServer(ctx, f.Admin, peer); fault.CodeOf(err) != fault.OpFailed {
		t.Errorf("not knowing the own addresses: %v", err)
	}
}

// TestPurgeReachesTheCache checks that the rights of a peer's principals end when the peer is removed and return when
// it is registered again, also in the key cache.
func TestPurgeReachesTheCache(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		foreign := keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(50)}
		grant := keyserver.ACLChange{Link: link, Principal: foreign, Rights: keyserver.MandatoryGroup, MaxUsage: keyserver.NoUsageLimit}
		f.Refused(t, f.GrantACL(ctx, f.Admin, grant), fault.NotFound, fault.ReasonObjectNotFound)

		peer := f.TrustedPeer(t)
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, peer))(t)
		use := func() error {
			_, err := f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: strings.NewReader("m")})
			return err
		}
		if err := use(); err != nil {
			t.Fatal(err)
		}
		// A mandatory group of a peer denies all callers here.
		if err := f.GrantACL(ctx, f.Admin, grant); err != nil {
			t.Fatal(err)
		}
		f.Refused(t, use(), fault.ACLDenied, fault.ReasonACLDenied)
		removed := enginetest.Must(f.RemoveTrustedServer(ctx, f.Admin, enginetest.PeerSystem))(t)
		if removed.Purged != 1 {
			t.Errorf("purged %d", removed.Purged)
		}
		if err := use(); err != nil {
			t.Errorf("the purge is not seen: %v", err)
		}
		if added := enginetest.Must(f.AddTrustedServer(ctx, f.Admin, peer))(t); added.Restored != 1 {
			t.Errorf("resurrected %d", added.Restored)
		}
		f.Refused(t, use(), fault.ACLDenied, fault.ReasonACLDenied)
	})
}

// TestPurgeOfManyKeysReachesTheCache checks that the cache drops all purged keys, even if they are more than the change
// feed lists.
func TestPurgeOfManyKeysReachesTheCache(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	link := f.Mint(t, f.Admin, nil)
	enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
	foreign := keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(50)}
	err := f.GrantACL(ctx, f.Admin, keyserver.ACLChange{Link: link, Principal: foreign, Rights: keyserver.HostMatrix, MaxUsage: keyserver.NoUsageLimit})
	if err != nil {
		t.Fatal(err)
	}
	err = f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		for n := uint64(1); n <= 1001; n++ {
			id := values.IDFromUint64(n)
			entry := keyserver.ACLEntry{ID: id, Principal: foreign, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}
			if err := tx.InsertKey(ctx, sqlstore.KeyRecord{ID: id, Algorithm: keyserver.HMACSHA384, ACL: id}, entry); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: strings.NewReader("m")})
	f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
	enginetest.Must(f.RemoveTrustedServer(ctx, f.Admin, enginetest.PeerSystem))(t)
	if _, err := f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: strings.NewReader("m")}); err != nil {
		t.Errorf("the purge is not seen: %v", err)
	}
}

func TestOrphansAreBounded(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
	const rows = keyserver.MaxUnwindowed + 1
	err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		for n := uint64(1); n <= rows; n++ {
			id := values.IDFromUint64(n)
			if err := tx.InsertPrincipalTrust(ctx, keyserver.PrincipalTrust{ID: id, Principal: id, Server: enginetest.PeerSystem, Flag: keyserver.Expose}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.PrincipalTrusts(ctx, f.Admin, keyserver.PrincipalTrustFilter{})
	f.Refused(t, err, fault.InvalidArgument, fault.ReasonLimit)
	last := enginetest.Must(f.PrincipalTrusts(ctx, f.Admin, keyserver.PrincipalTrustFilter{Limit: 500, Offset: 1000}))(t)
	if len(last) != rows-1000 {
		t.Errorf("the last page has %d rows", len(last))
	}
	removed := enginetest.Must(f.RemoveTrustedServer(ctx, f.Admin, enginetest.PeerSystem))(t)
	if len(removed.Orphans) != keyserver.MaxUnwindowed || removed.OrphanCount != rows {
		t.Errorf("%d of %d orphans are told", len(removed.Orphans), removed.OrphanCount)
	}
}

func TestTrustInfo(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	auditor := f.Add(t, keyserver.PasswordPrincipal, "auditor", []keyserver.ID{keyserver.RoleAuditor}, nil)
	_, err := f.TrustInfo(ctx, auditor)
	f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)
	info := enginetest.Must(f.TrustInfo(ctx, f.Admin))(t)
	chain := enginetest.Must(pki.ParseChain(info.Chain))(t)
	if !chain.Leaf.Equal(f.Prepared.Server.Certificate) || !slices.ContainsFunc(chain.Intermediates, f.Prepared.CA.Certificate.Equal) {
		t.Error("the chain is not that of the server and the internal CA")
	}
	if err := chain.Verify([]*x509.Certificate{f.Prepared.CA.Certificate}, f.Clock.Now()); err != nil {
		t.Error(err)
	}
	b, ok := info.Blob()
	want := keyserver.TrustBlob{System: f.Prepared.System, ServerName: enginetest.ServerName, Port: enginetest.ExternalPort, Chain: info.Chain}
	if !ok || !cmp.Equal(b, want) {
		t.Errorf("%v: %s", ok, cmp.Diff(want, b))
	}
	renewed := enginetest.Must(f.Prepared.CA.IssueServer("test", nil, f.Prepared.Server.Key, f.Clock.Now(), rand.Reader))(t)
	f.Self.Certificate = func(context.Context) *x509.Certificate { return renewed.Certificate }
	later := enginetest.Must(f.TrustInfo(ctx, f.Admin))(t)
	if !enginetest.Must(pki.ParseChain(later.Chain))(t).Leaf.Equal(renewed.Certificate) || !slices.Equal(later.Certificate.DER, renewed.Certificate.Raw) {
		t.Error("the chain is not of the certificate that is shown now")
	}
	for reason, change := range map[string]func(*keyserver.TrustInfo){
		"no listener":  func(i *keyserver.TrustInfo) { i.Port = 0 },
		"no host name": func(i *keyserver.TrustInfo) { i.ServerName = "my key server" },
	} {
		without := info
		change(&without)
		if b, ok := without.Blob(); ok {
			t.Errorf("%s, and yet a blob: %v", reason, b)
		}
	}
}
