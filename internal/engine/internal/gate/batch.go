package gate

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Entitled implements keyserver.Keys.
func (g *Gate) Entitled(ctx context.Context, by keyserver.Caller, op keyserver.Operation) error {
	r := Request{By: by, Op: op}
	if len(by.Scope) > 0 {
		r.Link = by.Scope[0] // any key in scope; AuthorizeAll checks the key of each item later
	}
	if refusal := g.authorize(ctx, r, nil); refusal != nil {
		return g.refused(ctx, r, refusal)
	}
	return nil
}

// AuthorizeAll is AuthorizeAndAudit for n items with the same operation. It first checks that the caller's roles grant
// the operation. One commit writes the audit rows of all items. AuthorizeAll returns the target and the refusal of each
// item.
func AuthorizeAll[T Target](ctx context.Context, g *Gate, by keyserver.Caller, op keyserver.Operation, n int, item func(i int) (Request, Resolver[T])) ([]T, []error, error) {
	if err := g.restrained(by, n); err != nil {
		return nil, nil, err
	}
	if err := g.Entitled(ctx, by, op); err != nil {
		return nil, nil, err
	}
	targets, refusals, rows := make([]T, n), make([]error, n), make([]keyserver.AuditEntry, 0, n)
	var broken error
	for i := 0; i < n && broken == nil; i++ {
		r, resolve := item(i)
		target, r, err := authorize(ctx, g, r, resolve, nil)
		targets[i] = target
		switch f := fault.As(err); {
		case err == nil:
			rows = append(rows, r.row(keyserver.Allowed, ""))
		case f != nil && f.Reason != "":
			rows, refusals[i] = append(rows, r.refusedRow(err)), err
			g.CountRefusal(by)
			if g.restrained(by, 1) != nil {
				g.refusals.Count(partyOf(by), n-i) // the items without a decision count, too
				broken = g.restrained(by, n)
			}
		default: // no decision: rows of uses that were counted before must still be written
			rows, broken = append(rows, r.refusedRow(err)), err
		}
	}
	counted := func(err error) error {
		if slices.ContainsFunc(rows, func(row keyserver.AuditEntry) bool { return row.Outcome == keyserver.Allowed }) {
			return WithoutRetry(err)
		}
		return err
	}
	// A use that was counted must have a row, even if the caller has disconnected.
	if err := g.auditor.WriteAll(ctx, rows); err != nil {
		return nil, nil, counted(err)
	}
	return targets, refusals, counted(broken)
}

// WithoutRetry returns err, or if it is retryable, an error that is not: a use may already be counted.
func WithoutRetry(err error) error {
	f := fault.As(err)
	if f == nil || !f.Retryable {
		return err
	}
	return fault.New(f.Code, "the batch failed after uses may have been counted; check them before you send it again").Because(err)
}
