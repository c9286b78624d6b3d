package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/controllers"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// Options configure a plan.
type Options struct {
	Files []string // paths of files and directories; "-" means Stdin
	Stdin io.Reader
	// Namespace is the namespace for manifests without one.
	Namespace string
	// Cluster reads objects that are not in the files. It is nil without a cluster.
	Cluster client.Reader
	// Issuer reads the issuer of the cluster's service accounts. It is nil without a cluster.
	Issuer *sources.Issuer
	// Access changes how one KeyServer is reached. It may be nil.
	Access *Access
	// Clock is the clock of the reconcilers. nil means the system clock.
	Clock clock.Clock
	Log   logr.Logger
}

// Make reads the files and returns the plan.
func Make(ctx context.Context, o Options) (*Report, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	w, err := newWorld(o)
	if err != nil {
		return nil, err
	}
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	planner, err := controllers.NewPlanner(controllers.PlanOptions{Client: w.snapshot, Indexer: w.snapshot, Issuer: o.Issuer, Log: o.Log, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	defer planner.Close(context.WithoutCancel(ctx))
	if err := w.connect(ctx, planner); err != nil {
		return nil, err
	}
	objects := make([]client.Object, len(w.planned))
	for i, p := range w.planned {
		objects[i] = p.object
	}
	intents, err := planner.Plan(ctx, objects)
	if err != nil {
		return nil, err
	}
	return w.report(ctx, intents)
}

// connect connects to every KeyServer of the objects, and tries to connect to their peers.
func (w *world) connect(ctx context.Context, planner *controllers.Planner) error {
	var asked, peers []string
	for _, p := range w.planned {
		spec, _ := p.object.Managed()
		asked = append(asked, spec.KeyServerRef.Name)
		if peer := planner.Peer(p.object); peer != "" {
			peers = append(peers, peer)
		}
	}
	asked = unique(append(asked, w.declaredKeyServers...))
	if a := w.options.Access; a != nil && !slices.Contains(asked, a.KeyServer) && !slices.Contains(peers, a.KeyServer) {
		return fmt.Errorf("--key-server-ref: no object in the files refers to KeyServer %q; give one of %s",
			a.KeyServer, strings.Join(unique(append(asked, peers...)), ", "))
	}
	for _, name := range asked {
		err := w.snapshot.Get(ctx, client.ObjectKey{Name: name}, &v1beta1.KeyServer{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("KeyServer %q, to which %s refers, is neither in the files nor in a cluster; add its manifest, or give --key-server-ref %[1]s with --server and --password-file",
				name, w.whoRefersTo(name))
		}
		if err != nil {
			return err
		}
		if err := planner.Connect(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range unique(peers) {
		exists := w.snapshot.Get(ctx, client.ObjectKey{Name: name}, &v1beta1.KeyServer{}) == nil
		if !exists || slices.Contains(asked, name) {
			continue
		}
		// If a peer does not respond, the objects that need it are blocked.
		if err := planner.Connect(ctx, name); err != nil {
			w.options.Log.Info("a peer does not respond", "keyServer", name, "cause", err.Error())
		}
	}
	w.connected = asked
	return nil
}

func (w *world) whoRefersTo(keyServer string) string {
	for _, p := range w.planned {
		if spec, _ := p.object.Managed(); spec.KeyServerRef.Name == keyServer {
			return p.name()
		}
	}
	return "a manifest"
}

func unique(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

// Access changes how a KeyServer is reached, by command-line flags. Empty fields have no effect.
type Access struct {
	KeyServer     string
	URL           string
	CA            string // PEM
	Administrator *Login
	Officer       *Login
}

// Login is the name and password of a principal.
type Login struct {
	Name     string
	Password string
}

// flagsNamespace is the namespace of Secrets made from flags. No real namespace can have this name.
const flagsNamespace = "(flags)"

// override changes or creates the KeyServer that the flags name.
func (w *world) override(ctx context.Context, a *Access) error {
	ks := &v1beta1.KeyServer{}
	err := w.snapshot.Get(ctx, client.ObjectKey{Name: a.KeyServer}, ks)
	switch {
	case apierrors.IsNotFound(err):
		if a.URL == "" || a.Administrator == nil {
			return fmt.Errorf("KeyServer %q is neither in the files nor in a cluster; give --server and --password-file, too", a.KeyServer)
		}
		// A new KeyServer has no grants, so allow everything.
		ks.Name, ks.UID = a.KeyServer, w.uid()
		ks.Spec.Grants = []v1beta1.Grant{v1beta1.GrantAll("flags", v1beta1.GrantedNamespaces{Selector: &metav1.LabelSelector{}})}
	case err != nil:
		return err
	}
	if a.URL != "" {
		ks.Spec.URL = a.URL
	}
	if a.CA != "" {
		ks.Spec.CABundle = &v1beta1.CABundle{Inline: &a.CA}
	}
	if a.Administrator != nil {
		administrator, err := w.credential("administrator", a.Administrator)
		if err != nil {
			return err
		}
		ks.Spec.Credentials.Administrator = v1beta1.AdministratorCredential{SecretRef: &administrator.SecretRef}
		ks.Spec.Credentials.SecurityOfficer = nil
	}
	if a.Officer != nil {
		officer, err := w.credential("security-officer", a.Officer)
		if err != nil {
			return err
		}
		ks.Spec.Credentials.SecurityOfficer = &officer
	}
	return w.snapshot.put(ks)
}

func (w *world) credential(name string, l *Login) (v1beta1.PasswordCredential, error) {
	secret := &corev1.Secret{Data: map[string][]byte{"username": []byte(l.Name), "password": []byte(l.Password)}}
	secret.Namespace, secret.Name, secret.UID = flagsNamespace, name, w.uid()
	return v1beta1.PasswordCredential{SecretRef: v1beta1.CredentialSecretReference{
		Namespace: flagsNamespace, Name: name, UsernameKey: "username", PasswordKey: "password",
	}}, w.snapshot.put(secret)
}

// errNothing is the error for files without objects to plan.
var errNothing = errors.New("the files contain no object of " + v1beta1.GroupVersion.Group + "; there is nothing to plan")

// printable replaces characters that control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069) {
			return '�'
		}
		return r
	}, s)
}
