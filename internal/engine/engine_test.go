package engine_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var ctx = context.Background()

func text(s string) keyserver.Message { return strings.NewReader(s) }

// forKey sets the key in a change of an ACL.
func forKey(link keyserver.HiddenLink, change keyserver.ACLChange) keyserver.ACLChange {
	change.Link = link
	return change
}

func noMAC() (mac [keyserver.MACSize]byte) { return mac }

func TestKeyUseIsRefused(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		encryptor := []keyserver.ID{keyserver.RoleEncryptor}
		stranger := f.Add(t, keyserver.PasswordPrincipal, "stranger", encryptor, nil)
		idle := f.Add(t, keyserver.PasswordPrincipal, "no-role", nil, nil)
		officer := f.Add(t, keyserver.PasswordPrincipal, "officer", []keyserver.ID{keyserver.RoleSecurityOfficer}, nil)
		off := f.Add(t, keyserver.PasswordPrincipal, "off", encryptor, nil)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return tx.SetPrincipalFlags(ctx, off.Principal.ID, 0)
		}); err != nil {
			t.Fatal(err)
		}
		ghost := stranger
		ghost.Principal.ID = values.IDFromUint64(99)
		_, id, _ := link.Split()
		cases := map[string]struct {
			by     keyserver.Caller
			link   keyserver.HiddenLink
			code   fault.Code
			reason fault.Reason
		}{
			"NoRole":        {idle, link, fault.AccessDenied, fault.ReasonRoleDenied},
			"OtherDuty":     {officer, link, fault.AccessDenied, fault.ReasonRoleDenied},
			"NoEntry":       {stranger, link, fault.ACLDenied, fault.ReasonACLDenied},
			"Disabled":      {off, link, fault.PrincipalOff, fault.ReasonPrincipalDisabled},
			"Unknown":       {ghost, link, fault.SessionNotFound, fault.ReasonPrincipalDisabled},
			"NoSuchKey":     {f.Admin, values.NewHiddenLink(f.Prepared.System, values.IDFromUint64(7)), fault.KeyNotFound, fault.ReasonObjectNotFound},
			"ForeignSystem": {f.Admin, values.NewHiddenLink(77, id), fault.KeyNotFound, fault.ReasonObjectNotFound},
			"ShortLink":     {f.Admin, "\x01", fault.KeyNotFound, fault.ReasonObjectNotFound},
			"LongLink":      {f.Admin, link + "\x00", fault.KeyNotFound, fault.ReasonObjectNotFound},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				_, err := f.HMAC(ctx, tc.by, keyserver.HMACRequest{Link: tc.link, Message: text("message")})
				f.Refused(t, err, tc.code, tc.reason)
				_, err = f.AuthorizeKey(ctx, tc.by, keyserver.Use{Link: tc.link, Filename: "file.txt"})
				f.Refused(t, err, tc.code, tc.reason)
				if row := f.LastRow(t); row.Filename != "file.txt" || row.Object != tc.link.Base64() || row.Principal != tc.by.Principal {
					t.Errorf("the row does not say who asked for what: %+v", row)
				}
			})
		}
	})
}

// TestHMACVectors checks the test vectors of RFC 4231 for SHA-384, except the one with a truncated MAC.
func TestHMACVectors(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	rep := strings.Repeat
	cases := map[string]struct{ key, data, mac string }{
		"Case1": {rep("0b", 20), hex.EncodeToString([]byte("Hi There")),
			"afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6"},
		"Case2": {hex.EncodeToString([]byte("Jefe")), hex.EncodeToString([]byte("what do ya want for nothing?")),
			"af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649"},
		"Case3": {rep("aa", 20), rep("dd", 50),
			"88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b2a5ab39dc13814b94e3ab6e101a34f27"},
		"Case4": {"0102030405060708090a0b0c0d0e0f10111213141516171819", rep("cd", 50),
			"3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e6801dd23c4a7d679ccf8a386c674cffb"},
		"Case6": {rep("aa", 131), hex.EncodeToString([]byte("Test Using Larger Than Block-Size Key - Hash Key First")),
			"4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952"},
		"Case7": {rep("aa", 131), hex.EncodeToString([]byte("This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before being used by the HMAC algorithm.")),
			"6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5a678cc31e799176d3860e6110c46523e"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key, _ := hex.DecodeString(tc.key)
			data, _ := hex.DecodeString(tc.data)
			link := f.Mint(t, f.Admin, key)
			for range 2 { // the second call uses a pooled state
				mac := enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: bytes.NewReader(data)}))(t)
				if got := hex.EncodeToString(mac[:]); got != tc.mac {
					t.Fatalf("got %s, want %s", got, tc.mac)
				}
			}
		})
	}
}

