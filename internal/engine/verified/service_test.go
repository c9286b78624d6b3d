package verified_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

var ctx = context.Background()

// deceit has the wrong results that all liars can return. A test selects one. deceit counts the writes.
type deceit struct {
	swallow   bool          // report success, but do nothing
	dropAfter error         // execute the write, but return this error
	readFails error         // fail the read after a write
	late      time.Duration // delay of the response to a write
	writes    int
}

func (d *deceit) send(write func() error) error {
	d.writes++
	time.Sleep(d.late)
	if d.swallow {
		return nil
	}
	if err := write(); err != nil {
		return err
	}
	return d.dropAfter
}

func (d *deceit) reading() error {
	if d.writes > 0 {
		return d.readFails
	}
	return nil
}

// liar is a real key server with wrong results for CAs, roles, keys and ACLs.
type liar struct {
	keyserver.Port
	deceit
	widen      bool // return more rights than widening adds
	shrink     bool // return fewer rights than requested
	limitless  bool // omit the usage limit
	hideBodies bool // omit the DER of certificates
	mute       bool // return no ids
}

func (l *liar) TrustedCAs(ctx context.Context, by keyserver.Caller) ([]keyserver.Certificate, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	list, err := l.Port.TrustedCAs(ctx, by)
	for i := range list {
		if l.hideBodies {
			list[i].DER = nil
		}
	}
	return list, err
}

func (l *liar) AddTrustedCA(ctx context.Context, by keyserver.Caller, der []byte) (ids []keyserver.ID, err error) {
	err = l.send(func() error { ids, err = l.Port.AddTrustedCA(ctx, by, der); return err })
	if l.mute {
		ids = nil
	}
	return ids, err
}

func (l *liar) RemoveTrustedCA(ctx context.Context, by keyserver.Caller, id keyserver.ID) (ids []keyserver.ID, err error) {
	err = l.send(func() error { ids, err = l.Port.RemoveTrustedCA(ctx, by, id); return err })
	return ids, err
}

func (l *liar) Roles(ctx context.Context, by keyserver.Caller) ([]keyserver.Role, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	return l.Port.Roles(ctx, by)
}

func (l *liar) FindRoles(ctx context.Context, by keyserver.Caller, f keyserver.RoleFilter) ([]keyserver.Role, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	return l.Port.FindRoles(ctx, by, f)
}

func (l *liar) CreateRole(ctx context.Context, by keyserver.Caller, n keyserver.NewRole) (id keyserver.ID, err error) {
	err = l.send(func() error {
		id, err = l.Port.CreateRole(ctx, by, n)
		return err
	})
	return id, err
}

func (l *liar) UpdateRole(ctx context.Context, by keyserver.Caller, c keyserver.RoleChange) error {
	return l.send(func() error { return l.Port.UpdateRole(ctx, by, c) })
}

func (l *liar) DeleteRole(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return l.send(func() error { return l.Port.DeleteRole(ctx, by, id) })
}

func (l *liar) Principal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.Principal, error) {
	if err := l.reading(); err != nil {
		return keyserver.Principal{}, err
	}
	return l.Port.Principal(ctx, by, id)
}

func (l *liar) DeletePrincipal(ctx context.Context, by keyserver.Caller, d keyserver.PrincipalDeletion) (done keyserver.PrincipalDeletionResult, err error) {
	err = l.send(func() error { done, err = l.Port.DeletePrincipal(ctx, by, d); return err })
	return done, err
}

func (l *liar) CreatePasswordPrincipal(ctx context.Context, by keyserver.Caller, p keyserver.NewPasswordPrincipal) (keyserver.ID, error) {
	id := values.IDFromUint64(12345)
	err := l.send(func() (err error) { id, err = l.Port.CreatePasswordPrincipal(ctx, by, p); return err })
	return id, err
}

func (l *liar) ACL(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.ACL, error) {
	if err := l.reading(); err != nil {
		return keyserver.ACL{}, err
	}
	return l.Port.ACL(ctx, by, link)
}

