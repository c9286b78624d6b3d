package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
)

// leastBackupEvery is the minimum of --backup-every. Each backup reads the entire database.
const leastBackupEvery = time.Minute

// backupRest is the ratio of pauses to work in a backup, so that a backup uses a tenth of one core. Even if two cores
// are fully used, the rate of requests must fall by at most a tenth during a backup.
const backupRest = 9

// DefaultBackupKeep is enough for daily backups of one week.
const DefaultBackupKeep = 7

// Backups configures periodic backups by this process.
type Backups struct {
	BackupEvery     time.Duration // 0: no backups
	BackupTo        string        // a directory or a URL
	BackupKeep      int           // number of backups to keep; 0: all
	BackupRecipient string        // age recipient
}

func (c *Config) validateBackups() error {
	if c.BackupEvery == 0 {
		if c.BackupTo != "" || c.BackupRecipient != "" {
			return errors.New("--backup-to and --backup-recipient require --backup-every; give it, for instance 24h, or leave them out")
		}
		return nil
	}
	switch {
	case c.BackupEvery < leastBackupEvery:
		return fmt.Errorf("--backup-every is %s; it must be at least %s, or 0 for no backups", c.BackupEvery, leastBackupEvery)
	case c.BackupTo == "" || c.BackupRecipient == "":
		return errors.New("--backup-every requires --backup-to and --backup-recipient; give both")
	case c.BackupKeep < 0:
		return fmt.Errorf("--backup-keep is %d; it must not be negative, and 0 keeps every backup", c.BackupKeep)
	}
	if err := backup.CheckPlace(c.BackupTo); err != nil {
		return fmt.Errorf("--backup-to: %w", err)
	}
	if c.within(c.BackupTo) {
		return errors.New("--backup-to is inside --data-dir, so both would be lost together; give a directory on another volume, or a bucket")
	}
	if _, err := backup.ParseRecipient(c.BackupRecipient); err != nil {
		return errors.New("--backup-recipient must be an age recipient, which begins with age1; age-keygen -y prints it")
	}
	return nil
}

func (c *Config) within(place string) bool {
	if rest, is := strings.CutPrefix(place, "file://"); is {
		place, _, _ = strings.Cut(rest, "?")
	} else if strings.Contains(place, "://") {
		return false
	}
	place, err := filepath.Abs(place)
	dir, err2 := filepath.Abs(c.DataDir)
	if err != nil || err2 != nil {
		return false
	}
	relative, err := filepath.Rel(dir, place)
	return err == nil && filepath.IsLocal(relative)
}

func (s *Server) newBackupMaker() *backup.Maker {
	return &backup.Maker{
		Store: s.store, System: s.system, ServerName: s.cfg.ServerName, Key: s.auditKey.Key, Version: version.String(), KEK: s.ring.KEK, Clock: s.cfg.Clock,
		Rest: backupRest,
	}
}

// scheduleBackups starts periodic backups. It returns a function that returns the current warning about the backups, or
// "" if there is none.
func (s *Server) scheduleBackups() func() string {
	if s.cfg.BackupEvery == 0 {
		return func() string { return "" }
	}
	schedule := &backup.Schedule{
		Maker: s.backups, Every: s.cfg.BackupEvery, Place: s.cfg.BackupTo, Keep: s.cfg.BackupKeep, Recipient: s.cfg.BackupRecipient,
		Clock: s.cfg.Clock, Logger: s.cfg.Logger,
		Record: func(ctx context.Context, outcome keyserver.Outcome, name string) error {
			return s.rows.Write(ctx, s.copied(outcome, s.cfg.BackupRecipient, name))
		},
	}
	schedule.Observe(s.registry)
	s.background(schedule.Run)
	return schedule.Late
}

// copied returns the audit row for a copy of all data that is encrypted for recipient.
func (s *Server) copied(outcome keyserver.Outcome, recipient, name string) keyserver.AuditEntry {
	return keyserver.AuditEntry{
		Operation: keyserver.OpMakeBackup.Key, Outcome: outcome, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: s.system}, Object: keyserver.ShortRecipient(recipient), Filename: name,
	}
}
