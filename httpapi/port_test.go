package httpapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

var (
	epoch    = time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	someID   = values.IDFromUint64(1001)
	thirdID  = values.IDFromUint64(4002) // of the prepared authority
	newID    = values.IDFromUint64(4001) // of each new object
	someRef  = keyserver.PrincipalRef{System: 1, ID: someID}
	otherRef = keyserver.PrincipalRef{ID: values.IDFromUint64(1 << 53)}
	aLink    = values.NewHiddenLink(1, someID)
	aRole    = keyserver.Role{ID: someID, Name: "Shop", Operations: []keyserver.ID{keyserver.OpReadAudit.ID}}
	aGroup   = keyserver.Principal{ID: values.IDFromUint64(3001), System: 1, Type: keyserver.GroupPrincipal, Name: "team"}
	aUser    = keyserver.Principal{
		ID: someID, System: 1, Type: keyserver.PasswordPrincipal, Name: "ann", Flags: keyserver.FlagEnable,
		Roles: []keyserver.ID{someID}, Groups: []keyserver.ID{aGroup.ID},
	}
	aTransport = keyserver.Principal{ID: values.IDFromUint64(2001), System: 1, Type: keyserver.CertificatePrincipal, Name: "/CN=agent", Flags: keyserver.FlagEnable}
	aWorkload  = keyserver.Principal{
		ID: someID, System: 1, Type: keyserver.XAuthPrincipal, Name: "web", Flags: keyserver.FlagEnable, Roles: []keyserver.ID{}, Groups: []keyserver.ID{someID},
		Identity: &keyserver.Identity{Issuer: "https://issuer.example", Subject: "system:serviceaccount:shop:web", Audiences: []string{"keyserver"}},
	}
	aCA = keyserver.Certificate{
		ID: someID, Status: keyserver.StatusCA, Subject: "/CN=ca", Issuer: "/CN=ca", KeyType: "EC P-256",
		Serial: []byte{1}, NotBefore: epoch, NotAfter: epoch.Add(time.Hour), DER: []byte{0x30, 0},
	}
	aPeer = keyserver.TrustedServer{
		System: 7, Name: "peer.example.com", Port: 9443, FriendlyName: "the other one", Transport: someID,
		Roles: []keyserver.ID{someID}, Certificate: aCA,
	}
	anIssuer = keyserver.RevocationIssuer{
		Digest: strings.Repeat("AB", 32), CA: aCA, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationRequired, MaxAge: 90e9},
		CRL: &keyserver.CRLFacts{Number: []byte{1}, ThisUpdate: epoch, NextUpdate: epoch, ImportedAt: epoch}, State: keyserver.CurrentEvidence,
	}
)

// Links of keys whose state has changed since their creation.
var (
	doomedLink    = values.NewHiddenLink(1, values.IDFromUint64(1002))
	withdrawnLink = values.NewHiddenLink(1, values.IDFromUint64(1003))
	aged          = map[keyserver.HiddenLink]keyserver.KeyLife{
		doomedLink:    {State: keyserver.KeyDestroying, DestroyAt: epoch.Add(time.Hour), Generation: 1},
		withdrawnLink: {State: keyserver.KeyDisabled, Generation: 1},
	}
)

// authority returns a CA with one certificate that it has issued. It is created once.
var authority = sync.OnceValue(func() (a struct {
	ca      pki.Identity
	request []byte
	leaf    *x509.Certificate
	chain   []byte
},
) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	a.ca, err = pki.NewCA("authority", epoch, rand.Reader)
	must(err)
	a.request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "agent"}}, key)
	must(err)
	a.leaf, err = issue(a.ca, a.request)
	must(err)
	a.chain, err = pki.EncodeChain(a.leaf, a.ca.Certificate)
	must(err)
	return a
})

func issue(ca pki.Identity, request []byte) (*x509.Certificate, error) {
	req, err := pki.ParseRequest(request)
	if err != nil {
		return nil, err
	}
	return ca.IssueClient(req, 24*time.Hour, epoch, rand.Reader)
}

func issuedAs(cert *x509.Certificate, request []byte, to keyserver.ID) keyserver.Certificate {
	return keyserver.Certificate{
		ID: keyserver.DigestOf(cert.Raw).ID(), Status: keyserver.StatusRegular, Subject: "/CN=agent", Issuer: "/CN=authority", KeyType: "EC P-256",
		Serial: []byte{1}, NotBefore: epoch, NotAfter: epoch, DER: cert.Raw, Request: request, Principal: to, System: 1,
	}
}

// fakePort is a key server with one or two objects of each kind. It records its calls. It is only for tests of package
// httpapi; other tests use the real key server. Methods that no test calls are nil.
type fakePort struct {
	keyserver.Port

	err error // the error of every call, if set
	// bad makes each write report success although it does nothing, or writes other values.
	bad   bool
	ready []keyserver.Readiness
	// endless makes a backup that does not end.
	endless bool
	// during is called within each call.
	during func(ctx context.Context)

	mu    sync.Mutex
	calls []string
	got   any // the last recorded request

	acl          keyserver.ACL
	roles        []keyserver.Role
	cas          []keyserver.Certificate
	servers      []keyserver.TrustedServer
	trusts       []keyserver.PrincipalTrust
	templates    []keyserver.ACLTemplate
	directories  []keyserver.TemplatedDirectory
	principals   []keyserver.Principal
	certificates []keyserver.Certificate
	issuers      []keyserver.RevocationIssuer
	authorities  []keyserver.Authority
	owners       []keyserver.OwnerMark
	key          keyserver.KeyMetadata
	custody      keyserver.Custody
}

