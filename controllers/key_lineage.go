package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// lineages caches the keys of each lineage, by the hidden link of its first key. There are too many keys to list all of
// them.
var lineages = connection.Lookup[keyLineage]{
	Feed: "key", Name: "keys of a line",
	Read: readLineage,
	ID:   func(l keyLineage) string { return idOfLink(l.first.String()) },
	Parts: func(l keyLineage) (ids []string) {
		for _, k := range l.keys[min(1, len(l.keys)):] {
			ids = append(ids, idOfLink(k.TTag.String()))
		}
		return ids
	},
}

// keyLineage has the keys of a lineage, the oldest first. keys is empty if first is not the first key of a lineage, or
// if the manager may not read it.
type keyLineage struct {
	first schema.HiddenLink
	keys  []schema.KeyFacts
}

// Limits of one lineage: ten thousand keys, which are enough for one key a day for 27 years.
const (
	linePage  = 500
	linePages = 20
)

func readLineage(ctx context.Context, c *connection.Connection, first string) (keyLineage, error) {
	lineage, err := parseID(parseLink, first)
	line := keyLineage{first: lineage}
	if err != nil {
		return line, err
	}
	limit := linePage
	in := schema.KeyQuery{Lineage: &lineage, Limit: &limit}
	for range linePages {
		page, err := c.Admin.ListKeys(ctx, in)
		if err != nil {
			return line, err
		}
		line.keys = append(line.keys, page.Keys...)
		if page.Next == nil {
			return line, nil
		}
		in.After = page.Next
	}
	return line, connection.NewProblem(v1beta1.ReasonConflict, "key lineage %s has more than %d keys, the limit of the manager; declare a new Key", first, linePage*linePages)
}

// keyACLs caches the ACL of each key, by its hidden link.
var keyACLs = connection.Lookup[keyACL]{
	Feed: "key", Name: "list of a key",
	Read: func(ctx context.Context, c *connection.Connection, key string) (keyACL, error) {
		ttag, err := parseID(parseLink, key)
		if err != nil {
			return keyACL{}, err
		}
		got, err := c.Admin.GetACL(ctx, schema.KeyRequest{TTag: ttag})
		return keyACL{ttag, membersOf(got.ACL)}, err
	},
	ID: func(l keyACL) string { return idOfLink(l.ttag.String()) },
}

type keyACL struct {
	ttag    schema.HiddenLink
	members []schema.TemplateMember
}

// membersOf converts ACL entries to members of an ACL template.
func membersOf(list schema.ACLInfo) []schema.TemplateMember {
	members := make([]schema.TemplateMember, len(list.Entries))
	for i, e := range list.Entries {
		members[i] = schema.TemplateMember{
			SystemID: e.SystemID, PrincipalID: e.PrincipalID, Rights: e.Rights, MaxUsage: e.MaxUsage, StartTime: e.StartTime, EndTime: e.EndTime,
		}
	}
	return members
}

// makeOwner is the end of a message: the remedy if an ACL denies access to the manager.
const makeOwner = "the ACL of the key no longer grants the manager's principal the rights that it needs; ask an owner of the key to make it OWNER again (POST /api/keys/acl/grant)"

// readable returns an error if the manager cannot read all keys of a lineage. A missing generation means that an ACL
// hides a key. Without the error, the manager could use an older key as the newest, or create another lineage.
func (keyAdapter) readable(ctx context.Context, in reconcile.Input, obj *v1beta1.Key, line keyLineage) error {
	if len(line.keys) == 0 {
		_, err := keyACLs.Of(in.Conn).Get(ctx, in.NotBefore, line.first.String())
		switch client.CodeOf(err) {
		case "ACL_NOT_FOUND", "KEY_NOT_FOUND":
			return nil
		case "ACL_DENIED":
			return connection.NewProblem(v1beta1.ReasonAccessDenied, "key lineage %s: %s", line.first, makeOwner)
		}
		return err // nil if the key exists but is not the first of a lineage
	}
	last := deref(obj.Status.Generation)
	for i, k := range line.keys {
		if generationOf(k) != int32(i+1) {
			return connection.NewProblem(v1beta1.ReasonAccessDenied, "generation %d of key lineage %s: %s", i+1, line.first, makeOwner)
		}
	}
	if newest := int32(len(line.keys)); newest < last && obj.Status.Lineage == line.first.String() { //nolint:gosec // readLine limits it
		return connection.NewProblem(v1beta1.ReasonAccessDenied, "generation %d of key lineage %s: %s", last, line.first, makeOwner)
	}
	return nil
}

