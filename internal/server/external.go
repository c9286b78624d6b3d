package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// gatekeeper is the mutual TLS of the external listener. It takes the list of
// trusted CAs at each handshake, so that an added and a removed CA both hold
// from the next connection on, and it closes the connections that a removed CA
// had let in.
type gatekeeper struct {
	store       *sqlstore.Store
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newGatekeeper(store *sqlstore.Store, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *gatekeeper {
	g := &gatekeeper{store: store, certificate: certificate, open: map[net.Conn]struct{}{}}
	store.OnChange(g.changed)
	return g
}

// config is the TLS configuration of the listener.
func (g *gatekeeper) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: g.certificate,
		ClientAuth:     tls.RequireAnyClientCert,
		NextProtos:     []string{"h2", "http/1.1"},
		// A ticket would let a client in on an older list.
		SessionTicketsDisabled: true,
		VerifyConnection:       func(s tls.ConnectionState) error { return g.verify(context.Background(), s) },
	}
}

// verify checks a client's chain against the trust list of this moment.
func (g *gatekeeper) verify(ctx context.Context, s tls.ConnectionState) error {
	list, err := g.store.TrustedCAs(ctx)
	if err != nil {
		return err
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, ca := range list {
		if cert, err := x509.ParseCertificate(ca.DER); err == nil {
			roots.AddCert(cert)
		}
	}
	for _, c := range s.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// track follows the connections of the listener (http.Server.ConnState).
func (g *gatekeeper) track(conn net.Conn, state http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateNew:
		g.open[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(g.open, conn)
	case http.StateActive, http.StateIdle:
	}
}

// changed closes what the list no longer lets in. It reads the list once the
// change is committed, outside the committing request.
func (g *gatekeeper) changed(changes []keyserver.Change) {
	if mayShutOut(changes) {
		go g.sweep()
	}
}

// mayShutOut reports whether a CA may have left the list. No changes at all
// means that some are no longer known.
func mayShutOut(changes []keyserver.Change) bool {
	return len(changes) == 0 || slices.ContainsFunc(changes, func(c keyserver.Change) bool {
		return c.Kind == keyserver.ChangeTrustedCA && c.Action == keyserver.Deleted
	})
}

func (g *gatekeeper) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.open {
		t, ok := conn.(*tls.Conn)
		if !ok || !t.ConnectionState().HandshakeComplete {
			continue // the handshake will see the new list
		}
		if g.verify(context.Background(), t.ConnectionState()) != nil {
			_ = conn.Close() // the peer notices; there is nobody else to tell
		}
	}
}

// refuseAll answers every request of a peer: this version serves none of its
// operations yet, but who may connect is decided as for them.
func refuseAll(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(`{"code":"NOT_FOUND","detail":"this key server forwards no operation for peers"}` + "\n"))
}
