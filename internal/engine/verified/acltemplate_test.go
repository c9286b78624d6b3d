package verified_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// templateLiar is a real key server with wrong results for templates and directories.
type templateLiar struct {
	keyserver.Port
	deceit
	// distort changes a request before it reaches the key server.
	distort func(*keyserver.TemplateMember, *keyserver.NewTemplatedDirectory, *string)
	denies  bool // after a write, Writable is false
}

func (l *templateLiar) twist(m *keyserver.TemplateMember, d *keyserver.NewTemplatedDirectory, name *string) {
	if l.distort != nil {
		l.distort(m, d, name)
	}
}

func (l *templateLiar) ACLTemplates(ctx context.Context, by keyserver.Caller, q keyserver.ACLTemplateQuery) ([]keyserver.ACLTemplate, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	list, err := l.Port.ACLTemplates(ctx, by, q)
	for i := range list {
		list[i].Writable = list[i].Writable && (!l.denies || l.writes == 0)
	}
	return list, err
}

func (l *templateLiar) ACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) (keyserver.ACLTemplate, error) {
	if err := l.reading(); err != nil {
		return keyserver.ACLTemplate{}, err
	}
	return l.Port.ACLTemplate(ctx, by, id)
}

func (l *templateLiar) CreateACLTemplate(ctx context.Context, by keyserver.Caller, name string) (id keyserver.ID, err error) {
	l.twist(nil, nil, &name)
	id = values.IDFromUint64(12345)
	err = l.send(func() error { id, err = l.Port.CreateACLTemplate(ctx, by, name); return err })
	return id, err
}

func (l *templateLiar) RenameACLTemplate(ctx context.Context, by keyserver.Caller, change keyserver.ACLTemplateChange) error {
	l.twist(nil, nil, &change.Name)
	return l.send(func() error { return l.Port.RenameACLTemplate(ctx, by, change) })
}

func (l *templateLiar) DeleteACLTemplate(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return l.send(func() error { return l.Port.DeleteACLTemplate(ctx, by, id) })
}

func (l *templateLiar) PutACLTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMembership) error {
	l.twist(&m.Member, nil, nil)
	return l.send(func() error { return l.Port.PutACLTemplateMember(ctx, by, m) })
}

func (l *templateLiar) RemoveACLTemplateMember(ctx context.Context, by keyserver.Caller, m keyserver.TemplateMemberRef) error {
	return l.send(func() error { return l.Port.RemoveACLTemplateMember(ctx, by, m) })
}

func (l *templateLiar) TemplatedDirectories(ctx context.Context, by keyserver.Caller) ([]keyserver.TemplatedDirectory, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	return l.Port.TemplatedDirectories(ctx, by)
}

func (l *templateLiar) TemplatedDirectoriesAt(ctx context.Context, by keyserver.Caller, paths []string) ([]keyserver.TemplatedDirectory, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	return l.Port.TemplatedDirectoriesAt(ctx, by, paths)
}

func (l *templateLiar) CreateTemplatedDirectory(ctx context.Context, by keyserver.Caller, n keyserver.NewTemplatedDirectory) (id keyserver.ID, err error) {
	l.twist(nil, &n, nil)
	id = values.IDFromUint64(12345)
	err = l.send(func() error { id, err = l.Port.CreateTemplatedDirectory(ctx, by, n); return err })
	return id, err
}

func (l *templateLiar) DeleteTemplatedDirectory(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return l.send(func() error { return l.Port.DeleteTemplatedDirectory(ctx, by, id) })
}

func (l *templateLiar) MintKey(context.Context, keyserver.Caller, keyserver.NewKey) (keyserver.KeyMetadata, error) {
	l.writes++
	return keyserver.KeyMetadata{}, nil
}

// Configuration returns a configuration with a credential in every section.
func (l *templateLiar) Configuration(context.Context, keyserver.Caller, string) (keyserver.ConfigNode, error) {
	l.writes++
	secrets := map[string]string{"password": "hunter2", "url": "hunter2"}
	return keyserver.ConfigNode{Tag: keyserver.ConfigRoot, Attrs: secrets, Text: "hunter2", Children: []keyserver.ConfigNode{
		{Tag: "Database", Attrs: secrets, Text: "hunter2", Children: []keyserver.ConfigNode{{Tag: "Credentials", Attrs: secrets, Text: "hunter2"}}},
	}}, nil
}

