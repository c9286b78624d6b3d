package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// errNotByItself is the error if another client than the derived one uses the credentials of a derived client.
var errNotByItself = errors.New("only the derived client itself can use these credentials")

// ActingFor returns a client that acts with the rights of another principal, its delegator, named by 16 hexadecimal
// digits. The sessions of that client are made from this client's sessions, with the same proof key, and end with them.
// If such a session ends early, the next call opens another.
func (c *Client) ActingFor(delegator string) (*Client, error) {
	var id schema.HexID
	if err := id.UnmarshalText([]byte(delegator)); err != nil {
		return nil, refuse("delegator", err)
	}
	return c.derive(schema.LoginRequest{Method: schema.MethodDelegated, PrincipalID: &id}), nil
}

// Scoped returns a client that can use only the named keys. Each key must be named once. The credentials of that client
// are made from this client's session, with the same proof key. They have the key server's default lifetime and are
// replaced before they expire.
func (c *Client) Scoped(objects ...schema.HiddenLink) *Client {
	return c.derive(schema.LoginRequest{Method: schema.MethodScoped, Objects: slices.Clone(objects)})
}

// ScopedCredential is the scope of a credential.
type ScopedCredential struct {
	Objects []schema.HiddenLink
	// Operations are named by their keys: hmacData, authorizeKey, readKeyMetadata,
	// readACL, amendACL. The default is all of these except amendACL.
	Operations []string
	// MayGrant are the rights that the credential may grant and revoke with the operation amendACL.
	MayGrant schema.Rights
	// Lifetime is in whole seconds; 0 means the key server's default.
	Lifetime time.Duration
	// Thumbprint (RFC 7638) identifies the key that the credential is bound to. The
	// default is this client's proof key, if it has one.
	Thumbprint string
}

// NewScopedCredential creates a credential for another program, such as a browser. The id of the credential is a
// secret: only SessionID of the response contains it.
func (c *Client) NewScopedCredential(ctx context.Context, want ScopedCredential) (schema.LoginResponse, error) {
	in := schema.LoginRequest{Method: schema.MethodScoped, Objects: want.Objects, Operations: want.Operations}
	if want.MayGrant != 0 {
		in.MayGrant = &want.MayGrant
	}
	if want.Lifetime != 0 {
		if want.Lifetime%time.Second != 0 {
			return schema.LoginResponse{}, refuse("Lifetime", errors.New("must be a whole number of seconds"))
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

// derive returns a client that shares everything with this client except the session.
func (c *Client) derive(in schema.LoginRequest) *Client {
	d := *c
	d.session = &session{credentials: derivedCredentials{in}, now: c.now, open: func(ctx context.Context, _ Credentials) (ticket, error) {
		var header http.Header
		out, err := c.openFrom(ctx, in, &header)
		if err != nil {
			return ticket{}, err
		}
		return c.ticketOf(out, header, c.session.boundHTTPClient()), nil
	}}
	return &d
}

// openFrom opens a session from this client's own session. The request contains the id of
// that session and, if it is bound to a key, a proof.
func (c *Client) openFrom(ctx context.Context, in schema.LoginRequest, header *http.Header) (schema.LoginResponse, error) {
	return attempts[schema.LoginResponse](ctx, c, call{route: login, target: login.path, body: in, header: header})
}

// derivedCredentials have a login request that only the derived client can send.
type derivedCredentials struct{ in schema.LoginRequest }

func (derivedCredentials) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{}, errNotByItself
}

// Format prints only the method.
func (d derivedCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, d.in.Method+" session")
}
