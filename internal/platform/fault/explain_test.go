package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func TestExplain(t *testing.T) {
	away := fault.New(fault.StoreUnavailable, "the database does not respond; try again").Because(errors.New("connection refused"))
	const text = "STORE_UNAVAILABLE: the database does not respond; try again"
	for want, err := range map[string]error{
		"plain":                                   errors.New("plain"),
		text + ": connection refused":             away,
		"open: " + text + ": connection refused":  fmt.Errorf("open: %w", away),
		"first\n" + text + ": connection refused": errors.Join(errors.New("first"), away),
		"AUDIT_UNAVAILABLE: no rows: " + text + ": connection refused":          fault.New(fault.AuditUnavailable, "no rows").Because(away),
		"open: the database said: connection refused: " + text:                  fmt.Errorf("open: the database said: connection refused: %w", away),
		"stop: AUDIT_UNAVAILABLE: no rows: a: " + text + ": connection refused": fmt.Errorf("stop: %w", fault.New(fault.AuditUnavailable, "no rows").Because(fmt.Errorf("a: %w", away))),
	} {
		if got := fault.Explain(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
