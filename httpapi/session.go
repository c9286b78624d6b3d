package httpapi

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/session"
)

func login(a *API, ctx context.Context, c call, in schema.LoginRequest) (schema.LoginResponse, error) {
	switch {
	case in.Name == "":
		return schema.LoginResponse{}, wire.Refuse("name", "is missing; the method password needs it")
	case in.Password == "":
		return schema.LoginResponse{}, wire.Refuse("password", "is missing; the method password needs it")
	}
	opened, err := a.Sessions.Login(ctx, session.Login{
		Method: in.Method, Name: in.Name, Password: in.Password.Reveal(),
		RemoteAddr: c.remote, RequestID: c.requestID, Proof: c.proof,
	})
	if err != nil {
		return schema.LoginResponse{}, err
	}
	return schema.LoginResponse{SessionID: schema.Secret(opened.Token), Session: sessionOf(opened.Info)}, nil
}

func currentSession(a *API, ctx context.Context, c call, _ nothing) (schema.Session, error) {
	info, err := a.Sessions.Current(ctx, c.by)
	if err != nil {
		return schema.Session{}, err
	}
	return sessionOf(info), nil
}

func endSession(a *API, ctx context.Context, c call, _ nothing) (schema.SessionEnded, error) {
	if err := a.Sessions.End(ctx, c.by); err != nil {
		return schema.SessionEnded{}, err
	}
	return schema.SessionEnded{Ended: true, Detail: "the session id opens nothing any more"}, nil
}

func sessionOf(i session.Info) schema.Session {
	out := schema.Session{
		Kind: string(i.Kind),
		Principal: schema.SessionPrincipal{
			ID: schema.HexID(i.Principal.ID), PrincipalID: schema.DecimalID(i.Principal.ID),
			SystemID: schema.SystemID(i.Principal.System), Name: i.Principal.Name, Type: string(i.Principal.Type),
		},
		Roles: convert(i.Roles, func(r keyserver.Role) schema.SessionRole {
			return schema.SessionRole{ID: schema.HexID(r.ID), Name: r.Name}
		}),
		ExpiresAt: i.ExpiresAt.UTC(), IdleExpiresAt: i.IdleExpiresAt.UTC(),
	}
	if i.BoundKey != "" {
		out.BoundKey = &i.BoundKey
	}
	return out
}

// convert maps a list. It is never nil: an empty list is [] on the wire.
func convert[A, B any](list []A, one func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = one(v)
	}
	return out
}

func hexIDs(ids []keyserver.ID) []schema.HexID {
	return convert(ids, func(id keyserver.ID) schema.HexID { return schema.HexID(id) })
}

// idsOf keeps nil apart from empty: absent is not "none".
func idsOf(ids []schema.HexID) []keyserver.ID {
	if ids == nil {
		return nil
	}
	return convert(ids, func(id schema.HexID) keyserver.ID { return keyserver.ID(id) })
}
