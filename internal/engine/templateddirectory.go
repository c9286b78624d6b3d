package engine

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TemplatedDirectories implements keyserver.TemplatedDirectories.
func (e *Engine) TemplatedDirectories(ctx context.Context, by keyserver.Caller) (list []keyserver.TemplatedDirectory, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListTemplatedDirectories}, func() (err error) {
		list, err = e.Store.TemplatedDirectories(ctx)
		return err
	})
	return list, err
}

// TemplatedDirectoriesAt implements keyserver.TemplatedDirectories.
func (e *Engine) TemplatedDirectoriesAt(ctx context.Context, by keyserver.Caller, paths []string) (list []keyserver.TemplatedDirectory, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListTemplatedDirectories}, func() (err error) {
		list, err = e.Store.TemplatedDirectoriesAt(ctx, paths)
		return err
	})
	return list, err
}

// CreateTemplatedDirectory implements keyserver.TemplatedDirectories.
func (e *Engine) CreateTemplatedDirectory(ctx context.Context, by keyserver.Caller, n keyserver.NewTemplatedDirectory) (keyserver.ID, error) {
	id, err := values.NewID(e.Random)
	if err != nil {
		return keyserver.ID{}, err
	}
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpCreateTemplatedDirectory, Object: id.Hex()}, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			count, err := tx.TemplatedDirectoryCount(ctx)
			if err != nil {
				return err
			}
			if count >= keyserver.MaxTemplatedDirectories {
				return full("templated directories", keyserver.MaxTemplatedDirectories)
			}
			return insertDirectory(ctx, tx, keyserver.TemplatedDirectory{
				ID: id, Path: keyserver.DirectoryPath(n.Path), Alias: n.Alias, HostID: n.HostID, Template: n.Template, Flag: n.Flag,
			})
		})
	})
	if err != nil {
		return keyserver.ID{}, err
	}
	return id, nil
}

func insertDirectory(ctx context.Context, tx *sqlstore.Tx, d keyserver.TemplatedDirectory) error {
	err := tx.InsertTemplatedDirectory(ctx, d)
	if errors.Is(err, sqlstore.ErrDuplicate) {
		return fault.New(fault.AlreadyExists, "path: already has a templated directory; remove it first").Audited(fault.ReasonInvalidArgument)
	}
	return gate.NotFound(err, fault.InvalidArgument, "aclTemplateId: %s is not an ACL template; list them with GET /api/acl-templates", d.Template)
}

// DeleteTemplatedDirectory implements keyserver.TemplatedDirectories.
func (e *Engine) DeleteTemplatedDirectory(ctx context.Context, by keyserver.Caller, id keyserver.ID) error {
	return e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpDeleteTemplatedDirectory, Object: id.Hex()}, func() error {
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return gate.NotFound(tx.DeleteTemplatedDirectory(ctx, id), fault.NotFound, "no templated directory has the id %s", id)
		})
	})
}