func TestConcurrentHMACsDoNotMix(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	a, b := f.Mint(t, f.Admin, []byte("key a")), f.Mint(t, f.Admin, []byte("key b"))
	want := map[keyserver.HiddenLink][keyserver.MACSize]byte{
		a: enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: a, Message: text("m")}))(t), b: enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: b, Message: text("m")}))(t),
	}
	if want[a] == want[b] {
		t.Fatal("two keys give one MAC")
	}
	var wg sync.WaitGroup
	for i := range 200 {
		link := a
		if i%2 == 1 {
			link = b
		}
		wg.Go(func() {
			if got, err := f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: text("m")}); err != nil || got != want[link] {
				t.Errorf("got %x, %v", got, err)
			}
		})
	}
	wg.Wait()
}

func TestBrokenMessageIsAudited(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	link := f.Mint(t, f.Admin, nil)
	_, err := f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: brokenMessage{}})
	f.Refused(t, err, fault.BadRequest, fault.ReasonBadMessage)
	before := enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: text("")}))(t)
	_, _ = f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: brokenMessage{}})
	if after := enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: text("")}))(t); after != before {
		t.Error("a broken message left its beginning in a pooled state")
	}
}

type brokenMessage struct{}

func (brokenMessage) WriteTo(w io.Writer) (int64, error) {
	_, _ = w.Write([]byte("the beginning"))
	return 13, fault.New(fault.BadRequest, "data ends too early").Audited(fault.ReasonBadMessage)
}

func TestKeyMetadataNeedsATransportPrincipal(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		_, err := f.Key(ctx, f.Admin, link)
		f.Refused(t, err, fault.AccessDenied, fault.ReasonNotTransport)

		agent := f.Add(t, keyserver.CertificatePrincipal, "agent", []keyserver.ID{keyserver.RoleExchanger}, nil)
		_, err = f.Key(ctx, agent, link)
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)

		f.Grant(t, link, agent.Principal, keyserver.Read, keyserver.NoUsageLimit)
		if got := enginetest.Must(f.Key(ctx, agent, link))(t); got.KeyBytes != 48 || got.Algorithm != keyserver.HMACSHA384 || got.Link != link {
			t.Errorf("got %+v", got)
		}
	})
}

func TestUsageLimit(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleExchanger}, nil)
		const uses = 5
		f.Grant(t, link, user.Principal, keyserver.Read, uses)
		var mu sync.Mutex
		granted := 0
		var wg sync.WaitGroup
		for range 4 * uses { // concurrently: the database decides which calls get a use
			wg.Go(func() {
				_, err := f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")})
				if err == nil {
					mu.Lock()
					granted++
					mu.Unlock()
				} else if fault.CodeOf(err) != fault.ACLDenied {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if granted != uses {
			t.Errorf("%d uses were granted, the limit is %d", granted, uses)
		}
		_, err := f.AuthorizeKey(ctx, user, keyserver.Use{Link: link})
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)

		f.Grant(t, link, user.Principal, keyserver.Read, keyserver.NoUsageLimit)
		enginetest.Must(f.AuthorizeKey(ctx, user, keyserver.Use{Link: link}))(t)
	})
}

func TestTimeWindowFollowsTheClock(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleExchanger}, nil)
		change := keyserver.ACLChange{
			Principal: user.Principal, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit,
			Start: values.StampOf(f.Clock.Now().Add(time.Hour)), End: values.StampOf(f.Clock.Now().Add(2 * time.Hour)),
		}
		if err := f.GrantACL(ctx, f.Admin, forKey(link, change)); err != nil {
			t.Fatal(err)
		}
		_, err := f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("early")})
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
		f.Clock.Advance(time.Hour)
		enginetest.Must(f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("in time")}))(t)
		f.Clock.Advance(time.Hour)
		_, err = f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("late")})
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
	})
}

