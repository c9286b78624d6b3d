package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// dutyReader compares the operations that principals hold before and after a write.
type dutyReader struct {
	ctx  context.Context //nolint:containedctx // of one transaction, and not used after it
	tx   *sqlstore.Tx
	off  bool // duties are not separated: check nothing
	held map[keyserver.ID][]keyserver.ID
}

func (d *dutyReader) before(read func() (sqlstore.Holdings, error)) (err error) {
	if !d.off {
		d.held, err = operationsOf(d.ctx, d.tx, read)
	}
	return err
}

// after returns an error if the write gave a principal operations of two separated duties. It ignores conflicts that
// existed before the write.
func (d *dutyReader) after(read func() (sqlstore.Holdings, error)) error {
	if d.off {
		return nil
	}
	held, err := operationsOf(d.ctx, d.tx, read)
	if err != nil {
		return err
	}
	for holder, operations := range held {
		if c, conflict := keyserver.ConflictOf(d.held[holder], operations); conflict {
			return fault.New(fault.DutiesConflict, "principal %s would hold %s (%s) and %s (%s), but this deployment separates these duties; give one of them to another principal",
				holder, c.One.Name, c.One.Duty, c.Other.Name, c.Other.Duty).Audited(fault.ReasonDutiesConflict)
		}
	}
	return nil
}

// roleReader is a store or a transaction on it.
type roleReader interface {
	Roles(ctx context.Context) ([]keyserver.Role, error)
}

// operationsOf returns the operations of each principal. The function read returns the roles of these principals.
// Principals with the same roles share one slice.
func operationsOf(ctx context.Context, in roleReader, read func() (sqlstore.Holdings, error)) (map[keyserver.ID][]keyserver.ID, error) {
	holdings, err := read()
	if err != nil {
		return nil, err
	}
	roles, err := in.Roles(ctx)
	if err != nil {
		return nil, err
	}
	of := map[keyserver.ID][]keyserver.ID{}
	for _, r := range roles {
		of[r.ID] = r.Operations
	}
	out, known := map[keyserver.ID][]keyserver.ID{}, map[string][]keyserver.ID{}
	for holder, held := range holdings {
		held = keyserver.NormalizeIDs(held)
		key := fmt.Sprint(held)
		if _, ok := known[key]; !ok {
			var operations []keyserver.ID
			for _, role := range held {
				operations = append(operations, of[role]...)
			}
			known[key] = keyserver.NormalizeIDs(operations)
		}
		out[holder] = known[key]
	}
	return out, nil
}

// withDutyHolderCheck runs a write that may remove a duty from principals. It returns an error, which undoes the write,
// if no enabled principal would have the duty any more. Then no principal could give the duty again, or approve requests
// that need it.
func (e *Engine) withDutyHolderCheck(ctx context.Context, tx *sqlstore.Tx, write func() error) error {
	if e.Deployment != keyserver.Split {
		return write()
	}
	before, err := approval.CountDutyHolders(ctx, tx, keyserver.ID{})
	if err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	after, err := approval.CountDutyHolders(ctx, tx, keyserver.ID{})
	if err != nil {
		return err
	}
	for _, duty := range []keyserver.Duty{keyserver.Administration, keyserver.Trust} {
		if before[duty] > 0 && after[duty] == 0 {
			return fault.New(fault.InUse, "no other enabled principal has the duty %s, so no principal could grant it again; give it to another principal first", duty).
				Audited(fault.ReasonInUse)
		}
	}
	return nil
}

// LogDutyConflicts logs each principal that has operations of two separated duties. Earlier versions permitted that.
// Administrators have to correct it.
func LogDutyConflicts(ctx context.Context, store *sqlstore.Store, logger *slog.Logger) error {
	held, err := operationsOf(ctx, store, func() (sqlstore.Holdings, error) { return store.AllHoldings(ctx) })
	if err != nil {
		return err
	}
	for _, holder := range sortedIDs(held) {
		c, conflict := keyserver.ConflictOf(nil, held[holder])
		if !conflict {
			continue
		}
		p, err := store.Principal(ctx, holder)
		if err != nil {
			return err
		}
		logger.WarnContext(ctx, "a principal holds two duties that this deployment separates; remove one of its roles",
			"principal", holder.Hex(), "name", p.Name, "holds", c.One.Name, "and", c.Other.Name)
	}
	return nil
}

func sortedIDs[V any](m map[keyserver.ID]V) []keyserver.ID {
	ids := make([]keyserver.ID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b keyserver.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}
