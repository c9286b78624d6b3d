package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// Types of principals that an object can declare, as the key server names them.
const (
	xauthType       = "xauth"
	ldapType        = "ldap"
	groupType       = "group"
	certificateType = "certificate"
)

// classNames maps each type to the key server's class name.
var classNames = map[string]string{
	xauthType: "XAuthPrincipal", ldapType: "LDAPPrincipal", groupType: "GroupPrincipal", certificateType: "CertificatePrincipal",
}

// declaredPrincipal is the declaration of a Principal with its references resolved.
type declaredPrincipal struct {
	kind     string
	name     string
	identity *tokenIdentity // set for an xauth principal
	leaf     *declaredLeaf  // set for a certificate principal

	roles     []schema.HexID // sorted
	groups    []schema.HexID // sorted
	disabled  bool
	anybody   bool           // each principal that may act for others may act for this one
	delegates []schema.HexID // otherwise, the principals that may act for this one; sorted
}

type principalAdapter struct{}

func init() { adapted(principalAdapter{}) }

// Kind implements reconcile.Adapter.
func (principalAdapter) Kind() reconcile.Kind {
	return reconcile.Kind{
		Name: "Principal", Feed: principals.Feed,
		FormatID: schema.HexID.String,
		ParseID:  schema.ParseHexID,
		Awaits:   []string{roles.Name, principals.Feed},
		Follows:  []string{principals.Feed},
	}
}

// Sources implements reconcile.Adapter.
func (principalAdapter) Sources(obj *v1beta1.Principal) []sources.Ref {
	return leafSource(obj).Refs()
}

// Owned implements reconcile.Adapter.
func (principalAdapter) Owned(obj *v1beta1.Principal) string { return obj.Status.PrincipalID }

// Claims implements reconcile.Adapter: a Principal claims a type and a name.
func (principalAdapter) Claims(obj *v1beta1.Principal, want *declaredPrincipal) []string {
	name := declaredName(obj)
	if want != nil {
		name = want.name
	}
	if name == "" {
		return nil
	}
	return []string{declaredType(obj) + "/" + name}
}

// declaredType returns the type of principal that the object declares.
func declaredType(obj *v1beta1.Principal) string {
	switch s := obj.Spec; {
	case s.ServiceAccount != nil:
		return xauthType
	case s.LDAP != nil:
		return ldapType
	case s.Group != nil:
		return groupType
	default:
		return certificateType
	}
}

// declaredName returns the principal's name from the object's own fields. If the certificate is in a Secret or
// ConfigMap, it returns the last name in the status.
func declaredName(obj *v1beta1.Principal) string {
	switch s := obj.Spec; {
	case s.PrincipalName != nil:
		return *s.PrincipalName
	case s.ServiceAccount != nil:
		return declaredSubject(obj)
	case s.LDAP != nil:
		return s.LDAP.Name
	}
	if inline := inlineLeaf(obj); inline != nil {
		if leaf, err := parseLeaf([]byte(*inline), obj); err == nil {
			return leaf.name
		}
	}
	return obj.Status.Name
}

// Scope implements reconcile.Adapter. A service account logs in by its subject, which may differ from the name of its
// principal, so the scope has both. The operations are those of its roles and of its groups' roles.
func (a principalAdapter) Scope(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, want *declaredPrincipal) (grants.Scope, error) {
	var reach grants.Scope
	for _, claim := range a.Claims(obj, want) {
		reach.Names = append(reach.Names, grants.Name{claim})
	}
	if account := obj.Spec.ServiceAccount; account != nil {
		if subject := declaredSubject(obj); subject != declaredName(obj) {
			reach.Names = append(reach.Names, grants.Name{xauthType + "/" + subject})
		}
		if account.Issuer != nil {
			reach.Names = append(reach.Names, grants.Name{"issuer/" + *account.Issuer})
		}
	}
	reach.Names = append(reach.Names, declaredGroupNames(ctx, in, obj)...)
	if in.Conn == nil || !obj.DeletionTimestamp.IsZero() {
		return reach, nil
	}
	var err error
	reach.Operations, err = grantedOperations(ctx, in, obj, want)
	return reach, err
}

