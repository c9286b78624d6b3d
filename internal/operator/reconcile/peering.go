package reconcile

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
)

// Peered is implemented by adapters whose objects may refer to a second KeyServer,
// as a peer. They are woken when the peer appears, disappears or restarts.
type Peered[T Object] interface {
	// Peer returns the KeyServer that the object refers to, nil for none.
	Peer(obj T) *v1alpha1.PeerReference
}

// trustInfo caches the data that a service gives its peers about itself. No change feed
// reports changes of it. A process may restart under another name or port so quickly
// that no call fails, and a certificate may be renewed while the process runs. So it
// is read again at intervals, and when a process announces its shutdown.
var trustInfo = connection.Lookup[schema.TrustInfo]{
	Name: "trust info",
	Read: func(ctx context.Context, c *connection.Connection, _ string) (schema.TrustInfo, error) {
		return c.Officer.GetLocalTrustInfo(ctx)
	},
	ID: func(schema.TrustInfo) string { return "" },
}

// Peering reads the trust info of KeyServers, which other key servers need.
type Peering struct {
	Cluster
	connections *connection.Connections
}

// Info returns the trust info of a KeyServer, for an object in a namespace. While the KeyServer does not respond, Info
// returns its last response, because an outage of the peer does not change its registration here.
func (p Peering) Info(ctx context.Context, in Input, namespace, name string) (schema.TrustInfo, error) {
	if err := p.admit(ctx, namespace, name); err != nil {
		return schema.TrustInfo{}, err
	}
	conn, shut := p.connections.Get(name)
	if shut != nil {
		return p.last(name, shut)
	}
	info, err := trustInfo.Of(conn).Get(ctx, in.NotBefore, "")
	why, other := connection.AsProblem(ctx, err)
	if other != nil || why == nil {
		return info, other
	}
	if why.Reason == v1alpha1.ReasonKeyServerUnavailable {
		conn.Trip(why)
	}
	return p.last(name, why)
}

// admit returns an error if an object must not or cannot query a KeyServer. Any grant
// for the object's namespace is enough: every peer receives the same information.
func (p Peering) admit(ctx context.Context, namespace, name string) error {
	ks := &v1alpha1.KeyServer{}
	err := p.Client.Get(ctx, types.NamespacedName{Name: name}, ks)
	if apierrors.IsNotFound(err) {
		return connection.NewProblem(v1alpha1.ReasonDependencyNotReady, "peerRef: KeyServer %q does not exist", name)
	}
	if err != nil {
		return fmt.Errorf("read KeyServer %q: %w", name, err)
	}
	v, err := grants.Evaluate(ctx, p.Client, ks, namespace, "", grants.Scope{})
	if err != nil || v.Refusal == nil {
		return err
	}
	return v.Refusal
}

// last returns the last response of a KeyServer, or the reason why there is none. The
// reason concerns the peer, not the object's own KeyServer, which may respond well.
func (p Peering) last(name string, why *connection.Problem) (schema.TrustInfo, error) {
	if conn := p.connections.Any(name); conn != nil && why.Reason == v1alpha1.ReasonKeyServerUnavailable {
		if info, known := trustInfo.Of(conn).Last(""); known {
			return info, nil
		}
	}
	if why.Transient {
		return schema.TrustInfo{}, why
	}
	return schema.TrustInfo{}, connection.NewProblem(v1alpha1.ReasonDependencyNotReady, "peerRef: the trust info of the peer cannot be read: %s", why.Message)
}
