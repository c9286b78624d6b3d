package engine_test

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ciphertext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maze is a key server whose state is changed at random.
type maze struct {
	*testing.T
	f    *enginetest.Fixture
	gate *engine.Engine // engine whose peer allows every request
	dice *rand.Rand

	auditor   keyserver.Caller
	boss      keyserver.Caller // can always be a delegator
	receiver  keyserver.Caller // recipient of exported keys
	people    []keyserver.Caller
	groups    []keyserver.ID
	roles     []keyserver.ID
	keys      []keyserver.HiddenLink
	sealed    map[keyserver.HiddenLink][]byte // a ciphertext of each key
	foreigner keyserver.PrincipalRef

	ca     pki.Identity // issued the certificate of the second machine
	cas    []keyserver.Certificate
	device *x509.Certificate
	issued int64 // number of CRLs

	called map[keyserver.ID]string
	did    []string
	steps  int
}

// calm is an audit log that stores nothing.
type calm struct{}

func (calm) Write(context.Context, keyserver.AuditEntry) error      { return nil }
func (calm) WriteAll(context.Context, []keyserver.AuditEntry) error { return nil }
func (calm) Begin(context.Context, keyserver.AuditEntry) (func() error, error) {
	return func() error { return nil }, nil
}

// agreeable is a peer that allows every request.
type agreeable struct{ keyserver.Federated }

func (a agreeable) At(keyserver.TrustedServer) keyserver.Federated { return a }

func (agreeable) Key(context.Context, keyserver.Caller, keyserver.HiddenLink) (m keyserver.KeyMetadata, err error) {
	return m, nil
}

func (agreeable) AuthorizeKey(context.Context, keyserver.Caller, keyserver.Use) (g keyserver.Grant, err error) {
	return g, nil
}

func (agreeable) HMAC(context.Context, keyserver.Caller, keyserver.HMACRequest) (m [keyserver.MACSize]byte, err error) {
	return m, nil
}

func (agreeable) MAC(context.Context, keyserver.Caller, keyserver.MACRequest) (m keyserver.MAC, err error) {
	return m, nil
}

func (agreeable) VerifyMAC(context.Context, keyserver.Caller, keyserver.MACCheck) (v keyserver.MACVerdict, err error) {
	return v, nil
}

func (agreeable) Encrypt(context.Context, keyserver.Caller, keyserver.Encryption) (c keyserver.Ciphertext, err error) {
	return c, nil
}

func (agreeable) Decrypt(context.Context, keyserver.Caller, keyserver.Decryption) (p keyserver.Plaintext, err error) {
	return p, nil
}

func (agreeable) ACL(context.Context, keyserver.Caller, keyserver.HiddenLink) (l keyserver.ACL, err error) {
	return l, nil
}

func (agreeable) GrantACL(context.Context, keyserver.Caller, keyserver.ACLChange) error { return nil }

func newMaze(t *testing.T, f *enginetest.Fixture, seed uint64) *maze {
	t.Helper()
	w := &maze{T: t, f: f, dice: rand.New(rand.NewPCG(seed, 1<<63)), called: map[keyserver.ID]string{}, sealed: map[keyserver.HiddenLink][]byte{}}
	config := f.Config
	config.Peers, config.Auditor = agreeable{}, calm{}
	w.gate = engine.New(config)
	add := func(kind keyserver.PrincipalType, name string, roles ...keyserver.ID) keyserver.Caller {
		p := f.Add(t, kind, name, roles, nil)
		w.called[p.Principal.ID] = name
		return p
	}
	w.auditor = add(keyserver.PasswordPrincipal, "auditor", keyserver.RoleAuditor)
	w.receiver = add(keyserver.CertificatePrincipal, "receiver")
	w.boss = add(keyserver.PasswordPrincipal, "boss")
	setFlags(t, f, w.boss.Principal, delegable)
	for n := range 3 {
		w.groups = append(w.groups, add(keyserver.GroupPrincipal, fmt.Sprintf("group-%d", n)).Principal.ID)
		id := enginetest.Must(f.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: fmt.Sprintf("role-%d", n), Operations: []keyserver.ID{keyserver.OpReadVersion.ID}}))(t)
		w.roles, w.called[id] = append(w.roles, id), fmt.Sprintf("role-%d", n)
	}
	for n := range 3 {
		w.people = append(w.people, add(keyserver.PasswordPrincipal, fmt.Sprintf("person-%d", n)))
	}
	w.people = append(w.people, add(keyserver.CertificatePrincipal, "machine"), w.enrolled())
	enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
	w.foreigner = keyserver.PrincipalRef{System: enginetest.PeerSystem, ID: values.IDFromUint64(70)}
	w.called[w.foreigner.ID] = "foreigner"
	w.called[f.Admin.Principal.ID] = "admin"
	for _, k := range []keyserver.NewKey{{Algorithm: keyserver.HMACSHA384}, {Algorithm: keyserver.HMACSHA384, Sealed: true}, {Algorithm: keyserver.AES256}} {
		w.keys = append(w.keys, enginetest.Must(f.MintKey(ctx, f.Admin, k))(t).Link)
	}
	last := w.keys[len(w.keys)-1]
	w.sealed[last] = enginetest.Must(f.Encrypt(ctx, f.Admin, keyserver.Encryption{KeyChoice: keyserver.KeyChoice{Key: last}, Plain: []byte("p")}))(t).Sealed
	w.cas = enginetest.Must(f.Store.TrustedCAs(ctx))(t)
	return w
}

