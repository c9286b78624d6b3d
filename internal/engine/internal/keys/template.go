package keys

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// firstEntries are the entries of a new key: its creator's and, where a path
// is given, those of the template of the nearest directory that the path lies
// under. It answers that directory's path, too.
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
		if entries[i].ID, err = keyserver.NewID(ks.Random); err != nil {
			return nil, "", err
		}
	}
	return entries, directory, nil
}

// templateFor finds the template for keys at a path. No directory is a
// refusal: a key that was meant to be shared must not come out private.
func templateFor(ctx context.Context, tx *sqlstore.Tx, path string) (keyserver.ACLTemplate, string, error) {
	if !keyserver.PlainPath(path) {
		return keyserver.ACLTemplate{}, "", fault.New(fault.InvalidArgument, "path is not the plain name of a place").Audited(fault.ReasonInvalidArgument)
	}
	d, err := tx.FirstTemplatedDirectory(ctx, keyserver.Ancestors(path))
	if err != nil {
		return keyserver.ACLTemplate{}, "", gate.NotFound(err, fault.InvalidArgument,
			"path %q lies under no templated directory; make one with POST /api/templated-directories, or leave path out", path)
	}
	t, err := tx.ACLTemplate(ctx, d.Template)
	return t, d.Path, err
}
