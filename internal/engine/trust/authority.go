package trust

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Authorities implements keyserver.Authorities.
func (tr *Trust) Authorities(ctx context.Context, by keyserver.Caller) (list []keyserver.Authority, err error) {
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadAuthority}, func() error {
		line, err := tr.cas.Authorities(ctx)
		for _, m := range line.Members {
			list = append(list, m.Authority)
		}
		return err
	})
	return list, err
}

// PrepareAuthority implements keyserver.Authorities.
func (tr *Trust) PrepareAuthority(ctx context.Context, by keyserver.Caller) (id keyserver.ID, err error) {
	err = tr.Perform(ctx, changeAuthority(by, ca.Prepare, ""), func() (err error) {
		id, err = tr.cas.Prepare(ctx)
		return err
	})
	return id, err
}

// ActivateAuthority implements keyserver.Authorities.
func (tr *Trust) ActivateAuthority(ctx context.Context, by keyserver.Caller, early bool) (id keyserver.ID, err error) {
	object := ""
	if early {
		object = " early"
	}
	err = tr.Perform(ctx, changeAuthority(by, ca.Activate, object), func() (err error) {
		id, err = tr.cas.Activate(ctx, early)
		return err
	})
	return id, err
}

// RetireAuthority implements keyserver.Authorities.
func (tr *Trust) RetireAuthority(ctx context.Context, by keyserver.Caller, id keyserver.ID) (done keyserver.AuthorityRetired, err error) {
	err = tr.Perform(ctx, changeAuthority(by, ca.Retire, " "+id.Base64()), func() (err error) {
		done, err = tr.cas.Retire(ctx, id)
		return err
	})
	return done, err
}

func changeAuthority(by keyserver.Caller, action ca.Action, object string) gate.Request {
	return gate.Request{By: by, Op: keyserver.OpChangeAuthority, Object: string(action) + object}
}
