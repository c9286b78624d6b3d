package client

import (
	"context"
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// Credentials return the login request of a new session. Login is called for each
// session, so that it can return a rotated secret.
type Credentials interface {
	Login(ctx context.Context) (schema.LoginRequest, error)
}

// PasswordCredentials logs in as a password principal.
func PasswordCredentials(name string, password func(ctx context.Context) (string, error)) Credentials {
	return passwordCredentials{name: name, password: password}
}

type passwordCredentials struct {
	name     string
	password func(ctx context.Context) (string, error)
}

func (p passwordCredentials) Login(ctx context.Context) (schema.LoginRequest, error) {
	password, err := p.password(ctx)
	if err != nil {
		return schema.LoginRequest{}, fmt.Errorf("read the password of %s: %w", p.name, err)
	}
	return schema.LoginRequest{Method: schema.MethodPassword, Name: p.name, Password: schema.Secret(password)}, nil
}

// Format prints only the name.
func (p passwordCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "password of "+p.name)
}
