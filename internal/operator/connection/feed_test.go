package connection

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// TestWhomAChangeConcerns checks which ids a change notifies. A change of a part notifies its object. A key change with
// id zero notifies every object.
func TestWhomAChangeConcerns(t *testing.T) {
	first, second := schema.HexID{7: 1}, schema.HexID{7: 2}
	for name, c := range map[string]struct {
		reason  string
		changes []schema.Change
		want    map[string]bool
		asked   int
	}{
		"itself":     {"the object itself", []schema.Change{{Kind: "key", ID: first}}, map[string]bool{first.String(): true}, 2},
		"a part":     {"a later generation is a part of its line", []schema.Change{{Kind: "key", ID: second}}, map[string]bool{first.String(): true, second.String(): true}, 2},
		"any":        {"the id zero is any list", []schema.Change{{Kind: "key", ID: second}, {Kind: "key"}}, nil, 2},
		"a stranger": {"another key is nobody's", []schema.Change{{Kind: "key", ID: schema.HexID{7: 3}}}, map[string]bool{schema.HexID{7: 3}.String(): true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &countingServer{}
			m, _ := memoOf(s)
			m.feed, m.objectByPart = "key", map[string]string{}
			m.id, m.parts = func(string) string { return first.String() }, func(string) []string { return []string{second.String()} }
			var told []Notice
			conn := &Connection{
				Name: "one", ids: map[string]func(schema.HexID) string{"key": schema.HexID.String},
				memos: map[string]forgetter{"line": m}, notify: func(_ context.Context, n Notice) { told = append(told, n) },
			}
			for range 2 {
				if _, err := m.Get(t.Context(), time.Time{}, "a"); err != nil {
					t.Fatal(err)
				}
				if told == nil {
					conn.apply(t.Context(), c.changes)
				}
			}
			if diff := cmp.Diff([]Notice{{KeyServer: "one", Kind: "key", IDs: c.want}}, told); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if s.asked != c.asked {
				t.Errorf("%s: asked %d times, want %d", c.reason, s.asked, c.asked)
			}
		})
	}
}
