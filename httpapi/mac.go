package httpapi

import (
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func mac(x *exchange) (schema.MACResponse, error) {
	body, err := hmacbody.Read(x.route.Form, x.body(), x.spool())
	if err != nil {
		return schema.MACResponse{}, err
	}
	defer body.Close()
	m, err := x.api.Operations.MAC(x.ctx, x.call.by, keyserver.MACRequest{Lineage: body.Link(), Message: body})
	if err != nil {
		return schema.MACResponse{}, err
	}
	return schema.MACResponse{
		Algorithm: string(keyserver.HMACSHA384), MAC: m.Sum[:], MACBytes: len(m.Sum), TTag: schema.HiddenLink(m.Link), Generation: m.Generation,
	}, nil
}

func verifyMAC(x *exchange) (schema.VerifyMACResponse, error) {
	body, err := hmacbody.Read(x.route.Form, x.body(), x.spool())
	if err != nil {
		return schema.VerifyMACResponse{}, err
	}
	defer body.Close()
	v, err := x.api.Operations.VerifyMAC(x.ctx, x.call.by, keyserver.MACCheck{KeyChoice: body.Choice(), Message: body, MAC: body.MAC})
	if err != nil {
		return schema.VerifyMACResponse{}, err
	}
	return schema.VerifyMACResponse{Valid: v.Valid, TTag: schema.HiddenLink(v.Link), Generation: v.Generation}, nil
}
