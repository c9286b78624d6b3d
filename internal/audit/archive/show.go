package archive

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Show calls row for each row with a number from..to that the filter selects, oldest first. If to is 0, it reads to the
// end. It does not verify the archive; use Verify for that.
func Show(ctx context.Context, a *Archive, filter keyserver.AuditFilter, from, to int64, row func(*keyserver.AuditEntry) error) error {
	found := false
	err := a.each(ctx, func(first int64) error {
		if first+Rows-1 < from || to > 0 && first > to {
			return nil
		}
		found = true
		m, err := a.manifest(ctx, first)
		if err != nil {
			return err
		}
		if m == nil {
			return damaged("the segment of rows %d to %d has no manifest", first, first+Rows-1)
		}
		_, err = a.read(ctx, m, func(e *keyserver.AuditEntry) error {
			if e.Seq < from || to > 0 && e.Seq > to || !selects(&filter, e) {
				return nil
			}
			return row(e)
		})
		return err
	})
	if err == nil && !found {
		err = errors.New("the archive has no segment with these rows")
	}
	return err
}

// selects reports whether a filter selects a row. The result is the same as for a database query
// (keyserver.AuditFilter).
func selects(f *keyserver.AuditFilter, e *keyserver.AuditEntry) bool {
	return (f.Reason == "" || f.Reason == e.Reason) &&
		(f.Principal == nil || *f.Principal == e.Principal.ID) &&
		(f.Session == nil || *f.Session == e.Session) &&
		(f.Outcome == "" || f.Outcome == e.Outcome) &&
		(f.Object == "" || f.Object == e.Object) &&
		(f.Operation == "" || f.Operation == e.Operation) &&
		(f.Address == "" || f.Address == e.Address) &&
		(f.Since.IsZero() || !e.Time.Before(f.Since)) &&
		(f.Until.IsZero() || e.Time.Before(f.Until))
}
