package engine_test

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// A server that runs for a year renews its certificate under its old key, and
// takes over what another replica renewed.
func TestTheServerCertificateIsKept(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		state := engine.BootstrapConfig{
			Store: f.Store, Custodian: f.Custodian, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
			Clock: f.Clock.Now, Random: f.Random,
		}
		first := f.Prepared.Server
		if same := must(engine.KeepServer(ctx, state))(t); !same.Certificate.Equal(first.Certificate) {
			t.Error("a new certificate was renewed")
		}
		f.Clock.Advance(300 * 24 * time.Hour)
		renewed := must(engine.KeepServer(ctx, state))(t)
		if !renewed.Key.Equal(first.Key) || !renewed.Certificate.NotAfter.After(first.Certificate.NotAfter) {
			t.Errorf("renewed until %s, with the same key: %v", renewed.Certificate.NotAfter, renewed.Key.Equal(first.Key))
		}
		if other := must(engine.KeepServer(ctx, state))(t); !other.Certificate.Equal(renewed.Certificate) {
			t.Error("another replica renewed once more")
		}
	})
}