func (l *liar) distort(c keyserver.ACLChange) keyserver.ACLChange {
	if l.widen {
		c.Rights |= keyserver.Owner
	}
	if l.shrink {
		c.Rights = keyserver.HostMatrix
	}
	if l.limitless {
		c.MaxUsage = keyserver.NoUsageLimit
	}
	return c
}

func (l *liar) KeyState(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	if err := l.reading(); err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return l.Port.KeyState(ctx, by, link)
}

func (l *liar) ChangeKeyState(ctx context.Context, by keyserver.Caller, c keyserver.KeyStateChange) error {
	return l.send(func() error { return l.Port.ChangeKeyState(ctx, by, c) })
}

func (l *liar) KeyLineage(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.KeyLineage, error) {
	if err := l.reading(); err != nil {
		return keyserver.KeyLineage{}, err
	}
	return l.Port.KeyLineage(ctx, by, link)
}

func (l *liar) RotateKey(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (successor keyserver.HiddenLink, err error) {
	err = l.send(func() error { successor, err = l.Port.RotateKey(ctx, by, link); return err })
	return successor, err
}

func (l *liar) SetKeyRotation(ctx context.Context, by keyserver.Caller, c keyserver.KeyRotationChange) error {
	return l.send(func() error { return l.Port.SetKeyRotation(ctx, by, c) })
}

func (l *liar) GrantACL(ctx context.Context, by keyserver.Caller, c keyserver.ACLChange) error {
	return l.send(func() error { return l.Port.GrantACL(ctx, by, l.distort(c)) })
}

func (l *liar) AmendACL(ctx context.Context, by keyserver.Caller, c keyserver.ACLChange) error {
	return l.send(func() error { return l.Port.AmendACL(ctx, by, l.distort(c)) })
}

func (l *liar) RevokeACL(ctx context.Context, by keyserver.Caller, r keyserver.ACLRevocation) error {
	return l.send(func() error { return l.Port.RevokeACL(ctx, by, r) })
}

// world is a key server with one object of each kind and with a liar, and the service that calls the liar.
type world struct {
	*verified.Service
	liar  *liar
	admin keyserver.Caller
	other keyserver.Caller // has an entry with READ and 3 uses on link
	link  keyserver.HiddenLink
	role  keyserver.ID
	ca    keyserver.Certificate
	free  []byte // a CA that is not trusted yet
}

func newWorld(t *testing.T, f *enginetest.Fixture) *world {
	t.Helper()
	honest := verified.New(f.Engine)
	w := &world{liar: &liar{Port: f.Engine}, admin: f.Admin, free: newCA(t)}
	w.Service = verified.New(w.liar)
	w.other = f.Add(t, keyserver.PasswordPrincipal, "other", nil, nil)
	key, err := honest.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: keyserver.HMACSHA384})
	fatal(t, err)
	w.link = key.Link
	_, err = honest.GrantACL(ctx, w.admin, keyserver.ACLChange{Link: w.link, Principal: w.other.Principal, Rights: keyserver.Read, MaxUsage: 3})
	fatal(t, err)
	role, err := honest.CreateRole(ctx, w.admin, keyserver.NewRole{Name: "role", Operations: []keyserver.ID{keyserver.OpHMAC.ID}})
	fatal(t, err)
	w.role = role.Requested.ID
	added, err := honest.AddTrustedCA(ctx, w.admin, newCA(t))
	fatal(t, err)
	w.ca = *added.TrustedCA
	return w
}

