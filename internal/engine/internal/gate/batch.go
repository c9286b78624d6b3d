package gate

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Entitled implements keyserver.Keys.
func (g *Gate) Entitled(ctx context.Context, by keyserver.Caller, op keyserver.Operation) error {
	r := Request{By: by, Op: op}
	if len(by.Scope) > 0 {
		r.Link = by.Scope[0] // what it is about is asked later
	}
	if refusal := g.authorise(ctx, r, nil); refusal != nil {
		return g.refused(ctx, r, refusal)
	}
	return nil
}

// AuthorizeAll is AuthorizeAndAudit for n items, which do the same operation. The caller needs a role for the operation
// first. One commit has the rows of all decisions. AuthorizeAll returns the refusal of each item.
func (g *Gate) AuthorizeAll(ctx context.Context, by keyserver.Caller, op keyserver.Operation, n int, item func(i int) (Request, []Check)) ([]error, error) {
	if err := g.restrained(by, n); err != nil {
		return nil, err
	}
	if err := g.Entitled(ctx, by, op); err != nil {
		return nil, err
	}
	refusals, rows := make([]error, n), make([]keyserver.AuditEntry, 0, n)
	var broken error
	for i := 0; i < n && broken == nil; i++ {
		r, checks := item(i)
		err := g.authorise(ctx, r, checks)
		switch f := fault.As(err); {
		case err == nil:
			rows = append(rows, r.row(keyserver.Allowed, ""))
		case f != nil && f.Reason != "":
			rows, refusals[i] = append(rows, r.refusedRow(err)), err
			g.CountRefusal(by)
			if g.restrained(by, 1) != nil {
				g.refusals.Count(partyOf(by), n-i) // a batch costs its items, decided or not
				broken = g.restrained(by, n)
			}
		default: // no decision: what was counted so far keeps its rows
			rows, broken = append(rows, r.refusedRow(err)), err
		}
	}
	// A use that was counted has a row, even where the caller has gone away.
	if err := g.auditor.WriteAll(context.WithoutCancel(ctx), rows); err != nil {
		return nil, err
	}
	return refusals, broken
}
