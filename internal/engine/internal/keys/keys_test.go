package keys_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

var ctx = context.Background()

func text(s string) keyserver.Message { return strings.NewReader(s) }

func noMAC() (mac [keyserver.MACSize]byte) { return mac }

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func mint(t *testing.T, f *enginetest.Fixture, by keyserver.Caller, material []byte) keyserver.HiddenLink {
	t.Helper()
	return must(f.MintKey(ctx, by, keyserver.NewKey{Algorithm: keyserver.HMACSHA384, Material: material}))(t).Link
}

func grant(t *testing.T, f *enginetest.Fixture, link keyserver.HiddenLink, to keyserver.PrincipalRef, rights keyserver.Rights, uses int64) {
	t.Helper()
	if err := f.GrantACL(ctx, f.Admin, keyserver.ACLChange{Link: link, Principal: to, Rights: rights, MaxUsage: uses}); err != nil {
		t.Fatal(err)
	}
}