func newFakePort() *fakePort {
	member := keyserver.TemplateMember{Principal: someRef, Rights: keyserver.Owner.Widen(), MaxUsage: keyserver.NoUsageLimit}
	writer := member
	writer.Principal = otherRef
	entry := keyserver.ACLEntry{ID: someID, ACL: someID, Principal: someRef, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}
	another := entry
	another.ID, another.Principal = otherRef.ID, otherRef
	here := aPeer
	here.System, here.Name = 1, "here.example.com"
	none := keyserver.RevocationIssuer{Digest: strings.Repeat("CD", 48), CA: aCA, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationOff}, State: keyserver.NoEvidence}
	a := authority()
	return &fakePort{
		acl:          keyserver.ACL{ID: someID, Link: aLink, Entries: []keyserver.ACLEntry{entry, another}},
		roles:        []keyserver.Role{aRole, {ID: values.IDFromUint64(255), Name: "other"}, {ID: keyserver.RoleAuditor, Name: "Auditor", BuiltIn: true}},
		cas:          []keyserver.Certificate{aCA, {ID: otherRef.ID}},
		servers:      []keyserver.TrustedServer{aPeer, here},
		trusts:       []keyserver.PrincipalTrust{{ID: someID, Principal: someID, Server: 7, Flag: keyserver.Expose}, {ID: otherRef.ID, Server: 7}},
		templates:    []keyserver.ACLTemplate{{ID: someID, Name: "template", MemberCount: 2, Writable: true, Members: []keyserver.TemplateMember{member, writer}}},
		directories:  []keyserver.TemplatedDirectory{{ID: someID, Path: "/a/", Template: someID}},
		principals:   []keyserver.Principal{aUser, aTransport, aGroup},
		certificates: []keyserver.Certificate{issuedAs(a.leaf, a.request, aTransport.ID), {ID: someID, Principal: someID}},
		issuers:      []keyserver.RevocationIssuer{anIssuer, none},
		authorities: []keyserver.Authority{
			{ID: someID, State: keyserver.AuthorityRetiring, Certificate: a.ca.Certificate.Raw, PreparedAt: epoch, ActivatedAt: epoch, RetiringAt: epoch},
			{ID: otherRef.ID, State: keyserver.AuthorityActive, PreparedAt: epoch, ActivatedAt: epoch},
			{ID: thirdID, State: keyserver.AuthorityPrepared, PreparedAt: epoch},
		},
		owners: []keyserver.OwnerMark{{Object: keyserver.Object{Kind: keyserver.ChangeRole, ID: someID}, Owner: "some text", Since: epoch}},
		key: keyserver.KeyMetadata{
			Link: aLink, Algorithm: keyserver.HMACSHA384, KeyBytes: 48, Life: keyserver.FirstLife(someID), CreatedAt: epoch, Uses: 3, LastUsedAt: epoch,
		},
		custody: keyserver.Custody{
			KEK:      keyserver.KEK{Scheme: "base64key", Fingerprint: "0123456789abcdef"},
			DataKeys: []keyserver.DataKey{{ID: someID, State: keyserver.DataKeyActive, Wrapped: 2}}, Rewrap: keyserver.Rewrap{Done: 2, Total: 2},
		},
	}
}

func (f *fakePort) called(ctx context.Context, name string, got any) error {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	if got != nil {
		f.got = got
	}
	f.mu.Unlock()
	if f.during != nil {
		f.during(ctx)
	}
	return f.err
}

func (f *fakePort) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// write calls do. If f.bad is set, it calls instead, unless instead is nil.
func (f *fakePort) write(ctx context.Context, name string, got any, do, instead func()) error {
	if err := f.called(ctx, name, got); err != nil {
		return err
	}
	if f.bad {
		do = instead
	}
	if do != nil {
		do()
	}
	return nil
}

func answer[T any](v T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

func only[T any](list []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !is(v) })
}

func drop[T any](list *[]T, is func(T) bool) func() {
	return func() { *list = slices.DeleteFunc(slices.Clone(*list), is) }
}

// alter changes the first element that satisfies a condition.
func alter[T any](list *[]T, is func(T) bool, by func(*T)) func() {
	return func() {
		*list = slices.Clone(*list)
		if i := slices.IndexFunc(*list, is); i >= 0 {
			by(&(*list)[i])
		}
	}
}

func add[T any](list *[]T, v T) func() { return func() { *list = append(slices.Clone(*list), v) } }

func (f *fakePort) MintKey(ctx context.Context, _ keyserver.Caller, k keyserver.NewKey) (keyserver.KeyMetadata, error) {
	k.Material = append([]byte(nil), k.Material...)
	return answer(keyserver.KeyMetadata{Link: aLink, Algorithm: k.Algorithm, KeyBytes: 48}, f.called(ctx, "MintKey", k))
}

func (f *fakePort) Key(ctx context.Context, _ keyserver.Caller, l keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	return answer(keyserver.KeyMetadata{Link: l, Algorithm: keyserver.HMACSHA384, KeyBytes: 48}, f.called(ctx, "Key", l))
}

func (f *fakePort) ListKeys(ctx context.Context, _ keyserver.Caller, l keyserver.KeyFilter) (keyserver.KeyPage, error) {
	return answer(keyserver.KeyPage{Keys: []keyserver.KeyMetadata{f.key}, Next: aLink}, f.called(ctx, "ListKeys", l))
}

func (f *fakePort) KeyState(ctx context.Context, _ keyserver.Caller, l keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	if life, ok := aged[l]; ok && f.key.Link != l {
		f.key.Link, f.key.Life = l, life
	}
	return answer(f.key, f.called(ctx, "KeyState", nil))
}

func (f *fakePort) ChangeKeyState(ctx context.Context, _ keyserver.Caller, c keyserver.KeyStateChange) error {
	return f.write(ctx, "ChangeKeyState", c, func() { f.key.Life, _ = lifecycle.Change(f.key.Life, c, epoch) }, nil)
}

