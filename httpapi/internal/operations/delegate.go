package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func delegateOf(in schema.DelegateRequest) keyserver.Delegate {
	return keyserver.Delegate{Principal: keyserver.ID(in.ID), Delegate: keyserver.ID(in.Delegate)}
}

func addDelegate(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.DelegateRequest) (schema.DelegateSaved, error) {
	r, err := ops.AddDelegate(ctx, by, delegateOf(in))
	return schema.DelegateSaved{
		DelegateID: in.Delegate, Saved: r.Done, Principal: principalOf(r.Principal), Delegation: r.Principal.Flags.Delegation(),
		Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func removeDelegate(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.DelegateRequest) (schema.DelegateGone, error) {
	r, err := ops.RemoveDelegate(ctx, by, delegateOf(in))
	return schema.DelegateGone{
		DelegateID: in.Delegate, Gone: r.Done, Principal: principalOf(r.Principal), Delegation: r.Principal.Flags.Delegation(),
		Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}
