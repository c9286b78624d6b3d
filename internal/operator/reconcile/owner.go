package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// Identity caches the UID of the namespace kube-system, which identifies the cluster on key servers. The namespace
// exists as long as the cluster. The UID is empty for a plan without a cluster, or by a user without permission to read
// the namespace.
type Identity struct {
	Planned bool

	mu  sync.Mutex
	uid types.UID
}

func (i *Identity) of(ctx context.Context, live client.Reader) (types.UID, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.uid != "" {
		return i.uid, nil
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(k8sschema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, m)
	if apierrors.IsNotFound(err) || i.Planned && apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read namespace %s, whose UID identifies the cluster on key servers: %w", metav1.NamespaceSystem, err)
	}
	i.uid = m.UID
	return i.uid, nil
}

// asAdopted is the suffix of the owner string if the owner has adopted the external object. It is unambiguous, because
// object names contain no slash.
const asAdopted = "/Adopted"

// maxOwner is the maximum length of an owner string on the key server.
const maxOwner = 256

// ownerOf returns the owner string of an object. If it is too long, a digest replaces its end.
func ownerOf(cluster types.UID, kind, namespace, name string) string {
	owner := strings.Join([]string{string(cluster), namespace, kind, name}, "/")
	const most = maxOwner - len(asAdopted)
	if len(owner) <= most {
		return owner
	}
	sum := sha256.Sum256([]byte(owner))
	digest := "~" + hex.EncodeToString(sum[:8])
	return owner[:most-len(digest)] + digest
}

// Ownership says who owns an external object, according to the mark on the key server.
type Ownership struct {
	// MarksSupported means that the key server supports owner marks.
	MarksSupported bool
	// Self is the owner string of this object. Holder is the owner string in the mark of the external object, or "".
	Self   string
	Holder string
	// Marked is the present owner string if its owner no longer exists. The mark must then be moved to this object.
	Marked string
}

func (o Ownership) createdBySelf() bool { return o.Holder == o.Self && o.Self != "" }
func (o Ownership) ownedBySelf() bool   { return o.createdBySelf() || o.adopted() }

func (o Ownership) adopted() bool { return o.Holder == o.Self+asAdopted && o.Self != "" }

func (o Ownership) ownedByOther() bool { return o.Holder != "" && !o.ownedBySelf() }

// unmarked reports whether this object must set or move the mark.
func (o Ownership) unmarked() bool { return o.MarksSupported && (o.Holder == "" || o.Marked != "") }

// provenance returns the provenance that the mark shows, or "" if this object is not the owner.
func (o Ownership) provenance() v1beta1.Provenance {
	switch {
	case o.createdBySelf():
		return v1beta1.Created
	case o.adopted():
		return v1beta1.Adopted
	default:
		return ""
	}
}

// as returns the owner string of this object for a provenance.
func (o Ownership) as(p v1beta1.Provenance) string {
	if p == v1beta1.Created {
		return o.Self
	}
	return o.Self + asAdopted
}

// owns reads the owner mark of an external object.
func (r *reconciler[T, D]) owns(ctx context.Context, p *pass[T, D], seen External) (Ownership, error) {
	cluster, err := r.Identity.of(ctx, r.Live)
	if err != nil {
		return Ownership{}, err
	}
	o := Ownership{MarksSupported: true, Self: ownerOf(cluster, r.kind.Name, p.obj.GetNamespace(), p.obj.GetName())}
	mark, marked, err := r.marks.Of(p.in.Conn).Find(ctx, p.in.NotBefore, seen.ID)
	if connection.IsUnsupported(err) {
		return Ownership{}, nil
	}
	if err != nil || !marked || !seen.Exists {
		return o, err
	}
	if o.Holder = mark.Owner; o.ownedBySelf() {
		return o, nil
	}
	return r.succeed(ctx, p, o, cluster)
}

