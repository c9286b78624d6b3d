package export

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

func init() { collectors["Key"] = collector{(*exporter).keys, "key"} }

// keyPage is the number of keys per request.
const keyPage = 500

// keys exports a Key for each key lineage whose keys the administrator owns. The directory path of a key cannot be
// read, so it is not declared.
func (e *exporter) keys(ctx context.Context) ([]candidate, error) {
	session, err := e.Admin.GetCurrentSession(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := e.lineages(ctx)
	if apiclient.IsCode(err, "ACCESS_DENIED") || apiclient.IsUnsupported(err) {
		e.leaveOut(LeftOut{What: "keys", Why: err.Error()})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]candidate, 0, len(lines))
	for _, line := range lines {
		c, err := e.candidateKey(ctx, line, session.Principal)
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// lineages returns the keys by lineage, each from oldest to newest.
func (e *exporter) lineages(ctx context.Context) ([][]schema.KeyFacts, error) {
	limit, in := keyPage, schema.KeyQuery{}
	in.Limit = &limit
	by := map[schema.HiddenLink][]schema.KeyFacts{}
	var order []schema.HiddenLink
	for {
		page, err := e.Admin.ListKeys(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, k := range page.Keys {
			first := k.TTag
			if k.Lineage != nil {
				first = *k.Lineage
			}
			if by[first] == nil {
				order = append(order, first)
			}
			by[first] = append(by[first], k)
		}
		if page.Next == nil {
			break
		}
		in.After = page.Next
	}
	slices.Sort(order)
	lines := make([][]schema.KeyFacts, len(order))
	for i, first := range order {
		lines[i] = by[first]
		slices.SortFunc(lines[i], func(a, b schema.KeyFacts) int { return generation(a) - generation(b) })
	}
	return lines, nil
}

func generation(k schema.KeyFacts) int {
	if k.Generation == nil {
		return 0
	}
	return *k.Generation
}

func state(k schema.KeyFacts) string {
	if k.State == nil {
		return "unknown"
	}
	return *k.State
}

func (e *exporter) candidateKey(ctx context.Context, line []schema.KeyFacts, own schema.SessionPrincipal) (candidate, error) {
	newest := line[len(line)-1]
	first := newest.TTag
	if newest.Lineage != nil {
		first = *newest.Lineage
	}
	_, id, _ := first.Split()
	c := candidate{what: "key lineage " + first.String(), title: "key " + id.String(), id: id.String(), marked: id}
	switch {
	case generation(newest) != len(line):
		c.cannot = "not all of its keys can be read"
	case state(newest) != "enabled":
		c.cannot = "its newest key is " + state(newest)
	case newest.Algorithm == nil || newest.Exportable == nil:
		c.cannot = "the key server does not return its algorithm, or whether it is exportable"
	}
	if c.cannot != "" {
		return c, nil
	}
	text := first.String()
	obj := &v1beta1.Key{Spec: v1beta1.KeySpec{
		Algorithm: v1beta1.KeyAlgorithm(*newest.Algorithm), Exportable: *newest.Exportable, Lineage: &text, DestroyAfterDays: 30,
	}}
	if r := newest.Rotation; r != nil {
		obj.Spec.Rotation = &v1beta1.KeyRotation{
			EveryDays: int32(r.EveryDays), VerifyOnlyDays: int32(r.VerifyOnlyDays), DestroyAfterDays: int32(r.DestroyAfterDays), //nolint:gosec // contract 7.17 limits them
		}
	}
	c.object = obj
	byID, cannot, err := e.holders(ctx, obj, line, own)
	c.cannot = cannot
	c.spares = []optionalPart{{field: "spec.members", without: func(refusal string) bool { return renamed(obj.Spec.Members, byID, refusal) }}}
	return c, err
}

// holders declares the principals with rights on the keys of a lineage as members, if all ACLs of the lineage are
// equal. Otherwise it declares no members, so that the manager leaves the ACLs unchanged.
func (e *exporter) holders(ctx context.Context, obj *v1beta1.Key, line []schema.KeyFacts, own schema.SessionPrincipal) (byID map[string]string, cannot string, err error) {
	var lists [][]schema.TemplateMember
	for _, k := range line {
		if state(k) == "destroyed" {
			continue
		}
		got, err := e.Admin.GetACL(ctx, schema.KeyRequest{TTag: k.TTag})
		if err != nil {
			return nil, "", err
		}
		held := make([]schema.TemplateMember, len(got.ACL.Entries))
		owned := false
		for i, entry := range got.ACL.Entries {
			held[i] = schema.TemplateMember{
				SystemID: entry.SystemID, PrincipalID: entry.PrincipalID, Rights: entry.Rights, MaxUsage: entry.MaxUsage, StartTime: entry.StartTime, EndTime: entry.EndTime,
			}
			owned = owned || isSelf(held[i], own) && held[i].Rights.Has(schema.RightNamed("OWNER")) && held[i].MaxUsage < 0 &&
				held[i].StartTime.IsUnset() && held[i].EndTime.IsUnset()
		}
		if !owned {
			return nil, fmt.Sprintf("the administrator is not OWNER of generation %d without maxUsage, startTime and endTime", generation(k)), nil
		}
		slices.SortFunc(held, func(a, b schema.TemplateMember) int {
			return strings.Compare(formatID(a.SystemID, schema.HexID(a.PrincipalID)), formatID(b.SystemID, schema.HexID(b.PrincipalID)))
		})
		lists = append(lists, held)
	}
	for _, l := range lists[1:] {
		if !slices.EqualFunc(l, lists[0], sameTerms) {
			e.leaveOut(LeftOut{What: "key lineage " + *obj.Spec.Lineage, Part: "its members", Why: "the ACLs of its generations differ"})
			return nil, "", nil
		}
	}
	members := lists[0]
	var ids []schema.HexID
	for _, m := range members {
		ids = append(ids, schema.HexID(m.PrincipalID))
	}
	if err := e.people.lookUp(ctx, ids); err != nil {
		return nil, "", err
	}
	obj.Spec.Members, byID = []v1beta1.ACLTemplateMember{}, map[string]string{}
	for _, m := range members {
		if isSelf(m, own) && m.Rights == schema.RightNamed("OWNER").Widen() {
			continue // the manager itself is OWNER anyway
		}
		member, cannot := e.member(m)
		if cannot != "" {
			return nil, cannot, nil
		}
		obj.Spec.Members = append(obj.Spec.Members, member)
		byID[member.Principal] = formatID(m.SystemID, schema.HexID(m.PrincipalID))
	}
	slices.SortFunc(obj.Spec.Members, func(a, b v1beta1.ACLTemplateMember) int { return strings.Compare(a.Principal, b.Principal) })
	return byID, "", nil
}

func isSelf(m schema.TemplateMember, own schema.SessionPrincipal) bool {
	return m.SystemID == own.SystemID && m.PrincipalID == own.PrincipalID
}

func sameTerms(a, b schema.TemplateMember) bool {
	return a.SystemID == b.SystemID && a.PrincipalID == b.PrincipalID && a.Rights == b.Rights && a.MaxUsage == b.MaxUsage &&
		a.StartTime == b.StartTime && a.EndTime == b.EndTime
}
