package rewrap

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// reader is the common part of a Store and a transaction.
type reader interface {
	Setting(ctx context.Context, name string) ([]byte, error)
	Authorities(ctx context.Context) ([]trustrows.Authority, error)
}

// wrapped is a value that the data key wraps, with the id that the value is bound to.
type wrapped struct {
	id    keyserver.ID
	bytes []byte
}

// place is a location of a few values that the data key wraps. All of them are rewrapped
// in one transaction.
type place struct {
	name string
	read func(ctx context.Context, r reader) ([]wrapped, error)
	// write stores one value, with its MAC.
	write func(ctx context.Context, tx *sqlstore.Tx, w wrapped) error
}

// places has all locations except the stored keys, which are too many for one transaction. Every other location must be
// listed here. Otherwise the data key is erased while values of the location still need it.
var places = slices.Concat(settings(), []place{authorities})

// settings returns the locations of this server's private keys.
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

// authorities is the location of the private keys of the internal CAs.
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
