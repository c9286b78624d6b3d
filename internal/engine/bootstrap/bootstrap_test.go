package bootstrap_test

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
)

// A server that runs for a year renews its certificate under its old key, and
// takes over what another replica renewed.
func TestTheServerCertificateIsKept(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		state := bootstrap.Config{
			Store: f.Store, Custodian: f.Custodian, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
			Clock: f.Clock.Now, Random: f.Random,
		}
		kept := func() pki.Identity {
			t.Helper()
			server, err := bootstrap.KeepServer(t.Context(), state)
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
