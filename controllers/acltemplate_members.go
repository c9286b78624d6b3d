package controllers

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// templateMembers caches the members of templates.
var templateMembers = connection.Lookup[schema.TemplateMemberList]{
	Feed: aclTemplates.Name, Name: "members of a template",
	Read: func(ctx context.Context, c *connection.Connection, key string) (schema.TemplateMemberList, error) {
		id, err := parseID(schema.ParseHexID, key)
		if err != nil {
			return schema.TemplateMemberList{}, err
		}
		return c.Officer.ListACLTemplateMembers(ctx, schema.ByID{ID: id})
	},
	ID: func(l schema.TemplateMemberList) string { return l.ID.String() },
}

// readMembers reads the members of a template. It uses the cached members if the list of templates has the same digest,
// so that a resync of all templates costs one request.
func readMembers(ctx context.Context, in reconcile.Input, t schema.ACLTemplate) (schema.TemplateMemberList, error) {
	memo := templateMembers.Of(in.Conn)
	if t.MembersDigest != "" { // older key servers send no digest
		memo.Confirm(t.ID.String(), in.NotBefore, func(l schema.TemplateMemberList) bool { return l.Digest == t.MembersDigest })
	}
	return memo.Get(ctx, in.NotBefore, t.ID.String())
}

// memberKey identifies a principal among the members of a template.
type memberKey struct {
	system    schema.SystemID
	principal schema.DecimalID
}

func (k memberKey) String() string { return fmt.Sprintf("id/%d/%s", k.system, k.principal) }

// compare orders members by system and principal.
func (k memberKey) compare(other memberKey) int {
	return cmp.Or(cmp.Compare(k.system, other.system), slices.Compare(k.principal[:], other.principal[:]))
}

// declaredMember is a declared member after its principal is resolved.
type declaredMember struct {
	schema.TemplateMemberRequest
	spelled string // the principal as named in the spec
}

// membership is a set of declared members.
type membership struct {
	members map[memberKey]declaredMember
	own     memberKey // the manager's own principal
}

// declareMembers resolves a list of members.
func declareMembers(ctx context.Context, in reconcile.Input, list []v1beta1.ACLTemplateMember, own memberKey) (membership, error) {
	want := membership{members: map[memberKey]declaredMember{}, own: own}
	for _, m := range list {
		key, err := resolveMember(ctx, in, m.Principal)
		if err != nil {
			return want, err
		}
		if twin, twice := want.members[key]; twice {
			return want, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.members: %q and %q are the same principal; keep one of them", twin.spelled, m.Principal)
		}
		want.members[key] = declaredMember{memberOf(key, m), m.Principal}
	}
	return want, nil
}

// resolveMember finds the principal that is written as TYPE/NAME or id/SYSTEM/PRINCIPAL.
func resolveMember(ctx context.Context, in reconcile.Input, spelled string) (memberKey, error) {
	kind, rest, _ := strings.Cut(spelled, "/")
	if kind != "id" {
		p, err := principalIn(ctx, in, "spec.members", kind, rest)
		return memberKey{p.SystemID, p.PrincipalID}, err
	}
	system, principal, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(system, 10, 32)
	key := memberKey{system: schema.SystemID(n)}
	if err != nil || key.principal.UnmarshalText([]byte(principal)) != nil {
		return key, connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.members: the system id (32 bits) or the principal id (64 bits) of %q is too large; correct the number", spelled)
	}
	return key, nil
}

func memberOf(key memberKey, m v1beta1.ACLTemplateMember) schema.TemplateMemberRequest {
	var rights schema.Rights
	for _, name := range m.Rights {
		rights |= schema.RightNamed(string(name))
	}
	return schema.TemplateMemberRequest{
		SystemID: key.system, PrincipalID: key.principal, Rights: rights, MaxUsage: m.MaxUsage,
		StartTime: stampOf(m.StartTime), EndTime: stampOf(m.EndTime),
	}
}

// stampOf converts a time to a time stamp of the key server. nil stays nil.
func stampOf(t *metav1.Time) *schema.Stamp {
	if t == nil {
		return nil
	}
	var s schema.Stamp
	binary.BigEndian.PutUint64(s[:], uint64(t.UnixMilli()))
	return &s
}

// timeOf formats a time stamp for messages.
func timeOf(s schema.Stamp) string {
	ms := binary.BigEndian.Uint64(s[:])
	const year9999 = 253402300799999
	if ms > year9999 {
		return "after 9999"
	}
	return time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339)
}

func locksOut(m schema.TemplateMemberRequest) bool {
	return !m.Rights.Widen().Has(schema.RightNamed("WRITE")) || m.StartTime != nil || m.EndTime != nil
}

