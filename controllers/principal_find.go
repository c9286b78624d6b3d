package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// principals caches principals by type and name. There may be too many to list.
var principals = connection.Lookup[schema.Principal]{
	Feed: "principal", Name: "principal by name",
	Read: func(ctx context.Context, c *connection.Connection, key string) (schema.Principal, error) {
		kind, name, _ := strings.Cut(key, "/")
		return findPrincipal(ctx, c, kind, name)
	},
	ID: func(p schema.Principal) string { return p.ID.String() },
}

// principalsByID caches principals by id.
var principalsByID = connection.Lookup[schema.Principal]{
	Feed: principals.Feed, Name: "principal by id",
	Read: func(ctx context.Context, c *connection.Connection, key string) (schema.Principal, error) {
		id, err := parseID(schema.ParseHexID, key)
		if err != nil {
			return schema.Principal{}, err
		}
		return c.Admin.GetPrincipal(ctx, schema.ByID{ID: id})
	},
	ID: func(p schema.Principal) string { return p.ID.String() },
}

// administrator caches the principal with which the manager changes principals and keys.
var administrator = connection.Lookup[schema.SessionPrincipal]{
	Name: "own identity as administrator", // valid as long as the connection
	Read: func(ctx context.Context, c *connection.Connection, _ string) (schema.SessionPrincipal, error) {
		s, err := c.Admin.GetCurrentSession(ctx)
		return s.Principal, err
	},
	ID: func(schema.SessionPrincipal) string { return "" },
}

// ownPrincipals returns the ids of the manager's own principals.
func ownPrincipals(ctx context.Context, c *connection.Connection) ([]schema.HexID, error) {
	who := []*connection.Lookup[schema.SessionPrincipal]{&administrator}
	if c.Officer != c.Admin {
		who = append(who, &identity)
	}
	var ids []schema.HexID
	for _, as := range who {
		self, err := as.Of(c).Get(ctx, time.Time{}, "")
		if err != nil {
			return nil, err
		}
		ids = append(ids, schema.HexID(self.PrincipalID))
	}
	return ids, nil
}

// notePrincipal records the principal that a write has read back. made means that the write created it.
func notePrincipal(c *connection.Connection, kind string, p schema.Principal, made bool) {
	principals.Of(c).Put(kind+"/"+p.Name, p, made)
	principalsByID.Of(c).Put(p.ID.String(), p, made)
}

// forgetPrincipal discards the cached principal.
func forgetPrincipal(c *connection.Connection, id string) {
	principals.Of(c).Changed(principals.Feed, id, "updated")
	principalsByID.Of(c).Changed(principals.Feed, id, "updated")
	leaves.Of(c).Changed(principals.Feed, id, "updated")
}

// principalPage is the maximum page size of the key server.
const principalPage = 500

// findPrincipal reads the names that begin with name, page by page. In byte order, name itself would be first, but a
// key server may use another order.
func findPrincipal(ctx context.Context, c *connection.Connection, kind, name string) (schema.Principal, error) {
	const pages = 200 // 100,000 names with the same beginning
	limit := principalPage
	for i := range pages {
		offset := i * limit
		page, err := c.Admin.ListPrincipals(ctx, schema.PrincipalQuery{Type: kind, Name: name, Limit: &limit, Offset: &offset})
		if err != nil {
			return schema.Principal{}, err
		}
		if at := slices.IndexFunc(page.Principals, func(p schema.Principal) bool { return p.Name == name }); at >= 0 {
			return page.Principals[at], nil
		}
		if len(page.Principals) < limit {
			break
		}
	}
	missing := connection.NewProblem(v1beta1.ReasonDependencyNotReady, "KeyServer %q has no principal of type %s with the name %q", c.Name, kind, name)
	missing.Code = codeNoPrincipal
	return schema.Principal{}, missing
}

// codeNoPrincipal is the code for a missing principal. No key server returns it.
const codeNoPrincipal = "NO_PRINCIPAL"

// principalIn resolves a principal that a field of the spec names. If the principal does not exist, the error names the
// field.
func principalIn(ctx context.Context, in reconcile.Input, field, kind, name string) (schema.Principal, error) {
	p, err := resolvePrincipal(ctx, in, kind, name)
	var missing *connection.Problem
	if errors.As(err, &missing) && missing.Code == codeNoPrincipal {
		err = connection.NewProblem(missing.Reason, "%s: %s; create the principal, or correct the name", field, missing.Message)
	}
	return p, err
}

// resolvePrincipal returns the principal with this type and exact name.
func resolvePrincipal(ctx context.Context, in reconcile.Input, kind, name string) (schema.Principal, error) {
	return principals.Of(in.Conn).Get(ctx, in.NotBefore, kind+"/"+name)
}
