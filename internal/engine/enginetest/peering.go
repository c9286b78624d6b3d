package enginetest

import (
	"context"
	"crypto/x509"
	"errors"
	"net/netip"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
)

// The fixture as a peer of others.
const (
	ServerName   = "test.example"
	ExternalPort = 9443
)

// Hosts is a resolver that knows what a test tells it, and addresses as
// themselves.
type Hosts map[string]string

// LookupNetIP implements engine.Resolver.
func (h Hosts) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	text, ok := h[host]
	if !ok {
		text = host
	}
	var found []netip.Addr
	for word := range strings.FieldsSeq(text) {
		a, err := netip.ParseAddr(word)
		if err != nil {
			return nil, errors.New("no such host")
		}
		found = append(found, a)
	}
	return found, nil
}

// self is a machine with one address of each family besides the loopback ones.
func (f *Fixture) self() engine.Self {
	f.Hosts = Hosts{}
	return engine.Self{
		ServerName: ServerName, Port: ExternalPort, Resolver: f.Hosts,
		Certificate: func(context.Context) *x509.Certificate { return f.Prepared.Server.Certificate },
		Addresses: func() ([]netip.Addr, error) {
			var own []netip.Addr
			for _, a := range []string{"127.0.0.1", "::1", "192.0.2.1", "2001:db8::1"} {
				own = append(own, netip.MustParseAddr(a))
			}
			return own, nil
		},
	}
}