// templates is a key server with a templateLiar. It has a template with two members that no directory uses, and a
// directory with another template.
type templates struct {
	*verified.Service
	liar      *templateLiar
	admin     keyserver.Caller
	member    keyserver.Caller // of template, with READ
	stranger  keyserver.Caller // has the role Security Officer
	template  keyserver.ID
	used      keyserver.ID
	directory keyserver.ID // at /used/
}

func newTemplates(t *testing.T, f *enginetest.Fixture) *templates {
	t.Helper()
	honest := verified.New(f.Engine)
	w := &templates{liar: &templateLiar{Port: f.Engine}, admin: f.Admin}
	w.Service = verified.New(w.liar)
	w.member = f.Add(t, keyserver.PasswordPrincipal, "member", nil, nil)
	w.stranger = f.Add(t, keyserver.PasswordPrincipal, "stranger", []keyserver.ID{keyserver.RoleSecurityOfficer}, nil)
	for name, id := range map[string]*keyserver.ID{"template": &w.template, "used": &w.used} {
		r, err := honest.CreateACLTemplate(ctx, w.admin, name)
		fatal(t, err)
		*id = r.ID
	}
	_, err := honest.PutTemplateMember(ctx, w.admin, keyserver.TemplateMembership{Template: w.template, Member: aMember(w.member, keyserver.Read)})
	fatal(t, err)
	d, err := honest.CreateTemplatedDirectory(ctx, w.admin, keyserver.NewTemplatedDirectory{Path: "/used", Template: w.used})
	fatal(t, err)
	w.directory = d.ID
	return w
}

func aMember(who keyserver.Caller, rights keyserver.Rights) keyserver.TemplateMember {
	return keyserver.TemplateMember{Principal: who.Principal, Rights: rights, MaxUsage: keyserver.NoUsageLimit}
}

var templateWrites = map[string]struct {
	do  func(w *templates) (claims bool, err error)
	bad fault.Code
}{
	"CreateTemplate": {func(w *templates) (bool, error) {
		r, err := w.CreateACLTemplate(ctx, w.admin, "new")
		return r.Saved, err
	}, fault.NotSaved},
	"RenameTemplate": {func(w *templates) (bool, error) {
		r, err := w.RenameACLTemplate(ctx, w.admin, keyserver.ACLTemplateChange{ID: w.template, Name: "new"})
		return r.Saved, err
	}, fault.NotSaved},
	"DeleteTemplate": {func(w *templates) (bool, error) {
		r, err := w.DeleteACLTemplate(ctx, w.admin, w.template)
		return r.Gone, err
	}, fault.NotRemoved},
	"AddMember": {func(w *templates) (bool, error) {
		r, err := w.PutTemplateMember(ctx, w.admin, keyserver.TemplateMembership{Template: w.template, Member: aMember(w.stranger, keyserver.Write)})
		return r.Done, err
	}, fault.NotSaved},
	"ChangeMember": {func(w *templates) (bool, error) {
		m := aMember(w.member, keyserver.Write)
		m.MaxUsage, m.End = 4, keyserver.Stamp{1}
		r, err := w.PutTemplateMember(ctx, w.admin, keyserver.TemplateMembership{Template: w.template, Member: m})
		return r.Done, err
	}, fault.NotSaved},
	"RemoveMember": {func(w *templates) (bool, error) {
		r, err := w.RemoveTemplateMember(ctx, w.admin, keyserver.TemplateMemberRef{Template: w.template, Principal: w.member.Principal})
		return r.Done, err
	}, fault.NotRemoved},
	"CreateDirectory": {func(w *templates) (bool, error) {
		r, err := w.CreateTemplatedDirectory(ctx, w.admin, keyserver.NewTemplatedDirectory{Path: "/new", Alias: "a", HostID: "h", Template: w.template, Flag: 3})
		return r.Saved, err
	}, fault.NotSaved},
	"DeleteDirectory": {func(w *templates) (bool, error) {
		r, err := w.DeleteTemplatedDirectory(ctx, w.admin, w.directory)
		return r.Gone, err
	}, fault.NotRemoved},
}

