package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/operations"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Sessions opens sessions and finds the caller of a request.
type Sessions interface {
	Login(ctx context.Context, login session.Login) (session.Opened, error)
	// Authenticate returns the caller of a session id, and a function to call at the end of the request.
	Authenticate(ctx context.Context, token string, proof session.Proof, from session.From) (keyserver.Caller, func(), error)
	Current(ctx context.Context, by keyserver.Caller) (session.Info, error)
	End(ctx context.Context, by keyserver.Caller) error
	List(ctx context.Context, by keyserver.Caller, f session.Filter) (session.Page, error)
	// EndOne and EndAll return the number of sessions that ended.
	EndOne(ctx context.Context, by keyserver.Caller, id keyserver.ID) (int, error)
	EndAll(ctx context.Context, by keyserver.Caller, principal keyserver.ID) (int, error)
	SetPassword(ctx context.Context, by keyserver.Caller, n session.NewPassword) (session.PasswordSaved, error)
}

// loginFields maps each login method to the fields that it needs and accepts.
var loginFields = map[string]struct {
	needs, takes []string
	// fromSession: the login requires an existing session.
	fromSession bool
}{
	schema.MethodPassword: {needs: []string{"name", "password"}},

	schema.MethodKubernetes: {needs: []string{"token"}},
	schema.MethodLDAP:       {needs: []string{"name", "password"}}, // the directory verifies the password

	schema.MethodCertificate: {},

	schema.MethodDelegated: {needs: []string{"principalId"}, fromSession: true},
	schema.MethodScoped:    {needs: []string{"objects"}, takes: []string{"operations", "mayGrant", "lifetimeSeconds", "dpopJkt"}, fromSession: true},
}

func login(a *API, ctx context.Context, c call, in schema.LoginRequest) (schema.LoginResponse, error) {
	if err := checkLogin(in); err != nil {
		return schema.LoginResponse{}, err
	}
	l := session.Login{
		Method: keyserver.SessionKind(in.Method), Name: in.Name, Password: in.Password.Reveal(), Token: in.Token.Reveal(),
		From: c.From, Proof: c.proof, Certificates: c.certificates,
	}
	if err := scopeOf(in, &l); err != nil {
		return schema.LoginResponse{}, err
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

// checkLogin rejects a field that the method does not use, and a request that lacks a field that the method needs.
// Without this check, the caller would not notice that a field has no effect.
func checkLogin(in schema.LoginRequest) error {
	method := loginFields[in.Method]
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"name", in.Name != ""}, {"password", in.Password != ""}, {"token", in.Token != ""},
		{"principalId", in.PrincipalID != nil},
		{"objects", in.Objects != nil}, {"operations", in.Operations != nil}, {"mayGrant", in.MayGrant != nil},
		{"lifetimeSeconds", in.LifetimeSeconds != nil}, {"dpopJkt", in.DPoPJKT != nil},
	} {
		switch {
		case !field.set && slices.Contains(method.needs, field.name):
			return fault.Field(field.name, "is missing; send it with the method "+in.Method)
		case field.set && !slices.Contains(method.needs, field.name) && !slices.Contains(method.takes, field.name):
			return fault.Field(field.name, "does not belong to the method "+in.Method+"; leave it out")
		}
	}
	return nil
}

// scopeOf copies the scope of a delegated session or scoped credential from the request into l.
func scopeOf(in schema.LoginRequest, l *session.Login) error {
	if in.PrincipalID != nil {
		l.Delegator = keyserver.ID(*in.PrincipalID)
	}
	if in.Objects != nil {
		l.Objects = operations.Convert(in.Objects, func(h schema.HiddenLink) keyserver.HiddenLink { return keyserver.HiddenLink(h) })
	}
	l.Operations = in.Operations
	if in.MayGrant != nil {
		l.MayGrant = keyserver.Rights(*in.MayGrant)
	}
	if in.LifetimeSeconds != nil {
		l.Lifetime = time.Duration(*in.LifetimeSeconds) * time.Second
	}
	if in.DPoPJKT == nil {
		return nil
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(*in.DPoPJKT); err != nil {
		return fault.Field("dpopJkt", "must be an RFC 7638 thumbprint: the SHA-256 of the key in base64url, 43 characters")
	}
	l.BindTo = *in.DPoPJKT
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
	return schema.SessionEnded{Ended: true, Detail: "the session has ended"}, nil
}

func setPassword(a *API, ctx context.Context, c call, in schema.SetPasswordRequest) (schema.PasswordSaved, error) {
	r, err := a.Sessions.SetPassword(ctx, c.by, session.NewPassword{
		Principal: keyserver.ID(in.ID), Password: in.Password.Reveal(), Current: in.Current.Reveal(),
	})
	return schema.PasswordSaved{ID: in.ID, Saved: r.Saved, SessionsEnded: r.Ended, Verdict: schema.Verdict{Detail: r.Detail}}, err
}

func sessionOf(i session.Info) schema.Session {
	out := schema.Session{
		ID: schema.HexID(i.ID), Kind: string(i.Kind), Principal: sessionPrincipalOf(i.Principal),
		Roles: operations.Convert(i.Roles, func(r keyserver.Role) schema.SessionRole {
			return schema.SessionRole{ID: schema.HexID(r.ID), Name: r.Name}
		}),
		Actor:     sessionActorOf(i.Actor),
		ExpiresAt: i.ExpiresAt.UTC(), IdleExpiresAt: i.IdleExpiresAt.UTC(),
	}
	if i.Objects != nil {
		out.Objects = operations.Convert(i.Objects, func(h keyserver.HiddenLink) schema.HiddenLink { return schema.HiddenLink(h) })
	}
	if i.Operations != nil {
		out.Operations = operations.Convert(i.Operations, func(id keyserver.ID) string { return keyserver.OperationOf(id).Key })
	}
	if i.MayGrant != 0 {
		rights := schema.Rights(i.MayGrant)
		out.MayGrant = &rights
	}
	if i.BoundKey != "" {
		out.BoundKey = &i.BoundKey
	}
	out.BoundCertificate = hex.EncodeToString(i.BoundCertificate)
	return out
}

func sessionPrincipalOf(p keyserver.Principal) schema.SessionPrincipal {
	return schema.SessionPrincipal{
		ID: schema.HexID(p.ID), PrincipalID: schema.DecimalID(p.ID),
		SystemID: schema.SystemID(p.System), Name: p.Name, Type: string(p.Type),
	}
}

// sessionActorOf converts the principal that acts with the rights of another one. It returns nil if there is none.
func sessionActorOf(actor keyserver.PrincipalRef) *schema.SessionActor {
	if actor.ID.IsZero() {
		return nil
	}
	return &schema.SessionActor{
		ID: schema.HexID(actor.ID), PrincipalID: schema.DecimalID(actor.ID), SystemID: schema.SystemID(actor.System),
	}
}
