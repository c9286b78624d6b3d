package enginetest

import (
	"context"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Mint mints an HMAC key. If material is nil, the key is random.
func (f *Fixture) Mint(t testing.TB, by keyserver.Caller, material []byte) keyserver.HiddenLink {
	t.Helper()
	meta, err := f.MintKey(context.Background(), by, keyserver.NewKey{Algorithm: keyserver.HMACSHA384, Material: material})
	fatal(t, err)
	return meta.Link
}

// Grant adds rights on a key to the principal's ACL entry, as admin.
func (f *Fixture) Grant(t testing.TB, link keyserver.HiddenLink, to keyserver.PrincipalRef, rights keyserver.Rights, uses int64) {
	t.Helper()
	fatal(t, f.GrantACL(context.Background(), f.Admin, keyserver.ACLChange{Link: link, Principal: to, Rights: rights, MaxUsage: uses}))
}
