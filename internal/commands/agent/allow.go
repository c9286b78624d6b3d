package agent

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Allow maps each allowed route to its allowed keys.
type Allow map[string]Keys

// Keys are the keys that a request may name. nil means any key.
type Keys map[schema.HiddenLink]bool

// maxKeys is the maximum number of keys in all rules.
const maxKeys = 1024

// ParseAllow parses rules of the form ROUTE[,ROUTE...][:KEY[,KEY...]]. One text may have several rules, separated by
// white space. Without rules, all routes are allowed that do not need a rule.
func ParseAllow(texts []string) (Allow, error) {
	table := routes.All()
	if len(texts) == 0 {
		return unlimited(table), nil
	}
	all := Allow{}
	for _, rule := range strings.Fields(strings.Join(texts, " ")) {
		if err := all.add(rule, table); err != nil {
			return nil, fmt.Errorf("--allow %s: %w", rule, err)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("--allow is empty and would allow no route; name routes, or leave it out")
	}
	return all, nil
}

// unlimited returns the allowed routes if there are no rules.
func unlimited(table []routes.Route) Allow {
	all := Allow{}
	for _, r := range table {
		if !withheld(r) {
			all[r.Name] = nil
		}
	}
	return all
}

// withheld reports whether a route is allowed only by a rule that names it. Such routes open or end sessions, change
// principals or groups, or act for another principal.
func withheld(r routes.Route) bool {
	for _, op := range []keyserver.Operation{keyserver.OpIssueCertificate, keyserver.OpRenewCertificate, keyserver.OpEnrollCertificate, keyserver.OpResetTransportPrincipal} {
		if slices.ContainsFunc(r.Operations, func(needed keyserver.Operation) bool { return needed.ID == op.ID }) {
			return true
		}
	}
	switch r.Tag {
	case "Approvals":
		return true
	case "Sessions", "Principals", "Groups":
		return r.Method != http.MethodGet && r.Name != "lookUpPrincipals"
	default:
		return false
	}
}

func (a Allow) add(rule string, table []routes.Route) error {
	names, links, limited := strings.Cut(rule, ":")
	var keys Keys
	if limited {
		keys = Keys{}
		for text := range strings.SplitSeq(links, ",") {
			var link schema.HiddenLink
			if err := link.UnmarshalText([]byte(text)); err != nil {
				return fmt.Errorf("%q is not a hidden link in base64; after the colon, give the hidden links of keys or key lineages, separated by commas", text)
			}
			keys[link] = true
		}
	}
	for name := range strings.SplitSeq(names, ",") {
		r, err := named(name, table)
		if err != nil {
			return err
		}
		if err := a.let(r, keys); err != nil {
			return err
		}
	}
	return nil
}

func named(name string, table []routes.Route) (routes.Route, error) {
	for _, r := range table {
		switch {
		case r.Name == name:
			return r, nil
		case strings.EqualFold(r.Name, name):
			return r, fmt.Errorf("there is no route %q; did you mean %s?", name, r.Name)
		}
	}
	return routes.Route{}, fmt.Errorf("there is no route %q; use an operationId from docs/openapi.json", name)
}

// let adds keys to the allowed keys of a route.
func (a Allow) let(r routes.Route, keys Keys) error {
	before, there := a[r.Name]
	switch {
	case keys != nil && !r.NamesKeys():
		return fmt.Errorf("requests of %s name no key; leave out the colon and the text after it", r.Name)
	case there && (before == nil) != (keys == nil):
		return fmt.Errorf("%s is allowed for all keys and also for some keys; remove one of the two rules", r.Name)
	case keys == nil:
		a[r.Name] = nil
		return nil
	case before == nil:
		before = Keys{}
	}
	for k := range keys {
		before[k] = true
	}
	a[r.Name] = before
	n := 0
	for _, of := range a {
		n += len(of)
	}
	if n > maxKeys {
		return fmt.Errorf("all rules together must have at most %d keys", maxKeys)
	}
	return nil
}

// Permit reports whether a route is allowed, and returns the keys that a request may name.
func (a Allow) Permit(route string) (Keys, bool) {
	keys, ok := a[route]
	return keys, ok
}
