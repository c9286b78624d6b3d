package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/verified"
)

var (
	aPeer = keyserver.TrustedServer{
		System: 7, Name: "peer.example.com", Port: 9443, FriendlyName: "the other one", Transport: someID,
		Roles: []keyserver.ID{someID}, Certificate: aCA,
	}
	aTrust = keyserver.PrincipalTrust{ID: someID, Principal: someID, Server: 7, Flag: keyserver.Expose}
)

func (f *fakeOperations) TrustedServers(ctx context.Context, _ keyserver.Caller) ([]keyserver.TrustedServer, error) {
	return answer([]keyserver.TrustedServer{aPeer}, f.called(ctx, "TrustedServers", nil))
}

func (f *fakeOperations) TrustedServersNamed(ctx context.Context, _ keyserver.Caller, name string) ([]keyserver.TrustedServer, error) {
	return answer([]keyserver.TrustedServer{aPeer}, f.called(ctx, "TrustedServersNamed", name))
}

func (f *fakeOperations) AddTrustedServer(ctx context.Context, _ keyserver.Caller, n keyserver.NewTrustedServer) (verified.TrustedServerSaved, error) {
	r := verified.TrustedServerSaved{System: n.Blob.System, Saved: !f.bad, Detail: "evidence"}
	if !f.bad {
		r.Servers, r.ACLSideEffect = []keyserver.TrustedServer{aPeer}, "an effect"
	}
	err := f.called(ctx, "AddTrustedServer", n)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) UpdateTrustedServer(ctx context.Context, _ keyserver.Caller, c keyserver.TrustedServerChange) (verified.TrustedServerUpdated, error) {
	r := verified.TrustedServerUpdated{Server: &aPeer, Saved: !f.bad, Detail: "evidence"}
	err := f.called(ctx, "UpdateTrustedServer", c)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) RemoveTrustedServer(ctx context.Context, _ keyserver.Caller, system keyserver.SystemID) (verified.TrustedServerGone, error) {
	r := verified.TrustedServerGone{Removed: &system, Orphans: []keyserver.PrincipalTrust{aTrust}, ACLSideEffect: "an effect", Detail: "evidence"}
	err := f.called(ctx, "RemoveTrustedServer", system)
	if f.bad {
		return verified.TrustedServerGone{Servers: []keyserver.TrustedServer{aPeer}}, err
	}
	return answer(r, err)
}

func (f *fakeOperations) TrustInfo(ctx context.Context, _ keyserver.Caller) (keyserver.TrustInfo, error) {
	return answer(keyserver.TrustInfo{System: 1, ServerName: "here", Port: 9443, Certificate: aCA, Chain: []byte{0x30, 0}}, f.called(ctx, "TrustInfo", nil))
}

func (f *fakeOperations) PrincipalTrusts(ctx context.Context, _ keyserver.Caller, filter keyserver.PrincipalTrustFilter) ([]keyserver.PrincipalTrust, error) {
	return answer([]keyserver.PrincipalTrust{aTrust, {ID: someID}}, f.called(ctx, "PrincipalTrusts", filter))
}

func (f *fakeOperations) trust(ctx context.Context, name string, got any) (verified.PrincipalTrustSaved, error) {
	r := verified.PrincipalTrustSaved{Trust: &aTrust, Saved: !f.bad, Detail: "evidence"}
	err := f.called(ctx, name, got)
	if f.bad {
		if name == "CreatePrincipalTrust" {
			r.Trust = nil
		}
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) CreatePrincipalTrust(ctx context.Context, _ keyserver.Caller, t keyserver.PrincipalTrust) (verified.PrincipalTrustSaved, error) {
	return f.trust(ctx, "CreatePrincipalTrust", t)
}

func (f *fakeOperations) UpdatePrincipalTrust(ctx context.Context, _ keyserver.Caller, c keyserver.PrincipalTrustChange) (verified.PrincipalTrustSaved, error) {
	return f.trust(ctx, "UpdatePrincipalTrust", c.Flag)
}

func (f *fakeOperations) DeletePrincipalTrust(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (verified.PrincipalTrustGone, error) {
	r := verified.PrincipalTrustGone{ID: id, Gone: !f.bad, Trust: aTrust, Detail: "evidence"}
	err := f.called(ctx, "DeletePrincipalTrust", id)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}
