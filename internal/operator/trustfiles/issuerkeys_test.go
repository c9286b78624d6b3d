package trustfiles

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// cluster is a fake kube-apiserver.
type cluster struct {
	keys   string
	issuer string
	err    error
}

func (c *cluster) fetch(_ context.Context, path string) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	if path == discoveryPath {
		return json.Marshal(map[string]string{"issuer": c.issuer, "jwks_uri": "https://elsewhere.example/keys"})
	}
	return []byte(c.keys), nil
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func jwks(t *testing.T, keys ...jose.JSONWebKey) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestIssuerKeysRefuses checks that the file has either valid public keys or its earlier content, for any response.
func TestIssuerKeysRefuses(t *testing.T) {
	private := newKey(t)
	public := jose.JSONWebKey{Key: private.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}
	for name, c := range map[string]struct {
		cluster cluster
		says    string
	}{
		"no answer":         {cluster{err: errors.New("connection refused")}, "connection refused"},
		"not JSON":          {cluster{keys: "<html>"}, "not a JWK set"},
		"no keys":           {cluster{keys: `{"keys":[]}`}, "no usable public key"},
		"an unknown type":   {cluster{keys: `{"keys":[{"kty":"XYZ","kid":"a"}]}`}, "no usable public key"},
		"a private key":     {cluster{keys: jwks(t, jose.JSONWebKey{Key: private, KeyID: "one"})}, "no usable public key"},
		"a symmetric key":   {cluster{keys: jwks(t, jose.JSONWebKey{Key: []byte("secret"), KeyID: "one"})}, "no usable public key"},
		"keys of no object": {cluster{keys: `[]`}, "not a JWK set"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "jwks.json")
			good := &cluster{keys: jwks(t, public)}
			keeper := IssuerKeys{Fetch: good.fetch, File: file, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler)}
			if err := keeper.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := read(t, file)
			keeper.Fetch = c.cluster.fetch
			if err := keeper.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
			if got := read(t, file); got != before {
				t.Errorf("the file changed to %s", got)
			}
		})
	}
}

func TestIssuerKeysTakesOverPublicKeys(t *testing.T) {
	private := newKey(t)
	public := jose.JSONWebKey{Key: private.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}
	mixed := jwks(t, public, jose.JSONWebKey{Key: newKey(t), KeyID: "private"})
	file := filepath.Join(t.TempDir(), "jwks.json")
	from := &cluster{keys: mixed}
	keeper := IssuerKeys{Fetch: from.fetch, File: file, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	if err := keeper.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(read(t, file)), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Keys) != 1 || got.Keys[0].KeyID != "one" || !got.Keys[0].IsPublic() {
		t.Errorf("got %+v, want the public key alone", got)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != fileMode {
		t.Errorf("mode is %o", info.Mode().Perm())
	}

	// An equal response does not change the file. A different response replaces its content.
	if err := keeper.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	same, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(info, same) || !same.ModTime().Equal(info.ModTime()) {
		t.Error("an unchanged answer was written again")
	}
	from.keys = jwks(t, public, jose.JSONWebKey{Key: newKey(t).Public(), KeyID: "two", Algorithm: "ES256"})
	if err := keeper.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, file), `"two"`) {
		t.Error("a new key was not written")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".new-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestIssuerKeysNamesAWrongIssuer checks that keys are written for a wrong issuer, and that the error names the flag.
func TestIssuerKeysNamesAWrongIssuer(t *testing.T) {
	from := &cluster{keys: jwks(t, jose.JSONWebKey{Key: newKey(t).Public(), KeyID: "one"}), issuer: "https://real.example"}
	file := filepath.Join(t.TempDir(), "jwks.json")
	keeper := IssuerKeys{Fetch: from.fetch, File: file, Issuer: "https://guessed.example", Interval: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	err := keeper.Refresh(t.Context())
	if err == nil || !strings.Contains(err.Error(), `"https://real.example"`) || !strings.Contains(err.Error(), "--oidc-issuer") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(read(t, file), `"one"`) {
		t.Error("the keys were not written")
	}
	keeper.Issuer = from.issuer
	if err := keeper.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLoopGoesOn checks that a loop logs an error only once, continues, and ends with its context.
func TestLoopGoesOn(t *testing.T) {
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	loop{what: "try", each: time.Millisecond, logger: slog.New(slog.NewTextHandler(&log, nil)), step: func(context.Context) error {
		switch steps++; {
		case steps <= 3:
			return errors.New("not yet")
		case steps == 6:
			cancel()
		}
		return nil
	}}.run(ctx)
	if steps != 6 {
		t.Errorf("%d steps", steps)
	}
	if n := strings.Count(log.String(), "not yet"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &log)
	}
	if !strings.Contains(log.String(), "recovered") {
		t.Errorf("nothing said about the recovery:\n%s", &log)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