// succeed lets the object replace a former owner. The former owner is the same object in a cluster that this cluster
// succeeds, an object of this cluster that no longer exists, or an object that no grant covers any more.
func (r *reconciler[T, D]) succeed(ctx context.Context, p *pass[T, D], o Ownership, cluster types.UID) (Ownership, error) {
	before, rest, _ := strings.Cut(o.Holder, "/")
	parts := strings.Split(rest, "/")
	if len(parts) < 3 || parts[1] != r.kind.Name {
		return o, nil
	}
	namesake, _ := strings.CutSuffix(o.Holder, asAdopted)
	if cluster == "" || p.succeeds(before) {
		if namesake == ownerOf(types.UID(before), r.kind.Name, p.obj.GetNamespace(), p.obj.GetName()) {
			o.Marked, o.Holder = o.Holder, o.Self+strings.TrimPrefix(o.Holder, namesake)
			return o, nil
		}
	}
	if before != string(cluster) || strings.Contains(parts[2], "~") {
		return o, nil
	}
	holder, _ := r.New().(T)
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: parts[0], Name: parts[2]}, holder)
	out := apierrors.IsNotFound(err)
	if err == nil {
		if spec, _ := holder.Managed(); spec.KeyServerRef.Name == p.spec.KeyServerRef.Name {
			var covered bool
			covered, _, err = r.covered(ctx, p, holder)
			out = err == nil && !covered
		}
	}
	if out {
		o.Marked, o.Holder = o.Holder, ""
	}
	return o, client.IgnoreNotFound(err)
}

// unrecorded finds external objects with the mark of a deleted object that its status does not name: the manager
// created them and could not record their ids. They are deleted like superseded ones. For a Lasting adapter, Observe
// finds the external object by its mark, so unrecorded does nothing.
func (r *reconciler[T, D]) unrecorded(p *pass[T, D]) {
	if _, lasts := any(r.adapter).(Lasting); lasts || !p.facts.Deleting || !p.facts.MarksSupported {
		return
	}
	r.marks.Of(p.in.Conn).Each(func(m schema.OwnerMark) {
		id, o := r.marks.ID(m), Ownership{Self: p.facts.Self, Holder: m.Owner}
		if o.ownedBySelf() && id != p.facts.Owned && id != p.facts.External.ID && !p.facts.supersedes(id) {
			p.facts.Superseded = append(p.facts.Superseded, Superseded{ID: id, Provenance: o.provenance(), ClaimedBy: p.facts.NewOwner})
		}
	})
}

func (p *pass[T, D]) succeeds(cluster string) bool {
	o := p.keyServer.Spec.Ownership
	return o != nil && slices.Contains(o.Succeeds, cluster)
}

// markedFor finds the external object with the object's mark, of this cluster or of a cluster that it succeeds. If the
// UID of the cluster is unknown, it finds a mark of any cluster.
func (r *reconciler[T, D]) markedFor(ctx context.Context, p *pass[T, D]) (id string, marked bool, err error) {
	cluster, err := r.Identity.of(ctx, r.Live)
	if err != nil {
		return "", false, err
	}
	marks := r.marks.Of(p.in.Conn)
	if err := marks.Refresh(ctx, p.in.NotBefore); err != nil {
		return "", false, err
	}
	me := func(cluster string) string {
		return ownerOf(types.UID(cluster), r.kind.Name, p.obj.GetNamespace(), p.obj.GetName())
	}
	if cluster == "" {
		marks.Each(func(m schema.OwnerMark) {
			before, _, _ := strings.Cut(m.Owner, "/")
			if owner := strings.TrimSuffix(m.Owner, asAdopted); owner == me(before) {
				id, marked = r.marks.ID(m), true
			}
		})
		return id, marked, nil
	}
	var keys []string
	clusters := []string{string(cluster)}
	if o := p.keyServer.Spec.Ownership; o != nil {
		clusters = append(clusters, o.Succeeds...)
	}
	for _, c := range clusters {
		keys = append(keys, connection.ByOwner(me(c)), connection.ByOwner(me(c)+asAdopted))
	}
	mark, marked, err := marks.Find(ctx, p.in.NotBefore, keys...)
	return r.marks.ID(mark), marked, err
}

// claim sets the object's mark on the external object, before the external object is changed. If two objects do so at
// the same time, the key server rejects the second request.
func (r *reconciler[T, D]) claim(ctx context.Context, p *pass[T, D], d Decision) error {
	o := p.facts.Ownership
	if !o.unmarked() {
		return nil
	}
	return r.marks.Set(ctx, p.in.Conn, p.facts.External.ID, o.as(p.facts.provenanceAfter(d.Action)), o.Marked)
}