// compare lists the differences between a lineage and the declaration.
func (keyAdapter) compare(ctx context.Context, in reconcile.Input, obj *v1beta1.Key, want *declaredKey, seen *reconcile.External) error {
	noted, _ := seen.AdapterData.(keyNotes)
	newest := noted.newest()
	fixed := func(field, declared, observed string) {
		if declared == observed {
			return
		}
		seen.Drift = append(seen.Drift, v1beta1.FieldDrift{Field: field, Declared: declared, Observed: observed})
		seen.Blockers = append(seen.Blockers, reconcile.Fixed(fmt.Sprintf(
			"spec.%s: declared is %s, but %s has %s, which cannot change after the key is minted; declare that value in another object", field, declared, seen.What, observed)))
	}
	fixed("algorithm", want.mint.Algorithm, deref(newest.Algorithm))
	fixed("exportable", fmt.Sprint(deref(want.mint.Exportable)), fmt.Sprint(deref(newest.Exportable)))
	for i := len(noted.keys) - 1; i >= 0 && !want.left; i-- {
		key := noted.keys[i]
		if stateOf(key) == stateDestroyed {
			continue
		}
		list, err := keyACLs.Of(in.Conn).Get(ctx, in.NotBefore, key.TTag.String())
		if err != nil {
			return err
		}
		drift, _ := compareMembers(want.membership, list.members)
		for _, d := range drift {
			if i != len(noted.keys)-1 {
				d.Field += fmt.Sprintf(" of generation %d", i+1)
			}
			seen.Drift = append(seen.Drift, d)
		}
	}
	if have := rotationOf(newest); !ending(newest) && have != want.rotation {
		seen.Drift = append(seen.Drift, v1beta1.FieldDrift{Field: "rotation", Declared: formatRotation(want.rotation), Observed: formatRotation(have)})
	}
	if state := stateOf(newest); state != stateEnabled {
		if obj.Spec.ManagementPolicy == v1beta1.Observe {
			seen.Drift = append(seen.Drift, v1beta1.FieldDrift{Field: "state", Declared: stateEnabled, Observed: state})
		} else {
			seen.Blockers = append(seen.Blockers, withdrawn(seen.What, newest))
		}
	}
	seen.Evidence = evidence(*want, noted)
	if was, is := obj.Status.Generation, generationOf(newest); was != nil && obj.Status.Lineage == noted.first.String() && is > *was {
		seen.IntendedChange = fmt.Sprintf("rotated from generation %d to generation %d", *was, is)
	}
	return nil
}

// withdrawn reports that a user has disabled or destroyed the newest
// key, perhaps in an emergency. The manager does not undo that.
func withdrawn(line string, newest schema.KeyFacts) reconcile.Blocker {
	says := fmt.Sprintf("generation %d, the newest of %s, is in the state %s", generationOf(newest), line, stateOf(newest))
	switch stateOf(newest) {
	case stateDestroying:
		says += " and is destroyed " + on(newest.DestroyAt) + "; to keep it, restore each key (POST /api/keys/restore) and enable it (POST /api/keys/enable); " +
			"for a new lineage, delete this object and create it again"
	case stateDestroyed:
		says += " and cannot be restored; for a new lineage, delete this object and create it again"
	default:
		says += ", set by another client; when the reason for that is over, enable the key (POST /api/keys/enable) or rotate it (POST /api/keys/rotate)"
	}
	return reconcile.Blocker{Rule: "withdrawn", When: reconcile.Agreed, Reason: v1beta1.ReasonConflict, Message: says}
}