// declaredGroupNames returns the groups in which the principal should be. A grant must cover them, because ACLs may give rights to
// a group, which its operations do not show. A group object that does not exist is skipped.
func declaredGroupNames(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal) (names []grants.Name) {
	if in.Cluster == nil || !obj.DeletionTimestamp.IsZero() {
		return nil
	}
	for _, g := range obj.Spec.Groups {
		group := &v1beta1.Principal{}
		err := in.Cluster.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: g.PrincipalRef.Name}, group)
		if err == nil && group.Spec.Group != nil {
			names = append(names, grants.Name{groupType + "/" + declaredName(group)})
		}
	}
	return names
}

// Follows implements reconcile.Follower: a change of a group changes the operations of its members.
func (principalAdapter) Follows(obj *v1beta1.Principal) []reconcile.Followed {
	ids := make([]reconcile.Followed, len(obj.Status.GroupIDs))
	for i, id := range obj.Status.GroupIDs {
		ids[i] = reconcile.Followed{Feed: principals.Feed, ID: id}
	}
	return ids
}

// Needs implements reconcile.Consumer. A principal does not block the deletion of its delegates. Otherwise two
// principals that are delegates of each other could never be deleted.
func (principalAdapter) Needs(obj *v1beta1.Principal) []reconcile.Need {
	var needs []reconcile.Need
	for _, r := range obj.Spec.Roles {
		if r.RoleRef != nil {
			needs = append(needs, reconcile.Need{Key: objectKey("Role", obj.Namespace, r.RoleRef.Name), Holds: true})
		} else {
			needs = append(needs, reconcile.Need{Key: reconcile.IndexKey(obj.Spec.KeyServerRef.Name, roleKey(deref(r.Name))), Holds: true})
		}
	}
	for _, g := range obj.Spec.Groups {
		needs = append(needs, reconcile.Need{Key: objectKey("Principal", obj.Namespace, g.PrincipalRef.Name), Holds: true})
	}
	for _, d := range deref(obj.Spec.Delegation).Delegates {
		needs = append(needs, reconcile.Need{Key: objectKey("Principal", obj.Namespace, d.PrincipalRef.Name)})
	}
	return needs
}

// Provides implements reconcile.Provider.
func (principalAdapter) Provides(obj *v1beta1.Principal) []string {
	keys := []string{objectKey("Principal", obj.Namespace, obj.Name)}
	if s := obj.Status; s.PrincipalID != "" {
		keys = append(keys, reconcile.IndexKey(obj.Spec.KeyServerRef.Name, principalKey(string(s.Type)+"/"+s.Name)))
	}
	return keys
}

// Declared implements reconcile.Adapter.
func (a principalAdapter) Declared(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal) (declaredPrincipal, error) {
	want := declaredPrincipal{kind: declaredType(obj), name: declaredName(obj), disabled: obj.Spec.Disabled}
	var err error
	switch {
	case obj.Spec.ServiceAccount != nil:
		want.identity, err = identityDeclared(ctx, in, obj)
	case obj.Spec.Certificate != nil:
		if want.leaf, err = leafDeclared(ctx, in, obj); err == nil {
			want.name = want.leaf.name
		}
	}
	if err != nil || in.Deleting { // a deletion needs no roles
		return want, err
	}
	if want.roles, err = rolesDeclared(ctx, in, obj); err != nil {
		return want, err
	}
	if want.groups, err = groupsDeclared(ctx, in, obj); err != nil {
		return want, err
	}
	if d := obj.Spec.Delegation; d != nil {
		want.anybody = d.Anybody
		want.delegates, err = delegatesDeclared(ctx, in, obj)
	}
	return want, err
}