func TestAKeyServerThatLiesAboutTemplates(t *testing.T) {
	gone := fault.New(fault.StoreUnavailable, "gone")
	reset := errors.New("connection reset")
	lies := map[string]struct {
		reason string
		lie    func(l *templateLiar)
		want   func(bad fault.Code) fault.Code // expected code; empty means success
	}{
		"Truth":     {"a key server that does not lie", func(*templateLiar) {}, func(fault.Code) fault.Code { return "" }},
		"Swallowed": {"a swallowed write is no success", func(l *templateLiar) { l.swallow = true }, func(bad fault.Code) fault.Code { return bad }},
		"Dropped":   {"nor is one whose answer was lost", func(l *templateLiar) { l.dropAfter = reset }, func(fault.Code) fault.Code { return fault.OpFailed }},
		"Unread":    {"nor one that does not read back", func(l *templateLiar) { l.readFails = gone }, func(fault.Code) fault.Code { return gone.Code }},
	}
	for lie, tl := range lies {
		for name, tc := range templateWrites {
			t.Run(lie+"/"+name, func(t *testing.T) {
				w := newTemplates(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
				tl.lie(w.liar)
				claims, err := tc.do(w)
				if want := tl.want(tc.bad); claims != (want == "") || fault.CodeOf(err) != want {
					t.Errorf("%s: got success %v and %v, want %q", tl.reason, claims, err, want)
				}
				if w.liar.writes != 1 {
					t.Errorf("%d writes were sent", w.liar.writes)
				}
			})
		}
	}
}

func TestWhatATemplateReadsBackAs(t *testing.T) {
	cases := map[string]struct {
		reason string
		write  string
		lie    func(l *templateLiar)
		bad    bool
	}{
		"OtherName":   {"another name", "RenameTemplate", distortName, true},
		"OtherNew":    {"another name of a new one", "CreateTemplate", distortName, true},
		"NotMember":   {"a creator who is shut out", "CreateTemplate", func(l *templateLiar) { l.denies = true }, true},
		"LessRights":  {"fewer rights than asked for", "ChangeMember", distortMember(func(m *keyserver.TemplateMember) { m.Rights = keyserver.Read }), true},
		"MoreRights":  {"more than widening explains", "AddMember", distortMember(func(m *keyserver.TemplateMember) { m.Rights |= keyserver.Owner }), true},
		"Widened":     {"what widening explains", "AddMember", distortMember(func(m *keyserver.TemplateMember) { m.Rights |= keyserver.Read }), false},
		"NoLimit":     {"a limit that is forgotten", "ChangeMember", distortMember(func(m *keyserver.TemplateMember) { m.MaxUsage = -1 }), true},
		"NoEnd":       {"an end that is forgotten", "ChangeMember", distortMember(func(m *keyserver.TemplateMember) { m.End = keyserver.Stamp{} }), true},
		"OtherPath":   {"another path", "CreateDirectory", distortDirectory(func(d *keyserver.NewTemplatedDirectory) { d.Path = "/other/" }), true},
		"OtherAlias":  {"another alias", "CreateDirectory", distortDirectory(func(d *keyserver.NewTemplatedDirectory) { d.Alias = "" }), true},
		"OtherFlag":   {"another flag", "CreateDirectory", distortDirectory(func(d *keyserver.NewTemplatedDirectory) { d.Flag = 0 }), true},
		"OtherHostID": {"another host", "CreateDirectory", distortDirectory(func(d *keyserver.NewTemplatedDirectory) { d.HostID = "" }), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newTemplates(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
			tc.lie(w.liar)
			if claims, err := templateWrites[tc.write].do(w); claims == tc.bad || tc.bad && fault.CodeOf(err) != fault.NotSaved {
				t.Errorf("%s: got success %v and %v", tc.reason, claims, err)
			}
		})
	}
}

func distortName(l *templateLiar) {
	l.distort = func(_ *keyserver.TemplateMember, _ *keyserver.NewTemplatedDirectory, name *string) { *name += "x" }
}

func distortMember(how func(*keyserver.TemplateMember)) func(l *templateLiar) {
	return func(l *templateLiar) {
		l.distort = func(m *keyserver.TemplateMember, _ *keyserver.NewTemplatedDirectory, _ *string) { how(m) }
	}
}

func distortDirectory(how func(*keyserver.NewTemplatedDirectory)) func(l *templateLiar) {
	return func(l *templateLiar) {
		l.distort = func(_ *keyserver.TemplateMember, d *keyserver.NewTemplatedDirectory, _ *string) { how(d) }
	}
}

func TestTemplatesRefusedBeforeSending(t *testing.T) {
	ended := func(m keyserver.TemplateMember) keyserver.TemplateMember {
		m.End = values.StampOf(time.Unix(1<<33, 0))
		return m
	}
	member := func(id keyserver.ID, m keyserver.TemplateMember) func(w *templates) error {
		return func(w *templates) error {
			if id.IsZero() {
				id = w.template
			}
			_, err := w.PutTemplateMember(ctx, w.admin, keyserver.TemplateMembership{Template: id, Member: m})
			return err
		}
	}
	directory := func(n keyserver.NewTemplatedDirectory) func(w *templates) error {
		return func(w *templates) error {
			if n.Template.IsZero() {
				n.Template = w.template
			}
			_, err := w.CreateTemplatedDirectory(ctx, w.admin, n)
			return err
		}
	}
	some := keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(5)}
	cases := map[string]struct {
		reason string
		do     func(w *templates) error
		code   fault.Code
	}{
		"EmptyName": {"trimmed, it is empty", func(w *templates) error { _, err := w.CreateACLTemplate(ctx, w.admin, " \t"); return err }, fault.BadRequest},
		"TakenName": {"one name, one template", func(w *templates) error { _, err := w.CreateACLTemplate(ctx, w.admin, "used"); return err }, fault.AlreadyExists},
		"RenameToTaken": {"likewise", func(w *templates) error {
			_, err := w.RenameACLTemplate(ctx, w.admin, keyserver.ACLTemplateChange{ID: w.template, Name: "used"})
			return err
		}, fault.AlreadyExists},
		"RenameNone": {"no such template", func(w *templates) error {
			_, err := w.RenameACLTemplate(ctx, w.admin, keyserver.ACLTemplateChange{ID: values.IDFromUint64(5), Name: "x"})
			return err
		}, fault.NotFound},
		"RenameByStranger": {"a role is not a membership", func(w *templates) error {
			_, err := w.RenameACLTemplate(ctx, w.stranger, keyserver.ACLTemplateChange{ID: w.template, Name: "x"})
			return err
		}, fault.NotWritable},
		"DeleteNone": {"no such template", func(w *templates) error {
			_, err := w.DeleteACLTemplate(ctx, w.admin, values.IDFromUint64(5))
			return err
		}, fault.NotFound},
		"ZeroTemplate": {"zero names none", func(w *templates) error { _, err := w.ACLTemplate(ctx, w.admin, keyserver.ID{}); return err }, fault.BadRequest},
		"MemberByStranger": {"a role is not a membership", func(w *templates) error {
			_, err := w.PutTemplateMember(ctx, w.stranger, keyserver.TemplateMembership{Template: w.template, Member: aMember(w.stranger, keyserver.Owner)})
			return err
		}, fault.NotWritable},
		"MemberOfNone":  {"no such template", member(values.IDFromUint64(5), keyserver.TemplateMember{Principal: some, Rights: 1, MaxUsage: -1}), fault.NotFound},
		"ZeroPrincipal": {"zero names nobody", member(keyserver.ID{}, keyserver.TemplateMember{Rights: 1, MaxUsage: -1}), fault.BadRequest},
		"NoRights":      {"a member without rights", member(keyserver.ID{}, keyserver.TemplateMember{Principal: some, MaxUsage: -1}), fault.BadRequest},
		"UnknownRight":  {"a bit without a name", member(keyserver.ID{}, keyserver.TemplateMember{Principal: some, Rights: 0x20, MaxUsage: -1}), fault.BadRequest},
		"MaxUsageBelow": {"below -1 has no meaning", member(keyserver.ID{}, keyserver.TemplateMember{Principal: some, Rights: 1, MaxUsage: -2}), fault.BadRequest},
		"LastWriterReduced": {"nobody else writes", func(w *templates) error {
			_, err := w.PutTemplateMember(ctx, w.admin, keyserver.TemplateMembership{Template: w.template, Member: aMember(w.admin, keyserver.Read)})
			return err
		}, fault.LastWriter},
		"LastWriterEnding": {"nobody else writes then", func(w *templates) error {
			_, err := w.PutTemplateMember(ctx, w.admin, keyserver.TemplateMembership{Template: w.template, Member: ended(aMember(w.admin, keyserver.Owner))})
			return err
		}, fault.LastWriter},
		"LastWriterRemoved": {"nobody else writes", func(w *templates) error {
			_, err := w.RemoveTemplateMember(ctx, w.admin, keyserver.TemplateMemberRef{Template: w.template, Principal: w.admin.Principal})
			return err
		}, fault.LastWriter},
		"RemoveNobody": {"only a member can leave", func(w *templates) error {
			_, err := w.RemoveTemplateMember(ctx, w.admin, keyserver.TemplateMemberRef{Template: w.template, Principal: w.stranger.Principal})
			return err
		}, fault.NotFound},
		"RemoveZero": {"zero names nobody", func(w *templates) error {
			_, err := w.RemoveTemplateMember(ctx, w.admin, keyserver.TemplateMemberRef{Template: w.template, Principal: keyserver.PrincipalRef{System: 1}})
			return err
		}, fault.BadRequest},
		"PathTaken":      {"one template for a path", directory(keyserver.NewTemplatedDirectory{Path: "/used/"}), fault.AlreadyExists},
		"PathEmpty":      {"no place", directory(keyserver.NewTemplatedDirectory{}), fault.BadRequest},
		"PathClimbs":     {"text must not climb", directory(keyserver.NewTemplatedDirectory{Path: "/a/.."}), fault.BadRequest},
		"PathNoUTF8":     {"a path is text", directory(keyserver.NewTemplatedDirectory{Path: "/\xff"}), fault.BadRequest},
		"LongAlias":      {"text without bound", directory(keyserver.NewTemplatedDirectory{Path: "/a", Alias: strings.Repeat("a", 129)}), fault.BadRequest},
		"LongHostID":     {"text without bound", directory(keyserver.NewTemplatedDirectory{Path: "/a", HostID: strings.Repeat("a", 129)}), fault.BadRequest},
		"NegativeFlag":   {"a flag word is not negative", directory(keyserver.NewTemplatedDirectory{Path: "/a", Flag: -1}), fault.BadRequest},
		"DeleteNoneSuch": {"no such directory", func(w *templates) error { _, err := w.DeleteTemplatedDirectory(ctx, w.admin, w.template); return err }, fault.NotFound},
		"PathAndTemplate": {"they exclude each other", func(w *templates) error {
			_, err := w.TemplatedDirectories(ctx, w.admin, keyserver.TemplatedDirectoryFilter{Paths: []string{"/a"}, Templates: []keyserver.ID{w.template}})
			return err
		}, fault.BadRequest},
		"MintClimbs": {"a key must not land elsewhere", func(w *templates) error {
			_, err := w.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: keyserver.AES256, Path: "/used/../a"})
			return err
		}, fault.BadRequest},
		"EmptyConfigPath": {"neither root nor wildcard", func(w *templates) error { _, err := w.Configuration(ctx, w.admin, ""); return err }, fault.BadRequest},
		"ConfigSlash":     {"no file system", func(w *templates) error { _, err := w.Configuration(ctx, w.admin, "/ROOT"); return err }, fault.BadRequest},
	}
	w := newTemplates(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
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

// TestTheKeyServerRefusesByItself checks that the engine makes its own checks, without those of package verified, and
// audits each refusal.
func TestTheKeyServerRefusesByItself(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		w := newTemplates(t, f)
		cases := map[string]struct {
			reason string
			do     func() error
			code   fault.Code
			audit  fault.Reason
		}{
			"Rename": {"no member", func() error {
				return f.RenameACLTemplate(ctx, w.stranger, keyserver.ACLTemplateChange{ID: w.template, Name: "x"})
			}, fault.NotWritable, fault.ReasonACLDenied},
			"RenameNone": {"no template", func() error {
				return f.RenameACLTemplate(ctx, w.admin, keyserver.ACLTemplateChange{ID: w.directory, Name: "x"})
			}, fault.NotFound, fault.ReasonObjectNotFound},
			"Taken": {"one name, one template", func() error {
				return f.RenameACLTemplate(ctx, w.admin, keyserver.ACLTemplateChange{ID: w.template, Name: "used"})
			}, fault.AlreadyExists, fault.ReasonInvalidArgument},
			"Member": {"no member", func() error {
				return f.PutACLTemplateMember(ctx, w.stranger, keyserver.TemplateMembership{Template: w.template, Member: aMember(w.stranger, keyserver.Owner)})
			}, fault.NotWritable, fault.ReasonACLDenied},
			"LastWriter": {"nobody would write", func() error {
				return f.RemoveACLTemplateMember(ctx, w.admin, keyserver.TemplateMemberRef{Template: w.template, Principal: w.admin.Principal})
			}, fault.LastWriter, fault.ReasonInvalidArgument},
			"Reduced": {"nobody would write", func() error {
				return f.PutACLTemplateMember(ctx, w.admin, keyserver.TemplateMembership{Template: w.template, Member: aMember(w.admin, keyserver.Read)})
			}, fault.LastWriter, fault.ReasonInvalidArgument},
			"InUse":    {"a directory needs it", func() error { return f.DeleteACLTemplate(ctx, w.admin, w.used) }, fault.InUse, fault.ReasonInUse},
			"NoAccess": {"no role", func() error { return f.DeleteACLTemplate(ctx, w.member, w.template) }, fault.AccessDenied, fault.ReasonRoleDenied},
			"Path": {"one template for a path", func() error {
				_, err := f.CreateTemplatedDirectory(ctx, w.admin, keyserver.NewTemplatedDirectory{Path: "/used", Template: w.used})
				return err
			}, fault.AlreadyExists, fault.ReasonInvalidArgument},
			"Climbs": {"no plain path", func() error {
				_, err := f.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: keyserver.AES256, Path: "/used/.."})
				return err
			}, fault.InvalidArgument, fault.ReasonInvalidArgument},
			"Nowhere": {"no directory above", func() error {
				_, err := f.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: keyserver.AES256, Path: "/elsewhere"})
				return err
			}, fault.InvalidArgument, fault.ReasonObjectNotFound},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				if err := tc.do(); fault.CodeOf(err) != tc.code {
					t.Errorf("%s: got %v, want %s", tc.reason, err, tc.code)
				}
				if row := f.LastRow(t); row.Reason != string(tc.audit) || row.Outcome == keyserver.Allowed {
					t.Errorf("%s: the audit trail says %s, %q", tc.reason, row.Outcome, row.Reason)
				}
			})
		}
	})
}

