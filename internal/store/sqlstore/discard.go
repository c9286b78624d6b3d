package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// discardedSuffix is behind the name of a journal that was given up.
const discardedSuffix = ".discarded"

// DiscardJournal gives up what the journal of an embedded database has, where it
// cannot be used, and says so in the trail. It answers the last row that is left,
// and that nothing was given up where the journal can be used: then its rows are
// in the tables.
func DiscardJournal(ctx context.Context, cfg Config) (last int64, discarded bool, err error) {
	if _, err := os.Stat(filepath.Join(cfg.Dir, DatabaseFile)); err != nil {
		return 0, false, fmt.Errorf("--data-dir: %w", err) // none is made
	}
	cfg.discard = func() { discarded = true }
	s, err := Open(ctx, cfg)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var system int64
	if err := s.row(ctx, `SELECT value, coalesce((SELECT system_id FROM audit WHERE operation = $1 ORDER BY seq DESC LIMIT 1), 0)
		FROM sequences WHERE name = 'audit'`, []any{keyserver.AuditStart}, &last, &system); err != nil || !discarded {
		return last, discarded, err
	}
	w, err := audit.NewWriter(ctx, s, audit.Options{Clock: s.cfg.Clock, Logger: s.cfg.Logger})
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

func (d *sqlite) discard(ctx context.Context, s *Store) error {
	name := filepath.Join(d.dir, journal.File)
	if err := os.Rename(name, name+discardedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put the audit journal aside: %w", err)
	}
	s.cfg.discard()
	return s.writeAlone(ctx, func(in statements) error {
		return in.execOne(ctx, `UPDATE audit_journal SET open = 0`)
	})
}
