package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// Open logs in, even if there is a session, and returns the new session. The client then uses the new session. To use
// its id later (HeldSession), the caller must also keep the proof key.
func (c *Client) Open(ctx context.Context) (schema.LoginResponse, error) {
	if c.session.credentials == nil {
		return schema.LoginResponse{}, ErrNoCredentials
	}
	out, held, err := c.opened(ctx, c.session.credentials)
	if err != nil {
		return out, err
	}
	c.session.mu.Lock()
	c.session.held = held
	c.session.mu.Unlock()
	return out, nil
}

// HeldSession returns credentials that continue a session that was opened before, perhaps by another process. id is the
// session id. certificate returns the certificate that the session is bound to, and is nil if there is none.
// Options.ProofKey must be the key that the session is bound to. The credentials open no other session: after the
// session has ended, calls fail with the error of the key server.
func HeldSession(id schema.Secret, certificate func() (*tls.Certificate, error)) Credentials {
	return heldSession{id: id, certificate: certificate}
}

type heldSession struct {
	id          schema.Secret
	certificate func() (*tls.Certificate, error)
}

var errHeld = errors.New("these credentials continue an existing session and cannot open one")

func (heldSession) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{}, errHeld
}

// Format does not print the session id.
func (heldSession) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "held session") }

// heldFor is how long a held session counts as valid without a check, because only the key server knows when the
// session ends.
const heldFor = 24 * time.Hour

func (h heldSession) ticket(c *Client) (ticket, error) {
	t := ticket{token: h.id.Reveal(), until: c.now().Add(heldFor), idle: heldFor, used: c.now()}
	if h.certificate == nil {
		return t, nil
	}
	var err error
	t.over, err = certificateCredentials{h.certificate}.over(*c.http)
	return t, err
}
