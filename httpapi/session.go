package httpapi

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/session"
)

// loginFields says what each method needs and may be given besides.
var loginFields = map[string]struct {
	needs, takes []string
	// fromSession: the login is made by the caller of another session.
	fromSession bool
}{
	schema.MethodPassword: {needs: []string{"name", "password"}},
}

func login(a *API, ctx context.Context, c call, in schema.LoginRequest) (schema.LoginResponse, error) {
	if err := checkLogin(in); err != nil {
		return schema.LoginResponse{}, err
	}
	l := session.Login{
		Method: keyserver.SessionKind(in.Method), Name: in.Name, Password: in.Password.Reveal(),
		RemoteAddr: c.remote, RequestID: c.requestID, Proof: c.proof, Certificates: c.certificates,
	}
	if loginFields[in.Method].fromSession {
		c.proof.ForNew = true
		by, release, err := a.caller(ctx, &c)
		if err != nil {
			return schema.LoginResponse{}, err
		}
		defer release()
		l.By, l.Proof = &by, c.proof
	}
	opened, err := a.Sessions.Login(ctx, l)
	if err != nil {
		return schema.LoginResponse{}, err
	}
	return schema.LoginResponse{SessionID: schema.Secret(opened.Token), Session: sessionOf(opened.Info)}, nil
}

// checkLogin refuses fields that the method lacks or does not know: a field
// that is passed over would be a wish that nobody hears.
func checkLogin(in schema.LoginRequest) error {
	method := loginFields[in.Method]
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"name", in.Name != ""}, {"password", in.Password != ""},
	} {
		switch {
		case !field.set && slices.Contains(method.needs, field.name):
			return wire.Refuse(field.name, "is missing; the method "+in.Method+" needs it")
		case field.set && !slices.Contains(method.needs, field.name) && !slices.Contains(method.takes, field.name):
			return wire.Refuse(field.name, "does not belong to the method "+in.Method+"; leave it out")
		}
	}
	return nil
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
