package quota

import "testing"

// Who holds nothing is not in the table, or strangers would fill it.
func TestForgotten(t *testing.T) {
	q := New[string](10, 5)
	q.Take("a", 2)
	q.Take("b", 6) // refused
	q.Return("a", 2)
	if len(q.held) != 0 {
		t.Errorf("%d are remembered", len(q.held))
	}
}
