package rewrap

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// reader has the reads that a store and a transaction have in common.
type reader interface {
	Setting(ctx context.Context, name string) ([]byte, error)
	Authorities(ctx context.Context) ([]trustrows.Authority, error)
}

// wrapped is a value that a data key wraps. id is the id under which it is wrapped.
type wrapped struct {
	id    keyserver.ID
	bytes []byte
}

// place is a small group of wrapped values in the database, for example one setting. One transaction rewraps the entire
// group.
type place struct {
	name string
	read func(ctx context.Context, r reader) ([]wrapped, error)
	// write stores one value, and its row MAC.
	write func(ctx context.Context, tx *sqlstore.Tx, w wrapped) error
}

// places has all wrapped values except the stored keys, which are too many for one transaction. It must be complete.
// Otherwise the old data key is erased while a missing value still needs it.
var places = slices.Concat(settings(), []place{authorities})

// settings returns the places of this server's private keys.
func settings() []place {
	var list []place
	for name, id := range sqlstore.WrappedSettings {
		list = append(list, place{
			name: name,
			read: func(ctx context.Context, r reader) ([]wrapped, error) {
				value, err := r.Setting(ctx, name)
				return []wrapped{{id, value}}, err
			},
			write: func(ctx context.Context, tx *sqlstore.Tx, w wrapped) error { return tx.PutSetting(ctx, name, w.bytes) },
		})
	}
	return list
}

// authorities is the place of the private keys of the internal CAs.
var authorities = place{
	name: "authorities",
	read: func(ctx context.Context, r reader) ([]wrapped, error) {
		all, err := r.Authorities(ctx)
		list := make([]wrapped, len(all))
		for i, a := range all {
			list[i] = wrapped{a.ID, a.WrappedKey}
		}
		return list, err
	},
	write: func(ctx context.Context, tx *sqlstore.Tx, w wrapped) error {
		return tx.SetAuthorityKey(ctx, w.id, w.bytes)
	},
}