func TestGroups(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		team := f.Add(t, keyserver.GroupPrincipal, "team", []keyserver.ID{keyserver.RoleExchanger}, nil)
		member := f.Add(t, keyserver.PasswordPrincipal, "member", nil, []keyserver.ID{team.Principal.ID})
		_, err := f.HMAC(ctx, member, keyserver.HMACRequest{Link: link, Message: text("m")})
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied) // the group gave the role, but not the right

		f.Grant(t, link, team.Principal, keyserver.Read, keyserver.NoUsageLimit)
		enginetest.Must(f.HMAC(ctx, member, keyserver.HMACRequest{Link: link, Message: text("m")}))(t)

		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return tx.SetPrincipalFlags(ctx, team.Principal.ID, 0)
		}); err != nil {
			t.Fatal(err)
		}
		_, err = f.HMAC(ctx, member, keyserver.HMACRequest{Link: link, Message: text("m")})
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied) // a disabled group has no effect
	})
}

func TestACLBelongsToItsOwner(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		encryptor := []keyserver.ID{keyserver.RoleEncryptor}
		reader := f.Add(t, keyserver.PasswordPrincipal, "reader", encryptor, nil)
		other := f.Add(t, keyserver.PasswordPrincipal, "other", encryptor, nil)
		change := func(to keyserver.PrincipalRef, rights keyserver.Rights) keyserver.ACLChange {
			return keyserver.ACLChange{Principal: to, Rights: rights, MaxUsage: keyserver.NoUsageLimit}
		}
		f.Refused(t, f.GrantACL(ctx, reader, forKey(link, change(reader.Principal, keyserver.Owner))), fault.ACLDenied, fault.ReasonACLDenied)
		f.Grant(t, link, reader.Principal, keyserver.Write, keyserver.NoUsageLimit)
		f.Refused(t, f.GrantACL(ctx, reader, forKey(link, change(reader.Principal, keyserver.Owner))), fault.ACLDenied, fault.ReasonACLDenied)
		f.Refused(t, f.RevokeACL(ctx, reader, keyserver.ACLRevocation{Link: link, Principal: f.Admin.Principal}), fault.ACLDenied, fault.ReasonACLDenied)
		_, err := f.ACL(ctx, other, link)
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
		f.Refused(t, f.AmendACL(ctx, f.Admin, forKey(link, change(other.Principal, keyserver.Read))), fault.ACLNotFound, fault.ReasonObjectNotFound)
		f.Refused(t, f.RevokeACL(ctx, f.Admin, keyserver.ACLRevocation{Link: link, Principal: other.Principal}), fault.ACLNotFound, fault.ReasonObjectNotFound)
		nobody := keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(4)}
		f.Refused(t, f.GrantACL(ctx, f.Admin, forKey(link, change(nobody, keyserver.Read))), fault.NotFound, fault.ReasonObjectNotFound)
		foreign := keyserver.PrincipalRef{System: 9, ID: reader.Principal.ID}
		f.Refused(t, f.GrantACL(ctx, f.Admin, forKey(link, change(foreign, keyserver.Read))), fault.NotFound, fault.ReasonObjectNotFound)
		_, err = f.ACL(ctx, f.Admin, "\x01")
		f.Refused(t, err, fault.ACLNotFound, fault.ReasonObjectNotFound)

		_, err = f.OwnACL(ctx, other, link, reader.Principal)
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
		_, err = f.OwnACL(ctx, f.Admin, "\x09\x00\x00\x0012345678", f.Admin.Principal)
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
		_, err = f.OwnACL(ctx, other, "\x01", other.Principal)
		f.Refused(t, err, fault.ACLNotFound, fault.ReasonObjectNotFound)
		if own := enginetest.Must(f.OwnACL(ctx, other, link, other.Principal))(t); len(own.Entries) != 0 {
			t.Errorf("who has no entry is shown %+v", own.Entries)
		}
		if own := enginetest.Must(f.OwnACL(ctx, reader, link, reader.Principal))(t); len(own.Entries) != 1 || own.Entries[0].Principal != reader.Principal {
			t.Errorf("the own entry is shown as %+v", own.Entries)
		}

		acl := enginetest.Must(f.ACL(ctx, reader, link))(t)
		if e, _ := acl.Entry(reader.Principal); e.Rights != keyserver.Write|keyserver.Read {
			t.Errorf("WRITE is held as %v, want it widened by READ", e.Rights.Names())
		}
		if err := f.AmendACL(ctx, f.Admin, forKey(link, change(reader.Principal, keyserver.Read))); err != nil {
			t.Fatal(err)
		}
		acl = enginetest.Must(f.ACL(ctx, f.Admin, link))(t)
		if e, _ := acl.Entry(reader.Principal); e.Rights != keyserver.Read {
			t.Errorf("after the amendment the rights are %v", e.Rights.Names())
		}
		if err := f.RevokeACL(ctx, f.Admin, keyserver.ACLRevocation{Link: link, Principal: reader.Principal}); err != nil {
			t.Fatal(err)
		}
		_, err = f.HMAC(ctx, reader, keyserver.HMACRequest{Link: link, Message: text("m")})
		f.Refused(t, err, fault.ACLDenied, fault.ReasonACLDenied)
	})
}

