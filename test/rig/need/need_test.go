package need

import "testing"

// recorder is a testing.TB that continues after a skip or a failure.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()           {}
func (r *recorder) Skip(args ...any)  { r.skipped += args[0].(string) }
func (r *recorder) Fatal(args ...any) { r.failed += args[0].(string) }

// TestMissing checks that a missing program skips a test of a plain "go test", and fails a test of a make
// target.
func TestMissing(t *testing.T) {
	for provided, exit := range map[string]int{"": 0, "1": 1} {
		t.Setenv(Variable, provided)
		r := &recorder{TB: t}
		Missing(r, "slapd", "make test")
		if said := "slapd is missing; run make test"; provided == "" && (r.failed != "" || r.skipped != said) || provided != "" && r.failed != said {
			t.Errorf("%s=%q: skipped %q, failed %q", Variable, provided, r.skipped, r.failed)
		}
		if got := Suite("slapd", "make test"); got != exit {
			t.Errorf("%s=%q: a suite exits with %d", Variable, provided, got)
		}
	}
}
