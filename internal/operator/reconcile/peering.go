package reconcile

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/grants"
)

// Peered is implemented by adapters whose objects may refer to a second KeyServer as a peer. The objects are reconciled
// when the peer appears, disappears or restarts.
type Peered[T Object] interface {
	// Peer returns the reference to the peer, or nil.
	Peer(obj T) *v1beta1.PeerReference
}

// trustInfo caches the information that a key server gives its peers about itself. The change feed does not report its
// changes. A key server may restart with another name or port without a failed call, or renew its certificate while it
// runs. So trustInfo is read again at intervals, and when the key server announces a shutdown.
var trustInfo = connection.Lookup[schema.TrustInfo]{
	Name: "trust info",
	Read: func(ctx context.Context, c *connection.Connection, _ string) (schema.TrustInfo, error) {
		return c.Officer.GetLocalTrustInfo(ctx)
	},
	ID: func(schema.TrustInfo) string { return "" },
}

// Peering reads the trust info of peers.
type Peering struct {
	Cluster
	connections *connection.Connections
}

// Info returns the trust info of a KeyServer for an object in a namespace. If the KeyServer does not respond, Info
// returns the last trust info, because an outage of the peer does not change its registration.
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
	if why.Reason == v1beta1.ReasonKeyServerUnavailable {
		conn.Trip(why)
	}
	return p.last(name, why)
}

// admit returns an error if an object must not or cannot query a KeyServer. Any grant
// for the object's namespace is enough: every peer receives the same information.
func (p Peering) admit(ctx context.Context, namespace, name string) error {
	ks := &v1beta1.KeyServer{}
	err := p.Client.Get(ctx, types.NamespacedName{Name: name}, ks)
	if apierrors.IsNotFound(err) {
		return connection.NewProblem(v1beta1.ReasonDependencyNotReady, "peerRef: KeyServer %q does not exist", name)
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

// last returns the newest known trust info of a KeyServer. If there is none, the error is about the peer, not about the
// object's own KeyServer, which may work well.
func (p Peering) last(name string, why *connection.Problem) (schema.TrustInfo, error) {
	if conn := p.connections.Any(name); conn != nil && why.Reason == v1beta1.ReasonKeyServerUnavailable {
		if info, known := trustInfo.Of(conn).Last(""); known {
			return info, nil
		}
	}
	if why.Transient {
		return schema.TrustInfo{}, why
	}
	return schema.TrustInfo{}, connection.NewProblem(v1beta1.ReasonDependencyNotReady, "peerRef: the trust info of the peer cannot be read: %s", why.Message)
}
