package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// maxTokenFile is the maximum size of a token file in bytes. No token is longer.
const maxTokenFile = 16 << 10

// KubernetesCredentials logs in with the projected service account token in a file. The token must have the audience
// that the key server requires. The file is read at each login, because the kubelet replaces it long before the token
// expires.
func KubernetesCredentials(file string) Credentials { return kubernetesCredentials(file) }

type kubernetesCredentials string

func (k kubernetesCredentials) Login(context.Context) (schema.LoginRequest, error) {
	token, err := k.read()
	if err != nil {
		return schema.LoginRequest{}, fmt.Errorf("read the service account token: %w", err)
	}
	return schema.LoginRequest{Method: schema.MethodKubernetes, Token: schema.Secret(token)}, nil
}

func (k kubernetesCredentials) read() (string, error) {
	file, err := os.Open(string(k))
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // opened only for reading, so no data can be lost
	text, err := io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > maxTokenFile {
		return "", errors.New(string(k) + " contains no token")
	}
	return token, nil
}

// Format prints the name of the file.
func (k kubernetesCredentials) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "service account token in "+string(k))
}

// LDAPCredentials logs in as an ldap principal, with its password in the directory of the key server.
func LDAPCredentials(name string, password func(ctx context.Context) (string, error)) Credentials {
	return ldapCredentials{passwordCredentials{name: name, password: password}}
}

type ldapCredentials struct{ passwordCredentials }

func (l ldapCredentials) Login(ctx context.Context) (schema.LoginRequest, error) {
	in, err := l.passwordCredentials.Login(ctx)
	in.Method = schema.MethodLDAP
	return in, err
}