// compareMembers lists the differences between the members and the declared ones. begun means that members only have to
// be added, and that at most the manager's own entry has to be changed. The manager's own principal may be a member
// without a declaration.
func compareMembers(want membership, held []schema.TemplateMember) (drift []v1beta1.FieldDrift, begun bool) {
	begun = true
	seen := map[memberKey]bool{}
	for _, h := range held {
		key := memberKey{h.SystemID, h.PrincipalID}
		seen[key] = true
		declared, is := want.members[key]
		switch {
		case !is && key == want.own, is && agree(declared.TemplateMemberRequest, h):
		case is:
			begun = begun && key == want.own
			drift = append(drift, v1beta1.FieldDrift{Field: memberField(declared.spelled), Declared: termsOf(declared.TemplateMemberRequest), Observed: termsHeld(h)})
		default:
			begun = false
			drift = append(drift, v1beta1.FieldDrift{Field: memberField(key.String()), Declared: "none", Observed: termsHeld(h)})
		}
	}
	for key, declared := range want.members {
		if !seen[key] {
			drift = append(drift, v1beta1.FieldDrift{Field: memberField(declared.spelled), Declared: termsOf(declared.TemplateMemberRequest), Observed: "none"})
		}
	}
	slices.SortFunc(drift, func(a, b v1beta1.FieldDrift) int { return strings.Compare(a.Field, b.Field) })
	return drift, begun
}

func memberField(name string) string { return "members[" + name + "]" }

// agree reports whether a member on the key server is as declared. It may also have the rights that the declared rights
// imply.
func agree(want schema.TemplateMemberRequest, held schema.TemplateMember) bool {
	return held.Rights.Has(want.Rights) && want.Rights.Widen().Has(held.Rights) &&
		held.MaxUsage == usage(want.MaxUsage) && held.StartTime == deref(want.StartTime) && held.EndTime == deref(want.EndTime)
}

// usage returns the value of a usage limit for the key server: -1 for no limit.
func usage(limit *int64) int64 {
	if limit == nil {
		return -1
	}
	return *limit
}

func termsOf(m schema.TemplateMemberRequest) string {
	return terms(m.Rights.Widen(), usage(m.MaxUsage), deref(m.StartTime), deref(m.EndTime))
}

func termsHeld(m schema.TemplateMember) string {
	return terms(m.Rights, m.MaxUsage, m.StartTime, m.EndTime)
}

func terms(rights schema.Rights, limit int64, start, end schema.Stamp) string {
	says := strings.Join(rights.Names(), ", ")
	if limit >= 0 {
		says += fmt.Sprintf("; maxUsage %d", limit)
	}
	if !start.IsUnset() {
		says += "; from " + timeOf(start)
	}
	if !end.IsUnset() {
		says += "; until " + timeOf(end)
	}
	return says
}

// setTemplateMembers makes the members equal to the declared ones. It first removes members, and then adds and changes members.
func setTemplateMembers(ctx context.Context, c *connection.Connection, want declaredTemplate, id schema.HexID) error {
	// The cached members are outdated, even if enroll fails.
	defer templateMembers.Of(c).Changed(aclTemplates.Name, id.String(), "updated")
	held, err := c.Officer.ListACLTemplateMembers(ctx, schema.ByID{ID: id})
	if err != nil {
		return err
	}
	members := held.Members
	for _, h := range held.Members {
		key := memberKey{h.SystemID, h.PrincipalID}
		if _, is := want.members[key]; is || key == want.own {
			continue
		}
		gone, err := c.Officer.RemoveACLTemplateMember(ctx, schema.RemoveACLTemplateMemberRequest{ID: id, SystemID: key.system, PrincipalID: key.principal})
		if err != nil {
			return err
		}
		members = gone.Members
	}
	for _, m := range lacking(want.membership, held.Members) {
		saved, err := c.Officer.SetACLTemplateMember(ctx, schema.SetACLTemplateMemberRequest{ID: id, TemplateMemberRequest: m})
		if err != nil {
			return err
		}
		members = saved.Members
	}
	// Each write was verified: a difference now is an outside change.
	if drift, _ := compareMembers(want.membership, members); len(drift) > 0 {
		return &connection.Problem{Reason: v1beta1.ReasonProgressing, Outdated: true, Message: reconcile.FieldsOf(drift) + " changed outside while the manager wrote the members; it tries again"}
	}
	return nil
}

// lacking returns the declared members that are missing or differ, always in the same order.
func lacking(want membership, held []schema.TemplateMember) []schema.TemplateMemberRequest {
	var out []schema.TemplateMemberRequest
	for _, key := range slices.SortedFunc(maps.Keys(want.members), memberKey.compare) {
		declared := want.members[key].TemplateMemberRequest
		if !slices.ContainsFunc(held, func(h schema.TemplateMember) bool {
			return key == memberKey{h.SystemID, h.PrincipalID} && agree(declared, h)
		}) {
			out = append(out, declared)
		}
	}
	return out
}
