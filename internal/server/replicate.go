package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
)

// DefaultReplicateKeep is the default of --replicate-keep.
const DefaultReplicateKeep = 24 * time.Hour

// leastReplicateKeep is the minimum of --replicate-keep, because each base is a copy of the entire database.
const leastReplicateKeep = time.Hour

// Replication configures the replication of the embedded database.
type Replication struct {
	ReplicateTo        string // a directory or a URL; empty: none
	ReplicateRecipient string // age recipient
	ReplicateKeep      time.Duration
}

func (c *Config) validateReplication() error {
	if c.ReplicateTo == "" {
		if c.ReplicateRecipient != "" {
			return errors.New("--replicate-recipient requires --replicate-to; give both or neither")
		}
		return nil
	}
	switch {
	case c.DatabaseURL != "":
		return errors.New("--replicate-to is only for the embedded database; omit it, and archive with PostgreSQL itself " +
			"(archive_mode, CloudNativePG, pgBackRest or Barman); see docs/guides/replicate.md")
	case c.ReplicateRecipient == "":
		return errors.New("--replicate-to requires --replicate-recipient, an age recipient; its identity decrypts the replica")
	case c.ReplicateKeep != 0 && c.ReplicateKeep < leastReplicateKeep:
		return fmt.Errorf("--replicate-keep is %s; it must be at least %s, or 0 to keep everything", c.ReplicateKeep, leastReplicateKeep)
	}
	if err := backup.CheckPlace(c.ReplicateTo); err != nil {
		return fmt.Errorf("--replicate-to: %w", err)
	}
	if c.within(c.ReplicateTo) {
		return errors.New("--replicate-to is inside --data-dir, so both would be lost together; give a directory on another volume, or a bucket")
	}
	if _, err := backup.ParseRecipient(c.ReplicateRecipient); err != nil {
		return errors.New("--replicate-recipient must be an age recipient, which begins with age1; age-keygen -y prints it")
	}
	return nil
}

// replicating runs the replication. Shutdown stops the replication after all writers and before it closes the database,
// so that the last writes are replicated.
type replicating struct {
	server *Server
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *Server) openReplication() *replicating {
	r := &replicating{server: s}
	s.onClose(func(context.Context) error {
		if r.cancel != nil {
			r.cancel()
			<-r.done
		}
		return nil
	})
	return r
}

// start starts the replication. It returns a function that returns the current warning about the replication, or "" if
// there is none.
func (r *replicating) start() func() string {
	s := r.server
	if s.cfg.ReplicateTo == "" {
		return func() string { return "" }
	}
	replicator := &backup.Replicator{
		Store: s.store, Maker: s.backups, Place: s.cfg.ReplicateTo, Keep: s.cfg.ReplicateKeep, Recipient: s.cfg.ReplicateRecipient, Logger: s.cfg.Logger,
		Record: func(ctx context.Context, outcome keyserver.Outcome, name string) error {
			return s.rows.Write(ctx, s.copied(outcome, s.cfg.ReplicateRecipient, name))
		},
	}
	replicator.Observe(s.registry)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		replicator.Run(ctx)
	}()
	return replicator.Late
}