// setKeyACL makes the ACL of a key equal to the declared one. First it makes the manager OWNER if necessary. Then it
// revokes entries, and then grants and changes others.
func setKeyACL(ctx context.Context, c *connection.Connection, want membership, ttag schema.HiddenLink) error {
	got, err := c.Admin.GetACL(ctx, schema.KeyRequest{TTag: ttag})
	if err != nil {
		return err
	}
	defer keyACLs.Of(c).Changed(keyACLs.Feed, idOfLink(ttag.String()), "updated")
	held := membersOf(got.ACL)
	list := held
	missing := lacking(want, held)
	isOwn := func(m schema.TemplateMemberRequest) bool { return memberKey{m.SystemID, m.PrincipalID} == want.own }
	slices.SortStableFunc(missing, func(a, b schema.TemplateMemberRequest) int {
		switch {
		case isOwn(a) && !isOwn(b):
			return -1
		case isOwn(b) && !isOwn(a):
			return 1
		}
		return 0
	})
	give := func(m schema.TemplateMemberRequest) error {
		change := schema.ACLChangeRequest{
			TTag: ttag, SystemID: m.SystemID, PrincipalID: m.PrincipalID, Rights: m.Rights, MaxUsage: m.MaxUsage, StartTime: m.StartTime, EndTime: m.EndTime,
		}
		send := c.Admin.GrantACL
		if slices.ContainsFunc(held, func(h schema.TemplateMember) bool {
			return h.SystemID == m.SystemID && h.PrincipalID == m.PrincipalID
		}) {
			send = c.Admin.UpdateACL // GrantACL cannot remove rights
		}
		saved, err := send(ctx, change)
		if err == nil {
			list = membersOf(saved.ACL)
		}
		return err
	}
	if len(missing) > 0 && isOwn(missing[0]) {
		if err := give(missing[0]); err != nil {
			return err
		}
		missing = missing[1:]
	}
	for _, h := range held {
		if _, is := want.members[memberKey{h.SystemID, h.PrincipalID}]; is {
			continue
		}
		gone, err := c.Admin.RevokeACL(ctx, schema.ACLRevokeRequest{TTag: ttag, SystemID: h.SystemID, PrincipalID: h.PrincipalID})
		if err != nil {
			return err
		}
		list = membersOf(gone.ACL)
	}
	for _, m := range missing {
		if err := give(m); err != nil {
			return err
		}
	}
	// Each write was verified: a difference now is an outside change.
	if drift, _ := compareMembers(want, list); len(drift) > 0 {
		return changedMeanwhile(reconcile.FieldsOf(drift))
	}
	return nil
}

func changedMeanwhile(what string) error {
	return &connection.Problem{Reason: v1beta1.ReasonProgressing, Outdated: true, Message: what + " changed outside while the manager wrote the keys; it tries again"}
}

// The key states that this package distinguishes.
const (
	stateEnabled    = "enabled"
	stateDestroying = "destroying"
	stateDestroyed  = "destroyed"
)

func stateOf(k schema.KeyFacts) string { return deref(k.State) }

// ending reports whether a key is destroyed or scheduled for destruction.
func ending(k schema.KeyFacts) bool {
	return stateOf(k) == stateDestroying || stateOf(k) == stateDestroyed
}

func generationOf(k schema.KeyFacts) int32 {
	return int32(deref(k.Generation)) //nolint:gosec // readLineage limits it
}

func rotationOf(k schema.KeyFacts) schema.KeyRotation { return deref(k.Rotation) }

func formatRotation(r schema.KeyRotation) string {
	if r == (schema.KeyRotation{}) {
		return "none"
	}
	return fmt.Sprintf("everyDays %d, verifyOnlyDays %d, destroyAfterDays %d", r.EveryDays, r.VerifyOnlyDays, r.DestroyAfterDays)
}

// evidence describes how the lineage agrees with the declaration.
func evidence(want declaredKey, line keyNotes) string {
	says := fmt.Sprintf("key lineage %s is at generation %d", line.first, generationOf(line.newest()))
	if want.left {
		return says
	}
	return says + fmt.Sprintf("; each ACL has exactly the declared %s", plural(len(want.members), "member"))
}

// destroyed describes until when the keys can be restored.
func destroyed(line []schema.KeyFacts) string {
	var last *time.Time
	for _, k := range line {
		if stateOf(k) == stateDestroying && k.DestroyAt != nil && (last == nil || k.DestroyAt.After(*last)) {
			last = k.DestroyAt
		}
	}
	if last == nil {
		return "every key of the lineage is destroyed"
	}
	return fmt.Sprintf("every key of the lineage (%d) is destroyed or scheduled for destruction, the last one %s; until then, POST /api/keys/restore restores it", len(line), on(last))
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func on(t *time.Time) string {
	if t == nil {
		return "at a later time"
	}
	return "on " + day(*t)
}

// parseLink reads the hidden link of a key.
func parseLink(text string) (l schema.HiddenLink, err error) {
	err = l.UnmarshalText([]byte(text))
	return l, err
}

// idOfLink returns the id of a key in the change feed and in
// owner marks. It returns "" if the text is not a hidden link.
func idOfLink(text string) string {
	l, err := parseLink(text)
	if err != nil {
		return ""
	}
	_, id, ok := l.Split()
	if !ok {
		return ""
	}
	return id.String()
}
