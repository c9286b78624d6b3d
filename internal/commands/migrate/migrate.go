// Package migrate copies an embedded database into a PostgreSQL database. It completes the move only if every row
// arrived unchanged (docs/adr/0065-moving-a-database.md).
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Options configure a move. All fields except Previous are required.
type Options struct {
	From sqlstore.Config // an embedded database that no server uses
	To   sqlstore.Config // an empty PostgreSQL database
	// Provider has the key-encryption key of the target. If that is a new key, Previous has the old one.
	Provider, Previous *keyring.Provider
	Clock              func() time.Time
	Logger             *slog.Logger

	loaded func() error // called after the copy, for tests
}

// Result is the result of a move.
type Result struct {
	Rows   int64 // number of rows of all tables
	Tables int
	Last   int64 // last row of the audit log
	Tree   int64 // number of rows in the audit tree
	KEK    keyserver.KEK
}

// Run moves the database. After an error, the source is unchanged and no server can use the target, except after an
// UnsureError.
func Run(ctx context.Context, o Options) (done Result, err error) {
	from, err := sqlstore.OpenToMove(ctx, o.From)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	was, err := sqlite.Moved(o.From.Dir)
	if err != nil {
		return done, err
	}
	if err := o.opens(ctx, from); err != nil {
		return done, err
	}
	s, err := from.Snapshot(ctx)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	to, err := sqlstore.NewRestore(ctx, o.To, s.Schema)
	if err != nil {
		if was != "" {
			err = fmt.Errorf("%w; the database in %s was moved to %s", err, o.From.Dir, was)
		}
		return done, err
	}
	defer func() { err = errors.Join(err, to.Abandon()) }() // no effect after finish
	done.Tables, done.Last, done.Tree = len(s.Tables), s.Last, s.Tree.Size
	if done.Rows, err = load(ctx, s, to); err != nil {
		return done, err
	}
	if o.loaded != nil {
		if err := o.loaded(); err != nil {
			return done, err
		}
	}
	if err := same(ctx, s, to.Store()); err != nil {
		return done, err
	}
	if err := intact(ctx, s, to.Store()); err != nil {
		return done, err
	}
	if done.KEK, err = o.rewrap(ctx, to.Store()); err != nil {
		return done, err
	}
	return done, o.finish(ctx, s, to)
}

// UnsureError means that it is unknown whether the move was completed.
type UnsureError struct{ cause error }

func (e UnsureError) Error() string {
	return fmt.Sprintf("it is not known whether the database was moved: %v; run the move again to find out", e.cause)
}

func (e UnsureError) Unwrap() error { return e.cause }

// finish completes the target. Before that it marks the source as moved, so that no server uses it. Otherwise servers
// could use both.
func (o Options) finish(ctx context.Context, s *snapshot.Snapshot, to *sqlstore.Restore) error {
	system, err := sqlstore.SystemOf(ctx, to.Store())
	if err != nil {
		return err
	}
	marked := false
	err = to.FinishMove(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditMigrated, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: system}, Object: fmt.Sprintf("rows up to %d, from sqlite to postgres", s.Last),
	}, func() error {
		marked = true
		return sqlite.MarkMoved(o.From.Dir, fmt.Sprintf("%s at %s", sqlstore.PlaceOf(o.To), o.Clock().UTC().Format(time.RFC3339)))
	})
	if err != nil && marked {
		return UnsureError{err}
	}
	return err
}

// opens checks the key-encryption key and the row MACs of the source, before anything is written.
func (o Options) opens(ctx context.Context, from *sqlstore.Store) error {
	ring, err := keyring.Existing(ctx, o.Provider, from.Setting)
	if errors.Is(err, keyring.ErrWrongKey) && o.Previous != nil {
		if ring, err = keyring.Existing(ctx, o.Previous, from.Setting); errors.Is(err, keyring.ErrWrongKey) {
			err = keyring.ErrWrongKeys
		}
	}
	if err != nil {
		return err
	}
	if !ring.RowsSealed() {
		return errors.New("the rows have no MACs yet: start the server once with this version")
	}
	from.UseRowKey(ring.RowKey())
	return checkMACs(ctx, from)
}

// checkMACs returns an error if the MAC of a row is wrong.
func checkMACs(ctx context.Context, store *sqlstore.Store) error {
	var first *rowmac.Finding
	found := 0
	if _, err := store.CheckRows(ctx, func(f rowmac.Finding) error {
		if found++; first == nil {
			first = &f
		}
		return nil
	}); err != nil {
		return err
	}
	if first != nil {
		return fmt.Errorf("%d rows were not written by the key server, the first of them %s; run doctor to list all of them, and see docs/security.md", found, first)
	}
	return nil
}

// load copies all tables.
func load(ctx context.Context, s *snapshot.Snapshot, to *sqlstore.Restore) (rows int64, err error) {
	for _, t := range s.Tables {
		from := stream(func(w io.Writer) error {
			_, err := s.Copy(ctx, t, w)
			return err
		})
		n, err := to.Load(ctx, t, from, s.Last)
		from.end()
		if err != nil {
			return rows, err
		}
		rows += n
	}
	return rows, to.CommitLoad(ctx, s.Tail)
}

// intact verifies the audit log in the target: its chains, its audit tree, and that this tree equals the tree of the
// source.
func intact(ctx context.Context, s *snapshot.Snapshot, to *sqlstore.Store) error {
	head, err := to.AuditTree(ctx)
	if err != nil {
		return err
	}
	if head.Size != s.Tree.Size || head.Root != s.Tree.Root || string(head.Checkpoint) != string(s.Tree.Checkpoint) {
		return errors.New("the audit tree of the target differs from that of the source")
	}
	v, err := tree.NewVerifier(ctx, to, tree.Options{First: s.Extent.First})
	if err != nil {
		return err
	}
	chains, err := audit.Verify(ctx, v.Tee(to))
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	report, err := v.End(ctx)
	if err != nil {
		return err
	}
	if n := chains.Total + report.Total; n > 0 {
		var first []string
		for _, f := range append(chains.Findings, report.Findings...) {
			first = append(first, fmt.Sprintf("seq %d: %s", f.Seq, f.Problem))
		}
		return fmt.Errorf("the audit log is not intact (%d findings); the database was changed outside of the key server: %s; run audit verify --data-dir to list all findings, and see docs/security.md",
			n, strings.Join(first[:min(len(first), 3)], "; "))
	}
	return nil
}

// rewrap encrypts the data keys with the key-encryption key of the target, if that is a new key. Then it checks each
// row as a key server does.
func (o Options) rewrap(ctx context.Context, to *sqlstore.Store) (keyserver.KEK, error) {
	ring, err := keyring.Start(ctx, o.Provider, to, keyring.Options{Previous: o.Previous, Clock: o.Clock})
	if err != nil {
		return keyserver.KEK{}, err
	}
	to.UseRowKey(ring.RowKey())
	return ring.KEK(ctx), checkMACs(ctx, to)
}
