package engine_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestExport checks that only an owner can export a key, and only for a principal with a certificate in force. Exports
// and refusals are audited.
func TestExport(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := outside(t, f, "outside")
		digest := trust(t, f, ca)
		now := f.Clock.Now()
		r := enginetest.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
		_, ed, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		good := enginetest.NewAgent(t, ca, "agent", now, nil)
		to := enrol(t, f, nil, good.Certificate)
		revoked := enginetest.NewAgent(t, ca, "revoked", now, nil).Certificate
		signer := enrol(t, f, nil, enginetest.NewAgentFor(t, ca, "signer", now, ed, nil).Certificate)
		early := enrol(t, f, nil, enginetest.NewAgent(t, ca, "early", now.Add(24*time.Hour), nil).Certificate)
		off := enrol(t, f, nil, enginetest.NewAgent(t, ca, "off", now, nil).Certificate)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetPrincipalFlags(ctx, off.ID, 0) }); err != nil {
			t.Fatal(err)
		}
		bad := enrol(t, f, nil, revoked)
		if err := f.SetRevocationPolicy(ctx, f.Admin, keyserver.RevocationPolicyChange{Digest: digest, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationWhenAvailable}}); err != nil {
			t.Fatal(err)
		}
		enginetest.Must(f.ImportCRL(ctx, f.Admin, enginetest.NewCRL(t, ca, 1, now, nil, revoked)))(t)

		material := []byte("0123456789abcdef0123456789abcdef")
		link := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.AES256, Material: bytes.Clone(material)}))(t).Link
		writer := f.Add(t, keyserver.PasswordPrincipal, "writer", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		f.Grant(t, link, writer.Principal, keyserver.Write, keyserver.NoUsageLimit)
		exchanger := f.Add(t, keyserver.PasswordPrincipal, "exchanger", []keyserver.ID{keyserver.RoleExchanger}, nil)
		f.Grant(t, link, exchanger.Principal, keyserver.Owner, keyserver.NoUsageLimit)
		foreign := to.Ref()
		foreign.System++
		cases := map[string]struct {
			by     keyserver.Caller
			link   keyserver.HiddenLink
			to     keyserver.PrincipalRef
			code   fault.Code
			reason fault.Reason
		}{
			"NoRole":      {exchanger, link, to.Ref(), fault.AccessDenied, fault.ReasonRoleDenied},
			"NoOwner":     {writer, link, to.Ref(), fault.ACLDenied, fault.ReasonACLDenied},
			"NoKey":       {f.Admin, values.NewHiddenLink(1, values.IDFromUint64(3)), to.Ref(), fault.KeyNotFound, fault.ReasonObjectNotFound},
			"Nobody":      {f.Admin, link, keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(3)}, fault.NotFound, fault.ReasonObjectNotFound},
			"Foreign":     {f.Admin, link, foreign, fault.NotFound, fault.ReasonObjectNotFound},
			"Password":    {f.Admin, link, writer.Principal, fault.InvalidArgument, fault.ReasonInvalidArgument},
			"Disabled":    {f.Admin, link, off.Ref(), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"NotYet":      {f.Admin, link, early.Ref(), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"Revoked":     {f.Admin, link, bad.Ref(), fault.InvalidArgument, fault.ReasonInvalidArgument},
			"SigningOnly": {f.Admin, link, signer.Ref(), fault.InvalidArgument, fault.ReasonInvalidArgument},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				out, err := f.ExportKey(ctx, tc.by, keyserver.KeyExport{Link: tc.link, Recipient: tc.to})
				f.Refused(t, err, tc.code, tc.reason)
				if out.JWE != "" {
					t.Error("something was answered")
				}
			})
		}

		out := enginetest.Must(f.ExportKey(ctx, f.Admin, keyserver.KeyExport{Link: link, Recipient: to.Ref()}))(t)
		if row := f.LastRow(t); row.Operation != "exportKey" || row.Outcome != keyserver.Allowed || row.Object != link.Base64()+" for "+to.Ref().String() {
			t.Errorf("audited as %+v", row)
		}
		opens(t, out, good.Key, material)

		// The newest certificate is used.
		later := enginetest.NewAgentFor(t, ca, "agent", now, r, func(c *x509.Certificate) { c.NotBefore = now })
		enrol(t, f, nil, later.Certificate)
		out = enginetest.Must(f.ExportKey(ctx, f.Admin, keyserver.KeyExport{Link: link, Recipient: to.Ref()}))(t)
		if out.Algorithm != "RSA-OAEP-256" || out.Certificate.ID != keyserver.DigestOf(later.Certificate.Raw).ID() {
			t.Errorf("encrypted by %s for %s", out.Algorithm, out.Certificate.ID)
		}
		opens(t, out, r, material)
		// The exported key still works.
		enginetest.Must(f.AuthorizeKey(ctx, f.Admin, keyserver.Use{Link: link}))(t)
	})
}

func opens(t *testing.T, out keyserver.ExportedKey, key any, want []byte) {
	t.Helper()
	object := enginetest.Must(jose.ParseEncryptedCompact(out.JWE, []jose.KeyAlgorithm{jose.KeyAlgorithm(out.Algorithm)}, []jose.ContentEncryption{jose.A256GCM}))(t)
	plain, err := object.Decrypt(key)
	if err != nil || !bytes.Equal(plain, want) {
		t.Errorf("opens as %d bytes, %v", len(plain), err)
	}
	if bytes.Contains([]byte(out.JWE), want) {
		t.Error("the key is there in clear")
	}
}