func TestRoleChangesTakeEffectAtOnce(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		role := enginetest.Must(f.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: "mac", Operations: []keyserver.ID{keyserver.OpHMAC.ID}}))(t)
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{role}, nil)
		f.Grant(t, link, user.Principal, keyserver.Read, keyserver.NoUsageLimit)
		enginetest.Must(f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")}))(t)

		if err := f.UpdateRole(ctx, f.Admin, keyserver.RoleChange{ID: role, Operations: []keyserver.ID{}}); err != nil {
			t.Fatal(err)
		}
		_, err := f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")})
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)

		if err := f.UpdateRole(ctx, f.Admin, keyserver.RoleChange{ID: role, Operations: []keyserver.ID{keyserver.OpHMAC.ID}}); err != nil {
			t.Fatal(err)
		}
		enginetest.Must(f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")}))(t)
		if err := f.DeleteRole(ctx, f.Admin, role); err != nil {
			t.Fatal(err)
		}
		_, err = f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")})
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)
	})
}

func TestBuiltInRolesAreReadOnly(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		name := "Root"
		for _, b := range keyserver.BuiltInRoles(keyserver.Unified) {
			f.Refused(t, f.UpdateRole(ctx, f.Admin, keyserver.RoleChange{ID: b.ID, Name: &name}), fault.BuiltIn, fault.ReasonBuiltIn)
			f.Refused(t, f.DeleteRole(ctx, f.Admin, b.ID), fault.BuiltIn, fault.ReasonBuiltIn)
		}
		f.Refused(t, f.DeleteRole(ctx, f.Admin, values.IDFromUint64(1<<40)), fault.NotFound, fault.ReasonObjectNotFound)
		_, err := f.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: "Auditor"})
		f.Refused(t, err, fault.AlreadyExists, fault.ReasonInvalidArgument)
	})
}

func TestDeploymentDividesDuties(t *testing.T) {
	has := func(d keyserver.Deployment, role keyserver.ID, op keyserver.Operation) bool {
		for _, b := range keyserver.BuiltInRoles(d) {
			if b.ID != role {
				continue
			}
			for _, o := range b.Operations {
				if o.ID == op.ID {
					return true
				}
			}
		}
		return false
	}
	for _, op := range []keyserver.Operation{keyserver.OpAddTrustedCA, keyserver.OpRemoveTrustedCA, keyserver.OpReadAudit} {
		if !has(keyserver.Unified, keyserver.RoleAdministrator, op) {
			t.Errorf("undivided, Administrator lacks %s", op.Name)
		}
		if has(keyserver.Split, keyserver.RoleAdministrator, op) {
			t.Errorf("divided, Administrator holds %s", op.Name)
		}
		if op.Duty == keyserver.Trust && !has(keyserver.Split, keyserver.RoleSecurityOfficer, op) {
			t.Errorf("Security Officer lacks %s", op.Name)
		}
	}
}

// failingAuditor is an audit log that cannot be written to.
type failingAuditor struct{}

func (f failingAuditor) Begin(ctx context.Context, entry keyserver.AuditEntry) (func() error, error) {
	return func() error { return nil }, f.Write(ctx, entry)
}

func (f failingAuditor) WriteAll(ctx context.Context, _ []keyserver.AuditEntry) error {
	return f.Write(ctx, keyserver.AuditEntry{})
}

func (failingAuditor) Write(context.Context, keyserver.AuditEntry) error {
	return fault.Temporary(fault.AuditUnavailable, fault.ScopeProcess, time.Second, "no row could be written")
}