// create creates the external object together with its mark.
func (r *reconciler[T, D]) create(ctx context.Context, p *pass[T, D]) (Outcome, error) {
	o := p.facts.Ownership
	if !o.MarksSupported {
		return r.adapter.Create(ctx, p.in.Conn, *p.want)
	}
	out, err := r.adapter.Create(connection.OwnedBy(ctx, o.Self), p.in.Conn, *p.want)
	if err != nil {
		// The creation may have succeeded despite the error.
		p.in.Conn.Outdated(connection.MarksFeed(r.kind.Feed))
		return out, err
	}
	r.marks.RecordCreated(p.in.Conn, out.ID, o.Self)
	return out, nil
}

// removeMark removes the object's mark from an external object that the object no longer owns. If the mark stays, no
// other object can adopt the external object, until this object is created again or an administrator removes the mark.
func (r *reconciler[T, D]) removeMark(ctx context.Context, p *pass[T, D], id string) error {
	cluster, err := r.Identity.of(ctx, r.Live)
	if err != nil || id == "" {
		return err
	}
	conn := p.in.Conn
	if conn == nil {
		if conn, _ = r.connections.Get(p.spec.KeyServerRef.Name); conn == nil {
			return errors.New("the key server does not respond")
		}
	}
	o := Ownership{Self: ownerOf(cluster, r.kind.Name, p.obj.GetNamespace(), p.obj.GetName())}
	mark, marked, err := r.marks.Of(conn).Find(ctx, p.in.NotBefore, id)
	if connection.IsUnsupported(err) {
		return nil
	}
	if err != nil || !marked {
		return err
	}
	if o.Holder = mark.Owner; !o.ownedBySelf() {
		return nil
	}
	conn.Write(func() { err = r.marks.Release(ctx, conn, id, mark.Owner) })
	return err
}

// removeMarks removes the object's marks from external objects that stay on the key server. It continues after an
// error, and returns a message about the marks that it could not remove.
func (r *reconciler[T, D]) removeMarks(ctx context.Context, p *pass[T, D], ids ...string) (remains string) {
	for _, id := range ids {
		if err := r.removeMark(ctx, p, id); err != nil {
			ctrl.LoggerFrom(ctx).Info("an owner mark stays on the key server", "id", id, "cause", err.Error())
			remains = fmt.Sprintf("; its owner mark stays on the key server (%s) and prevents other objects from adopting it: see docs/resources.md", connection.StableMessage(err))
		}
	}
	return remains
}

// leaves returns the ids of the external objects that a released object leaves behind.
func (p *pass[T, D]) leaves() []string {
	ids := []string{p.facts.Owned}
	if p.facts.Owned == "" {
		ids[0] = p.facts.External.ID
	}
	for _, s := range p.facts.Superseded {
		ids = append(ids, s.ID)
	}
	return ids
}

// LeftBehind implements Controller. An owner mark is left behind if the deletion of its object bypassed the finalizer,
// or if the release of the mark failed.
func (r *reconciler[T, D]) LeftBehind(ctx context.Context, keyServer string, conn *connection.Connection) ([]string, error) {
	cluster, err := r.Identity.of(ctx, r.Live)
	if err != nil || cluster == "" {
		return nil, err
	}
	marks := r.marks.Of(conn)
	if err := marks.Refresh(ctx, time.Time{}); err != nil {
		if connection.IsUnsupported(err) {
			return nil, nil
		}
		return nil, err
	}
	of := string(cluster) + "/"
	owned := map[string]string{} // id of the marked external object by owner string
	marks.Each(func(m schema.OwnerMark) {
		owner := strings.TrimSuffix(m.Owner, asAdopted)
		if parts := strings.Split(owner, "/"); strings.HasPrefix(owner, of) && len(parts) == 4 && parts[2] == r.kind.Name {
			owned[owner] = r.marks.ID(m)
		}
	})
	if len(owned) == 0 {
		return nil, nil
	}
	// The objects are read after the marks: an object exists before its mark is set.
	all, err := r.list(ctx, client.MatchingFields{keyServerIndex: keyServer})
	if err != nil {
		return nil, err
	}
	for _, obj := range all {
		delete(owned, ownerOf(cluster, r.kind.Name, obj.GetNamespace(), obj.GetName()))
	}
	var left []string
	for owner, id := range owned {
		parts := strings.Split(owner, "/")
		left = append(left, fmt.Sprintf("%s %s/%s (id %s)", r.kind.Name, parts[1], parts[3], id))
	}
	slices.Sort(left)
	return left, nil
}