// enrolled returns a principal with a certificate of an external CA. The CA may revoke it later.
func (w *maze) enrolled() keyserver.Caller {
	w.Helper()
	w.ca = outside(w.T, w.f, "outside")
	trust(w.T, w.f, w.ca)
	w.device = enginetest.NewAgent(w.T, w.ca, "device", w.f.Clock.Now(), nil).Certificate
	p := enrol(w.T, w.f, nil, w.device)
	w.called[p.ID] = "device"
	return session(p, w.device)
}

func pick[T any](w *maze, from []T) T { return from[w.dice.IntN(len(from))] }

// name returns a readable name of a caller, principal or key.
func (w *maze) name(of any) string {
	switch of := of.(type) {
	case keyserver.Caller:
		name := string(of.Kind) + " session of " + w.called[of.Principal.ID]
		if !of.Actor.ID.IsZero() {
			name += " by " + w.called[of.Actor.ID]
		}
		return name
	case keyserver.HiddenLink:
		if i := slices.Index(w.keys, of); i >= 0 {
			return fmt.Sprintf("key-%d", i)
		}
		return cmp.Or(of.Base64(), "nothing")
	default:
		return fmt.Sprint(of)
	}
}

func (w *maze) names(ids []keyserver.ID) (all []string) {
	for _, id := range ids {
		all = append(all, w.called[id])
	}
	return all
}

func (w *maze) caller(id keyserver.ID) keyserver.Caller {
	return w.people[slices.IndexFunc(w.people, func(c keyserver.Caller) bool { return c.Principal.ID == id })]
}

// allPrincipals returns the principals of this key server that can send requests.
func (w *maze) allPrincipals() (all []keyserver.PrincipalRef) {
	for _, p := range append(slices.Clone(w.people), w.auditor, w.receiver, w.boss, w.f.Admin) {
		all = append(all, p.Principal)
	}
	return all
}

// stranger returns a caller for a request from a peer.
func (w *maze) stranger() keyserver.Caller {
	c := keyserver.Caller{Principal: w.foreigner, Name: "foreigner", Type: keyserver.PasswordPrincipal, Kind: keyserver.PeerSession, Peer: &keyserver.PeerCall{System: enginetest.PeerSystem}}
	enginetest.Must(cryptorand.Read(c.Peer.Key[:]))(w.T)
	return c
}

// key returns a random link: of a key here, of a key of a peer, or of no key.
func (w *maze) key() keyserver.HiddenLink {
	switch w.dice.IntN(24) {
	case 0:
		return values.NewHiddenLink(w.f.Prepared.System, values.IDFromUint64(5))
	case 1, 2, 3:
		return values.NewHiddenLink(enginetest.PeerSystem, values.IDFromUint64(5))
	case 4:
		return values.NewHiddenLink(enginetest.PeerSystem+1, values.IDFromUint64(5))
	default:
		return pick(w, w.keys)
	}
}

func (w *maze) update(change func(tx *sqlstore.Tx) error) {
	w.Helper()
	if err := w.f.Store.Update(ctx, change); err != nil {
		w.Fatal(err)
	}
}