func TestNothingHappensWithoutAnAuditRow(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		sealing := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		sealed := enginetest.Must(f.Encrypt(ctx, f.Admin, keyserver.Encryption{KeyChoice: keyserver.KeyChoice{Key: sealing}}))(t)
		head := enginetest.Must(f.Store.ChangeHead(ctx))(t)
		cfg := f.Config
		cfg.Auditor = failingAuditor{}
		mute := engine.New(cfg)
		calls := map[string]func() error{
			"HMAC": func() error {
				_, err := mute.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: text("m")})
				return err
			},
			"Authorize": func() error { _, err := mute.AuthorizeKey(ctx, f.Admin, keyserver.Use{Link: link}); return err },
			"MAC": func() error {
				_, err := mute.MAC(ctx, f.Admin, keyserver.MACRequest{Lineage: link, Message: text("m")})
				return err
			},
			"VerifyMAC": func() error {
				_, err := mute.VerifyMAC(ctx, f.Admin, keyserver.MACCheck{KeyChoice: keyserver.KeyChoice{Key: link}, Message: text("m"), MAC: func() (m [keyserver.MACSize]byte) { return m }})
				return err
			},
			"MACBatch": func() error {
				_, err := mute.MACBatch(ctx, f.Admin, []keyserver.MACItem{{Lineage: link}})
				return err
			},
			"VerifyMACBatch": func() error {
				_, err := mute.VerifyMACBatch(ctx, f.Admin, []keyserver.MACCheck{{KeyChoice: keyserver.KeyChoice{Key: link}, Message: text("m"), MAC: func() (m [keyserver.MACSize]byte) { return m }}})
				return err
			},
			"Encrypt": func() error {
				_, err := mute.Encrypt(ctx, f.Admin, keyserver.Encryption{KeyChoice: keyserver.KeyChoice{Key: sealing}})
				return err
			},
			"Decrypt": func() error {
				_, err := mute.Decrypt(ctx, f.Admin, keyserver.Decryption{KeyChoice: keyserver.KeyChoice{Key: sealing}, Sealed: sealed.Sealed})
				return err
			},
			"Mint": func() error {
				_, err := mute.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256})
				return err
			},
			"CreateRole": func() error { _, err := mute.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: "new"}); return err },
			"AddCA":      func() error { _, err := mute.AddTrustedCA(ctx, f.Admin, f.Prepared.CA.Certificate.Raw); return err },
			"Roles":      func() error { _, err := mute.Roles(ctx, f.Admin); return err },
			"Refusal":    func() error { return mute.DeleteRole(ctx, keyserver.Caller{}, keyserver.RoleAuditor) },
		}
		for name, call := range calls {
			if err := call(); fault.CodeOf(err) != fault.AuditUnavailable {
				t.Errorf("%s: got %v, want %s", name, err, fault.AuditUnavailable)
			}
		}
		if after := enginetest.Must(f.Store.ChangeHead(ctx))(t); after != head {
			t.Errorf("state changed without an audit row: the change sequence went from %d to %d", head, after)
		}
	})
}

func TestChangesWakeTheirReaders(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		head := enginetest.Must(f.Store.ChangeHead(ctx))(t)
		type answer struct {
			page keyserver.ChangePage
			err  error
		}
		got := make(chan answer, 1)
		go func() {
			page, err := f.Changes(ctx, f.Admin, keyserver.ChangeFilter{After: head, Wait: time.Minute})
			got <- answer{page, err}
		}()
		role := enginetest.Must(f.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: "watched"}))(t)
		select {
		case a := <-got:
			if a.err != nil || len(a.page.Changes) != 1 || a.page.Changes[0].ID != role || a.page.Changes[0].Kind != keyserver.ChangeRole {
				t.Errorf("got %+v", a)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the reader was not woken")
		}
		if page := enginetest.Must(f.Changes(ctx, f.Admin, keyserver.ChangeFilter{After: head + 1}))(t); len(page.Changes) != 0 || page.Cursor != head+1 {
			t.Errorf("a read without waiting: got %+v", page)
		}
	})
}

