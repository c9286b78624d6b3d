package password_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/password"
)

func TestCheck(t *testing.T) {
	ctx := context.Background()
	hash, err := password.Hash(ctx, "correct horse", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := password.Hash(ctx, "correct horse", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if hash == other {
		t.Error("two hashes of one password are equal: there is no salt")
	}
	cases := map[string]struct {
		password, hash string
		ok, broken     bool
	}{
		"Wrong":       {password: "correct horsf", hash: hash},
		"Empty":       {password: "", hash: hash},
		"NoSuchName":  {password: "correct horse", hash: ""},
		"Malformed":   {password: "correct horse", hash: "$argon2id$", broken: true},
		"OtherCost":   {password: "correct horse", hash: strings.Replace(hash, "t=2", "t=1", 1), broken: true},
		"OtherMethod": {password: "correct horse", hash: strings.Replace(hash, "argon2id", "argon2_d", 1), broken: true},
		"Right":       {password: "correct horse", hash: hash, ok: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ok, err := password.Check(ctx, tc.password, tc.hash)
			if ok != tc.ok || (err != nil) != tc.broken {
				t.Errorf("got %v, %v", ok, err)
			}
		})
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if ok, _ := password.Check(ended, "wrong", hash); ok {
		t.Error("a check without time to hash matched")
	}
}
