package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// DiscardJournal discards the journal of an embedded database if the journal is
// unusable, and records that in the audit log. last is the last audit row in the
// tables. If the journal is usable, DiscardJournal copies its rows to the tables, and
// discarded is false.
func DiscardJournal(ctx context.Context, cfg Config) (last int64, discarded bool, err error) {
	if _, err := os.Stat(filepath.Join(cfg.Dir, sqlite.DatabaseFile)); err != nil {
		return 0, false, fmt.Errorf("--data-dir: %w", err) // Open would create a database
	}
	cfg.discard = func() { discarded = true }
	if cfg, err = cfg.complete(); err != nil {
		return 0, false, err
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var system int64
	if err := s.db.Row(ctx, `SELECT value, coalesce((SELECT system_id FROM audit WHERE operation = $1 ORDER BY seq DESC LIMIT 1), 0)
		FROM sequences WHERE name = 'audit'`, []any{keyserver.AuditStart}, &last, &system); err != nil || !discarded {
		return last, discarded, err
	}
	w, err := audit.NewWriter(ctx, s, audit.Options{Clock: cfg.Clock, Logger: cfg.Logger})
	if err != nil {
		return 0, false, err
	}
	err = w.Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditDiscarded, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: keyserver.SystemID(system)}, //nolint:gosec // as it was stored
		Object:    fmt.Sprintf("rows after %d", last),
	})
	return last, true, errors.Join(err, w.Close())
}
