package ledger

import (
	"context"
	"errors"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// Sessions opens, reads and ends sessions by their ids. It has the options of its clients, without credentials.
type Sessions client.Options

func (s Sessions) client(credentials client.Credentials) (*client.Client, error) {
	s.Credentials = credentials
	return client.New(client.Options(s))
}

// Open logs in and returns the id of the session.
func (s Sessions) Open(ctx context.Context, name, password string) (id string, err error) {
	c, err := s.client(client.PasswordCredentials(name, func(context.Context) (string, error) { return password, nil }))
	if err != nil {
		return "", err
	}
	opened, err := c.Open(ctx)
	return opened.SessionID.Reveal(), err
}

// End ends a session. It fails if the session does not exist, which Logout of package client does
// not do.
func (s Sessions) End(ctx context.Context, id string) error {
	switch live, err := s.Live(ctx, id); {
	case err != nil:
		return err
	case !live:
		return errors.New("a session was opened and does not exist")
	}
	c, err := s.client(client.HeldSession(schema.Secret(id), nil))
	if err == nil {
		err = c.Logout(ctx)
	}
	return err
}

// Live reports whether a session exists.
func (s Sessions) Live(ctx context.Context, id string) (bool, error) {
	c, err := s.client(client.HeldSession(schema.Secret(id), nil))
	if err != nil {
		return false, err
	}
	_, err = c.GetCurrentSession(ctx)
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized {
		return false, nil
	}
	return err == nil, err
}