// maxPrincipalName is the maximum length of a name on the key server.
const maxPrincipalName = 128

// principalNotes is data of a principal reading for later use.
type principalNotes struct {
	held  schema.Principal
	begun bool // parts are missing, and nothing else differs
}

// Observe implements reconcile.Adapter. It finds the principal by
// the id that the object owns, and otherwise by type and name.
func (a principalAdapter) Observe(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, want *declaredPrincipal) (reconcile.External, error) {
	name := obj.Status.Name
	if want != nil {
		name = want.name
	}
	seen := reconcile.External{What: fmt.Sprintf("%s principal %q", declaredType(obj), name)}
	held, ok, err := a.find(ctx, in, obj, want)
	if err != nil || !ok {
		return seen, err
	}
	seen.Exists, seen.ID, seen.Names = true, held.ID.String(), []grants.Name{{declaredType(obj) + "/" + held.Name}}
	seen.What = fmt.Sprintf("%s principal %q (id %s)", declaredType(obj), held.Name, seen.ID)
	if held.SystemDefined {
		seen.Blockers = append(seen.Blockers, reconcile.BuiltIn(seen.What))
	}
	notes := principalNotes{held: held}
	if want != nil && !in.Deleting {
		notes.begun, err = a.compare(ctx, in, obj, want, held, &seen)
	}
	seen.AdapterData = notes
	return seen, err
}

func (principalAdapter) find(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, want *declaredPrincipal) (schema.Principal, bool, error) {
	if id := obj.Status.PrincipalID; id != "" {
		held, err := principalsByID.Of(in.Conn).Get(ctx, in.NotBefore, id)
		// If the principal with this id has another type, it is not this object's.
		if err != nil && !connection.IsGone(err) || err == nil && held.ClassName == classNames[declaredType(obj)] {
			return held, err == nil, err
		}
		if in.Deleting {
			return held, false, nil
		}
	}
	if want == nil {
		return schema.Principal{}, false, nil
	}
	held, err := resolvePrincipal(ctx, in, want.kind, want.name)
	var p *connection.Problem
	if errors.As(err, &p) && p.Code == codeNoPrincipal {
		return held, false, nil
	}
	return held, err == nil, err
}

// compare lists the differences between the principal and its declaration, and adds a blocker for each that cannot be
// corrected.
func (a principalAdapter) compare(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal, want *declaredPrincipal, held schema.Principal, seen *reconcile.External) (begun bool, err error) {
	own, err := ownPrincipals(ctx, in.Conn)
	if err != nil {
		return false, err
	}
	somebodyElse := differsAsWhole(want, held, seen)
	begun = !somebodyElse && differsInAccess(ctx, in, want, held, seen)
	if want.leaf != nil && !somebodyElse {
		if err := differsInLeaf(ctx, in, obj, want.leaf, held, seen); err != nil {
			return false, err
		}
	}
	if len(seen.Drift) > 0 && slices.Contains(own, held.ID) {
		seen.Blockers = append(seen.Blockers, reconcile.Blocker{
			Rule: "ownAccount", When: reconcile.Present, Reason: v1beta1.ReasonConflict,
			Message: seen.What + " is the manager's own principal and differs in " + reconcile.FieldsOf(seen.Drift) +
				"; the manager does not change it, because it could lock itself out: declare the present values, or change it on the key server as another principal",
		})
	}
	seen.Evidence = fmt.Sprintf("principal %s has exactly the declared %s and %s", seen.ID, plural(len(want.roles), "role"), plural(len(want.groups), "group"))
	return begun, nil
}

// NeedsOnlyAdditions implements reconcile.Stepwise: the first write creates the principal with its roles, later writes
// set groups and flags.
func (principalAdapter) NeedsOnlyAdditions(seen reconcile.External) bool {
	noted, _ := seen.AdapterData.(principalNotes)
	return noted.begun
}

