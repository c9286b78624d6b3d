package rewrap

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// reader is what a Store and a transaction have in common.
type reader interface {
	Setting(ctx context.Context, name string) ([]byte, error)
	Authorities(ctx context.Context) ([]trustrows.Authority, error)
}

// wrapped is something that the data key wraps, and the id that it is bound to.
type wrapped struct {
	id    keyserver.ID
	bytes []byte
}

// place is where few things lie that the data key wraps: all of them are wrapped anew
// in one transaction.
type place struct {
	name string
	read func(ctx context.Context, r reader) ([]wrapped, error)
	// write stores one of them, with its MAC.
	write func(ctx context.Context, tx *sqlstore.Tx, w wrapped) error
}

// places are all but the stored keys, which are too many for one transaction. What is
// wrapped anywhere else has to have a line here: its data key is erased otherwise.
var places = slices.Concat(settings(), []place{authorities})

// settings are the private keys of this server.
func settings() []place {
	var list []place
	for name, id := range bootstrap.Wrapped {
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

// authorities are the private keys of the internal CAs.
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