func TestASecondStartFindsTheState(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		again := bootstrap.Config{
			Store: f.Store, Keyring: f.Keyring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
			AdminPassword: func() (string, error) { return "", errors.New("a second start must not ask for a password") },
			Clock:         f.Clock.Now, Random: f.Random,
		}
		other := again
		other.System = f.Prepared.System + 1
		if _, err := bootstrap.Run(ctx, other); err == nil || !strings.Contains(err.Error(), "--system-id") {
			t.Errorf("another system id: got %v", err)
		}
		p := enginetest.Must(bootstrap.Run(ctx, again))(t)
		if p.First || !p.CA.Certificate.Equal(f.Prepared.CA.Certificate) || !p.Server.Certificate.Equal(f.Prepared.Server.Certificate) {
			t.Error("the second start made something new")
		}
		again.Hosts = append(again.Hosts, "keys.example.com")
		p = enginetest.Must(bootstrap.Run(ctx, again))(t)
		if err := p.Server.Certificate.VerifyHostname("keys.example.com"); err != nil {
			t.Error(err)
		}
		if !p.Server.Key.Equal(f.Prepared.Server.Key) {
			t.Error("a renewed server certificate has a new key")
		}
		again.Deployment = keyserver.Split
		enginetest.Must(bootstrap.Run(ctx, again))(t)
		_, err := f.AddTrustedCA(ctx, f.Admin, f.Prepared.CA.Certificate.Raw)
		f.Refused(t, err, fault.AccessDenied, fault.ReasonRoleDenied)
		again.Deployment = keyserver.Unified
		if _, err := bootstrap.Run(ctx, again); err == nil || !strings.Contains(err.Error(), "--deployment is unified") {
			t.Errorf("duties that are apart come together by a flag that is forgotten: got %v", err)
		}
	})
}