// change makes one random change.
func (w *maze) change() {
	w.Helper()
	person := pick(w, w.people).Principal
	holder := pick(w, append(slices.Clone(w.groups), person.ID))
	switch n := w.dice.IntN(32); {
	case n < 3:
		on := w.dice.IntN(4) > 0
		w.note("%s is enabled: %v", w.called[holder], on)
		w.flag(holder, keyserver.FlagEnable, on)
	case n < 7:
		roles := []keyserver.ID{pick(w, append(slices.Clone(w.roles), keyserver.RoleEncryptor, keyserver.RoleEncryptor, keyserver.RoleExchanger))}
		w.note("%s has the role %s", w.called[holder], cmp.Or(w.called[roles[0]], roles[0].Hex()))
		w.update(func(tx *sqlstore.Tx) error { return tx.SetPrincipalRoles(ctx, holder, roles) })
	case n < 10:
		group, in := pick(w, w.groups), w.dice.IntN(2) == 0
		w.note("%s is in %s: %v", w.called[person.ID], w.called[group], in)
		w.member(person.ID, group, in)
	case n < 13:
		role, ops := pick(w, w.roles), []keyserver.Operation{pick(w, asked), pick(w, asked)}
		w.note("%s grants %s and %s", w.called[role], ops[0].Key, ops[1].Key)
		if err := w.f.UpdateRole(ctx, w.f.Admin, keyserver.RoleChange{ID: role, Operations: []keyserver.ID{ops[0].ID, ops[1].ID}}); err != nil {
			w.Fatal(err)
		}
	case n < 16:
		key, state := pick(w, w.keys), pick(w, []keyserver.KeyState{keyserver.KeyEnabled, keyserver.KeyEnabled, keyserver.KeyVerifyOnly, keyserver.KeyDisabled, keyserver.KeyDestroying})
		w.note("%s is %s", w.name(key), state)
		w.state(key, state)
	case n < 18:
		flag := pick(w, []keyserver.TrustFlag{keyserver.Expose, keyserver.Expose, keyserver.Restrict})
		w.note("%s is told to the peer: %v", w.called[holder], flag)
		w.expose(holder, flag)
	case n < 20:
		w.delegates(person.ID)
	case n < 21:
		w.trusts()
	case n < 22:
		later := time.Duration(1+w.dice.IntN(40)) * time.Minute
		w.note("it is %v later", later)
		w.f.Clock.Advance(later)
	case n < 23:
		w.guard()
	case n < 24 && len(w.keys) < 8:
		if link, err := w.f.RotateKey(ctx, w.f.Admin, w.keys[0]); err == nil { // fails in some states of the newest key
			w.note("key-0 is succeeded by key-%d", len(w.keys))
			w.keys = append(w.keys, link)
		}
	default:
		w.list(person, holder)
	}
}

// list changes a random ACL entry.
func (w *maze) list(person keyserver.PrincipalRef, holder keyserver.ID) {
	w.Helper()
	entry := keyserver.ACLEntry{Principal: person, MaxUsage: keyserver.NoUsageLimit}
	switch w.dice.IntN(6) {
	case 0, 1:
		entry.Principal.ID = holder
	case 2:
		entry.Principal = w.foreigner
	}
	entry.Rights = (keyserver.Rights(w.dice.UintN(8)) | keyserver.Rights(w.dice.UintN(12)/11)<<3).Widen()
	if w.dice.IntN(3) == 0 {
		entry.MaxUsage = int64(w.dice.IntN(3))
	}
	at := func() keyserver.Stamp {
		return values.StampOf(w.f.Clock.Now().Add(time.Duration(w.dice.IntN(3)-1) * time.Hour))
	}
	if w.dice.IntN(4) == 0 {
		entry.Start = at()
	}
	if w.dice.IntN(4) == 0 {
		entry.End = at()
	}
	key, there := pick(w, w.keys), w.dice.IntN(4) > 0
	w.note("on the list of %s is %s: %v, %v, %d uses, %v to %v", w.name(key), w.called[entry.Principal.ID], there, entry.Rights.Names(), entry.MaxUsage, entry.Start, entry.End)
	w.entry(key, entry, there)
}

func (w *maze) flag(of keyserver.ID, flag keyserver.Flags, on bool) {
	w.Helper()
	w.update(func(tx *sqlstore.Tx) error {
		p, err := tx.Principal(ctx, of)
		if err != nil {
			return err
		}
		flags := p.Flags &^ flag
		if on {
			flags |= flag
		}
		return tx.SetPrincipalFlags(ctx, of, flags)
	})
}

