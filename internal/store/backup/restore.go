package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

// Options are the settings of a restore.
type Options struct {
	Target sqlstore.Config // where to restore: an empty directory or database
	// Name is the name of the backup in messages and in the audit row.
	Name string
	// Checkpoints are checkpoints that were saved outside of the backup. The newest one shows how many audit rows the key
	// server had. Without such a checkpoint, missing rows are not detected.
	Checkpoints []tree.Noted
	// Key must have signed the checkpoint of the backup. If Key is nil, the signer is not
	// checked: any program that knows the recipient can have made the backup.
	Key note.Verifier
	// AcceptLoss permits a restore without audit rows that a saved checkpoint has. It requires Key.
	AcceptLoss bool
	Clock      func() time.Time
	Logger     *slog.Logger
	// Before (optional) is called when the database is complete, before it gets its final
	// name.
	Before func() error
}

// Restored is the result of a restore.
type Restored struct {
	Head   Head
	Rows   int64 // number of rows of all tables
	Tables int
	Lost   Range
}

// Range is a range of audit rows. It is empty if First is zero.
type Range struct{ First, Last int64 }

func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprintf("row %d", r.First)
	}
	return fmt.Sprintf("rows %d to %d", r.First, r.Last)
}

// ErrLoss means that a backup lacks audit rows that a saved checkpoint has.
var ErrLoss = errors.New("the backup is too old")

// ErrOtherServer means that a backup is from another key server than expected.
var ErrOtherServer = errors.New("the backup was not made by the expected key server")

// Restore creates a database from a backup. It fails and removes the database if the backup was changed,
// or if its audit log is not intact.
func Restore(ctx context.Context, from *Reader, o Options) (done Restored, err error) {
	done.Head, done.Tables = from.Head, len(from.Head.Tables)
	if err := checkSigner(from.Head, o); err != nil {
		return done, err
	}
	if done.Lost, err = lost(from.Head, o); err != nil {
		return done, err
	}
	r, err := sqlstore.NewRestore(ctx, o.Target, from.Head.Schema)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, r.Abandon()) }() // does nothing after Finish
	if done.Rows, err = load(ctx, from, r); err != nil {
		return done, err
	}
	if err := verify(ctx, from.Head, r.Store(), o); err != nil {
		return done, err
	}
	if o.Before != nil {
		if err := o.Before(); err != nil {
			return done, err
		}
	}
	return done, r.Finish(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditRestored, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: from.Head.System}, Object: object(from.Head, done.Lost), Filename: o.Name,
	})
}

// object returns the field Object of the audit row of a restore.
func object(h Head, lost Range) string {
	text := fmt.Sprintf("rows up to %d, of a backup of %s", h.Last, h.MadeAt.Format(time.RFC3339))
	if lost.First > 0 {
		text += fmt.Sprintf("; without the %s", lost)
	}
	return text
}

// checkSigner checks that the expected key has signed the checkpoint in the backup. The encryption
// does not authenticate the writer of a backup, and its recipient may be public.
func checkSigner(h Head, o Options) error {
	if o.Key != nil {
		if _, err := tree.Open([]byte(h.Tree.Checkpoint), o.Key); err != nil {
			return fmt.Errorf("%w: its checkpoint is not signed by the key %s of --key; use another backup", ErrOtherServer, o.Key.Name())
		}
	}
	for _, n := range o.Checkpoints {
		noted := Tree{Checkpoint: string(n.Head.Checkpoint)}
		if theirs, ours := noted.Origin(), h.Tree.Origin(); theirs != ours {
			return fmt.Errorf("the checkpoint in %s belongs to the log %s, but the backup to %q: they are of different key servers", n.Name, theirs, ours)
		}
		if theirs, ours := noted.Signer(), h.Tree.Signer(); theirs != ours || ours == "" {
			return fmt.Errorf("%w: its checkpoint is signed by %q, but the one in %s by %q; use another backup", ErrOtherServer, ours, n.Name, theirs)
		}
	}
	return nil
}

