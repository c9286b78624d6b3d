package httpapi

import (
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

func hmac(x *exchange) (schema.HMACResponse, error) {
	body, err := hmacbody.Read(x.route.Form, x.body(), x.spool(keyserver.OpHMAC))
	if err != nil {
		return schema.HMACResponse{}, err
	}
	defer body.Close()
	mac, err := x.api.Operations.HMAC(x.ctx, x.call.by, keyserver.HMACRequest{Link: body.Link(), Message: body})
	if err != nil {
		return schema.HMACResponse{}, err
	}
	return schema.HMACResponse{Algorithm: string(keyserver.HMACSHA384), MAC: mac[:], MACBytes: len(mac)}, nil
}

// spool returns storage for a message that precedes the name of its key. A caller without
// a role for the operation gets none.
func (x *exchange) spool(op keyserver.Operation) hmacbody.Spool {
	by, p := x.call.by, x.api.places
	return hmacbody.Spool{
		Dir:   x.api.SpoolDir,
		Begin: func() error { return x.api.Operations.Entitled(x.ctx, by, op) },
		Take: func(n int64) error {
			switch p.spool.Take(by.Session, n) {
			case quota.FullEach:
				return fault.Temporary(fault.RequestLimit, fault.ScopeSession, time.Second,
					"the stored message bytes of the session are at the limit (--max-spool-bytes-per-session); send the name of the key before data, so that nothing is stored")
			case quota.FullAll:
				return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
					"the stored message bytes of the service are at the limit (--max-spool-bytes); send the name of the key before data, so that nothing is stored")
			case quota.Taken:
			}
			if p.spoolShare.Take(x.payer(), n) == quota.Taken {
				return nil
			}
			p.spool.Return(by.Session, n)
			return fault.Temporary(fault.Overloaded, fault.ScopeSession, time.Second,
				"the stored message bytes of the principal are at the limit (a quarter of --max-spool-bytes); send the name of the key before data, so that nothing is stored")
		},
		Return: func(n int64) {
			p.spoolShare.Return(x.payer(), n)
			p.spool.Return(by.Session, n)
		},
	}
}