func newCA(t *testing.T) []byte {
	t.Helper()
	ca, err := pki.NewCA("test CA", time.Now(), rand.Reader)
	fatal(t, err)
	return ca.Certificate.Raw
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

// write is one write. do returns whether the result reports success.
type write struct {
	do  func(w *world) (claims bool, err error)
	bad fault.Code // the code if the write reads back wrong
	// unread is the code if the read after the write fails; empty means the code of that read.
	unread fault.Code
}

var writes = map[string]write{
	"AddTrustedCA": {bad: fault.NotSaved, do: func(w *world) (bool, error) {
		r, err := w.AddTrustedCA(ctx, w.admin, w.free)
		return r.Saved, err
	}},
	"RemoveTrustedCA": {bad: fault.NotRemoved, do: func(w *world) (bool, error) {
		r, err := w.RemoveTrustedCA(ctx, w.admin, w.ca.ID)
		return r.Gone, err
	}},
	"CreateRole": {bad: fault.NotSaved, do: func(w *world) (bool, error) {
		r, err := w.CreateRole(ctx, w.admin, keyserver.NewRole{Name: "created", Operations: []keyserver.ID{keyserver.OpHMAC.ID}})
		return r.Saved, err
	}},
	"RenameRole": {bad: fault.NotSaved, do: func(w *world) (bool, error) {
		r, err := w.UpdateRole(ctx, w.admin, keyserver.RoleChange{ID: w.role, Name: ptr("renamed")})
		return r.Saved, err
	}},
	"ReplaceOperations": {bad: fault.NotSaved, do: func(w *world) (bool, error) {
		r, err := w.UpdateRole(ctx, w.admin, keyserver.RoleChange{ID: w.role, Operations: []keyserver.ID{}})
		return r.Saved, err
	}},
	"DeleteRole": {bad: fault.NotRemoved, do: func(w *world) (bool, error) {
		r, err := w.DeleteRole(ctx, w.admin, w.role)
		return r.Gone, err
	}},
	"CreatePasswordPrincipal": {bad: fault.NotSaved, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.CreatePasswordPrincipal(ctx, w.admin, keyserver.NewPasswordPrincipal{Name: "new", Password: "long enough"})
		return r.Saved, err
	}},
	"DeletePrincipal": {bad: fault.NotRemoved, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.DeletePrincipal(ctx, w.admin, keyserver.PrincipalDeletion{ID: w.other.Principal.ID})
		return r.Gone, err
	}},
	"ChangeKeyState": {bad: fault.NotSaved, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.ChangeKeyState(ctx, w.admin, keyserver.KeyStateChange{Link: w.link, Action: keyserver.DestroyKey, Days: 7})
		return r.Saved, err
	}},
	"RotateKey": {bad: fault.NotSaved, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.RotateKey(ctx, w.admin, w.link)
		return r.Saved, err
	}},
	"SetKeyRotation": {bad: fault.NotSaved, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.SetKeyRotation(ctx, w.admin, keyserver.KeyRotationChange{Link: w.link, Rotation: keyserver.KeyRotation{Every: 90}})
		return r.Saved, err
	}},
	"GrantACL": {bad: fault.NotVerified, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.GrantACL(ctx, w.admin, keyserver.ACLChange{Link: w.link, Principal: w.other.Principal, Rights: keyserver.Write, MaxUsage: 9})
		return r.Verified, err
	}},
	"AmendACL": {bad: fault.NotVerified, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.AmendACL(ctx, w.admin, keyserver.ACLChange{Link: w.link, Principal: w.other.Principal, Rights: keyserver.Write, MaxUsage: 9})
		return r.Verified, err
	}},
	"RevokeACL": {bad: fault.NotVerified, unread: fault.ReadbackFailed, do: func(w *world) (bool, error) {
		r, err := w.RevokeACL(ctx, w.admin, keyserver.ACLRevocation{Link: w.link, Principal: w.other.Principal})
		return r.Verified, err
	}},
}

func TestASwallowedWriteIsNeverASuccess(t *testing.T) {
	for name, tc := range writes {
		t.Run(name, func(t *testing.T) {
			enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
				w := newWorld(t, f)
				w.liar.swallow = true
				claims, err := tc.do(w)
				if claims || fault.CodeOf(err) != tc.bad {
					t.Errorf("got success %v and %v, want %s", claims, err, tc.bad)
				}
				if w.liar.writes != 1 {
					t.Errorf("%d writes were sent, want 1", w.liar.writes)
				}
			})
		})
	}
}