func (f *fakePort) KeyLineage(ctx context.Context, _ keyserver.Caller, _ keyserver.HiddenLink) (keyserver.KeyLineage, error) {
	return answer(keyserver.KeyLineage{Newest: f.key, Rotation: f.key.Rotation}, f.called(ctx, "KeyLineage", nil))
}

func (f *fakePort) RotateKey(ctx context.Context, _ keyserver.Caller, l keyserver.HiddenLink) (keyserver.HiddenLink, error) {
	successor := values.NewHiddenLink(1, newID)
	return successor, f.write(ctx, "RotateKey", l, func() {
		f.key.Link = successor
		_, f.key.Life, _ = lifecycle.Rotate(f.key.Life, f.key.Rotation, epoch)
	}, nil)
}

func (f *fakePort) SetKeyRotation(ctx context.Context, _ keyserver.Caller, c keyserver.KeyRotationChange) error {
	return f.write(ctx, "SetKeyRotation", c, func() { f.key.Rotation = c.Rotation }, nil)
}

func (f *fakePort) AuthorizeKey(ctx context.Context, _ keyserver.Caller, use keyserver.Use) (keyserver.Grant, error) {
	return answer(keyserver.Grant{System: 1, FilenameAudited: use.Filename != ""}, f.called(ctx, "AuthorizeKey", use))
}

func (f *fakePort) Entitled(context.Context, keyserver.Caller, keyserver.Operation) error {
	return f.err // not recorded as a call, because the operation itself follows
}

func (f *fakePort) HMAC(ctx context.Context, _ keyserver.Caller, r keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	if err := f.called(ctx, "HMAC", nil); err != nil {
		return mac, err
	}
	_, err = r.Message.WriteTo(io.Discard)
	return mac, err
}

func (f *fakePort) MAC(ctx context.Context, _ keyserver.Caller, r keyserver.MACRequest) (mac keyserver.MAC, err error) {
	if err := f.called(ctx, "MAC", nil); err != nil {
		return mac, err
	}
	mac.UsedKey = keyserver.UsedKey{Link: r.Lineage, Generation: 1}
	_, err = r.Message.WriteTo(io.Discard)
	return mac, err
}

func (f *fakePort) VerifyMAC(ctx context.Context, _ keyserver.Caller, r keyserver.MACCheck) (v keyserver.MACVerdict, err error) {
	if err := f.called(ctx, "VerifyMAC", nil); err != nil {
		return v, err
	}
	v.UsedKey = keyserver.UsedKey{Link: r.Named(), Generation: 1}
	_, err = r.Message.WriteTo(io.Discard)
	return v, err
}

func (f *fakePort) MACBatch(ctx context.Context, _ keyserver.Caller, items []keyserver.MACItem) ([]keyserver.MACResult, error) {
	answers := make([]keyserver.MACResult, len(items))
	for i, item := range items {
		answers[i].UsedKey = keyserver.UsedKey{Link: item.Lineage, Generation: 1}
	}
	return answer(answers, f.called(ctx, "MACBatch", items))
}

func (f *fakePort) VerifyMACBatch(ctx context.Context, _ keyserver.Caller, items []keyserver.MACCheck) ([]keyserver.MACVerdictResult, error) {
	answers := make([]keyserver.MACVerdictResult, len(items))
	for i, item := range items {
		answers[i].UsedKey = keyserver.UsedKey{Link: item.Named(), Generation: 1}
	}
	return answer(answers, f.called(ctx, "VerifyMACBatch", nil))
}

func (f *fakePort) Encrypt(ctx context.Context, _ keyserver.Caller, r keyserver.Encryption) (keyserver.Ciphertext, error) {
	return answer(keyserver.Ciphertext{UsedKey: keyserver.UsedKey{Link: r.Named(), Generation: 1}, Sealed: []byte{1}}, f.called(ctx, "Encrypt", nil))
}

func (f *fakePort) Decrypt(ctx context.Context, _ keyserver.Caller, r keyserver.Decryption) (keyserver.Plaintext, error) {
	return answer(keyserver.Plaintext{UsedKey: keyserver.UsedKey{Link: r.Named(), Generation: 1}, Plain: []byte{1}}, f.called(ctx, "Decrypt", nil))
}

func (f *fakePort) ExportKey(ctx context.Context, _ keyserver.Caller, x keyserver.KeyExport) (keyserver.ExportedKey, error) {
	return answer(keyserver.ExportedKey{JWE: "a.b.c.d.e", Algorithm: "RSA-OAEP-256", Recipient: aUser, Certificate: f.certificates[0]}, f.called(ctx, "ExportKey", x))
}

func (f *fakePort) ACL(ctx context.Context, _ keyserver.Caller, _ keyserver.HiddenLink) (keyserver.ACL, error) {
	return answer(f.acl, f.called(ctx, "ACL", nil))
}

func (f *fakePort) changeACL(ctx context.Context, name string, c keyserver.ACLChange) error {
	put := func() {
		drop(&f.acl.Entries, func(e keyserver.ACLEntry) bool { return e.Principal == c.Principal })()
		add(&f.acl.Entries, keyserver.ACLEntry{Principal: c.Principal, Rights: c.Rights.Widen(), MaxUsage: c.MaxUsage, Start: c.Start, End: c.End})()
	}
	return f.write(ctx, name, c, put, nil)
}

func (f *fakePort) GrantACL(ctx context.Context, _ keyserver.Caller, c keyserver.ACLChange) error {
	return f.changeACL(ctx, "GrantACL", c)
}

func (f *fakePort) AmendACL(ctx context.Context, _ keyserver.Caller, c keyserver.ACLChange) error {
	return f.changeACL(ctx, "AmendACL", c)
}

