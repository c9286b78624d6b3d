package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// maxToken limits the size of a token file, in bytes.
const maxToken = 16 << 10

// token is the projected token of the Pod. The file is read at each login, because the kubelet replaces it.
type token struct {
	file   string
	logins atomic.Int64 // number of login attempts
}

// Login implements client.Credentials.
func (t *token) Login(context.Context) (schema.LoginRequest, error) {
	t.logins.Add(1)
	text, err := t.read()
	if err != nil {
		return schema.LoginRequest{}, fmt.Errorf("read the service account token: %w", err)
	}
	return schema.LoginRequest{Method: schema.MethodKubernetes, Token: schema.Secret(text)}, nil
}

func (t *token) read() (string, error) {
	f, err := os.Open(t.file)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > maxToken {
		return "", errors.New(t.file + " contains no token")
	}
	return token, nil
}

// Format prints the path of the token file, and never the token.
func (t *token) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "service account token in "+t.file)
}

// claims are the claims of a token, for messages only: the key server verifies the token.
type claims struct {
	Issuer   string    `json:"iss"`
	Subject  string    `json:"sub"`
	Audience audiences `json:"aud"`
	Expires  float64   `json:"exp"`
}

// audiences is one audience or a list of audiences (RFC 7519 section 4.1.3).
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// doubt returns a possible reason why a key server rejects the token, because the key server gives none.
func (t *token) doubt(now time.Time) string {
	text, err := t.read()
	if err != nil {
		return err.Error()
	}
	var c claims
	middle := strings.Split(text, ".")
	if len(middle) != 3 {
		return t.file + " does not contain a service account token"
	}
	payload, err := base64.RawURLEncoding.DecodeString(middle[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return t.file + " does not contain a service account token"
	}
	if expired := time.Unix(int64(c.Expires), 0).UTC(); c.Expires > 0 && !now.Before(expired) {
		return fmt.Sprintf("the token in %s expired at %s; kubelet should have replaced it", t.file, expired.Format(time.RFC3339))
	}
	return fmt.Sprintf("the token in %s has the subject %q, the issuer %q and the audience %q; compare them with docs/workloads.md, and check that the subject has a Principal",
		t.file, c.Subject, c.Issuer, strings.Join(c.Audience, " "))
}

// refused reports whether a login failed because of the token itself.
func refused(err error) bool { return client.IsCode(err, "INVALID_CREDENTIALS") }
