package sqlstore

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const directoryQuery = `SELECT id, path, alias, host_id, template_id, flag, mac FROM templated_directories`

// TemplatedDirectories reads every templated directory, in the order of paths.
// There are at most keyserver.MaxTemplatedDirectories.
func (r reads) TemplatedDirectories(ctx context.Context) ([]keyserver.TemplatedDirectory, error) {
	return r.directories(ctx, directoryQuery+` ORDER BY path`)
}

// TemplatedDirectoriesAt reads the templated directories with one of the paths, in
// the order of the parameter paths.
func (r reads) TemplatedDirectoriesAt(ctx context.Context, paths []string) ([]keyserver.TemplatedDirectory, error) {
	list := []keyserver.TemplatedDirectory{}
	for _, path := range paths {
		found, err := r.directories(ctx, directoryQuery+` WHERE path = $1`, []byte(path))
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// FirstTemplatedDirectory reads the templated directory with the first of the paths
// that has one.
func (r reads) FirstTemplatedDirectory(ctx context.Context, paths []string) (keyserver.TemplatedDirectory, error) {
	for _, path := range paths {
		d, err := r.directory(ctx, directoryQuery+` WHERE path = $1`, []byte(path))
		if !errors.Is(err, sqldb.ErrNotFound) {
			return d, err
		}
	}
	return keyserver.TemplatedDirectory{}, sqldb.ErrNotFound
}

// TemplatedDirectory reads one templated directory.
func (r reads) TemplatedDirectory(ctx context.Context, id keyserver.ID) (keyserver.TemplatedDirectory, error) {
	return r.directory(ctx, directoryQuery+` WHERE id = $1`, id[:])
}

// TemplatedDirectoryCount counts the templated directories.
func (r reads) TemplatedDirectoryCount(ctx context.Context) (int, error) {
	var n int
	err := r.sql.Row(ctx, `SELECT count(*) FROM templated_directories`, nil, &n)
	return n, err
}

// ACLTemplateUses counts the directories that use a template.
func (r reads) ACLTemplateUses(ctx context.Context, template keyserver.ID) (int, error) {
	var n int
	err := r.sql.Row(ctx, `SELECT count(*) FROM templated_directories WHERE template_id = $1`, []any{template[:]}, &n)
	return n, err
}

func (r reads) directory(ctx context.Context, query string, args ...any) (keyserver.TemplatedDirectory, error) {
	list, err := r.directories(ctx, query, args...)
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.TemplatedDirectory{}, err
	}
	return list[0], nil
}

func (r reads) directories(ctx context.Context, query string, args ...any) ([]keyserver.TemplatedDirectory, error) {
	list := []keyserver.TemplatedDirectory{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var d keyserver.TemplatedDirectory
		var path, mac []byte
		if err := row.Scan(sqldb.IntoID(&d.ID), &path, &d.Alias, &d.HostID, sqldb.IntoID(&d.Template), &d.Flag, &mac); err != nil {
			return err
		}
		d.Path = string(path)
		list = append(list, d)
		return r.sql.CheckMAC(rowmac.TemplatedDirectory(d), mac)
	})
	return list, err
}

// InsertTemplatedDirectory stores a templated directory. It returns ErrDuplicate if the
// id or the path exists already, or ErrNotFound if the template does not exist.
func (tx *Tx) InsertTemplatedDirectory(ctx context.Context, d keyserver.TemplatedDirectory) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO templated_directories (id, path, alias, host_id, template_id, flag, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, d.ID[:], []byte(d.Path), d.Alias, d.HostID, d.Template[:], d.Flag, tx.sql.MAC(rowmac.TemplatedDirectory(d)))
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeTemplatedDirectory, d.ID, keyserver.Created)
	return nil
}

// DeleteTemplatedDirectory removes a directory. Keys that were created under it
// keep their ACLs.
func (tx *Tx) DeleteTemplatedDirectory(ctx context.Context, id keyserver.ID) error {
	if err := tx.sql.ExecOne(ctx, `DELETE FROM templated_directories WHERE id = $1`, id[:]); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeTemplatedDirectory, id, keyserver.Deleted)
	return nil
}
