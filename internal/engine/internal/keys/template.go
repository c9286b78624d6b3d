package keys

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// firstEntries returns the ACL entries of a new key: the entry of its creator and, if a path is given, the members of
// the ACL template of the nearest templated directory above the path. It also returns the path of that directory.
func (ks *Keys) firstEntries(ctx context.Context, tx *sqlstore.Tx, creator keyserver.PrincipalRef, path string) ([]keyserver.ACLEntry, string, error) {
	var members []keyserver.TemplateMember
	var directory string
	if path != "" {
		t, at, err := templateFor(ctx, tx, path)
		if err != nil {
			return nil, "", err
		}
		members, directory = t.Members, at
	}
	entries := keyserver.EntriesOf(creator, members)
	for i := range entries {
		var err error
		if entries[i].ID, err = values.NewID(ks.Random); err != nil {
			return nil, "", err
		}
	}
	return entries, directory, nil
}

// templateFor returns the ACL template for keys at a path, and its directory. It fails if no templated directory is
// above the path. Otherwise a key for sharing would be private.
func templateFor(ctx context.Context, tx *sqlstore.Tx, path string) (keyserver.ACLTemplate, string, error) {
	if !keyserver.PlainPath(path) {
		return keyserver.ACLTemplate{}, "", fault.New(fault.InvalidArgument, "path: must not have an empty, . or .. segment, or too many segments or bytes").Audited(fault.ReasonInvalidArgument)
	}
	d, err := tx.FirstTemplatedDirectory(ctx, keyserver.Ancestors(path))
	if err != nil {
		return keyserver.ACLTemplate{}, "", gate.NotFound(err, fault.InvalidArgument,
			"path: no templated directory contains %q; create one with POST /api/templated-directories, or omit path", path)
	}
	t, err := tx.ACLTemplate(ctx, d.Template)
	return t, d.Path, err
}