// TestARefusedReadBackIsNoSuccess checks that a write does not succeed if the caller may not read the ACL after it. If
// the changed entry is the caller's own, that entry decides.
func TestARefusedReadBackIsNoSuccess(t *testing.T) {
	denied := fault.New(fault.ACLDenied, "no")
	for name, tc := range map[string]struct {
		of   func(w *world) keyserver.PrincipalRef
		want fault.Code
	}{
		"Own":      {func(w *world) keyserver.PrincipalRef { return w.admin.Principal }, fault.NotVerified},
		"AnOthers": {func(w *world) keyserver.PrincipalRef { return w.other.Principal }, fault.ReadbackFailed},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
				w := newWorld(t, f)
				w.liar.swallow, w.liar.readFails = true, denied
				r, err := w.RevokeACL(ctx, w.admin, keyserver.ACLRevocation{Link: w.link, Principal: tc.of(w)})
				if r.Verified || fault.CodeOf(err) != tc.want {
					t.Errorf("got %+v, %v, want %s", r, err, tc.want)
				}
			})
		})
	}
}

func TestALostConnectionAfterTheWriteIsNoSuccess(t *testing.T) {
	for name, tc := range writes {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
			w.liar.dropAfter = errors.New("connection reset")
			if claims, err := tc.do(w); claims || err == nil {
				t.Errorf("got success %v and %v", claims, err)
			}
			if w.liar.writes != 1 {
				t.Errorf("%d writes were sent: nothing that may have had an effect is repeated", w.liar.writes)
			}
		})
	}
}

func TestAFailedReadBackIsNoSuccess(t *testing.T) {
	gone := fault.New(fault.StoreUnavailable, "gone")
	for name, tc := range writes {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
			w.liar.readFails = gone
			want := tc.unread
			if want == "" {
				want = gone.Code
			}
			if claims, err := tc.do(w); claims || fault.CodeOf(err) != want {
				t.Errorf("got success %v and %v, want %s", claims, err, want)
			}
		})
	}
}

func TestALateAnswerIsVerifiedAllTheSame(t *testing.T) {
	for name, tc := range writes {
		t.Run(name, func(t *testing.T) {
			enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
				w := newWorld(t, f)
				w.liar.late = time.Millisecond
				if claims, err := tc.do(w); !claims || err != nil {
					t.Errorf("got success %v and %v", claims, err)
				}
			})
		})
	}
}

func TestRightsThatReadBackOtherwise(t *testing.T) {
	cases := map[string]struct {
		reason string
		lie    func(*liar)
		bad    []string // operations that must return NOT_VERIFIED
	}{
		"Fewer": {"rights that were asked for are missing", func(l *liar) { l.shrink = true }, []string{"AmendACL"}},
		"More":  {"an amendment that reduces must not leave more", func(l *liar) { l.widen = true }, []string{"AmendACL"}},
		"NoLimit": {
			"a limit that is not held is no limit", func(l *liar) { l.limitless = true }, []string{"AmendACL", "GrantACL"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, op := range tc.bad {
				w := newWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
				tc.lie(w.liar)
				if claims, err := writes[op].do(w); claims || fault.CodeOf(err) != fault.NotVerified {
					t.Errorf("%s, %s: got success %v and %v", op, tc.reason, claims, err)
				}
			}
		})
	}
}

func TestEvidenceOfATrustedCA(t *testing.T) {
	cases := map[string]struct {
		reason string
		lie    func(*liar)
		want   string
	}{
		"Body": {"the stored body equals the one sent", func(*liar) {}, verified.MatchedByBody},
		"Echo": {"without bodies, the echoed id is listed", func(l *liar) { l.hideBodies = true }, verified.MatchedByEcho},
		"Sole": {"without bodies and echo, one row appeared", func(l *liar) { l.hideBodies, l.mute = true, true }, verified.MatchedBySoleNew},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
			tc.lie(w.liar)
			r, err := w.AddTrustedCA(ctx, w.admin, w.free)
			fatal(t, err)
			if r.MatchedBy != tc.want || r.ListCountBefore != 1 || r.ListCountAfter != 2 || r.AppearedCount != 1 {
				t.Errorf("%s: got %+v, want %s", tc.reason, r, tc.want)
			}
		})
	}
}

