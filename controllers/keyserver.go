package controllers

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=trust.keyserver.dev,resources=keyservers,verbs=create

// keyServerReconciler updates the connection of each KeyServer if its spec or Secrets change, and reports the state of
// the connection.
type keyServerReconciler struct {
	reconcile.Cluster
	connections *connection.Connections
	sources     *sources.Reader
	population  *status.Population
	controllers []reconcile.Controller // of kinds that refer to KeyServers
	tokenFiles  map[string]string      // files with tokens of the manager's service account, by audience
	wake        chan event.TypedGenericEvent[reconcile.Wake]
	notified    sync.Map // by name: the generation for which the objects were last notified
}

// generation identifies one generation of an object with a given UID.
type generation struct {
	uid types.UID
	n   int64
}

// keyServerKind is the only kind without an adapter.
var keyServerKind, _ = v1beta1.KindNamed("KeyServer")

// Reconcile implements reconcile.Reconciler.
func (r *keyServerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ks := &v1beta1.KeyServer{}
	if err := r.Client.Get(ctx, req.NamespacedName, ks); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.connections.Remove(ctx, req.Name)
			r.sources.Refer(keyServerKind.Name, req.NamespacedName, nil)
			r.population.Move(req.NamespacedName, "")
			r.notified.Delete(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.sources.Refer(keyServerKind.Name, req.NamespacedName, sourcesOf(ks))
	read := ks.DeepCopy()
	if ks.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(ks, v1beta1.FinalizerInUse)
		if written, err := status.PatchMetadata(ctx, r.Client, read, ks); err != nil || !written {
			return reconcile.RequeueUnless(written), err
		}
		read = ks.DeepCopy()
	}
	var say status.Conclusion
	held, err := r.deletion(ctx, ks)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case held.Action == reconcile.ActRelease:
		return r.release(ctx, read, ks)
	case held.Reason == v1beta1.ReasonPaused:
		// While a KeyServer is paused, its objects cannot use the connection.
		r.connections.Block(ctx, ks.Name, connection.NewProblem(v1beta1.ReasonDependencyNotReady, "%s", held.Message))
		say = status.Conclusion{Reason: held.Reason, Message: held.Message}
	default:
		if say, err = r.connect(ctx, ks); err != nil {
			return ctrl.Result{}, err
		}
		if held.Reason != "" { // deletions of the dependants need the connection
			say = status.Conclusion{Reason: held.Reason, Message: held.Message}
		}
	}
	r.record(read, ks, say)
	written, err := status.Patch(ctx, r.Client, read, ks)
	if err != nil || !written {
		return reconcile.RequeueUnless(written), err
	}
	// The grants may have changed, so the objects must be notified once for each generation. The status cannot show
	// whether this happened: its write may have succeeded without a response.
	if was, _ := r.notified.Swap(req.NamespacedName, generation{ks.UID, ks.Generation}); was != (generation{ks.UID, ks.Generation}) {
		r.connections.Notify(ctx, connection.Notice{KeyServer: ks.Name})
	}
	return ctrl.Result{RequeueAfter: witnessInterval}, nil
}

// deletion applies the rules that need no key server.
func (r *keyServerReconciler) deletion(ctx context.Context, ks *v1beta1.KeyServer) (reconcile.Decision, error) {
	f := reconcile.Facts{
		Deleting:  !ks.DeletionTimestamp.IsZero(),
		Paused:    reconcile.Annotated(ks, v1beta1.AnnotationPaused),
		Abandoned: reconcile.Annotated(ks, v1beta1.AnnotationAbandon),
	}
	if f.Deleting {
		var err error
		if f.KindRemoved, err = r.KindRemoved(ctx, keyServerKind.CRD()); err != nil {
			return reconcile.Decision{}, err
		}
		for _, c := range r.controllers {
			names, err := c.Dependants(ctx, ks.Name)
			if err != nil {
				return reconcile.Decision{}, err
			}
			f.Dependants = append(f.Dependants, names...)
		}
	}
	d, _ := reconcile.ByObject(f)
	return d, nil
}

