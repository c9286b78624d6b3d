package controllers

import (
	"context"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/link"
	"github.com/keyserver-operator/keyserver-operator/internal/managed"
)

// principals answers who has a type and a name. There may be too many of them
// to list.
var principals = link.Answers[schema.Principal]{
	Feed: "principal", Name: "principal by name",
	Read: func(ctx context.Context, c *link.Connection, key string) (schema.Principal, error) {
		kind, name, _ := strings.Cut(key, "/")
		return findPrincipal(ctx, c, kind, name)
	},
	ID: func(p schema.Principal) string { return p.ID.String() },
}

// principalPage is the longest page of principals that a service answers.
const principalPage = 500

// findPrincipal pages through the names that begin with name, which it would
// be the first of if they were sorted by their bytes. They need not be.
func findPrincipal(ctx context.Context, c *link.Connection, kind, name string) (schema.Principal, error) {
	const pages = 200 // 100,000 names that begin alike
	limit := principalPage
	for i := range pages {
		offset := i * limit
		page, err := c.Admin.ListPrincipals(ctx, schema.PrincipalQuery{Type: kind, Name: name, Limit: &limit, Offset: &offset})
		if err != nil {
			return schema.Principal{}, err
		}
		for _, p := range page.Principals {
			if p.Name == name {
				return p, nil
			}
		}
		if len(page.Principals) < limit {
			break
		}
	}
	return schema.Principal{}, link.NewProblem(v1alpha1.ReasonDependencyNotReady,
		"KeyServer %q has no principal of type %s with the name %q", c.Name, kind, name)
}

// resolvePrincipal finds a principal by its type and its exact name.
func resolvePrincipal(ctx context.Context, in managed.Input, kind, name string) (schema.Principal, error) {
	return principals.Of(in.Conn).Get(ctx, in.NotBefore, kind+"/"+name)
}
