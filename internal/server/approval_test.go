package server

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestPendingApprovalsAreShown checks that the gauge is the number of pending requests, and NaN if the database does
// not respond.
func TestPendingApprovalsAreShown(t *testing.T) {
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	key, err := rowmac.Derive(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	store.UseRowKey(key)
	now := time.Now()
	if err := store.Update(t.Context(), func(tx *sqlstore.Tx) error {
		asker := keyserver.Principal{ID: values.IDFromUint64(9), System: 1, Type: keyserver.PasswordPrincipal, Name: "asker", Flags: keyserver.FlagEnable}
		if err := tx.InsertPrincipal(t.Context(), asker, ""); err != nil {
			return err
		}
		for i, ends := range []time.Duration{time.Hour, time.Hour, -time.Hour} { // the last one has expired
			a := keyserver.Approval{ID: values.IDFromUint64(uint64(i + 1)), Asker: asker.Ref(), CreatedAt: now, ExpiresAt: now.Add(ends)}
			if err := tx.InsertApproval(t.Context(), a); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	observeApprovals(registry, approval.New(approval.Config{Store: store, Clock: time.Now}))
	if families, err := registry.Gather(); err != nil || len(families) != 1 || families[0].GetName() != "keyserver_approvals_pending" || families[0].GetMetric()[0].GetGauge().GetValue() != 2 {
		t.Errorf("%v, %v", families, err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if families, err := registry.Gather(); err != nil || !math.IsNaN(families[0].GetMetric()[0].GetGauge().GetValue()) {
		t.Errorf("without a database: %v, %v", families, err)
	}
}
