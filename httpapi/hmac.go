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
	body, err := hmacbody.Read(x.route.Form, x.body(), x.spool())
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

// spool returns storage for a message that arrives before the name of its key.
func (x *exchange) spool() hmacbody.Spool {
	return hmacbody.Spool{Dir: x.api.SpoolDir, Account: spoolAccount{x}}
}

// spoolAccount charges stored bytes to the session and the principal of a request.
type spoolAccount struct{ x *exchange }

// Take implements hmacbody.Account.
func (s spoolAccount) Take(n int64) error {
	p, session := s.x.api.places, s.x.call.by.Session
	switch p.spool.Take(session, n) {
	case quota.FullEach:
		return fault.Temporary(fault.RequestLimit, fault.ScopeSession, time.Second,
			"the stored message bytes of the session are at the limit (--max-spool-bytes-per-session); send the name of the key before data, so that nothing is stored")
	case quota.FullAll:
		return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
			"the stored message bytes of the service are at the limit (--max-spool-bytes); send the name of the key before data, so that nothing is stored")
	case quota.Taken:
	}
	if p.spoolShare.Take(s.x.payer(), n) == quota.Taken {
		return nil
	}
	p.spool.Return(session, n)
	return fault.Temporary(fault.Overloaded, fault.ScopeSession, time.Second,
		"the stored message bytes of the principal are at the limit (a quarter of --max-spool-bytes); send the name of the key before data, so that nothing is stored")
}

// Begin implements hmacbody.Account. It fails if no role of the caller grants the operation of the route.
func (s spoolAccount) Begin() error { return s.x.entitled() }

// Return implements hmacbody.Account.
func (s spoolAccount) Return(n int64) {
	s.x.api.places.spoolShare.Return(s.x.payer(), n)
	s.x.api.places.spool.Return(s.x.call.by.Session, n)
}