// connect updates the connection if the spec has changed, and returns the conclusion for the status.
func (r *keyServerReconciler) connect(ctx context.Context, ks *v1beta1.KeyServer) (status.Conclusion, error) {
	conn, err := r.connection(ctx, ks)
	if err != nil {
		why, other := connection.AsProblem(ctx, err)
		if why == nil {
			return status.Conclusion{}, other
		}
		r.connections.Block(ctx, ks.Name, why)
		return status.Conclusion{Reason: why.Reason, Message: why.Message}, nil
	}
	if token := ks.Annotations[v1beta1.AnnotationReconcileRequestedAt]; token != ks.Status.LastHandledReconcileAt {
		ks.Status.LastHandledReconcileAt = token
		conn.Refresh()
	}
	s := conn.Status()
	if !s.Open {
		return status.Conclusion{Reason: s.Problem.Reason, Message: s.Problem.Message}, nil
	}
	ks.Status.Version = s.Version
	r.recordFeed(ks, s.Feed)
	if err := r.recordWitness(ctx, ks, conn); err != nil {
		return status.Conclusion{}, err
	}
	if err := r.recordLeftBehind(ctx, ks, conn); err != nil {
		return status.Conclusion{}, err
	}
	// The cursor changes often, so it is written only together with another change.
	if ks.Status.ObservedGeneration != ks.Generation || !meta.IsStatusConditionTrue(ks.Status.Conditions, v1beta1.ConditionReady) {
		ks.Status.Cursor = s.Cursor
	}
	return status.Conclusion{Reason: v1beta1.ReasonVerified, Message: "the key server responds and accepts the credentials"}, nil
}

// connection returns the connection for the spec. It creates the connection if necessary.
func (r *keyServerReconciler) connection(ctx context.Context, ks *v1beta1.KeyServer) (*connection.Connection, error) {
	l, err := r.login(ctx, ks)
	if err != nil {
		return nil, err
	}
	conn, err := r.connections.Ensure(ks.Name, l)
	if err != nil {
		return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s", err)
	}
	return conn, nil
}

// login resolves the references of the spec. Its version changes if a referenced Secret or ConfigMap changes.
func (r *keyServerReconciler) login(ctx context.Context, ks *v1beta1.KeyServer) (connection.Login, error) {
	roots, pem, err := r.roots(ctx, ks.Spec.CABundle)
	if err != nil {
		return connection.Login{}, err
	}
	parts := []string{ks.Spec.URL, ks.Spec.ExternalURL, string(pem)}
	endpoint := func(c v1beta1.AdministratorCredential) (connection.Endpoint, error) {
		e, version, err := r.credential(ctx, c)
		e.BaseURL, e.ProofURL, e.RootCAs = ks.Spec.URL, ks.Spec.ExternalURL, roots
		parts = append(parts, version...)
		return e, err
	}
	var l connection.Login
	if l.Administrator, err = endpoint(ks.Spec.Credentials.Administrator); err != nil {
		return connection.Login{}, err
	}
	if officer := ks.Spec.Credentials.SecurityOfficer; officer != nil {
		e, err := endpoint(v1beta1.AdministratorCredential{SecretRef: &officer.SecretRef})
		if err != nil {
			return connection.Login{}, err
		}
		l.SecurityOfficer = &e
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	l.Version = hex.EncodeToString(sum[:])
	return l, nil
}

// credential returns the endpoint for a credential, and the versions of the Secrets and ConfigMaps that it refers to.
func (r *keyServerReconciler) credential(ctx context.Context, c v1beta1.AdministratorCredential) (e connection.Endpoint, version []string, err error) {
	if account := c.ServiceAccount; account != nil {
		if e.TokenFile = r.tokenFiles[account.Audience]; e.TokenFile == "" {
			return e, nil, connection.NewProblem(v1beta1.ReasonDependencyNotReady,
				"spec.credentials.administrator.serviceAccount.audience: the manager has no token for the audience %q; mount a service account token and name it with the manager's flag --token-file AUDIENCE=FILE", account.Audience)
		}
		e.Credential = fmt.Sprintf("the manager's service account token for the audience %q", account.Audience)
		return e, []string{"token", account.Audience, e.TokenFile}, nil
	}
	src := secretSource(*c.SecretRef)
	at, err := r.sources.Version(ctx, src)
	if err != nil {
		return e, nil, err
	}
	name, err := r.sources.Secret(ctx, src, c.SecretRef.UsernameKey)
	if err != nil {
		return e, nil, err
	}
	if _, err := r.sources.Secret(ctx, src, c.SecretRef.PasswordKey); err != nil {
		return e, nil, err
	}
	e.Credential = fmt.Sprintf("the credentials of %s (keys %q and %q)", src, c.SecretRef.UsernameKey, c.SecretRef.PasswordKey)
	e.Username = strings.TrimSpace(string(name))
	e.Password = func(ctx context.Context) (string, error) {
		password, err := r.sources.Secret(ctx, src, c.SecretRef.PasswordKey)
		return strings.TrimRight(string(password), "\r\n"), err
	}
	return e, []string{src.String(), at, c.SecretRef.UsernameKey, c.SecretRef.PasswordKey}, nil
}

func (r *keyServerReconciler) roots(ctx context.Context, from *v1beta1.CABundle) (*x509.CertPool, []byte, error) {
	if from == nil {
		return nil, nil, nil
	}
	pem, err := bundle(ctx, r.sources, from)
	if err != nil {
		return nil, nil, err
	}
	pool, err := certtext.Pool(pem)
	return pool, pem, err
}

// bundle reads the CA certificates that the connection trusts.
func bundle(ctx context.Context, values *sources.Reader, from *v1beta1.CABundle) ([]byte, error) {
	where, pem := "spec.caBundle.inline", []byte(deref(from.Inline))
	if key := sources.At(from.SecretKeyRef, from.ConfigMapKeyRef); from.Inline == nil && key != nil {
		var err error
		where = key.String()
		if pem, err = values.Public(ctx, *key); err != nil {
			return nil, err
		}
	}
	if _, err := certtext.Certificates(pem); err != nil {
		return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec, "%s %s", where, err)
	}
	return pem, nil
}

