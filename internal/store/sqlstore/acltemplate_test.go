package sqlstore_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestTemplateConformance checks that SQLite and PostgreSQL behave the same with ACL
// templates and templated directories.
func TestTemplateConformance(t *testing.T) {
	onEach(t, migratedKinds, map[string]func(*testing.T, newDatabase){
		"Refusals":      testTemplateRefusals,
		"Templates":     testTemplates,
		"MembersDigest": testMembersDigest,
		"Directories":   testDirectories,
	})
}

func member(system keyserver.SystemID, who uint64, rights keyserver.Rights) keyserver.TemplateMember {
	return keyserver.TemplateMember{
		Principal: keyserver.PrincipalRef{System: system, ID: id(who)}, Rights: rights, MaxUsage: keyserver.NoUsageLimit,
	}
}

func template(n uint64, name string, members ...keyserver.TemplateMember) keyserver.ACLTemplate {
	if members == nil {
		members = []keyserver.TemplateMember{}
	}
	return keyserver.ACLTemplate{ID: id(n), Name: name, MemberCount: len(members), Members: members}
}

func insertTemplate(t keyserver.ACLTemplate) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertACLTemplate(ctx, t) }
}

func insertDirectory(n uint64, path string, template uint64) write {
	return func(ctx context.Context, tx *sqlstore.Tx) error {
		return tx.InsertTemplatedDirectory(ctx, keyserver.TemplatedDirectory{ID: id(n), Path: path, Template: id(template)})
	}
}

func testTemplateRefusals(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	update(t, s, insertTemplate(template(1, "a")), insertTemplate(template(2, "b")), insertDirectory(10, "/a/", 1))
	cases := map[string]struct {
		reason string
		write  write
		want   error
	}{
		"ID":   {"an id names one template", insertTemplate(template(1, "c")), sqlstore.ErrDuplicate},
		"Name": {"a name is taken", insertTemplate(template(3, "a")), sqlstore.ErrDuplicate},
		"Rename": {"also for a template that was there before", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.RenameACLTemplate(ctx, keyserver.ACLTemplateChange{ID: id(2), Name: "a"})
		}, sqlstore.ErrDuplicate},
		"RenameNone": {"a name belongs to a template", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.RenameACLTemplate(ctx, keyserver.ACLTemplateChange{ID: id(9), Name: "z"})
		}, sqlstore.ErrNotFound},
		"DeleteNone": {"only a template can be deleted", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteACLTemplate(ctx, id(9)) }, sqlstore.ErrNotFound},
		"DeleteUsed": {"a directory's template stays", func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteACLTemplate(ctx, id(1)) }, sqlstore.ErrNotFound},
		"MemberOfNone": {"a member is one of a template", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.PutACLTemplateMember(ctx, keyserver.TemplateMembership{Template: id(9), Member: member(1, 5, 1)})
		}, sqlstore.ErrNotFound},
		"NoMember": {"only a member can leave", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.DeleteACLTemplateMember(ctx, keyserver.TemplateMemberRef{Template: id(1), Principal: ref(5)})
		}, sqlstore.ErrNotFound},
		"DirectoryID":       {"an id names one directory", insertDirectory(10, "/b/", 1), sqlstore.ErrDuplicate},
		"DirectoryPath":     {"one template for a path", insertDirectory(11, "/a/", 2), sqlstore.ErrDuplicate},
		"DirectoryTemplate": {"and it exists", insertDirectory(11, "/b/", 9), sqlstore.ErrNotFound},
		"DeleteNoDirectory": {"only a directory can be deleted", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.DeleteTemplatedDirectory(ctx, id(11))
		}, sqlstore.ErrNotFound},
	}
	head, err := s.ChangeHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tryUpdate(t, s, tc.write); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
	if now, err := s.ChangeHead(t.Context()); err != nil || now != head {
		t.Errorf("refused writes are in the change feed: %d after %d, %v", now, head, err)
	}
}