func TestRefusedBeforeSending(t *testing.T) {
	long := make([]byte, 200)
	cases := map[string]struct {
		reason string
		do     func(w *world) error
		code   fault.Code
	}{
		"EmptyLinkHMAC": {"an empty link would mean a new key", func(w *world) error {
			_, err := w.HMAC(ctx, w.admin, keyserver.HMACRequest{})
			return err
		}, fault.BadRequest},
		"EmptyLinkGet": {"an empty link is no wildcard", func(w *world) error {
			_, err := w.Key(ctx, w.admin, "")
			return err
		}, fault.BadRequest},
		"EmptyLinkAuthorize": {"likewise", func(w *world) error {
			_, err := w.AuthorizeKey(ctx, w.admin, keyserver.Use{})
			return err
		}, fault.BadRequest},
		"LongLink": {"a handle is no payload", func(w *world) error {
			_, err := w.ACL(ctx, w.admin, keyserver.HiddenLink(long))
			return err
		}, fault.BadRequest},
		"ZeroPrincipal": {"zero names nobody", func(w *world) error {
			_, err := w.GrantACL(ctx, w.admin, keyserver.ACLChange{Link: w.link, Rights: keyserver.Read, MaxUsage: -1})
			return err
		}, fault.BadRequest},
		"NoRights": {"granting nothing is a mistake", func(w *world) error {
			_, err := w.GrantACL(ctx, w.admin, keyserver.ACLChange{Link: w.link, Principal: w.other.Principal, MaxUsage: -1})
			return err
		}, fault.BadRequest},
		"UnknownRight": {"a bit without a name", func(w *world) error {
			_, err := w.AmendACL(ctx, w.admin, keyserver.ACLChange{Link: w.link, Principal: w.other.Principal, Rights: 0x20, MaxUsage: -1})
			return err
		}, fault.BadRequest},
		"MaxUsageBelow": {"below -1 has no meaning", func(w *world) error {
			_, err := w.AmendACL(ctx, w.admin, keyserver.ACLChange{Link: w.link, Principal: w.other.Principal, Rights: 1, MaxUsage: -2})
			return err
		}, fault.BadRequest},
		"WindowBackwards": {"an entry that could never be in force", func(w *world) error {
			_, err := w.AmendACL(ctx, w.admin, keyserver.ACLChange{Link: w.link,
				Principal: w.other.Principal, Rights: 1, MaxUsage: -1,
				Start: values.StampOf(time.Unix(2, 0)), End: values.StampOf(time.Unix(1, 0)),
			})
			return err
		}, fault.BadRequest},
		"AmendWithoutEntry": {"an amendment amends", func(w *world) error {
			_, err := w.AmendACL(ctx, w.admin, keyserver.ACLChange{Link: w.link,
				Principal: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(5)}, Rights: 1, MaxUsage: -1,
			})
			return err
		}, fault.ACLNotFound},
		"NoSuchACL": {"no key, no list", func(w *world) error {
			_, err := w.AmendACL(ctx, w.admin, keyserver.ACLChange{Link: "\x00\x00\x00\x0112345678", Principal: w.other.Principal, Rights: 1, MaxUsage: -1})
			return err
		}, fault.ACLNotFound},
		"EmptyRoleName": {"a role without a name", func(w *world) error {
			_, err := w.CreateRole(ctx, w.admin, keyserver.NewRole{Name: " \t"})
			return err
		}, fault.BadRequest},
		"UnprintableName": {"a name that a listing cannot show", func(w *world) error {
			_, err := w.CreateRole(ctx, w.admin, keyserver.NewRole{Name: "a\u202eb"})
			return err
		}, fault.BadRequest},
		"LongName": {"a name without bound", func(w *world) error {
			_, err := w.CreateRole(ctx, w.admin, keyserver.NewRole{Name: string(slices.Repeat([]byte("a"), 129))})
			return err
		}, fault.BadRequest},
		"UnknownOperation": {"an id that grants nothing today", func(w *world) error {
			_, err := w.CreateRole(ctx, w.admin, keyserver.NewRole{Name: "x", Operations: []keyserver.ID{values.IDFromUint64(0xffff)}})
			return err
		}, fault.BadRequest},
		"TakenName": {"one name, one role", func(w *world) error {
			_, err := w.CreateRole(ctx, w.admin, keyserver.NewRole{Name: "role"})
			return err
		}, fault.AlreadyExists},
		"RenameToTaken": {"likewise", func(w *world) error {
			_, err := w.UpdateRole(ctx, w.admin, keyserver.RoleChange{ID: w.role, Name: ptr("Auditor")})
			return err
		}, fault.AlreadyExists},
		"NothingToChange": {"neither field", func(w *world) error {
			_, err := w.UpdateRole(ctx, w.admin, keyserver.RoleChange{ID: w.role})
			return err
		}, fault.BadRequest},
		"BuiltIn": {"system-defined", func(w *world) error {
			_, err := w.UpdateRole(ctx, w.admin, keyserver.RoleChange{ID: keyserver.RoleAuditor, Name: ptr("x")})
			return err
		}, fault.BuiltIn},
		"DeleteBuiltIn": {"system-defined", func(w *world) error {
			_, err := w.DeleteRole(ctx, w.admin, keyserver.RoleAuditor)
			return err
		}, fault.BuiltIn},
		"UnknownRole": {"no such role", func(w *world) error {
			_, err := w.DeleteRole(ctx, w.admin, values.IDFromUint64(1<<50))
			return err
		}, fault.NotFound},
		"NoCertificate": {"nothing to trust", func(w *world) error {
			_, err := w.AddTrustedCA(ctx, w.admin, nil)
			return err
		}, fault.BadRequest},
		"TwoCertificates": {"one certificate, not a bundle", func(w *world) error {
			_, err := w.AddTrustedCA(ctx, w.admin, slices.Concat(w.free, w.ca.DER))
			return err
		}, fault.BadRequest},
		"Leaf": {"a leaf is no CA", func(w *world) error {
			_, err := w.AddTrustedCA(ctx, w.admin, leafOf(w))
			return err
		}, fault.BadRequest},
		"AlreadyTrusted": {"established by reading", func(w *world) error {
			_, err := w.AddTrustedCA(ctx, w.admin, w.ca.DER)
			return err
		}, fault.AlreadyTrusted},
		"NotTrusted": {"established by reading", func(w *world) error {
			_, err := w.RemoveTrustedCA(ctx, w.admin, values.IDFromUint64(3))
			return err
		}, fault.NotTrusted},
		"ZeroCertificate": {"zero names none", func(w *world) error {
			_, err := w.RemoveTrustedCA(ctx, w.admin, keyserver.ID{})
			return err
		}, fault.BadRequest},
		"UnknownAlgorithm": {"an algorithm nobody has", func(w *world) error {
			_, err := w.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: "DES"})
			return err
		}, fault.BadRequest},
		"EmptyMaterial": {"an import without bytes would mint", func(w *world) error {
			_, err := w.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: keyserver.HMACSHA384, Material: []byte{}})
			return err
		}, fault.BadRequest},
		"ShortAES": {"AES-256 takes 32 bytes", func(w *world) error {
			_, err := w.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: keyserver.AES256, Material: make([]byte, 31)})
			return err
		}, fault.BadRequest},
		"ShortPassword": {"a password of 7 bytes", func(w *world) error {
			_, err := w.CreatePasswordPrincipal(ctx, w.admin, keyserver.NewPasswordPrincipal{Name: "n", Password: "1234567"})
			return err
		}, fault.BadRequest},
		"LongFilename": {"a file name without bound", func(w *world) error {
			_, err := w.AuthorizeKey(ctx, w.admin, keyserver.Use{Link: w.link, Filename: string(slices.Repeat([]byte("f"), 1025))})
			return err
		}, fault.BadRequest},
	}
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	w := newWorld(t, f)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.do(w); fault.CodeOf(err) != tc.code {
				t.Errorf("%s: got %v, want %s", tc.reason, err, tc.code)
			}
			if w.liar.writes != 0 {
				t.Errorf("%s: something was sent", tc.reason)
			}
		})
	}
}

func leafOf(w *world) []byte {
	ca, err := pki.NewCA("issuer", time.Now(), rand.Reader)
	if err != nil {
		panic(err)
	}
	leaf, err := ca.IssueServer("leaf", []string{"localhost"}, nil, time.Now(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return leaf.Certificate.Raw
}