// lost returns the audit rows that are in a saved checkpoint, but not in the backup.
func lost(h Head, o Options) (Range, error) {
	var gone Range
	for _, n := range o.Checkpoints {
		if n.Head.Size > max(h.Last, gone.Last) {
			gone = Range{h.Last + 1, n.Head.Size}
		}
	}
	switch {
	case gone.First == 0:
	case !o.AcceptLoss:
		return gone, fmt.Errorf("%w: it has the audit log up to row %d, but the saved checkpoint has %d rows: the %s and their changes are missing; "+
			"use a newer backup, or give --accept-loss to restore without them", ErrLoss, h.Last, gone.Last, gone)
	case o.Key == nil:
		return gone, fmt.Errorf("%w: --accept-loss requires --key: the backup ends before the saved checkpoint, so only the key shows which key server made it; "+
			"the key is in the response of GET /api/audit/key, and in status.auditKey of the KeyServer", ErrLoss)
	}
	return gone, nil
}

// load loads every table, and compares their sizes and hashes with the manifest.
func load(ctx context.Context, from *Reader, r *sqlstore.Restore) (rows int64, err error) {
	tables, err := r.Tables(ctx)
	if err != nil {
		return 0, err
	}
	if err := checkTables(from.Head.Tables, tables); err != nil {
		return 0, err
	}
	for _, t := range from.Head.Tables {
		if err := from.Part(t.Name, func(part io.Reader) (int64, error) {
			n, err := r.Load(ctx, t, part, from.Head.Last)
			rows += n
			return n, err
		}); err != nil {
			return rows, asDamage(err)
		}
	}
	tail, err := from.journal()
	if err != nil {
		return rows, err
	}
	if err := from.End(); err != nil {
		return rows, err
	}
	return rows, r.CommitLoad(ctx, tail)
}

// checkTables rejects tables and columns that do not exist in the schema of the backup. So SQL statements contain no other
// names from the file.
func checkTables(said []snapshot.Table, tables map[string]snapshot.Table) error {
	if len(said) != len(tables) {
		return damaged("it has %d tables, but its version has %d", len(said), len(tables))
	}
	for _, t := range said {
		is, ok := tables[t.Name]
		if !ok || len(is.Columns) != len(t.Columns) {
			return damaged("its version has no table %q with these columns", t.Name)
		}
		for _, c := range t.Columns {
			if !slices.Contains(is.Columns, c) {
				return damaged("the table %s has no column %q of that type", t.Name, c.Name)
			}
		}
	}
	return nil
}

func asDamage(err error) error {
	if errors.Is(err, pgcopy.ErrDamaged) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// verify checks the chains and the tree of the loaded audit log, and compares it with the saved checkpoints.
func verify(ctx context.Context, h Head, store *sqlstore.Store, o Options) error {
	head, err := store.AuditTree(ctx)
	if err != nil {
		return err
	}
	if is := treeOf(head); is.Size != h.Tree.Size || is.Checkpoint != h.Tree.Checkpoint {
		return damaged("its audit tree has %d rows, but its description says %d", is.Size, h.Tree.Size)
	}
	v, err := tree.NewVerifier(ctx, store, tree.Options{First: h.First, Key: o.Key})
	if err != nil {
		return err
	}
	chains, err := audit.Verify(ctx, v.Tee(store))
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	report, err := v.End(ctx)
	if err != nil {
		return err
	}
	var found []string
	for _, f := range chains.Findings {
		found = append(found, fmt.Sprintf("chain %d, seq %d: %s", f.Chain, f.Seq, f.Problem))
	}
	for _, f := range report.Findings {
		found = append(found, fmt.Sprintf("tree, seq %d: %s", f.Seq, f.Problem))
	}
	if n := chains.Total + report.Total; n > 0 {
		return fmt.Errorf("the audit log in the backup is not intact (%d findings): the database was changed before the backup was made: %s; use an older backup",
			n, strings.Join(found[:min(len(found), 3)], "; "))
	}
	for _, n := range o.Checkpoints {
		if n.Head.Size > h.Last || n.Head.Size == 0 {
			continue
		}
		root, err := tree.RootOf(ctx, store, head, n.Head.Size)
		if err != nil {
			return err
		}
		if root != n.Head.Root {
			return fmt.Errorf("the rows 1 to %d of the audit log in the backup do not match the checkpoint in %s: one of the two belongs to another history", n.Head.Size, n.Name)
		}
	}
	return nil
}