// TestAScopedCredentialCoversItsKeys checks that a scoped credential can use only the keys that it names.
func TestAScopedCredentialCoversItsKeys(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := outside(t, f, "outside")
		trust(t, f, ca)
		recipient := enrol(t, f, nil, enginetest.NewAgent(t, ca, "agent", f.Clock.Now(), nil).Certificate).Ref()
		member := f.Add(t, keyserver.PasswordPrincipal, "member", nil, nil).Principal
		reader := f.Add(t, keyserver.PasswordPrincipal, "reader", nil, nil).Principal
		named, other := f.Mint(t, f.Admin, nil), f.Mint(t, f.Admin, nil)
		for _, link := range []keyserver.HiddenLink{named, other} {
			f.Grant(t, link, member, keyserver.Read, keyserver.NoUsageLimit)
			f.Grant(t, link, reader, keyserver.Read, keyserver.NoUsageLimit)
		}
		sealing := map[keyserver.HiddenLink]keyserver.HiddenLink{}
		for _, link := range []keyserver.HiddenLink{named, other} {
			sealing[link] = enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256}))(t).Link
		}
		scoped, empty := f.Admin, f.Admin
		scoped.ScopeOperations, scoped.MayGrant = idsOf(keyserver.OfferedOperations), keyserver.Read
		scoped.Scope, empty.Scope = []keyserver.HiddenLink{named, sealing[named]}, []keyserver.HiddenLink{}
		change := keyserver.ACLChange{Principal: reader, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}
		checked := map[string]bool{} // by the name in the audit log
		outOfScope := func(t *testing.T, err error) {
			t.Helper()
			f.Refused(t, err, fault.NotInScope, fault.ReasonNotInScope)
			checked[f.LastRow(t).Operation] = true
		}
		for name, call := range map[string]func(by keyserver.Caller, link keyserver.HiddenLink) error{
			"HMAC": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				_, err := f.HMAC(ctx, by, keyserver.HMACRequest{Link: l, Message: text("m")})
				return err
			},
			"Authorize": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				_, err := f.AuthorizeKey(ctx, by, keyserver.Use{Link: l})
				return err
			},
			"Export": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				_, err := f.ExportKey(ctx, by, keyserver.KeyExport{Link: l, Recipient: recipient})
				return err
			},
			"MAC": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				_, err := f.MAC(ctx, by, keyserver.MACRequest{Lineage: l, Message: text("m")})
				return err
			},
			"VerifyMAC": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				_, err := f.VerifyMAC(ctx, by, keyserver.MACCheck{KeyChoice: keyserver.KeyChoice{Key: l}, Message: text("m"), MAC: noMAC})
				return err
			},
			"VerifyMACOfLine": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				_, err := f.VerifyMAC(ctx, by, keyserver.MACCheck{KeyChoice: keyserver.KeyChoice{Lineage: l}, Message: text("m"), MAC: noMAC})
				return err
			},
			"Encrypt": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				_, err := f.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: keyserver.KeyChoice{Lineage: sealing[l]}})
				return err
			},
			"Decrypt": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				sealed := enginetest.Must(f.Encrypt(ctx, f.Admin, keyserver.Encryption{KeyChoice: keyserver.KeyChoice{Key: sealing[l]}}))(t)
				_, err := f.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: keyserver.KeyChoice{Key: sealing[l]}, Sealed: sealed.Sealed})
				return err
			},
			"Disable": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				return f.ChangeKeyState(ctx, by, keyserver.KeyStateChange{Link: l, Action: keyserver.DisableKey})
			},
			"Rotate":   func(by keyserver.Caller, l keyserver.HiddenLink) error { _, err := f.RotateKey(ctx, by, l); return err },
			"ReadACL":  func(by keyserver.Caller, l keyserver.HiddenLink) error { _, err := f.ACL(ctx, by, l); return err },
			"GrantACL": func(by keyserver.Caller, l keyserver.HiddenLink) error { return f.GrantACL(ctx, by, forKey(l, change)) },
			"AmendACL": func(by keyserver.Caller, l keyserver.HiddenLink) error { return f.AmendACL(ctx, by, forKey(l, change)) },
			"RevokeACL": func(by keyserver.Caller, l keyserver.HiddenLink) error {
				return f.RevokeACL(ctx, by, keyserver.ACLRevocation{Link: l, Principal: member})
			},
		} {
			t.Run(name, func(t *testing.T) {
				outOfScope(t, call(scoped, other))
				outOfScope(t, call(empty, named))
				if name == "Export" || name == "Disable" || name == "Rotate" { // not allowed for any key
					outOfScope(t, call(scoped, named))
					return
				}
				if err := call(scoped, named); err != nil {
					t.Errorf("a key in the scope: %v", err)
				}
			})
		}
		_, err := f.Key(ctx, scoped, other) // needs a certificate, and is not in scope
		outOfScope(t, err)
		for _, beyond := range []keyserver.ACLChange{
			{Principal: reader, Rights: keyserver.Owner}, {Principal: reader, Rights: keyserver.Write}, {Principal: f.Admin.Principal, Rights: keyserver.Read},
		} {
			beyond.MaxUsage = keyserver.NoUsageLimit
			outOfScope(t, f.GrantACL(ctx, scoped, forKey(named, beyond)))
			outOfScope(t, f.AmendACL(ctx, scoped, forKey(named, beyond)))
		}
		outOfScope(t, f.RevokeACL(ctx, scoped, keyserver.ACLRevocation{Link: named, Principal: f.Admin.Principal}))
		_, err = f.ListKeys(ctx, scoped, keyserver.KeyFilter{Limit: 1})
		outOfScope(t, err)
		_, err = f.Roles(ctx, scoped)
		outOfScope(t, err)
		_, err = f.MintKey(ctx, scoped, keyserver.NewKey{Algorithm: keyserver.AES256})
		outOfScope(t, err)
		for _, op := range keyserver.Operations {
			// Without Delegate Login: package session creates sessions from others.
			if op.Duty == keyserver.KeyUse && op != keyserver.OpDelegateLogin && !checked[op.Key] {
				t.Errorf("nothing shows that a scoped credential is held to its keys in %s", op.Key)
			}
		}
	})
}

func TestTheTrailOfARunIsIntact(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		link := f.Mint(t, f.Admin, nil)
		for range 50 {
			enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: text("m")}))(t)
		}
		report := enginetest.Must(audit.Verify(ctx, f.Store))(t)
		if !report.Intact() || report.Rows != 51 {
			t.Errorf("got %+v", report)
		}
	})
}

func TestNoSecretIsPrinted(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	secret := []byte("planted-key-material-7261")
	link := f.Mint(t, f.Admin, bytes.Clone(secret))
	enginetest.Must(f.HMAC(ctx, f.Admin, keyserver.HMACRequest{Link: link, Message: text("planted-message-9912")}))(t)
	for _, row := range f.AllRows(t) {
		for _, field := range []string{row.Object, row.Filename, row.Reason} {
			if strings.Contains(field, "planted") {
				t.Errorf("an audit row repeats a secret: %+v", row)
			}
		}
	}
	if strings.Contains(f.Log.String(), "planted") {
		t.Error("the log repeats a secret")
	}
}