func (f *fakePort) RevokeACL(ctx context.Context, _ keyserver.Caller, r keyserver.ACLRevocation) error {
	return f.write(ctx, "RevokeACL", r, drop(&f.acl.Entries, func(e keyserver.ACLEntry) bool { return e.Principal == r.Principal }), nil)
}

func (f *fakePort) Operations(ctx context.Context, _ keyserver.Caller) ([]keyserver.Operation, error) {
	return answer(keyserver.Operations, f.called(ctx, "Operations", nil))
}

func (f *fakePort) Roles(ctx context.Context, _ keyserver.Caller) ([]keyserver.Role, error) {
	return answer(f.roles, f.called(ctx, "Roles", nil))
}

func (f *fakePort) FindRoles(ctx context.Context, _ keyserver.Caller, l keyserver.RoleFilter) ([]keyserver.Role, error) {
	return answer(only(f.roles, func(r keyserver.Role) bool { return r.ID == l.ID || r.Name == l.Name }), f.called(ctx, "FindRoles", nil))
}

func (f *fakePort) CreateRole(ctx context.Context, _ keyserver.Caller, n keyserver.NewRole) (keyserver.ID, error) {
	return newID, f.write(ctx, "CreateRole", n,
		add(&f.roles, keyserver.Role{ID: newID, Name: n.Name, Operations: n.Operations}), add(&f.roles, keyserver.Role{ID: newID, Name: "another"}))
}

func (f *fakePort) UpdateRole(ctx context.Context, _ keyserver.Caller, c keyserver.RoleChange) error {
	return f.write(ctx, "UpdateRole", c, alter(&f.roles, func(r keyserver.Role) bool { return r.ID == c.ID }, func(r *keyserver.Role) {
		if c.Name != nil {
			r.Name = *c.Name
		}
		if c.Operations != nil {
			r.Operations = c.Operations
		}
	}), nil)
}

func (f *fakePort) DeleteRole(ctx context.Context, _ keyserver.Caller, id keyserver.ID) error {
	return f.write(ctx, "DeleteRole", id, drop(&f.roles, func(r keyserver.Role) bool { return r.ID == id }), nil)
}

func (f *fakePort) Authorities(ctx context.Context, _ keyserver.Caller) ([]keyserver.Authority, error) {
	return answer(f.authorities, f.called(ctx, "Authorities", nil))
}

func (f *fakePort) PrepareAuthority(ctx context.Context, _ keyserver.Caller) (keyserver.ID, error) {
	made := keyserver.Authority{ID: newID, State: keyserver.AuthorityPrepared, Certificate: authority().ca.Certificate.Raw, PreparedAt: epoch}
	return newID, f.write(ctx, "PrepareAuthority", nil, add(&f.authorities, made), nil)
}

func (f *fakePort) ActivateAuthority(ctx context.Context, _ keyserver.Caller, early bool) (keyserver.ID, error) {
	return thirdID, f.write(ctx, "ActivateAuthority", early, func() {
		f.authorities = slices.Clone(f.authorities)
		f.authorities[1].State, f.authorities[2].State = keyserver.AuthorityRetiring, keyserver.AuthorityActive
	}, nil)
}