func (w *maze) member(person, group keyserver.ID, in bool) {
	w.Helper()
	w.update(func(tx *sqlstore.Tx) error {
		p, err := tx.Principal(ctx, person)
		switch has := slices.Contains(p.Groups, group); {
		case err != nil || has == in:
			return err
		case in:
			return tx.AddGroupMember(ctx, group, person)
		default:
			return tx.RemoveGroupMember(ctx, group, person)
		}
	})
}

// delegates changes the delegation flag or the delegates of a principal.
func (w *maze) delegates(person keyserver.ID) {
	w.Helper()
	if w.dice.IntN(2) == 0 {
		on := w.dice.IntN(3) > 0
		w.note("%s may be acted for: %v", w.called[person], on)
		w.flag(person, keyserver.FlagDelegation, on)
		return
	}
	delegate := pick(w, w.people).Principal.ID
	w.update(func(tx *sqlstore.Tx) error {
		p, err := tx.Principal(ctx, person)
		switch {
		case err != nil || person == delegate:
			return err
		case slices.Contains(p.Delegates, delegate):
			w.note("%s is no delegate of %s", w.called[delegate], w.called[person])
			return tx.RemoveDelegate(ctx, person, delegate)
		default:
			w.note("%s is a delegate of %s", w.called[delegate], w.called[person])
			return tx.AddDelegate(ctx, person, delegate)
		}
	})
}

// trusts changes whether the external CA is trusted, its revocation policy, or its revocation list.
func (w *maze) trusts() {
	w.Helper()
	switch w.dice.IntN(3) {
	case 0:
		mode := pick(w, []keyserver.RevocationMode{keyserver.RevocationOff, keyserver.RevocationWhenAvailable, keyserver.RevocationRequired})
		w.note("the policy for the CA outside is %v", mode)
		digest := pki.RevocationDigest(w.ca.Certificate.Raw)
		w.update(func(tx *sqlstore.Tx) error {
			return tx.PutRevocationPolicy(ctx, digest, keyserver.RevocationPolicy{Mode: mode})
		})
	case 1:
		var revoked []*x509.Certificate
		if w.dice.IntN(2) == 0 {
			revoked = append(revoked, w.device)
		}
		w.f.Clock.Advance(time.Minute)
		w.issued++
		w.note("the CA outside has revoked %d certificates", len(revoked))
		crl := enginetest.NewCRL(w.T, w.ca, w.issued, w.f.Clock.Now(), nil, revoked...)
		_, _ = w.f.ImportCRL(ctx, w.f.Admin, crl) // fails while the CA is not trusted
	default:
		now := enginetest.Must(w.f.Store.TrustedCAs(ctx))(w.T)
		w.update(func(tx *sqlstore.Tx) error {
			for _, ca := range w.cas {
				there := slices.ContainsFunc(now, func(c keyserver.Certificate) bool { return c.ID == ca.ID })
				switch {
				case !there:
					w.note("%s is trusted again", ca.Subject)
					return tx.InsertTrustedCA(ctx, ca)
				case slices.Equal(ca.DER, w.ca.Certificate.Raw):
					w.note("%s is trusted no more", ca.Subject)
					return tx.DeleteTrustedCA(ctx, ca.ID)
				}
			}
			return nil
		})
	}
}

// guard sets an approval policy that guards one operation, or none.
func (w *maze) guard() {
	w.Helper()
	policy := `[]`
	if w.dice.IntN(3) == 0 {
		policy = fmt.Sprintf(`[{"operation":%q,"approvers":1,"duty":"any"}]`, pick(w, asked).Key)
	}
	w.note("the approval policy is %s", policy)
	setPolicy(w.T, w.f, policy)
}

// expose sets or removes the principal trust of a principal.
func (w *maze) expose(who keyserver.ID, flag keyserver.TrustFlag) {
	w.Helper()
	peer := keyserver.SystemID(enginetest.PeerSystem)
	w.update(func(tx *sqlstore.Tx) error {
		rows, err := tx.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{Principal: &who, Server: &peer, Limit: 1})
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := tx.DeletePrincipalTrust(ctx, row.ID); err != nil {
				return err
			}
		}
		id, err := values.NewID(w.f.Random)
		if err != nil {
			return err
		}
		return tx.InsertPrincipalTrust(ctx, keyserver.PrincipalTrust{ID: id, Principal: who, Server: peer, Flag: flag})
	})
}