// TestTemplatesAreBounded checks the maximum length of lists without pages.
func TestTemplatesAreBounded(t *testing.T) {
	w := newTemplates(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
	port := w.liar.Port
	full := func(what string, have, limit int, one func(n int) error) {
		t.Helper()
		for n := have; n < limit; n++ {
			if err := one(n); err != nil {
				t.Fatalf("%s number %d: %v", what, n+1, err)
			}
		}
		if err := one(limit); fault.CodeOf(err) != fault.InvalidArgument {
			t.Errorf("one more than %d %s: %v", limit, what, err)
		}
	}
	full("templates", 2, keyserver.MaxACLTemplates, func(n int) error {
		_, err := port.CreateACLTemplate(ctx, w.admin, fmt.Sprint("t", n))
		return err
	})
	full("directories", 1, keyserver.MaxTemplatedDirectories, func(n int) error {
		_, err := port.CreateTemplatedDirectory(ctx, w.admin, keyserver.NewTemplatedDirectory{Path: fmt.Sprint("/d", n), Template: w.template})
		return err
	})
}

// TestNoCredentialPasses checks that the service never returns a credential in the configuration, even if the key
// server sends one.
func TestNoCredentialPasses(t *testing.T) {
	w := newTemplates(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
	for _, xpath := range []string{"ROOT", "Database", "Database.Credentials"} {
		r, err := w.Configuration(ctx, w.admin, xpath)
		fatal(t, err)
		if out := fmt.Sprintf("%+v", r); strings.Contains(out, "hunter2") {
			t.Errorf("%s: %s", xpath, out)
		}
		if r.Suppressed != 1 {
			t.Errorf("%s: %d suppressed", xpath, r.Suppressed)
		}
	}
	for _, xpath := range []string{"Database[@url=hunter2]", "Credentials"} {
		if _, err := w.Configuration(ctx, w.admin, xpath); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s: %v", xpath, err)
		}
	}
}