func (f *fakePort) RetireAuthority(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (keyserver.AuthorityRetired, error) {
	err := f.write(ctx, "RetireAuthority", id, drop(&f.authorities, func(a keyserver.Authority) bool { return a.ID == id }), nil)
	return answer(keyserver.AuthorityRetired{InForce: 2}, err)
}

func (f *fakePort) TrustedCAs(ctx context.Context, _ keyserver.Caller) ([]keyserver.Certificate, error) {
	return answer(f.cas, f.called(ctx, "TrustedCAs", nil))
}

func (f *fakePort) AddTrustedCA(ctx context.Context, _ keyserver.Caller, der []byte) ([]keyserver.ID, error) {
	return nil, f.write(ctx, "AddTrustedCA", der, add(&f.cas, keyserver.Certificate{ID: newID, Status: keyserver.StatusCA, DER: der}), nil)
}

func (f *fakePort) RemoveTrustedCA(ctx context.Context, _ keyserver.Caller, id keyserver.ID) ([]keyserver.ID, error) {
	return nil, f.write(ctx, "RemoveTrustedCA", id, drop(&f.cas, func(c keyserver.Certificate) bool { return c.ID == id }), nil)
}

func (f *fakePort) TrustedServers(ctx context.Context, _ keyserver.Caller) ([]keyserver.TrustedServer, error) {
	return answer(f.servers, f.called(ctx, "TrustedServers", nil))
}

func (f *fakePort) AddTrustedServer(ctx context.Context, _ keyserver.Caller, n keyserver.NewTrustedServer) (keyserver.TrustedServerAdded, error) {
	put := func() {
		drop(&f.servers, func(p keyserver.TrustedServer) bool { return p.System == n.Blob.System })()
		add(&f.servers, keyserver.TrustedServer{
			System: n.Blob.System, Name: n.Blob.ServerName, Port: n.Blob.Port, FriendlyName: n.FriendlyName, Description: n.Description, Witness: n.Witness, Transport: aPeer.Transport,
		})()
	}
	return keyserver.TrustedServerAdded{Transport: aPeer.Transport, Replaced: n.Replace}, f.write(ctx, "AddTrustedServer", n, put, nil)
}

func (f *fakePort) UpdateTrustedServer(ctx context.Context, _ keyserver.Caller, c keyserver.TrustedServerChange) error {
	return f.write(ctx, "UpdateTrustedServer", c, alter(&f.servers, func(p keyserver.TrustedServer) bool { return p.System == c.System }, func(p *keyserver.TrustedServer) {
		p.FriendlyName, p.Description = *c.FriendlyName, *c.Description
		if c.Witness != nil {
			p.Witness = *c.Witness
		}
	}), nil)
}

func (f *fakePort) RemoveTrustedServer(ctx context.Context, _ keyserver.Caller, system keyserver.SystemID) (keyserver.TrustedServerRemoved, error) {
	return keyserver.TrustedServerRemoved{Transport: someID, Purged: 1, Orphans: f.trusts[:1], OrphanCount: 1},
		f.write(ctx, "RemoveTrustedServer", system, drop(&f.servers, func(p keyserver.TrustedServer) bool { return p.System == system }), nil)
}

func (f *fakePort) TrustInfo(ctx context.Context, _ keyserver.Caller) (keyserver.TrustInfo, error) {
	return answer(keyserver.TrustInfo{System: 1, ServerName: "here", Port: 9443, Certificate: aCA, Chain: []byte{0x30, 0}}, f.called(ctx, "TrustInfo", nil))
}

func (f *fakePort) PrincipalTrusts(ctx context.Context, _ keyserver.Caller, l keyserver.PrincipalTrustFilter) ([]keyserver.PrincipalTrust, error) {
	return answer(only(f.trusts, func(t keyserver.PrincipalTrust) bool {
		return (l.ID == nil || *l.ID == t.ID) && (l.Principal == nil || *l.Principal == t.Principal || t.Principal.IsZero()) && (l.Server == nil || *l.Server == t.Server)
	}), f.called(ctx, "PrincipalTrusts", nil))
}

func (f *fakePort) CreatePrincipalTrust(ctx context.Context, _ keyserver.Caller, t keyserver.PrincipalTrust) (keyserver.ID, error) {
	t.ID = newID
	return newID, f.write(ctx, "CreatePrincipalTrust", t, add(&f.trusts, t), nil)
}

func (f *fakePort) UpdatePrincipalTrust(ctx context.Context, _ keyserver.Caller, c keyserver.PrincipalTrustChange) error {
	return f.write(ctx, "UpdatePrincipalTrust", c, alter(&f.trusts, func(t keyserver.PrincipalTrust) bool { return t.ID == c.ID }, func(t *keyserver.PrincipalTrust) { t.Flag = c.Flag }), nil)
}

func (f *fakePort) DeletePrincipalTrust(ctx context.Context, _ keyserver.Caller, id keyserver.ID) error {
	return f.write(ctx, "DeletePrincipalTrust", id, drop(&f.trusts, func(t keyserver.PrincipalTrust) bool { return t.ID == id }), nil)
}

func (f *fakePort) ACLTemplates(ctx context.Context, _ keyserver.Caller, _ keyserver.ACLTemplateQuery) ([]keyserver.ACLTemplate, error) {
	return answer(f.templates, f.called(ctx, "ACLTemplates", nil))
}

func (f *fakePort) ACLTemplate(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (keyserver.ACLTemplate, error) {
	return answer(f.templates[0], f.called(ctx, "ACLTemplate", nil))
}

func (f *fakePort) CreateACLTemplate(ctx context.Context, _ keyserver.Caller, name string) (keyserver.ID, error) {
	return newID, f.write(ctx, "CreateACLTemplate", name,
		add(&f.templates, keyserver.ACLTemplate{ID: newID, Name: name, Writable: true}), add(&f.templates, keyserver.ACLTemplate{ID: newID, Name: name}))
}

func (f *fakePort) ofTemplate(by func(*keyserver.ACLTemplate)) func() {
	return alter(&f.templates, func(keyserver.ACLTemplate) bool { return true }, by)
}

func (f *fakePort) RenameACLTemplate(ctx context.Context, _ keyserver.Caller, c keyserver.ACLTemplateChange) error {
	return f.write(ctx, "RenameACLTemplate", c, f.ofTemplate(func(t *keyserver.ACLTemplate) { t.Name = c.Name }), nil)
}

func (f *fakePort) DeleteACLTemplate(ctx context.Context, _ keyserver.Caller, id keyserver.ID) error {
	return f.write(ctx, "DeleteACLTemplate", id, drop(&f.templates, func(t keyserver.ACLTemplate) bool { return t.ID == id }), nil)
}

func (f *fakePort) PutACLTemplateMember(ctx context.Context, _ keyserver.Caller, m keyserver.TemplateMembership) error {
	m.Member.Rights = m.Member.Rights.Widen()
	return f.write(ctx, "PutACLTemplateMember", m, f.ofTemplate(func(t *keyserver.ACLTemplate) { t.Members = t.With(m.Member) }), nil)
}

func (f *fakePort) RemoveACLTemplateMember(ctx context.Context, _ keyserver.Caller, m keyserver.TemplateMemberRef) error {
	return f.write(ctx, "RemoveACLTemplateMember", m, f.ofTemplate(func(t *keyserver.ACLTemplate) { t.Members = t.Without(m.Principal) }), nil)
}

func (f *fakePort) TemplatedDirectories(ctx context.Context, _ keyserver.Caller) ([]keyserver.TemplatedDirectory, error) {
	return answer(f.directories, f.called(ctx, "TemplatedDirectories", nil))
}

func (f *fakePort) TemplatedDirectoriesAt(ctx context.Context, _ keyserver.Caller, paths []string) ([]keyserver.TemplatedDirectory, error) {
	return answer(only(f.directories, func(d keyserver.TemplatedDirectory) bool { return slices.Contains(paths, d.Path) }), f.called(ctx, "TemplatedDirectoriesAt", nil))
}

func (f *fakePort) CreateTemplatedDirectory(ctx context.Context, _ keyserver.Caller, n keyserver.NewTemplatedDirectory) (keyserver.ID, error) {
	made := keyserver.TemplatedDirectory{ID: newID, Path: n.Path, Alias: n.Alias, HostID: n.HostID, Template: n.Template, Flag: n.Flag}
	return newID, f.write(ctx, "CreateTemplatedDirectory", n, add(&f.directories, made), add(&f.directories, keyserver.TemplatedDirectory{ID: newID, Path: n.Path}))
}

func (f *fakePort) DeleteTemplatedDirectory(ctx context.Context, _ keyserver.Caller, id keyserver.ID) error {
	return f.write(ctx, "DeleteTemplatedDirectory", id, drop(&f.directories, func(d keyserver.TemplatedDirectory) bool { return d.ID == id }), nil)
}

func (f *fakePort) Configuration(ctx context.Context, _ keyserver.Caller, xpath string) (keyserver.ConfigNode, error) {
	return answer(keyserver.ConfigNode{Tag: keyserver.ConfigRoot, Children: []keyserver.ConfigNode{
		{Tag: "Database", Attrs: map[string]string{"kind": "sqlite"}}, {Tag: "Unlisted"},
	}}, f.called(ctx, "Configuration", xpath))
}

func (f *fakePort) Principal(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (keyserver.Principal, error) {
	if err := f.called(ctx, "Principal", nil); err != nil {
		return keyserver.Principal{}, err
	}
	i := slices.IndexFunc(f.principals, func(p keyserver.Principal) bool { return p.ID == id })
	if i < 0 {
		return keyserver.Principal{}, fault.New(fault.NotFound, "no such principal")
	}
	return f.principals[i], nil
}

func (f *fakePort) CreatePasswordPrincipal(ctx context.Context, _ keyserver.Caller, n keyserver.NewPasswordPrincipal) (keyserver.ID, error) {
	return f.createPrincipal(ctx, "CreatePasswordPrincipal", n, keyserver.Principal{Type: keyserver.PasswordPrincipal, Name: n.Name, Roles: n.Roles})
}

func (f *fakePort) CreatePrincipal(ctx context.Context, _ keyserver.Caller, n keyserver.NewPrincipal) (keyserver.ID, error) {
	return f.createPrincipal(ctx, "CreatePrincipal", n, keyserver.Principal{Type: n.Type, Name: n.Name, Roles: n.Roles, Identity: n.Identity})
}

func (f *fakePort) createPrincipal(ctx context.Context, name string, got any, p keyserver.Principal) (keyserver.ID, error) {
	p.ID, p.System = newID, 1
	another := p
	another.Roles = nil
	return newID, f.write(ctx, name, got, add(&f.principals, p), add(&f.principals, another))
}

func (f *fakePort) ListPrincipals(ctx context.Context, _ keyserver.Caller, filter keyserver.PrincipalFilter) (keyserver.PrincipalPage, error) {
	page := keyserver.PrincipalPage{Principals: []keyserver.Principal{aUser, aWorkload}, Pattern: filter.Pattern(), OrderedBy: "name"}
	return answer(page, f.called(ctx, "ListPrincipals", filter))
}

func (f *fakePort) LookupPrincipals(ctx context.Context, _ keyserver.Caller, pairs []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	return answer([]keyserver.Principal{aUser}, f.called(ctx, "LookupPrincipals", pairs))
}

func (f *fakePort) ofPrincipal(id keyserver.ID, by func(*keyserver.Principal)) func() {
	return alter(&f.principals, func(p keyserver.Principal) bool { return p.ID == id }, by)
}

func (f *fakePort) UpdatePrincipalFlags(ctx context.Context, _ keyserver.Caller, c keyserver.FlagChange) error {
	return f.write(ctx, "UpdatePrincipalFlags", c, f.ofPrincipal(c.ID, func(p *keyserver.Principal) { p.Flags = c.Apply(p.Flags) }), nil)
}

func (f *fakePort) AddDelegate(ctx context.Context, _ keyserver.Caller, d keyserver.Delegate) error {
	return f.write(ctx, "AddDelegate", d,
		f.ofPrincipal(d.Principal, func(p *keyserver.Principal) { p.Delegates = []keyserver.ID{d.Delegate} }), f.ofPrincipal(d.Principal, func(p *keyserver.Principal) { p.Delegates = nil }))
}

func (f *fakePort) RemoveDelegate(ctx context.Context, _ keyserver.Caller, d keyserver.Delegate) error {
	return f.write(ctx, "RemoveDelegate", d,
		f.ofPrincipal(d.Principal, func(p *keyserver.Principal) { p.Delegates, p.Flags = nil, p.Flags&^keyserver.FlagDelegation }),
		f.ofPrincipal(d.Principal, func(p *keyserver.Principal) { p.Delegates = []keyserver.ID{d.Delegate} }))
}

func (f *fakePort) SetPrincipalRoles(ctx context.Context, _ keyserver.Caller, r keyserver.PrincipalRoles) error {
	return f.write(ctx, "SetPrincipalRoles", r,
		f.ofPrincipal(r.ID, func(p *keyserver.Principal) { p.Roles = r.Roles }), f.ofPrincipal(r.ID, func(p *keyserver.Principal) { p.Roles = nil }))
}

func (f *fakePort) DeletePrincipal(ctx context.Context, _ keyserver.Caller, d keyserver.PrincipalDeletion) (keyserver.PrincipalDeletionResult, error) {
	gone := drop(&f.principals, func(p keyserver.Principal) bool { return p.ID == d.ID })
	return keyserver.PrincipalDeletionResult{Sessions: 2, Entries: 3}, f.write(ctx, "DeletePrincipal", d, gone, nil)
}

func (f *fakePort) GroupMembers(ctx context.Context, _ keyserver.Caller, g keyserver.GroupFilter) ([]keyserver.Principal, error) {
	return answer([]keyserver.Principal{aUser}, f.called(ctx, "GroupMembers", g))
}

func (f *fakePort) AddGroupMember(ctx context.Context, _ keyserver.Caller, m keyserver.Membership) error {
	return f.write(ctx, "AddGroupMember", m,
		f.ofPrincipal(m.Member, func(p *keyserver.Principal) { p.Groups = []keyserver.ID{m.Group} }), f.ofPrincipal(m.Member, func(p *keyserver.Principal) { p.Groups = nil }))
}

func (f *fakePort) RemoveGroupMember(ctx context.Context, _ keyserver.Caller, m keyserver.Membership) error {
	return f.write(ctx, "RemoveGroupMember", m, f.ofPrincipal(m.Member, func(p *keyserver.Principal) { p.Groups = nil }), nil)
}

func (f *fakePort) FindCertificates(ctx context.Context, _ keyserver.Caller, l keyserver.CertificateLookup) ([]keyserver.Certificate, error) {
	return answer(only(f.certificates, func(c keyserver.Certificate) bool {
		return (l.Digest == nil || *l.Digest == keyserver.DigestOf(c.DER)) && (l.Principal.IsZero() || l.Principal == c.Principal)
	}), f.called(ctx, "FindCertificates", nil))
}

func (f *fakePort) IssueCertificate(ctx context.Context, _ keyserver.Caller, r keyserver.CertificateRequest) (keyserver.Issued, error) {
	return f.issue(ctx, "IssueCertificate", r, r.Request, nil)
}

func (f *fakePort) RenewCertificate(ctx context.Context, _ keyserver.Caller, d keyserver.Digest) (keyserver.Issued, error) {
	return f.issue(ctx, "RenewCertificate", d, authority().request, alter(&f.certificates,
		func(c keyserver.Certificate) bool { return keyserver.DigestOf(c.DER) == d }, func(c *keyserver.Certificate) { c.Status = keyserver.StatusExpired }))
}

func (f *fakePort) issue(ctx context.Context, name string, got any, request []byte, besides func()) (keyserver.Issued, error) {
	cert, err := issue(authority().ca, request)
	if err != nil {
		return keyserver.Issued{}, err
	}
	c, bare := issuedAs(cert, request, keyserver.ID{}), issuedAs(cert, nil, keyserver.ID{})
	err = f.write(ctx, name, got, func() {
		if besides != nil {
			besides()
		}
		add(&f.certificates, c)()
	}, add(&f.certificates, bare))
	return answer(keyserver.Issued{Certificate: c, Issuer: authority().ca.Certificate.Raw}, err)
}

func (f *fakePort) EnrollCertificates(ctx context.Context, _ keyserver.Caller, n keyserver.Enrolment) ([]keyserver.Enrolled, error) {
	err := f.write(ctx, "EnrollCertificates", n, nil, func() { f.certificates = nil })
	return answer([]keyserver.Enrolled{{Principal: aTransport.ID}}, err)
}

func (f *fakePort) ResetTransportPrincipal(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (keyserver.TransportReset, error) {
	return keyserver.TransportReset{}, f.write(ctx, "ResetTransportPrincipal", id, func() { f.certificates = nil }, nil)
}

func (f *fakePort) Custody(ctx context.Context, _ keyserver.Caller) (keyserver.Custody, error) {
	return answer(f.custody, f.called(ctx, "Custody", nil))
}

func (f *fakePort) RotateDataKey(ctx context.Context, _ keyserver.Caller) (keyserver.ID, error) {
	list := append(slices.Clone(f.custody.DataKeys), keyserver.DataKey{ID: newID, CreatedAt: epoch, State: keyserver.DataKeyActive})
	list[0].State = keyserver.DataKeyRetiring
	return newID, f.write(ctx, "RotateDataKey", nil, func() { f.custody.DataKeys = list }, nil)
}

func (f *fakePort) CreateBackup(ctx context.Context, _ keyserver.Caller, recipient string, to io.Writer) error {
	if err := f.called(ctx, "CreateBackup", recipient); err != nil {
		return err
	}
	_, err := io.WriteString(to, "a backup")
	for piece := make([]byte, 1<<16); f.endless && err == nil; {
		_, err = to.Write(piece)
	}
	return err
}

func (f *fakePort) Explain(ctx context.Context, _ keyserver.Caller, q keyserver.Question) (keyserver.Explanation, error) {
	role := keyserver.Cause{Kind: keyserver.ChangeRole, ID: newID, Name: "some text"}
	entry := keyserver.Cause{Kind: keyserver.ChangePrincipal, ID: newID, System: 1}
	return answer(keyserver.Explanation{
		Refusal: fault.New(fault.ACLDenied, "refused").Audited(fault.ReasonACLDenied), Principal: newID, Sequence: 7, Uses: new(int64(3)), Staleness: time.Second,
		Steps: []keyserver.ExplainedStep{
			{Step: keyserver.StepRole, Outcome: keyserver.StepPassed, By: &role}, {Step: keyserver.StepKey, Outcome: keyserver.StepPassed},
			{Step: keyserver.StepACL, Outcome: keyserver.StepRefused, By: &entry, Detail: "refused"},
		},
		Change: []keyserver.Supposition{{Kind: keyserver.SupposeEntry, Principal: newID, System: 1, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}},
	}, f.called(ctx, "Explain", q))
}

func (f *fakePort) WhoCan(ctx context.Context, _ keyserver.Caller, c keyserver.WhoCanQuery) (keyserver.WhoCanPage, error) {
	who := keyserver.Capable{Principal: keyserver.PrincipalRef{System: 1, ID: newID}, Name: "some text", By: []keyserver.Cause{{Kind: keyserver.ChangeRole, ID: newID, Name: "some text"}}}
	return answer(keyserver.WhoCanPage{Principals: []keyserver.Capable{who}, Foreign: []keyserver.Capable{{Principal: keyserver.PrincipalRef{System: 2, ID: newID}}}, Next: newID}, f.called(ctx, "WhoCan", c))
}

func (f *fakePort) OwnerMarks(ctx context.Context, _ keyserver.Caller, l keyserver.OwnerFilter) ([]keyserver.OwnerMark, error) {
	return answer(only(f.owners, func(m keyserver.OwnerMark) bool {
		return m.Object.Kind == l.Kind && (l.ID == nil || m.Object.ID == *l.ID)
	}), f.called(ctx, "OwnerMarks", nil))
}

// SetOwner changes the only mark.
func (f *fakePort) SetOwner(ctx context.Context, _ keyserver.Caller, c keyserver.OwnerChange) (keyserver.OwnerMark, error) {
	to := func(owner string) func() {
		return alter(&f.owners, func(keyserver.OwnerMark) bool { return true }, func(m *keyserver.OwnerMark) { m.Owner = owner })
	}
	before := f.owners[0]
	return before, f.write(ctx, "SetOwner", c, to(c.Owner), to("another"))
}

func (f *fakePort) ReleaseOwner(ctx context.Context, _ keyserver.Caller, r keyserver.OwnerRelease) (keyserver.OwnerMark, error) {
	before := f.owners[0]
	return before, f.write(ctx, "ReleaseOwner", r, drop(&f.owners, func(m keyserver.OwnerMark) bool { return m.Owner == r.Expect }), nil)
}

func (f *fakePort) RevocationIssuers(ctx context.Context, _ keyserver.Caller) ([]keyserver.RevocationIssuer, error) {
	return answer(f.issuers, f.called(ctx, "RevocationIssuers", nil))
}

func (f *fakePort) RevocationIssuer(ctx context.Context, _ keyserver.Caller, _ string) (keyserver.RevocationIssuer, error) {
	return answer(f.issuers[0], f.called(ctx, "RevocationIssuer", nil))
}

func (f *fakePort) SetRevocationPolicy(ctx context.Context, _ keyserver.Caller, c keyserver.RevocationPolicyChange) error {
	return f.write(ctx, "SetRevocationPolicy", c, alter(&f.issuers,
		func(i keyserver.RevocationIssuer) bool { return i.Digest == c.Digest }, func(i *keyserver.RevocationIssuer) { i.Policy = c.Policy }), nil)
}

func (f *fakePort) ImportCRL(ctx context.Context, _ keyserver.Caller, der []byte) ([]string, error) {
	digests := []string{anIssuer.Digest}
	put := alter(&f.issuers, func(i keyserver.RevocationIssuer) bool { return i.Digest == anIssuer.Digest }, func(i *keyserver.RevocationIssuer) {
		facts := *i.CRL
		facts.Digest = keyserver.DigestOf(der)
		i.CRL = &facts
	})
	err := f.write(ctx, "ImportCRL", der, put, func() { put(); digests = append(digests, f.issuers[1].Digest) })
	return answer(digests, err)
}

func (f *fakePort) Version(ctx context.Context, _ keyserver.Caller) (keyserver.Version, error) {
	return answer(keyserver.Version{Major: 1, Banner: "test"}, f.called(ctx, "Version", nil))
}

func (f *fakePort) Audit(ctx context.Context, _ keyserver.Caller, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	return answer(keyserver.AuditPage{Next: 7, Entries: []keyserver.AuditEntry{{
		Seq: 6, Time: epoch, Operation: "hmacData", Outcome: keyserver.Refused, Reason: "aclDenied", Principal: someRef, Kind: keyserver.PasswordSession,
	}}}, f.called(ctx, "Audit", filter))
}

func (f *fakePort) Changes(ctx context.Context, _ keyserver.Caller, c keyserver.ChangeFilter) (keyserver.ChangePage, error) {
	if err := f.called(ctx, "Changes", c); err != nil {
		return keyserver.ChangePage{}, err
	}
	if c.Wait > 0 {
		<-ctx.Done()
		return keyserver.ChangePage{}, ctx.Err()
	}
	return keyserver.ChangePage{Cursor: c.After + 1, Changes: []keyserver.Change{{Seq: c.After + 1, Kind: keyserver.ChangeRole, ID: someID, Action: keyserver.Created}}}, nil
}

func (f *fakePort) Ready(context.Context) []keyserver.Readiness {
	if f.ready != nil {
		return f.ready
	}
	return []keyserver.Readiness{{Part: "database", Ready: true, Detail: "answers"}}
}

func (f *fakePort) AuditReceipt(ctx context.Context, _ keyserver.Caller, seq int64) ([]byte, error) {
	return answer([]byte("c2sp.org/tlog-proof@v1\n"), f.called(ctx, "AuditReceipt", seq))
}

func (f *fakePort) AuditCheckpoint(ctx context.Context) ([]byte, error) {
	return answer([]byte("keys/audit/1\n"), f.called(ctx, "AuditCheckpoint", nil))
}

func (f *fakePort) AuditKey(ctx context.Context) (keyserver.AuditKey, error) {
	return answer(keyserver.AuditKey{Origin: "keys/audit/1", Key: "keys/audit/1+00000000+AQ=="}, f.called(ctx, "AuditKey", nil))
}

func (f *fakePort) Witness(ctx context.Context, _ keyserver.Caller) (keyserver.Witness, error) {
	return answer(keyserver.Witness{Key: "keys/witness/1+00000000+BA==", Logs: []keyserver.WitnessedLog{{
		Origin: "peer/audit/2", Key: "peer/audit/2+00000000+AQ==", System: 2, Size: 1, SeenAt: epoch, Conflict: keyserver.LogForked, ConflictAt: epoch,
	}}}, f.called(ctx, "Witness", nil))
}

func (f *fakePort) AuditTile(ctx context.Context, _ keyserver.Caller, t keyserver.AuditTile) ([]byte, error) {
	return answer(make([]byte, 32*t.Width), f.called(ctx, "AuditTile", t))
}
