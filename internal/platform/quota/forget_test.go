package quota

import "testing"

// TestForgotten checks that a holder that uses nothing has no entry. Otherwise the table could grow without limit.
func TestForgotten(t *testing.T) {
	q := New[string](10, 5)
	q.Take("a", 2)
	q.Take("b", 6) // refused
	q.Return("a", 2)
	if len(q.held) != 0 {
		t.Errorf("%d are remembered", len(q.held))
	}
}
