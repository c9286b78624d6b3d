package keys

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func (ks *Keys) forwardKey(ctx context.Context, r gate.Request, to keyserver.SystemID) (meta keyserver.KeyMetadata, err error) {
	err = ks.Consult(ctx, r, to, fault.KeyNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		meta, err = at.Key(ctx, as, r.Link)
		return err
	}, ks.transportOnly(r.By))
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return meta, nil
}

func (ks *Keys) forwardAuthorize(ctx context.Context, r gate.Request, to keyserver.SystemID, use keyserver.Use) (grant keyserver.Grant, err error) {
	err = ks.Consult(ctx, r, to, fault.KeyNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		grant, err = at.AuthorizeKey(ctx, as, use)
		return err
	})
	if err != nil {
		return keyserver.Grant{}, err
	}
	return grant, nil
}

func (ks *Keys) forwardHMAC(ctx context.Context, r gate.Request, to keyserver.SystemID, in keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	err = ks.Consult(ctx, r, to, fault.KeyNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		mac, err = at.HMAC(ctx, as, in)
		return err
	})
	if err != nil {
		return [keyserver.MACSize]byte{}, err
	}
	return mac, nil
}

func (ks *Keys) forwardACL(ctx context.Context, r gate.Request, to keyserver.SystemID) (acl keyserver.ACL, err error) {
	err = ks.Consult(ctx, r, to, fault.ACLNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		acl, err = at.ACL(ctx, as, r.Link)
		return err
	})
	if err != nil {
		return keyserver.ACL{}, err
	}
	return acl, nil
}