func testTemplates(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	ctx := t.Context()
	limited := keyserver.TemplateMember{
		Principal: keyserver.PrincipalRef{System: 4294967295, ID: id(1)}, Rights: keyserver.AllRights, MaxUsage: 1 << 53,
		Start: keyserver.Stamp{1}, End: keyserver.Stamp{255, 254, 0, 0, 0, 0, 0, 1},
	}
	want := template(7, "ü", member(1, 8, keyserver.Read), member(2, 1, keyserver.Write), limited)
	update(t, s, insertTemplate(want), insertTemplate(template(3, "empty")))
	if got, err := s.ACLTemplate(ctx, id(7)); err != nil || !cmp.Equal(got, want, butDigest) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got, butDigest))
	}
	if _, err := s.ACLTemplate(ctx, id(8)); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("a template that is not there answers %v", err)
	}
	list := []keyserver.ACLTemplate{{ID: id(3), Name: "empty"}, {ID: id(7), Name: "ü", MemberCount: 3}}
	if got, err := s.ACLTemplates(ctx, keyserver.ACLTemplateQuery{}); err != nil || !cmp.Equal(got, list) {
		t.Errorf("%v: %s", err, cmp.Diff(list, got))
	}
	if n, err := s.ACLTemplateCount(ctx); err != nil || n != 2 {
		t.Errorf("counted %d, %v", n, err)
	}

	replaced := member(2, 1, keyserver.Owner)
	replaced.MaxUsage = 4
	head, err := s.ChangeHead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
		return errors.Join(tx.PutACLTemplateMember(ctx, keyserver.TemplateMembership{Template: id(7), Member: replaced}), tx.PutACLTemplateMember(ctx, keyserver.TemplateMembership{Template: id(3), Member: replaced}),
			tx.DeleteACLTemplateMember(ctx, keyserver.TemplateMemberRef{Template: id(7), Principal: limited.Principal}), tx.RenameACLTemplate(ctx, keyserver.ACLTemplateChange{ID: id(7), Name: "renamed"}))
	})
	want = template(7, "renamed", member(1, 8, keyserver.Read), replaced)
	if got, err := s.ACLTemplate(ctx, id(7)); err != nil || !cmp.Equal(got, want, butDigest) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got, butDigest))
	}
	both := map[keyserver.ID]keyserver.TemplateMember{id(7): replaced, id(3): replaced}
	if got, err := s.ACLTemplateMemberships(ctx, replaced.Principal); err != nil || !cmp.Equal(got, both) {
		t.Errorf("%v: %s", err, cmp.Diff(both, got))
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteACLTemplate(ctx, id(7)) })
	if got, err := s.ACLTemplateMemberships(ctx, member(1, 8, 0).Principal); err != nil || len(got) != 0 {
		t.Errorf("memberships outlived the template: %v, %v", got, err)
	}
	page, err := s.Changes(ctx, head, 10)
	changes := []keyserver.Change{
		{Seq: head + 1, Kind: keyserver.ChangeACLTemplate, ID: id(7), Action: keyserver.Updated},
		{Seq: head + 2, Kind: keyserver.ChangeACLTemplate, ID: id(3), Action: keyserver.Updated},
		{Seq: head + 3, Kind: keyserver.ChangeACLTemplate, ID: id(7), Action: keyserver.Deleted},
	}
	if err != nil || !cmp.Equal(page.Changes, changes) {
		t.Errorf("%v: %s", err, cmp.Diff(changes, page.Changes))
	}
}

var butDigest = cmpopts.IgnoreFields(keyserver.ACLTemplate{}, "MembersDigest")

