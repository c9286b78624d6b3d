package goclient

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

// Clients with a delegated session or a scoped credential work with the real service, with and without a proof key.
func TestDerivedClients(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, proofKey := range map[string]crypto.Signer{"Unbound": nil, "Bound": key} {
		t.Run(name, func(t *testing.T) {
			ctx, server := t.Context(), testserver.Start(t)
			admin := bound(t, server, proofKey, nil)
			mint := func() schema.HiddenLink {
				t.Helper()
				k, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "AES-256"})
				if err != nil {
					t.Fatal(err)
				}
				return k.TTag
			}
			inside, outside := mint(), mint()

			if _, err := admin.ActingFor("boss"); !client.IsCode(err, "BAD_REQUEST") {
				t.Errorf("got %v", err)
			}
			boss, err := admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{Name: "boss", Password: "a password of some length", RoleIDs: []schema.HexID{}})
			if err != nil {
				t.Fatal(err)
			}
			acting, err := admin.ActingFor(boss.Principal.ID.String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := acting.GetCurrentSession(ctx); !client.IsCode(err, "DELEGATOR_REFUSED") {
				t.Errorf("without the flag: %v", err)
			}
			yes := true
			if _, err := admin.UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: boss.Principal.ID, Delegation: &yes}); err != nil {
				t.Fatal(err)
			}
			if s, err := acting.GetCurrentSession(ctx); err != nil || s.Kind != "delegated" || s.Principal.Name != "boss" || s.Actor == nil {
				t.Errorf("got %+v, %v", s, err)
			}

			scoped := admin.Scoped(inside)
			if _, err := scoped.AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: inside}); err != nil {
				t.Error(err)
			}
			if _, err := scoped.AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: outside}); !client.IsCode(err, "OBJECT_NOT_IN_CREDENTIAL_SCOPE") {
				t.Errorf("got %v", err)
			}
			if err := admin.Logout(ctx); err != nil { // also ends the sessions that were derived from it
				t.Fatal(err)
			}
			if s, err := scoped.GetCurrentSession(ctx); err != nil || s.Kind != "scoped" || len(s.Objects) != 1 {
				t.Errorf("the next call opens another: %+v, %v", s, err)
			}

			thumbprint := strings.Repeat("A", 43)
			handed, err := admin.NewScopedCredential(ctx, client.ScopedCredential{Objects: []schema.HiddenLink{inside}, Lifetime: time.Minute, Thumbprint: thumbprint})
			if err != nil || handed.BoundKey == nil || *handed.BoundKey != thumbprint {
				t.Errorf("got %+v, %v", handed, err)
			}
			printed := fmt.Sprintf("%v %+v %#v %v %+v %v %v", handed, handed, handed, scoped, acting, *scoped, *acting)
			if secret := handed.SessionID.Reveal(); secret == "" || strings.Contains(printed, secret) {
				t.Errorf("the credential is printed in %s", printed)
			}
			if _, err := admin.NewScopedCredential(ctx, client.ScopedCredential{Objects: []schema.HiddenLink{inside}, Lifetime: time.Millisecond}); !client.IsCode(err, "BAD_REQUEST") {
				t.Errorf("got %v", err)
			}
		})
	}
}
