package quota

import "testing"

// A holder without an amount has no entry; otherwise strangers could fill the table.
func TestForgotten(t *testing.T) {
	q := New[string](10, 5)
	q.Take("a", 2)
	q.Take("b", 6) // refused
	q.Return("a", 2)
	if len(q.held) != 0 {
		t.Errorf("%d are remembered", len(q.held))
	}
}
