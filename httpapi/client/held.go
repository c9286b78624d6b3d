package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Open logs in, whether or not there is a session, and answers the new one, which this
// client goes on with. Whoever keeps its id for later (HeldSession) keeps the proof key
// as well, or the id is worth nothing.
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

// HeldSession are credentials that go on with a session which was opened before, perhaps
// by another process: its id, and what shows the certificate that it is bound to, nil
// where it is bound to none. The key that it is bound to is Options.ProofKey. They open
// no other session when that one has ended: calls then fail with what the service says.
func HeldSession(id schema.Secret, certificate func() (*tls.Certificate, error)) Credentials {
	return heldSession{id: id, certificate: certificate}
}

type heldSession struct {
	id          schema.Secret
	certificate func() (*tls.Certificate, error)
}

var errHeld = errors.New("these credentials go on with a session, and open none")

// Login implements Credentials.
func (heldSession) Login(context.Context) (schema.LoginRequest, error) {
	return schema.LoginRequest{}, errHeld
}

// Format does not print the session id.
func (heldSession) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "held session") }

// heldFor is how long a held session passes for good without being asked about: only
// the service knows when it ends.
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
