package bootstrap_test

import (
	"errors"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestTheServerCertificateIsKept checks that a server renews its certificate with the same key within a year, and uses
// a certificate that another replica renewed.
func TestTheServerCertificateIsKept(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		state := bootstrap.Config{
			Store: f.Store, Keyring: f.Keyring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
			Clock: f.Clock.Now, Random: f.Random,
		}
		kept := func() pki.Identity {
			t.Helper()
			server, err := bootstrap.EnsureServerCertificate(t.Context(), state)
			if err != nil {
				t.Fatal(err)
			}
			return server
		}
		first := f.Prepared.Server
		if same := kept(); !same.Certificate.Equal(first.Certificate) {
			t.Error("a new certificate was renewed")
		}
		f.Clock.Advance(300 * 24 * time.Hour)
		renewed := kept()
		if !renewed.Key.Equal(first.Key) || !renewed.Certificate.NotAfter.After(first.Certificate.NotAfter) {
			t.Errorf("renewed until %s, with the same key: %v", renewed.Certificate.NotAfter, renewed.Key.Equal(first.Key))
		}
		if other := kept(); !other.Certificate.Equal(renewed.Certificate) {
			t.Error("another replica renewed once more")
		}
	})
}

// TestTheFormerCAIsMoved checks that the first start on an older database moves the CA from the settings, unchanged.
func TestTheFormerCAIsMoved(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		c := f.CAManager.Config
		ctx := t.Context()
		plain, err := f.Prepared.CA.MarshalKey()
		must(t, err)
		wrapped, err := c.Keyring.Wrap(values.IDFromUint64(1), c.System, plain)
		must(t, err)
		must(t, f.Store.Update(ctx, func(tx *sqlstore.Tx) error { // as an older version stored the CA
			list, err := tx.Authorities(ctx)
			if err != nil {
				return err
			}
			if err := tx.DeleteAuthority(ctx, list[0].ID); err != nil {
				return err
			}
			if err := tx.PutSetting(ctx, "caKey", wrapped); err != nil {
				return err
			}
			return tx.PutSetting(ctx, "caCertificate", f.Prepared.CA.Certificate.Raw)
		}))
		again := func() bootstrap.Prepared {
			t.Helper()
			p, err := bootstrap.Run(ctx, bootstrap.Config{
				Store: f.Store, Keyring: c.Keyring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"}, Clock: f.Clock.Now, Random: f.Random,
			})
			must(t, err)
			return p
		}
		for range 2 {
			if p := again(); !p.CA.Certificate.Equal(f.Prepared.CA.Certificate) || !p.CA.Key.Equal(f.Prepared.CA.Key) || !p.Server.Certificate.Equal(f.Prepared.Server.Certificate) {
				t.Error("the CA or the server's certificate is another one")
			}
		}
		for _, name := range []string{"caKey", "caCertificate"} {
			if _, err := f.Store.Setting(ctx, name); !errors.Is(err, sqlstore.ErrNotFound) {
				t.Errorf("the setting %s: %v", name, err)
			}
		}
		list, err := f.Store.Authorities(ctx)
		must(t, err)
		if len(list) != 1 || list[0].State != keyserver.AuthorityActive {
			t.Errorf("%d authorities", len(list))
		}
	})
}

// TestAnExpiredAuthorityIssuesNothing checks that an expired CA issues no certificate, and that no renewal is reported.
func TestAnExpiredAuthorityIssuesNothing(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		state := bootstrap.Config{
			Store: f.Store, Keyring: f.Keyring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost", "another"},
			Clock: f.Clock.Now, Random: f.Random,
		}
		f.Clock.Advance(11 * 365 * 24 * time.Hour)
		server, err := bootstrap.EnsureServerCertificate(t.Context(), state)
		if err != nil || !server.Certificate.Equal(f.Prepared.Server.Certificate) {
			t.Errorf("%v, %v", server.Certificate.NotAfter, err)
		}
		// The remedy is a new CA. It issues immediately, although no client trusts it yet.
		_, err = f.CAManager.Prepare(t.Context())
		must(t, err)
		_, err = f.CAManager.Activate(t.Context(), false)
		must(t, err)
		server, err = bootstrap.EnsureServerCertificate(t.Context(), state)
		must(t, err)
		if !server.Certificate.NotAfter.After(f.Clock.Now()) || !server.Key.Equal(f.Prepared.Server.Key) {
			t.Error("no certificate of the new authority under the same key")
		}
	})
}
