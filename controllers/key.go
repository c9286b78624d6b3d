package controllers

import (
	"context"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// declaredKey is the declaration of a Key with its references resolved.
type declaredKey struct {
	mint schema.MintKeyRequest
	// membership includes the manager's own principal as OWNER.
	membership
	left     bool // the manager leaves the ACLs unchanged
	rotation schema.KeyRotation
}

type keyAdapter struct{}

func init() { adapted(keyAdapter{}) }

// Kind implements reconcile.Adapter. The change feed and owner marks use the id of a lineage's first key.
func (keyAdapter) Kind() reconcile.Kind {
	return reconcile.Kind{
		Name: "Key", Feed: lineages.Feed,
		FormatID: schema.HexID.String,
		ParseID:  schema.ParseHexID,
		Awaits:   []string{principals.Feed, trustedServers.Name, directories.Name},
	}
}

// Sources implements reconcile.Adapter.
func (keyAdapter) Sources(*v1beta1.Key) []sources.Ref { return nil }

// Owned implements reconcile.Adapter.
func (keyAdapter) Owned(obj *v1beta1.Key) string { return idOfLink(obj.Status.Lineage) }

// Claims implements reconcile.Adapter: a Key claims the lineage that it names or has created.
func (keyAdapter) Claims(obj *v1beta1.Key, _ *declaredKey) []string {
	claims := []string{}
	if obj.Spec.Lineage != nil {
		claims = append(claims, *obj.Spec.Lineage)
	} else if obj.Status.Lineage != "" && obj.Status.Provenance != "" {
		claims = append(claims, obj.Status.Lineage)
	}
	return claims
}

// Scope implements reconcile.Adapter. Keys have no names on the key server, so the scope of a Key without a path is the
// name of the object.
func (keyAdapter) Scope(_ context.Context, _ reconcile.Input, obj *v1beta1.Key, _ *declaredKey) (grants.Scope, error) {
	name := "key/" + obj.Namespace + "/" + obj.Name
	if obj.Spec.Path != nil {
		name = *obj.Spec.Path
	}
	reach := grants.Scope{Names: []grants.Name{{name}}}
	if obj.Spec.Lineage != nil {
		reach.Names = append(reach.Names, grants.Name{"lineage/" + *obj.Spec.Lineage})
	}
	return reach, nil
}

// Needs implements reconcile.Consumer. Members given by id have no object. A directory is needed only to create a key,
// so it may be deleted later. Any directory above the path is enough.
func (keyAdapter) Needs(obj *v1beta1.Key) []reconcile.Need {
	var needs []reconcile.Need
	for _, m := range obj.Spec.Members {
		if !strings.HasPrefix(m.Principal, "id/") {
			needs = append(needs, reconcile.Need{Key: reconcile.IndexKey(obj.Spec.KeyServerRef.Name, principalKey(m.Principal)), Holds: true})
		}
	}
	if obj.Spec.Path != nil {
		for _, directory := range directoriesAbove(*obj.Spec.Path) {
			needs = append(needs, reconcile.Need{Key: reconcile.IndexKey(obj.Spec.KeyServerRef.Name, directoryKey(directory))})
		}
	}
	return needs
}

// Lasts implements reconcile.Lasting: the key server never removes a destroyed key.
func (keyAdapter) Lasts() {}

// Declared implements reconcile.Adapter.
func (keyAdapter) Declared(ctx context.Context, in reconcile.Input, obj *v1beta1.Key) (declaredKey, error) {
	spec := &obj.Spec
	want := declaredKey{
		mint: schema.MintKeyRequest{Algorithm: string(spec.Algorithm), Path: spec.Path, Exportable: &spec.Exportable},
		left: spec.Members == nil && (spec.Path != nil || spec.Lineage != nil),
	}
	if r := spec.Rotation; r != nil {
		want.rotation = schema.KeyRotation{EveryDays: int(r.EveryDays), VerifyOnlyDays: int(r.VerifyOnlyDays), DestroyAfterDays: int(r.DestroyAfterDays)}
	}
	self, err := administrator.Of(in.Conn).Get(ctx, time.Time{}, "")
	if err != nil {
		return want, err
	}
	own := memberKey{self.SystemID, self.PrincipalID}
	want.membership, err = declareMembers(ctx, in, spec.Members, own)
	if err != nil {
		return want, err
	}
	member, is := want.members[own]
	if is && disowns(member.TemplateMemberRequest) {
		return want, connection.NewProblem(v1beta1.ReasonInvalidSpec,
			"spec.members: the manager logs in as %q, which must be OWNER without maxUsage, startTime and endTime to change the keys; "+
				"declare that, or omit the member: it is OWNER then", member.spelled)
	}
	if !is {
		want.members[own] = declaredMember{
			schema.TemplateMemberRequest{SystemID: own.system, PrincipalID: own.principal, Rights: schema.RightNamed("OWNER")}, own.String(),
		}
	}
	return want, nil
}

func disowns(m schema.TemplateMemberRequest) bool {
	return !m.Rights.Has(schema.RightNamed("OWNER")) || m.MaxUsage != nil || m.StartTime != nil || m.EndTime != nil
}

// keyNotes is data of a lineage reading for later use.
type keyNotes struct {
	first schema.HiddenLink
	keys  []schema.KeyFacts
}

func (n keyNotes) newest() schema.KeyFacts { return n.keys[len(n.keys)-1] }

// Observe implements reconcile.Adapter. It finds the lineage by the hidden link in the spec or the status, and
// otherwise by the owner mark.
func (a keyAdapter) Observe(ctx context.Context, in reconcile.Input, obj *v1beta1.Key, want *declaredKey) (reconcile.External, error) {
	seen := reconcile.External{What: "a lineage of " + string(obj.Spec.Algorithm) + " keys"}
	first, found, err := a.first(ctx, in, obj)
	if err != nil {
		return seen, err
	}
	if !found {
		seen.Blockers, err = a.unmintable(ctx, in, obj)
		return seen, err
	}
	seen.ID, seen.What = idOfLink(first.String()), "key lineage "+first.String()
	line, err := lineages.Of(in.Conn).Get(ctx, in.NotBefore, first.String())
	if err != nil {
		return seen, err
	}
	if err := a.readable(ctx, in, obj, line); err != nil {
		return seen, err
	}
	if len(line.keys) == 0 {
		seen.Blockers, err = a.unmintable(ctx, in, obj)
		return seen, err
	}
	seen.Exists, seen.AdapterData = true, keyNotes(line)
	if in.Deleting {
		a.observeGoing(in, obj, &seen)
	}
	if want == nil || !seen.Exists { // if Exists is false, all keys are destroyed or will be
		return seen, nil
	}
	return seen, a.compare(ctx, in, obj, want, &seen)
}

// first finds the hidden link of the lineage's first key.
func (keyAdapter) first(ctx context.Context, in reconcile.Input, obj *v1beta1.Key) (first schema.HiddenLink, found bool, err error) {
	known := obj.Status.Lineage
	if obj.Spec.Lineage != nil {
		known = *obj.Spec.Lineage
	}
	if known != "" {
		first, err = parseID(parseLink, known)
		return first, err == nil, err
	}
	id, marked, err := in.Marked(ctx)
	if err != nil || !marked {
		if connection.IsUnsupported(err) {
			if in.Deleting { // without owner marks the manager creates no key
				return "", false, nil
			}
			err = connection.NewProblem(v1beta1.ReasonUnsupported, "the key server has no owner marks, so the manager cannot find a key again that it has minted; "+
				"use a key server with owner marks, or delete this object and create it again with an existing lineage in spec.lineage")
		}
		return "", false, err
	}
	key, err := parseID(schema.ParseHexID, id)
	if err != nil {
		return "", false, err
	}
	self, err := administrator.Of(in.Conn).Get(ctx, time.Time{}, "")
	return schema.LinkOf(self.SystemID, key), err == nil, err
}

// unmintable returns the blockers of a key creation. It blocks a path that is not below a directory. If the manager may
// not list directories, it blocks nothing.
func (keyAdapter) unmintable(ctx context.Context, in reconcile.Input, obj *v1beta1.Key) ([]reconcile.Blocker, error) {
	switch {
	case in.Deleting:
		return nil, nil
	case obj.Spec.Lineage != nil:
		return []reconcile.Blocker{reconcile.Uncreatable("spec.lineage: no key lineage begins with " + *obj.Spec.Lineage +
			"; it must be the hidden link of the first key of an existing lineage; to mint a new key, delete this object and declare one without spec.lineage")}, nil
	case obj.Spec.Path == nil:
		return nil, nil
	}
	listed := directories.Of(in.Conn)
	if why, err := connection.AsProblem(ctx, listed.Refresh(ctx, in.NotBefore)); err != nil || why != nil {
		if why != nil && why.Reason != v1beta1.ReasonAccessDenied {
			err = why
		}
		return nil, err
	}
	for _, directory := range directoriesAbove(*obj.Spec.Path) {
		if _, templated, err := listed.Find(ctx, in.NotBefore, byPath(directory)); err != nil || templated {
			return nil, err
		}
	}
	return []reconcile.Blocker{reconcile.Dependency(reconcile.Absent, fmt.Sprintf(
		"spec.path: %q is not below a templated directory of KeyServer %q; declare a directory in an ACLTemplate", *obj.Spec.Path, in.Conn.Name))}, nil
}

// observeGoing reports the progress of a deletion. The deletion
// is done when every key is being destroyed or destroyed.
func (keyAdapter) observeGoing(in reconcile.Input, obj *v1beta1.Key, seen *reconcile.External) {
	noted, _ := seen.AdapterData.(keyNotes)
	living := 0
	for _, k := range noted.keys {
		if !ending(k) {
			living++
		}
	}
	if living == 0 {
		seen.Exists, seen.Evidence = false, destroyed(noted.keys)
		return
	}
	last := in.Now.AddDate(0, 0, int(obj.Spec.DestroyAfterDays))
	seen.Blockers = append(seen.Blockers, reconcile.Consequence(fmt.Sprintf(
		"schedules the destruction of %s for %s; they cannot be used from now on; until then, POST /api/keys/restore restores them", plural(living, "key"), day(last))))
}

// Create implements reconcile.Adapter. The first write creates the first key of the lineage. If a later write fails,
// the next pass continues.
func (a keyAdapter) Create(ctx context.Context, c *connection.Connection, want declaredKey) (reconcile.Outcome, error) {
	minted, err := c.Admin.MintKey(ctx, want.mint)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	lineages.Of(c).Changed(lineages.Feed, idOfLink(minted.TTag.String()), "updated")
	out, err := a.fill(ctx, c, want, keyNotes{minted.TTag, []schema.KeyFacts{minted.KeyFacts}})
	out.Unfinished = err
	return out, nil
}

// Update implements reconcile.Adapter.
func (a keyAdapter) Update(ctx context.Context, c *connection.Connection, want declaredKey, seen reconcile.External) (reconcile.Outcome, error) {
	noted, _ := seen.AdapterData.(keyNotes)
	line, err := readLineage(ctx, c, noted.first.String())
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if len(line.keys) == 0 {
		return reconcile.Outcome{}, changedMeanwhile("the lineage")
	}
	return a.fill(ctx, c, want, keyNotes(line))
}

// fill makes the ACLs and the rotation equal to the declared ones. The newest key comes first, because a successor
// inherits its ACL.
func (keyAdapter) fill(ctx context.Context, c *connection.Connection, want declaredKey, line keyNotes) (reconcile.Outcome, error) {
	// The cached lineage is outdated, even if fill fails.
	defer lineages.Of(c).Changed(lineages.Feed, idOfLink(line.first.String()), "updated")
	newest := &line.keys[len(line.keys)-1]
	out := reconcile.Outcome{ID: idOfLink(line.first.String()), AdapterData: line}
	for i := len(line.keys) - 1; i >= 0 && !want.left; i-- {
		if stateOf(line.keys[i]) == stateDestroyed {
			continue
		}
		if err := setKeyACL(ctx, c, want.membership, line.keys[i].TTag); err != nil {
			return out, err
		}
	}
	if !ending(*newest) && rotationOf(*newest) != want.rotation {
		r := want.rotation
		saved, err := c.Admin.SetKeyRotation(ctx, schema.KeyRotationRequest{
			TTag: newest.TTag, EveryDays: r.EveryDays, VerifyOnlyDays: r.VerifyOnlyDays, DestroyAfterDays: r.DestroyAfterDays,
		})
		if err != nil {
			return out, err
		}
		newest.Rotation = saved.Rotation
	}
	out.Evidence = "the second read shows that " + evidence(want, line)
	return out, nil
}

// Delete implements reconcile.Adapter: it schedules the destruction of every key. The newest key comes first, so that
// the key server creates no successor.
func (keyAdapter) Delete(ctx context.Context, c *connection.Connection, obj *v1beta1.Key, id string) (reconcile.Outcome, error) {
	key, err := parseID(schema.ParseHexID, id)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	self, err := administrator.Of(c).Get(ctx, time.Time{}, "")
	if err != nil {
		return reconcile.Outcome{}, err
	}
	first := schema.LinkOf(self.SystemID, key).String()
	defer lineages.Of(c).Changed(lineages.Feed, id, "updated")
	line, err := readLineage(ctx, c, first)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	after := int(obj.Spec.DestroyAfterDays)
	for i := len(line.keys) - 1; i >= 0; i-- {
		if k := line.keys[i]; !ending(k) {
			_, err := c.Admin.DestroyKey(ctx, schema.DestroyKeyRequest{TTag: k.TTag, AfterDays: &after})
			if client.CodeOf(err) == "ACL_DENIED" {
				return reconcile.Outcome{}, &connection.Problem{Reason: v1beta1.ReasonAccessDenied, RequeueAfter: inUseAgain, Code: client.CodeOf(err),
					Message: fmt.Sprintf("generation %d of key lineage %s: %s", generationOf(k), first, makeOwner)}
			}
			if client.CodeOf(err) == "APPROVAL_REQUIRED" {
				why, err := connection.AsProblem(ctx, err)
				if err != nil {
					return reconcile.Outcome{}, err
				}
				why.Message = fmt.Sprintf("generation %d of key lineage %s: %s; ask an owner of the key to request the approval of POST /api/keys/destroy, or set deletionPolicy to Retain to keep all keys",
					generationOf(k), first, why.Message)
				return reconcile.Outcome{}, why
			}
			if err != nil {
				return reconcile.Outcome{}, err
			}
		}
	}
	if line, err = readLineage(ctx, c, first); err != nil {
		return reconcile.Outcome{}, err
	}
	for _, k := range line.keys {
		if !ending(k) {
			return reconcile.Outcome{}, changedMeanwhile("the lineage")
		}
	}
	return reconcile.Outcome{ID: id, Evidence: destroyed(line.keys)}, nil
}

// Record implements reconcile.Adapter.
func (keyAdapter) Record(obj *v1beta1.Key, want *declaredKey, seen reconcile.External, owner bool, _ time.Time) {
	noted, read := seen.AdapterData.(keyNotes)
	if !owner || !read {
		return
	}
	s, newest := &obj.Status, noted.newest()
	generation := generationOf(newest)
	s.Lineage, s.HiddenLink, s.Generation, s.State = noted.first.String(), newest.TTag.String(), &generation, stateOf(newest)
	s.NextRotationTime = nil
	if r := rotationOf(newest); r.EveryDays > 0 && s.State == stateEnabled && newest.CreatedAt != nil {
		at := metav1.NewTime(newest.CreatedAt.AddDate(0, 0, r.EveryDays).Truncate(time.Second))
		s.NextRotationTime = &at
	}
	if want == nil || len(seen.Drift) > 0 {
		return
	}
	s.MemberCount = nil
	if !want.left {
		members := int32(len(want.members)) //nolint:gosec // the schema limits it
		s.MemberCount = &members
	}
}

// Publishes implements reconcile.Publisher.
func (keyAdapter) Publishes(obj *v1beta1.Key) []v1beta1.PublishedReference {
	if obj.Spec.Publish == nil {
		return nil
	}
	return []v1beta1.PublishedReference{{APIVersion: "v1", Kind: sources.ConfigMap, Namespace: obj.Namespace, Name: obj.Spec.Publish.ConfigMap.Name}}
}

// Published implements reconcile.Publisher. With this data, a Pod that has only a token can find and trust the key
// server and use the key.
func (keyAdapter) Published(ctx context.Context, in reconcile.Input, obj *v1beta1.Key) ([]reconcile.Publication, error) {
	if obj.Spec.Publish == nil {
		return nil, nil
	}
	ks := &v1beta1.KeyServer{}
	if err := in.Cluster.Get(ctx, types.NamespacedName{Name: obj.Spec.KeyServerRef.Name}, ks); err != nil {
		return nil, err
	}
	data := map[string]string{
		"hiddenLink": obj.Status.HiddenLink, "lineage": obj.Status.Lineage,
		"generation": strconv.Itoa(int(deref(obj.Status.Generation))), "algorithm": string(obj.Spec.Algorithm), "url": ks.Spec.URL,
	}
	if ks.Spec.ExternalURL != "" {
		data["url"] = ks.Spec.ExternalURL
	}
	if from := ks.Spec.CABundle; from != nil {
		ca, err := bundle(ctx, in.Sources, from)
		if err != nil {
			return nil, err
		}
		certs, err := certtext.Certificates(ca)
		if err != nil {
			return nil, err
		}
		for _, c := range certs { // only the certificates, without comments
			data["ca.crt"] += string(pem.EncodeToMemory(&pem.Block{Type: certtext.CertificateType, Bytes: c.Raw}))
		}
	}
	return []reconcile.Publication{reconcile.ConfigMap(obj.Namespace, obj.Spec.Publish.ConfigMap.Name, data)}, nil
}

// Publications implements reconcile.Publisher.
func (keyAdapter) Publications(obj *v1beta1.Key) *[]v1beta1.PublishedReference {
	return &obj.Status.Published
}