// Create implements reconcile.Adapter. If the principal is declared as disabled, it is disabled before it gets its
// roles.
func (a principalAdapter) Create(ctx context.Context, c *connection.Connection, want declaredPrincipal) (reconcile.Outcome, error) {
	with := want.roles
	if want.disabled {
		with = []schema.HexID{}
	}
	made, err := a.make(ctx, c, want, with)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	notePrincipal(c, want.kind, made, true)
	out := reconcile.Outcome{ID: made.ID.String()}
	made, out.Unfinished = grantAccess(ctx, c, want, made)
	if out.Unfinished == nil {
		notePrincipal(c, want.kind, made, true)
	}
	out.Evidence = evidenceOf(want, made)
	return out, nil
}

// make sends the write that creates the principal.
func (principalAdapter) make(ctx context.Context, c *connection.Connection, want declaredPrincipal, with []schema.HexID) (schema.Principal, error) {
	var saved schema.PrincipalSaved
	var err error
	switch want.kind {
	case xauthType:
		saved, err = c.Admin.CreateXAuthPrincipal(ctx, schema.CreateXAuthPrincipalRequest{
			Name: want.name, Issuer: want.identity.issuer, Subject: want.identity.subject, Audiences: want.identity.audiences, RoleIDs: with,
		})
		if client.CodeOf(err) == "ALREADY_EXISTS" {
			return schema.Principal{}, &connection.Problem{Reason: v1beta1.ReasonConflict, Outdated: true, Code: client.CodeOf(err), Message: fmt.Sprintf(
				"%s; the tokens of %s may belong to a principal with another name: to take it over, delete this object and create it again with that name as spec.principalName; or delete that principal on the key server",
				connection.StableMessage(err), want.identity)}
		}
	case ldapType:
		saved, err = c.Admin.CreateLDAPPrincipal(ctx, schema.CreateLDAPPrincipalRequest{Name: want.name, RoleIDs: with})
	case groupType:
		saved, err = c.Admin.CreateGroup(ctx, schema.CreateGroupRequest{Name: want.name, RoleIDs: with})
	default:
		return enrollCertificate(ctx, c, want.leaf, with, true)
	}
	if err != nil {
		return schema.Principal{}, err
	}
	return *saved.Principal, nil
}

// Update implements reconcile.Adapter.
func (principalAdapter) Update(ctx context.Context, c *connection.Connection, want declaredPrincipal, seen reconcile.External) (reconcile.Outcome, error) {
	noted, _ := seen.AdapterData.(principalNotes)
	held := noted.held
	// The cached principal is outdated, even if Update fails.
	defer forgetPrincipal(c, seen.ID)
	if slices.ContainsFunc(seen.Drift, func(d v1beta1.FieldDrift) bool { return d.Field == "certificate" }) {
		var err error
		if held, err = enrollCertificate(ctx, c, want.leaf, nil, false); err != nil {
			return reconcile.Outcome{}, err
		}
	}
	held, err := grantAccess(ctx, c, want, held)
	return reconcile.Outcome{ID: seen.ID, Evidence: evidenceOf(want, held)}, err
}

func evidenceOf(want declaredPrincipal, held schema.Principal) string {
	says := fmt.Sprintf("the second read shows %q with %s and %s", held.Name, plural(len(held.RoleIDs), "role"), plural(len(held.GroupIDs), "group"))
	if want.leaf != nil && want.leaf.cert != nil {
		says += "; its certificate is valid until " + want.leaf.cert.NotAfter.UTC().Format(time.RFC3339)
	}
	return says
}

