package enginetest

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Refused fails the test unless err has the code, and the newest audit row has the reason.
func (f *Fixture) Refused(t testing.TB, err error, code fault.Code, reason fault.Reason) {
	t.Helper()
	if got := fault.CodeOf(err); got != code {
		t.Fatalf("got %q (%v), want %q", got, err, code)
	}
	rows := f.AllRows(t)
	row := rows[len(rows)-1]
	if row.Outcome == keyserver.Allowed || row.Reason != string(reason) {
		t.Errorf("the audit log ends with %s %q of %s, want the reason %q", row.Outcome, row.Reason, row.Operation, reason)
	}
	switch code {
	case fault.Escalation, fault.DutiesConflict, fault.ApprovalRequired, fault.NotInScope: // must have only one row
		before := rows[max(len(rows)-2, 0)]
		if row.Outcome != keyserver.Refused || row.Object != "" && before.Outcome == keyserver.Allowed && before.Operation == row.Operation && before.Object == row.Object {
			t.Errorf("the audit log ends with %s, %s of %s, want one row, refused", before.Outcome, row.Outcome, row.Operation)
		}
	default:
	}
}

// Must returns a function that returns v, and fails the test if err is not nil.
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
