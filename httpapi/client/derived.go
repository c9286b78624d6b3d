package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// errNotByItself is what the credentials of a derived client answer to whoever
// takes them out of it.
var errNotByItself = errors.New("these credentials open sessions from the session of the client that they were derived from")

// ActingFor returns a client that acts with the rights of another principal,
// its delegator, named by 16 hexadecimal digits. Its sessions are made from
// this client's, under the same proof key, and end with them; when one ends
// before its time, the next call opens another.
func (c *Client) ActingFor(delegator string) (*Client, error) {
	var id schema.HexID
	if err := id.UnmarshalText([]byte(delegator)); err != nil {
		return nil, refuse("delegator", err)
	}
	return c.derive(schema.LoginRequest{Method: schema.MethodDelegated, PrincipalID: &id}), nil
}

// Scoped returns a client that is good for the named keys only, each named
// once. Its credentials are made from this client's session, under the same
// proof key, last as long as the service gives by itself, and are replaced in
// time.
func (c *Client) Scoped(objects ...schema.HiddenLink) *Client {
	return c.derive(schema.LoginRequest{Method: schema.MethodScoped, Objects: slices.Clone(objects)})
}

// ScopedCredential says what a credential is to be good for.
type ScopedCredential struct {
	Objects []schema.HiddenLink
	// Operations, by their keys: hmacData, authorizeKey, readKeyMetadata, readACL,
	// amendACL. None: all of these but amendACL.
	Operations []string
	// MayGrant are the rights that it may give and take, with amendACL.
	MayGrant schema.Rights
	// Lifetime in whole seconds; 0: as long as the service gives by itself.
	Lifetime time.Duration
	// Thumbprint (RFC 7638) of the key that the credential is for; empty: this
	// client's proof key, if it has one.
	Thumbprint string
}

// NewScopedCredential makes a credential to hand on, to a browser for
// instance. Its id is a secret: only the answer's SessionID reveals it.
func (c *Client) NewScopedCredential(ctx context.Context, want ScopedCredential) (schema.LoginResponse, error) {
	in := schema.LoginRequest{Method: schema.MethodScoped, Objects: want.Objects, Operations: want.Operations}
	if want.MayGrant != 0 {
		in.MayGrant = &want.MayGrant
	}
	if want.Lifetime != 0 {
		if want.Lifetime%time.Second != 0 {
			return schema.LoginResponse{}, refuse("Lifetime", errors.New("must be whole seconds"))
		}
		seconds := int(want.Lifetime / time.Second)
		in.LifetimeSeconds = &seconds
	}
	if want.Thumbprint != "" {
		in.DPoPJKT = &want.Thumbprint
	}
	out, err := c.openFrom(ctx, in, nil)
	return out, c.finished(login, err)
}

// derive shares everything with this client but the session.
func (c *Client) derive(in schema.LoginRequest) *Client {
	d := *c
	d.session = &session{credentials: derivedCredentials{in}, now: c.now, open: func(ctx context.Context, _ Credentials) (ticket, error) {
		var header http.Header
		out, err := c.openFrom(ctx, in, &header)
		if err != nil {
			return ticket{}, err
		}
		return c.ticketOf(out, header, c.session.carrier()), nil
	}}
	return &d
}

// openFrom opens a session from this client's own, which the request shows
// and, where it is bound to a key, proves.
func (c *Client) openFrom(ctx context.Context, in schema.LoginRequest, header *http.Header) (schema.LoginResponse, error) {
	return attempts[schema.LoginResponse](ctx, c, call{route: login, target: login.path, body: in, header: header})
}

// derivedCredentials stand for a login that only the derived client makes.
type derivedCredentials struct{ in schema.LoginRequest }

func (derivedCredentials) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{}, errNotByItself
}

// Format prints the method only.
func (d derivedCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, d.in.Method+" session")
}
