package httpapi

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/operations"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listSessions(a *API, ctx context.Context, c call, in schema.SessionQuery) (schema.SessionListing, error) {
	f := session.Filter{}
	if in.PrincipalID != nil {
		f.Principal = keyserver.ID(*in.PrincipalID)
	}
	if in.After != nil {
		f.After = keyserver.ID(*in.After)
	}
	if in.Limit != nil {
		f.Limit = *in.Limit
	}
	page, err := a.Sessions.List(ctx, c.by, f)
	if err != nil {
		return schema.SessionListing{}, err
	}
	out := schema.SessionListing{Count: len(page.Sessions), Sessions: operations.Convert(page.Sessions, listedSessionOf), Detail: "the last page"}
	if !page.Next.IsZero() {
		out.Next, out.Detail = (*schema.HexID)(&page.Next), "there are more; request them with after set to next"
	}
	return out, nil
}

func listedSessionOf(s session.Summary) schema.ListedSession {
	out := schema.ListedSession{
		ID: schema.HexID(s.ID), Kind: string(s.Kind), Principal: sessionPrincipalOf(s.Principal), Actor: sessionActorOf(s.Actor),
		BoundCertificate: hex.EncodeToString(s.BoundCertificate), Address: s.Address, CreatedAt: s.CreatedAt.UTC(), LastUsedAt: s.LastUsedAt.UTC(),
		ExpiresAt: s.ExpiresAt.UTC(), IdleExpiresAt: s.IdleExpiresAt.UTC(),
	}
	if s.BoundKey != "" {
		out.BoundKey = &s.BoundKey
	}
	if !s.MadeFrom.IsZero() {
		out.MadeFrom = (*schema.HexID)(&s.MadeFrom)
	}
	return out
}

func endOneSession(a *API, ctx context.Context, c call, in schema.ByID) (schema.SessionsEnded, error) {
	return sessionsEndedOf(a.Sessions.EndOne(ctx, c.by, keyserver.ID(in.ID)))
}

func endSessionsOf(a *API, ctx context.Context, c call, in schema.ByID) (schema.SessionsEnded, error) {
	return sessionsEndedOf(a.Sessions.EndAll(ctx, c.by, keyserver.ID(in.ID)))
}

func sessionsEndedOf(ended int, err error) (schema.SessionsEnded, error) {
	if err != nil {
		return schema.SessionsEnded{}, err
	}
	return schema.SessionsEnded{Ended: ended, Detail: fmt.Sprintf("ended sessions: %d", ended)}, nil
}
