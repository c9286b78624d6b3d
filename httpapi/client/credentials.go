package client

import (
	"context"
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Credentials make the login request of a new session. Login is asked each
// time, so that a rotated secret is picked up.
type Credentials interface {
	Login(ctx context.Context) (schema.LoginRequest, error)
}

// PasswordCredentials log in as a password principal.
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

// Format prints the name only.
func (p passwordCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "password of "+p.name)
}
