package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// minRetention is the minimum of --audit-retention. A shorter time is not enough to investigate an incident.
const minRetention = time.Hour

func (c *Config) validateArchive() error {
	switch {
	case c.AuditRetention != 0 && c.AuditArchive == "":
		return errors.New("--audit-retention requires --audit-archive, because only archived rows are removed; give both")
	case c.AuditRetention != 0 && c.AuditRetention < minRetention:
		return fmt.Errorf("--audit-retention is %s; it must be at least %s, or 0 to keep every row", c.AuditRetention, minRetention)
	case c.AuditArchive == "":
		return nil
	}
	if err := blobstore.CheckURL(c.AuditArchive); err != nil {
		return fmt.Errorf("--audit-archive: %w", err)
	}
	return nil
}

// archiveAudit starts the loop that copies audit rows to the archive and removes archived rows from the database.
func (s *Server) archiveAudit() {
	a := archive.New(archive.Config{
		Store: s.store, URL: s.cfg.AuditArchive, Retention: s.cfg.AuditRetention,
		Key: s.tree.Signer.Verifier, Clock: s.cfg.Clock, Logger: s.cfg.Logger,
		MayPrune: func(ctx context.Context, last int64) (bool, error) { return s.mayPrune(ctx, s.store, s.feed, last) },
		Record: func(ctx context.Context, pruned string) error {
			return s.rows.Write(ctx, keyserver.AuditEntry{
				Operation: keyserver.AuditPruned, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
				Principal: keyserver.PrincipalRef{System: s.system}, Object: pruned,
			})
		},
		Alarm: func(problem string) { s.alarm.raise(rowmac.Finding{Table: tableAuditArchive, Problem: problem}) },
	})
	a.Observe(s.registry)
	s.background(a.Run)
}

// mayPrune reports whether the rows up to last may be removed from the database: a quorum of witnesses must have
// cosigned them, and all sinks of this process must have received them. Until then, the rows stay in the database at
// any age.
func (s *Server) mayPrune(ctx context.Context, store *sqlstore.Store, feed *witness.Feed, last int64) (bool, error) {
	cosigned, err := feed.Cosigned(ctx)
	if err != nil || cosigned < last {
		return false, err
	}
	head, err := store.AuditTree(ctx)
	if err != nil {
		return false, err
	}
	for _, target := range s.cfg.sinks {
		// A number beyond the end of the tree is invalid: no sink can have received these rows.
		sent, err := store.AuditSinkSent(ctx, target.Name)
		if err != nil || sent < last || sent > head.Size {
			return false, err
		}
	}
	return true, nil
}