// record writes status and events.
func (r *keyServerReconciler) record(read, ks *v1beta1.KeyServer, say status.Conclusion) {
	now := status.Stamp(r.Clock.Now())
	if say.Reason == v1beta1.ReasonPaused {
		status.Pause(&ks.Status.Conditions, ks.Generation, now, say.Message)
		r.population.Move(client.ObjectKeyFromObject(ks), string(say.Reason))
		return
	}
	ks.Status.ObservedGeneration = ks.Generation
	status.Conclude(&ks.Status.Conditions, ks.Generation, now, say)
	meta.RemoveStatusCondition(&ks.Status.Conditions, v1beta1.ConditionVerified) // Ready has the same information
	before := meta.FindStatusCondition(read.Status.Conditions, v1beta1.ConditionReady)
	if say.Reason != v1beta1.ReasonProgressing && (before == nil || before.Reason != string(say.Reason)) {
		status.ReasonEvent(say.Reason, !ks.DeletionTimestamp.IsZero(), say.Message).Record(r.Recorder, ks)
	}
	r.population.Move(client.ObjectKeyFromObject(ks), string(say.Reason))
}

func (r *keyServerReconciler) recordFeed(ks *v1beta1.KeyServer, feed connection.FeedState) {
	follows := metav1.ConditionFalse
	if feed.Following {
		follows = metav1.ConditionTrue
	}
	status.SetCondition(&ks.Status.Conditions, v1beta1.ConditionChangeFeed, follows, ks.Generation, status.Stamp(r.Clock.Now()),
		status.Conclusion{Reason: feed.Reason, Message: feed.Message})
}

func (r *keyServerReconciler) release(ctx context.Context, read, ks *v1beta1.KeyServer) (ctrl.Result, error) {
	controllerutil.RemoveFinalizer(ks, v1beta1.FinalizerInUse)
	written, err := status.PatchMetadata(ctx, r.Client, read, ks)
	return reconcile.RequeueUnless(written), err
}

// handleNotice enqueues the KeyServer of a notice, unless the notice is about another kind.
func (r *keyServerReconciler) handleNotice(ctx context.Context, n connection.Notice) {
	if n.Kind != "" {
		return
	}
	select {
	case r.wake <- event.TypedGenericEvent[reconcile.Wake]{Object: reconcile.Wake{Object: types.NamespacedName{Name: n.KeyServer}}}:
	case <-ctx.Done():
	}
}

// readersOf maps a Secret or ConfigMap to the KeyServers that refer to it.
func (r *keyServerReconciler) readersOf(sourceKind string) func(context.Context, client.Object) []ctrl.Request {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		all := &v1beta1.KeyServerList{}
		if err := r.Client.List(ctx, all); err != nil {
			return nil
		}
		var requests []ctrl.Request
		for i := range all.Items {
			for _, src := range sourcesOf(&all.Items[i]) {
				if src == (sources.Ref{Kind: sourceKind, Namespace: o.GetNamespace(), Name: o.GetName()}) {
					requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Name: all.Items[i].Name}})
				}
			}
		}
		return requests
	}
}

// sourcesOf lists the Secrets and ConfigMaps that a KeyServer reads.
func sourcesOf(ks *v1beta1.KeyServer) (from []sources.Ref) {
	if secret := ks.Spec.Credentials.Administrator.SecretRef; secret != nil {
		from = append(from, secretSource(*secret))
	}
	if officer := ks.Spec.Credentials.SecurityOfficer; officer != nil {
		from = append(from, secretSource(officer.SecretRef))
	}
	if b := ks.Spec.CABundle; b != nil {
		from = append(from, sources.At(b.SecretKeyRef, b.ConfigMapKeyRef).Refs()...)
	}
	return from
}

func secretSource(s v1beta1.CredentialSecretReference) sources.Ref {
	return sources.Ref{Kind: sources.Secret, Namespace: s.Namespace, Name: s.Name}
}
