package export

import (
	"context"
	"fmt"
	"slices"

	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// person is the type and name of a principal in a manifest.
type person struct{ kind, name string }

// people maps ids of principals to their types and names.
type people struct {
	api    API
	system schema.SystemID
	types  map[string]string // principal type by class name
	byID   map[schema.HexID]*person
}

// pageOfPeople is the maximum number of principals in one lookup request.
const pageOfPeople = 500

// lookUp looks up principals that are not cached yet. A principal that the lookup does not return is declared by its id.
func (p *people) lookUp(ctx context.Context, ids []schema.HexID) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	var pairs []schema.PrincipalPair
	for _, id := range ids {
		if _, met := p.byID[id]; !met {
			p.byID[id] = nil
			pairs = append(pairs, schema.PrincipalPair{SystemID: p.system, PrincipalID: schema.DecimalID(id)})
		}
	}
	for page := range slices.Chunk(pairs, pageOfPeople) {
		found, err := p.api.LookUpPrincipals(ctx, schema.LookupPrincipalsRequest{Principals: page})
		if apiclient.IsUnsupported(err) || apiclient.IsCode(err, "ACCESS_DENIED") {
			return nil
		}
		if err != nil {
			return err
		}
		for _, who := range found.Principals {
			if kind := p.types[who.ClassName]; kind != "" && who.SystemID == p.system && who.Name != "" {
				p.byID[who.ID] = &person{kind, who.Name}
			}
		}
	}
	return nil
}

// begin reads the key server's own system id and the class names of the principal types.
func (p *people) begin(ctx context.Context) error {
	if p.types != nil {
		return nil
	}
	session, err := p.api.GetCurrentSession(ctx)
	if err != nil {
		return err
	}
	p.system, p.types, p.byID = session.Principal.SystemID, map[string]string{}, map[schema.HexID]*person{}
	one := 1
	for _, kind := range []string{"password", "certificate", "ldap", "xauth", "group"} {
		page, err := p.api.ListPrincipals(ctx, schema.PrincipalQuery{Type: kind, Limit: &one})
		if apiclient.IsCode(err, "ACCESS_DENIED") {
			return nil
		}
		if err != nil {
			return err
		}
		if other, twice := p.types[page.ClassName]; twice && other != kind {
			p.types[page.ClassName] = "" // two types have this class name
			continue
		}
		p.types[page.ClassName] = kind
	}
	return nil
}

// member formats a principal for a manifest: TYPE/NAME, or id/SYSTEM/ID.
func (p *people) member(system schema.SystemID, id schema.HexID) string {
	if who := p.byID[id]; who != nil && system == p.system {
		return who.kind + "/" + who.name
	}
	return formatID(system, id)
}

func formatID(system schema.SystemID, id schema.HexID) string {
	return fmt.Sprintf("id/%d/%s", system, schema.DecimalID(id))
}
