package tree

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestExtentsThatLie checks that Verify fails for missing, additional, changed or swapped rows, and for a changed
// extent.
func TestExtentsThatLie(t *testing.T) {
	b := newBench(t)
	b.write(700)
	b.tree().catchUp(t.Context())
	other := newBench(t)
	other.write(700)
	other.tree().catchUp(t.Context())
	whole, err := Extend(t.Context(), b.memory, b.head, 301, 600)
	if err != nil {
		t.Fatal(err)
	}
	for name, lie := range map[string]func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry{
		"a row lacks":        func(_ *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry { return slices.Delete(rows, 5, 6) },
		"and the count says": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry { e.Count--; return rows[:299] },
		"the last lacks": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			e.Count--
			e.Last--
			return rows[:299]
		},
		"a row is changed": func(_ *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			rows[7].Reason = "no"
			return rows
		},
		"rows are swapped": func(_ *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			rows[7], rows[8] = rows[8], rows[7]
			return rows
		},
		"a row is more": func(_ *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry { return append(rows, rows[0]) },
		"before":        func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry { e.Before[3] ^= 1; return rows },
		"after":         func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry { e.After[3] ^= 1; return rows },
		"the frontier": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			e.Frontier[0][3] ^= 1
			return rows
		},
		"the frontier is cut": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			e.Frontier = e.Frontier[1:]
			return rows
		},
		"the proof": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry { e.Proof[0][3] ^= 1; return rows },
		"another's checkpoint": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			e.Checkpoint = string(other.head.Checkpoint)
			return rows
		},
		"beyond": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			e.First, e.Last = 501, 800
			return rows
		},
		"before all": func(e *Extent, rows []keyserver.AuditEntry) []keyserver.AuditEntry {
			e.First, e.Last = -200, 99
			return rows
		},
	} {
		text, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		var e Extent
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		rows := slices.Clone(b.rows[300:600])
		if err := e.Verify(rows, b.signer.Verifier); err != nil {
			t.Fatalf("the truth: %v", err)
		}
		if err := e.Verify(lie(&e, rows), b.signer.Verifier); err == nil {
			t.Errorf("%s: it verifies", name)
		}
	}
	for _, r := range [][2]int64{{0, 5}, {6, 5}, {1, 701}} {
		if _, err := Extend(t.Context(), b.memory, b.head, r[0], r[1]); err == nil {
			t.Errorf("%v: it is no range of the tree", r)
		}
	}
}

// TestExtents splits a log into extents of random sizes, each with a later checkpoint. It checks the rows of each
// extent, and that it continues the previous extent.
func TestExtents(t *testing.T) {
	b := newBench(t)
	tree := b.tree()
	var before Extent
	for _, n := range []int{1, 1, 1, 254, 300, 511, 1024, 1} {
		b.write(n)
		tree.catchUp(t.Context())
		for _, part := range []int64{3, 7} {
			first := before.Last + 1
			last := min(first+max(int64(n)/part, 0), b.head.Size)
			if first > last {
				continue
			}
			e, err := Extend(t.Context(), b.memory, b.head, first, last)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Verify(b.rows[first-1:last], b.signer.Verifier); err != nil {
				t.Errorf("rows %d to %d of %d: %v", first, last, b.head.Size, err)
			}
			if before.Last > 0 && e.Before != before.After {
				t.Errorf("the rows from %d on do not continue those before", first)
			}
			before = e
		}
	}
	all, err := Extend(t.Context(), b.memory, b.head, 1, b.head.Size)
	if err != nil || all.After != b.head.Root {
		t.Fatalf("all: %v", err)
	}
	if leaf, _ := audit.Leaf(nil, &b.rows[0]); all.After == leaf {
		t.Error("the tree is one row")
	}
}