func (w *maze) state(key keyserver.HiddenLink, state keyserver.KeyState) {
	w.Helper()
	_, id, _ := key.Split()
	w.update(func(tx *sqlstore.Tx) error {
		record, err := tx.Key(ctx, id)
		if err != nil {
			return err
		}
		record.Life.State = state
		return tx.SetKeyLife(ctx, id, record.Life)
	})
}

// entry writes or, unless there is set, removes an ACL entry.
func (w *maze) entry(key keyserver.HiddenLink, entry keyserver.ACLEntry, there bool) {
	w.Helper()
	_, id, _ := key.Split()
	w.update(func(tx *sqlstore.Tx) error {
		acl, err := tx.ACL(ctx, id)
		if err != nil {
			return err
		}
		if _, has := acl.Entry(entry.Principal); has {
			err = tx.DeleteACLEntry(ctx, acl.ID, entry.Principal)
		}
		if err != nil || !there {
			return err
		}
		entry.ACL = acl.ID
		entry.ID, err = values.NewID(w.f.Random)
		if err != nil {
			return err
		}
		return tx.PutACLEntry(ctx, entry)
	})
}

// asked has the operations for random questions: all operations that concern a key, and some others. Each can be
// repeated.
var asked = append(slices.DeleteFunc(slices.Clone(keyserver.Operations), func(op keyserver.Operation) bool { return !op.AboutKey() }),
	keyserver.OpListRoles, keyserver.OpReadAudit, keyserver.OpDelegateLogin)

// do calls an operation on the key server.
func (w *maze) do(by keyserver.Caller, op keyserver.Operation, key keyserver.HiddenLink) (err error) {
	w.Helper()
	choice := keyserver.KeyChoice{Key: key}
	switch op.ID {
	case keyserver.OpAuthorizeKey.ID:
		_, err = w.gate.AuthorizeKey(ctx, by, keyserver.Use{Link: key})
	case keyserver.OpHMAC.ID:
		_, err = w.gate.HMAC(ctx, by, keyserver.HMACRequest{Link: key, Message: text("m")})
	case keyserver.OpMACData.ID:
		_, err = w.gate.MAC(ctx, by, keyserver.MACRequest{Lineage: key, Message: text("m")})
	case keyserver.OpVerifyMAC.ID:
		_, err = w.gate.VerifyMAC(ctx, by, keyserver.MACCheck{KeyChoice: choice, Message: text("m"), MAC: noMAC})
	case keyserver.OpEncrypt.ID:
		_, err = w.gate.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: choice, Plain: []byte("p")})
	case keyserver.OpDecrypt.ID:
		sealed, ok := w.sealed[key]
		if !ok {
			_, id, _ := key.Split()
			sealed = ciphertext.Named(id)
		}
		_, err = w.gate.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: choice, Sealed: sealed})
	case keyserver.OpReadKey.ID:
		_, err = w.gate.Key(ctx, by, key)
	case keyserver.OpReadACL.ID:
		_, err = w.gate.ACL(ctx, by, key)
	case keyserver.OpAmendACL.ID:
		err = w.gate.GrantACL(ctx, by, keyserver.ACLChange{Link: key, Principal: w.receiver.Principal, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit})
	case keyserver.OpExportKey.ID:
		_, err = w.gate.ExportKey(ctx, by, keyserver.KeyExport{Link: key, Recipient: w.receiver.Principal})
	case keyserver.OpChangeKeyState.ID:
		_, err = w.gate.KeyState(ctx, by, key)
	case keyserver.OpRotateKey.ID:
		_, err = w.gate.KeyLineage(ctx, by, key)
	case keyserver.OpListRoles.ID:
		_, err = w.gate.Roles(ctx, by)
	case keyserver.OpReadAudit.ID:
		_, err = w.gate.Audit(ctx, by, keyserver.AuditFilter{Limit: 1})
	case keyserver.OpDelegateLogin.ID:
		_, err = w.gate.DelegateLogin(ctx, by, w.boss.Principal.ID)
	default:
		w.Fatalf("%s is not asked", op.Key)
	}
	return err
}