// Delete implements reconcile.Adapter.
func (principalAdapter) Delete(ctx context.Context, c *connection.Connection, obj *v1beta1.Principal, id string) (reconcile.Outcome, error) {
	principal, err := parseID(schema.ParseHexID, id)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	own, err := ownPrincipals(ctx, c)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if slices.Contains(own, principal) {
		return reconcile.Outcome{}, connection.NewProblem(v1beta1.ReasonInUse,
			"deletion waits: the manager logs in as %s principal %q (id %s); give the KeyServer other credentials first, or set deletionPolicy to Retain", declaredType(obj), obj.Status.Name, id)
	}
	gone, err := c.Admin.DeletePrincipal(ctx, schema.DeletePrincipalRequest{ID: principal})
	if client.CodeOf(err) == "IN_USE" {
		why := &connection.Problem{Reason: v1beta1.ReasonInUse, RequeueAfter: inUseAgain, Code: client.CodeOf(err), Message: strings.TrimPrefix(connection.StableMessage(err), "IN_USE: ") +
			" (DELETE /api/principals/" + id + "?heir=ID)"}
		return reconcile.Outcome{}, disableBeforeDeletion(ctx, c, obj, principal, why)
	}
	if err != nil {
		return reconcile.Outcome{}, err
	}
	forgetPrincipal(c, id)
	return reconcile.Outcome{ID: id, Evidence: fmt.Sprintf("%s; %s ended", gone.Detail, plural(gone.SessionsEnded, "session"))}, nil
}

// disableBeforeDeletion disables a principal whose deletion must wait, for example because it still owns keys. So its
// access ends when its object is deleted. Groups cannot log in and are not disabled.
func disableBeforeDeletion(ctx context.Context, c *connection.Connection, obj *v1beta1.Principal, id schema.HexID, why *connection.Problem) error {
	held, err := principalsByID.Of(c).Get(ctx, time.Time{}, id.String())
	if err != nil {
		return err
	}
	if obj.Spec.Group == nil && !held.Disabled {
		yes := true
		if _, err := c.Admin.UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: id, Disabled: &yes}); err != nil {
			return err
		}
		forgetPrincipal(c, id.String())
	}
	if obj.Spec.Group == nil {
		why.Message += "; until then it is disabled and cannot log in"
	}
	return why
}

// inUseAgain is the pause before the retry of a blocked deletion, because no event reports the end of the block.
const inUseAgain = 30 * time.Second

// Record implements reconcile.Adapter.
func (principalAdapter) Record(obj *v1beta1.Principal, want *declaredPrincipal, seen reconcile.External, owner bool, _ time.Time) {
	if !owner {
		return
	}
	s := &obj.Status
	s.PrincipalID, s.Type = seen.ID, v1beta1.PrincipalType(declaredType(obj))
	if noted, read := seen.AdapterData.(principalNotes); read {
		s.Name = noted.held.Name
	} else if want != nil {
		s.Name = want.name
	}
	if want == nil || len(seen.Drift) > 0 {
		return
	}
	n := int32(len(want.roles)) //nolint:gosec // the schema limits it to 64
	s.RoleCount = &n
	s.GroupIDs = nil
	for _, id := range want.groups {
		s.GroupIDs = append(s.GroupIDs, id.String())
	}
	if want.leaf != nil {
		want.leaf.record(s)
	}
}

// Expiry implements reconcile.Expirer. If the key server renews the certificate, the warning starts only when the
// renewal is overdue.
func (principalAdapter) Expiry(obj *v1beta1.Principal) (notBefore, notAfter *metav1.Time, warn time.Duration) {
	warn = warnBefore(obj.Spec.WarnBefore)
	if s := obj.Status; s.NotAfter != nil && s.RenewAfter != nil {
		warn = min(warn, s.NotAfter.Sub(s.RenewAfter.Time)/2)
	}
	return obj.Status.NotBefore, obj.Status.NotAfter, warn
}

// RenewAfter implements reconcile.Renewer.
func (principalAdapter) RenewAfter(obj *v1beta1.Principal) *metav1.Time {
	return obj.Status.RenewAfter
}

// listed joins names for messages.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
