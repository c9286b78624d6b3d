package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/verified"
)

var (
	aMember    = keyserver.TemplateMember{Principal: someRef, Rights: keyserver.Owner.Widen(), MaxUsage: keyserver.NoUsageLimit}
	aTemplate  = keyserver.ACLTemplate{ID: someID, Name: "template", MemberCount: 1, Writable: true, Members: []keyserver.TemplateMember{aMember}}
	aDirectory = keyserver.TemplatedDirectory{ID: someID, Path: "/a/", Template: someID}
)

func (f *fakeOperations) ACLTemplates(ctx context.Context, _ keyserver.Caller) ([]keyserver.ACLTemplate, error) {
	return answer([]keyserver.ACLTemplate{aTemplate}, f.called(ctx, "ACLTemplates", nil))
}

func (f *fakeOperations) ACLTemplate(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (keyserver.ACLTemplate, error) {
	return answer(aTemplate, f.called(ctx, "ACLTemplate", id))
}

func (f *fakeOperations) template(ctx context.Context, name string, got any) (verified.ACLTemplateResult, error) {
	r := verified.ACLTemplateResult{ID: someID, Requested: "template", Saved: !f.bad, Template: &aTemplate, Detail: "evidence"}
	err := f.called(ctx, name, got)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) CreateACLTemplate(ctx context.Context, _ keyserver.Caller, name string) (verified.ACLTemplateResult, error) {
	return f.template(ctx, "CreateACLTemplate", name)
}

func (f *fakeOperations) RenameACLTemplate(ctx context.Context, _ keyserver.Caller, c keyserver.ACLTemplateChange) (verified.ACLTemplateResult, error) {
	return f.template(ctx, "RenameACLTemplate", c.Name)
}

func (f *fakeOperations) DeleteACLTemplate(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (verified.ACLTemplateGone, error) {
	r := verified.ACLTemplateGone{ID: id, Gone: !f.bad, Template: aTemplate, Detail: "evidence"}
	err := f.called(ctx, "DeleteACLTemplate", id)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) member(ctx context.Context, name string, got any) (verified.TemplateMemberResult, error) {
	r := verified.TemplateMemberResult{ID: someID, Principal: someRef, Done: !f.bad, Member: &aMember, Template: aTemplate, Detail: "evidence"}
	err := f.called(ctx, name, got)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) PutTemplateMember(ctx context.Context, _ keyserver.Caller, m keyserver.TemplateMembership) (verified.TemplateMemberResult, error) {
	return f.member(ctx, "PutTemplateMember", m.Member)
}

func (f *fakeOperations) RemoveTemplateMember(ctx context.Context, _ keyserver.Caller, m keyserver.TemplateMemberRef) (verified.TemplateMemberResult, error) {
	return f.member(ctx, "RemoveTemplateMember", m.Principal)
}

func (f *fakeOperations) TemplatedDirectories(ctx context.Context, _ keyserver.Caller, d keyserver.TemplatedDirectoryFilter) (verified.DirectoryList, error) {
	return answer(verified.DirectoryList{
		Directories: []keyserver.TemplatedDirectory{aDirectory}, RequestedPaths: d.Paths, QueriedPaths: d.Paths,
	}, f.called(ctx, "TemplatedDirectories", d.Paths))
}

func (f *fakeOperations) CreateTemplatedDirectory(ctx context.Context, _ keyserver.Caller, n keyserver.NewTemplatedDirectory) (verified.DirectoryResult, error) {
	r := verified.DirectoryResult{ID: someID, Saved: !f.bad, Directory: &aDirectory, Detail: "evidence"}
	err := f.called(ctx, "CreateTemplatedDirectory", n)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) DeleteTemplatedDirectory(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (verified.DirectoryGone, error) {
	r := verified.DirectoryGone{ID: id, Gone: !f.bad, Directory: aDirectory, Detail: "evidence"}
	err := f.called(ctx, "DeleteTemplatedDirectory", id)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) Configuration(ctx context.Context, _ keyserver.Caller, xpath string) (verified.ConfigResult, error) {
	return answer(verified.ConfigResult{
		ConfigProjection: keyserver.ConfigProjection{
			Nodes: []keyserver.ProjectedNode{{Tag: "Database", XPath: "Database", Attrs: map[string]string{"kind": "sqlite"}}}, Suppressed: 1,
		},
		Allowed: keyserver.ConfigAllowList, Detail: "evidence",
	}, f.called(ctx, "Configuration", xpath))
}
