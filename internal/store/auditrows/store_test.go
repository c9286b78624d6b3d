package auditrows

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
)

// Config names the database of a test.
type Config struct{ Dir, URL string }

// Store is an open database with its audit log.
type Store struct {
	*sqldb.Handle
	*AuditLog
	db    *sqldb.DB
	reads Reads
}

// Open opens a database as a server does.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	log := slog.New(slog.DiscardHandler)
	var d sqldb.Dialect = &sqlite.Database{Dir: cfg.Dir, Log: log}
	if cfg.URL != "" {
		d = &postgres.Database{URL: cfg.URL, Connections: postgres.DefaultConnections, Log: log}
	}
	db, err := sqldb.Open(ctx, d, sqldb.Options{Clock: time.Now, Logger: log})
	if err != nil {
		return nil, err
	}
	s := &Store{Handle: db.Handle, AuditLog: New(db, Options{}), db: db, reads: NewReads(db.Statements)}
	if err := s.Recover(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func eachDatabase(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for name, config := range map[string]func(t *testing.T) Config{
		"SQLite":     func(t *testing.T) Config { return Config{Dir: t.TempDir()} },
		"PostgreSQL": func(t *testing.T) Config { return Config{URL: pgtest.Database(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), config(t))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			test(t, s)
		})
	}
}
