package server

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// openTree starts the tree over the audit log. It must run before any row is written. Shutdown stops the tree after the
// last row is written. openTree returns the Recent of the tree, to which the writer adds new rows.
func (s *Server) openTree(ctx context.Context) (*tree.Recent, error) {
	signer, err := bootstrap.AuditSigner(ctx, s.bootstrap())
	if err != nil {
		return nil, fmt.Errorf("read the key of the audit tree: %w", err)
	}
	recent := tree.NewRecent()
	s.store.OnChange(func(changes []keyserver.Change) {
		if changes == nil { // the database may have been replaced
			recent.Reset()
		}
	})
	s.tree = tree.New(tree.Config{
		Store: s.store, Signer: signer, Recent: recent, SoleWriter: s.cfg.DatabaseURL == "", Interval: s.cfg.CheckpointInterval, Clock: s.cfg.Clock, Logger: s.cfg.Logger,
		Pruned: func(ctx context.Context) (int64, error) {
			extent, err := s.store.AuditExtent(ctx)
			return extent.First - 1, err
		},
		Alarm: func(problem string) {
			s.alarm.raise(rowmac.Finding{Table: tableAuditTree, Problem: problem})
		},
		RowAlarm: func(seq int64, problem string) {
			s.alarm.raise(rowmac.Finding{Table: tableAuditTree, ID: fmt.Sprintf("row %d", seq), Problem: problem})
		},
	})
	s.background(s.tree.Run)
	return recent, nil
}

func observeAuditTree(r prometheus.Registerer, t *tree.Tree) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_tree_rows", Help: "Rows of the audit log that are under a signed checkpoint, as known to this process.",
		}, func() float64 { return float64(t.Size()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_tree_grows", Help: "1 while the audit tree follows the audit log, 0 while it cannot.",
		}, func() float64 {
			if t.Failing() != nil {
				return 0
			}
			return 1
		}),
	)
}
