package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listTemplatedDirectories(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error) {
	list, err := ops.TemplatedDirectories(ctx, by, keyserver.TemplatedDirectoryFilter{Paths: in.Path, Templates: idsOf(in.ACLTemplateID)})
	if err != nil {
		return schema.TemplatedDirectoryList{}, err
	}
	return schema.TemplatedDirectoryList{
		Directories: Convert(list.Directories, templatedDirectoryOf), RequestedPaths: list.RequestedPaths, QueriedPaths: list.QueriedPaths,
	}, nil
}

func createTemplatedDirectory(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CreateTemplatedDirectoryRequest) (schema.TemplatedDirectorySaved, error) {
	r, err := ops.CreateTemplatedDirectory(ctx, by, keyserver.NewTemplatedDirectory{
		Path: in.Path, Alias: in.Alias, HostID: in.HostID, Template: keyserver.ID(in.ACLTemplateID), Flag: in.Flag,
	})
	return schema.TemplatedDirectorySaved{ID: schema.HexID(r.ID), Saved: r.Saved, Missing: r.Missing, Verdict: schema.Verdict{Detail: r.Detail}, Directory: optional(r.Directory, templatedDirectoryOf)}, err
}

func deleteTemplatedDirectory(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByID) (schema.TemplatedDirectoryGone, error) {
	r, err := ops.DeleteTemplatedDirectory(ctx, by, keyserver.ID(in.ID))
	return schema.TemplatedDirectoryGone{
		ID: schema.HexID(r.ID), Gone: r.Gone, Directory: templatedDirectoryOf(r.Directory), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func templatedDirectoryOf(d keyserver.TemplatedDirectory) schema.TemplatedDirectory {
	return schema.TemplatedDirectory{
		ID: schema.HexID(d.ID), Path: d.Path, Alias: d.Alias, HostID: d.HostID, ACLTemplateID: schema.HexID(d.Template), Flag: d.Flag,
	}
}