// testMembersDigest checks that the digest changes with each change of the members,
// depends only on the members, and is the same in a list as for one template.
func testMembersDigest(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	ctx := t.Context()
	digest := func(template uint64) string {
		t.Helper()
		one, err := s.ACLTemplate(ctx, id(template))
		if err != nil || len(one.MembersDigest) == 0 {
			t.Fatalf("%x, %v", one.MembersDigest, err)
		}
		list, err := s.ACLTemplates(ctx, keyserver.ACLTemplateQuery{Digests: true})
		i := slices.IndexFunc(list, func(l keyserver.ACLTemplate) bool { return l.ID == id(template) })
		if err != nil || i < 0 || !bytes.Equal(list[i].MembersDigest, one.MembersDigest) {
			t.Errorf("template %d alone has %x, and the list %+v, %v", template, one.MembersDigest, list, err)
		}
		return string(one.MembersDigest)
	}
	put := func(m keyserver.TemplateMember) func(context.Context, *sqlstore.Tx) error {
		return func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.PutACLTemplateMember(ctx, keyserver.TemplateMembership{Template: id(7), Member: m})
		}
	}
	update(t, s, insertTemplate(template(7, "a")), insertTemplate(template(8, "b")))
	if digest(7) == digest(8) {
		t.Error("templates without members have one digest, by which they are known to have none")
	}
	limited := member(1, 9, keyserver.Read)
	limited.MaxUsage = 3
	seen := map[string]string{digest(7): "nobody"}
	for _, change := range []struct {
		what  string
		write func(context.Context, *sqlstore.Tx) error
	}{
		{"a member", put(member(1, 8, keyserver.Read))},
		{"more rights", put(member(1, 8, keyserver.Write))},
		{"another member", put(member(1, 9, keyserver.Read))},
		{"a limit", put(limited)},
		{"of another system", put(member(2, 8, keyserver.Write))},
		{"one less", func(ctx context.Context, tx *sqlstore.Tx) error {
			return tx.DeleteACLTemplateMember(ctx, keyserver.TemplateMemberRef{Template: id(7), Principal: limited.Principal})
		}},
	} {
		update(t, s, change.write)
		now := digest(7)
		if before, again := seen[now]; again {
			t.Errorf("%s: the digest is that of %s", change.what, before)
		}
		seen[now] = change.what
	}
	before := digest(7)
	update(t, s, put(limited), func(ctx context.Context, tx *sqlstore.Tx) error {
		return tx.RenameACLTemplate(ctx, keyserver.ACLTemplateChange{ID: id(7), Name: "renamed"})
	})
	if digest(7) == before || seen[digest(7)] != "of another system" {
		t.Error("the same members, under another name, have another digest")
	}
}

func testDirectories(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	ctx := t.Context()
	deep := keyserver.TemplatedDirectory{ID: id(12), Path: "/a/b/", Alias: "ü", HostID: "host", Template: id(1), Flag: 1 << 40}
	upper := keyserver.TemplatedDirectory{ID: id(11), Path: "/B/", Template: id(2)}
	top := keyserver.TemplatedDirectory{ID: id(13), Path: "/a/", Template: id(1)}
	update(t, s, insertTemplate(template(1, "one")), insertTemplate(template(2, "two")))
	head, err := s.ChangeHead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []keyserver.TemplatedDirectory{deep, upper, top} {
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.InsertTemplatedDirectory(ctx, d) })
	}
	// The order is by bytes, regardless of the collation.
	all := []keyserver.TemplatedDirectory{upper, top, deep}
	if got, err := s.TemplatedDirectories(ctx); err != nil || !cmp.Equal(got, all) {
		t.Errorf("%v: %s", err, cmp.Diff(all, got))
	}
	at := []keyserver.TemplatedDirectory{deep, upper}
	if got, err := s.TemplatedDirectoriesAt(ctx, []string{"/a/b/", "/b/", "/B/"}); err != nil || !cmp.Equal(got, at) {
		t.Errorf("%v: %s", err, cmp.Diff(at, got))
	}
	if got, err := s.TemplatedDirectoriesAt(ctx, []string{"/a"}); err != nil || got == nil || len(got) != 0 {
		t.Errorf("the comparison is not exact: %v, %v", got, err)
	}
	for path, want := range map[string]keyserver.TemplatedDirectory{"/a/b/c": deep, "/a/bc": top, "/a": top} {
		if got, err := s.FirstTemplatedDirectory(ctx, keyserver.Ancestors(path)); err != nil || got != want {
			t.Errorf("%s is under %v, %v", path, got, err)
		}
	}
	if _, err := s.FirstTemplatedDirectory(ctx, keyserver.Ancestors("/c")); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("a path under nothing answers %v", err)
	}
	if n, err := s.ACLTemplateUses(ctx, id(1)); err != nil || n != 2 {
		t.Errorf("the template is used by %d directories, %v", n, err)
	}
	update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.DeleteTemplatedDirectory(ctx, deep.ID) })
	if _, err := s.TemplatedDirectory(ctx, deep.ID); !errors.Is(err, sqlstore.ErrNotFound) {
		t.Errorf("a deleted directory answers %v", err)
	}
	if n, err := s.TemplatedDirectoryCount(ctx); err != nil || n != 2 {
		t.Errorf("counted %d, %v", n, err)
	}
	page, err := s.Changes(ctx, head, 10)
	if err != nil || len(page.Changes) != 4 || page.Changes[3].Kind != keyserver.ChangeTemplatedDirectory || page.Changes[3].Action != keyserver.Deleted {
		t.Errorf("the feed says %v, %v", page.Changes, err)
	}
}
