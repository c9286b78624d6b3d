package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// AuditLog contains the audit rows of the last Read. The zero value is ready for use.
type AuditLog struct {
	Last    int64                          // sequence number of the newest row
	entries map[string][]schema.AuditEntry // by request id
}

// Read reads the rows that are newer than Last, and forgets all earlier rows.
func (l *AuditLog) Read(ctx context.Context, c *client.Client) error {
	l.entries = map[string][]schema.AuditEntry{}
	limit := 1000
	for {
		page, err := c.ListAuditEntries(ctx, schema.AuditQuery{Cursor: l.Last, Limit: &limit})
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		for _, e := range page.Entries {
			if e.Seq <= l.Last {
				return fmt.Errorf("read the audit log: entry %d comes after entry %d", e.Seq, l.Last)
			}
			l.Last = e.Seq
			l.entries[e.RequestID] = append(l.entries[e.RequestID], e)
		}
		if page.Next == nil {
			return nil
		}
		l.Last = max(l.Last, *page.Next)
	}
}

// Allowed returns the number of rows of a request with this operation and the outcome allowed.
func (l *AuditLog) Allowed(id, operation string) (n int) {
	for _, e := range l.entries[id] {
		if e.Operation == operation && e.Outcome == "allowed" {
			n++
		}
	}
	return n
}

func (l *AuditLog) refused(id string) bool {
	return slices.ContainsFunc(l.entries[id], func(e schema.AuditEntry) bool { return e.Outcome == "refused" })
}

// Entries formats the rows of a request.
func (l *AuditLog) Entries(id string) (text []string) {
	for _, e := range l.entries[id] {
		text = append(text, fmt.Sprintf("%d %s %s %s", e.Seq, e.Operation, e.Outcome, e.Reason))
	}
	return text
}
