package audit

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Limits of a verification.
const (
	maxFindings = 100
	verifyPage  = 1000
)

// Finding is one difference between the stored rows and the rows that were originally written. Fields that do not apply
// are zero.
type Finding struct {
	Chain    int64
	Position int64
	Seq      int64
	Problem  string // one sentence
}

// Report is the result of Verify.
type Report struct {
	Chains   int
	Heads    []Head // of the chains with rows
	First    int64  // the first row in the database; earlier rows are archived
	Rows     int64
	Total    int       // number of findings
	Findings []Finding // the first 100 findings
}

// Intact reports whether there are no findings.
func (r Report) Intact() bool { return r.Total == 0 }

// Verify reads the audit log, up to its last row at the start, and finds rows that were changed, removed or inserted. A
// key server may write rows at the same time.
//
// A chain only proves that its last hash, the head, follows from the rows. With write access to the entire database, an
// attacker can change a row and recompute all later hashes. Verify detects this only with a chain head that was stored
// outside the database: the log must contain each head in expected.
func Verify(ctx context.Context, trail Reader, expected ...Head) (Report, error) {
	snapshot, err := trail.AuditSnapshot(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("read the heads of the audit chains: %w", err)
	}
	v := newVerifier(snapshot, expected)
	end := max(snapshot.LastSeq, snapshot.MaxSeq)
	for after := v.lastSeq; after < end; {
		rows, err := trail.AuditRange(ctx, after, end, verifyPage)
		if err != nil {
			return Report{}, fmt.Errorf("read the audit rows after %d: %w", after, err)
		}
		for i := range rows {
			v.row(&rows[i])
		}
		if len(rows) < verifyPage {
			break
		}
		after = rows[len(rows)-1].Seq
	}
	v.end()
	return v.report, nil
}

// verifier reads the rows in the order of their sequence numbers. Within each chain, that is also the order of their
// positions.
type verifier struct {
	snapshot Snapshot
	chains   map[int64]*chainState
	expected []Head
	passed   map[Head]bool // the expected heads that were found
	report   Report
	scratch  []byte

	lastSeq int64
	// The number of missing rows, counted by gaps between sequence numbers and by gaps between positions. The two numbers
	// are equal unless an entire chain is missing.
	missingSeqs, missingRows int64
}

// chainState is the state of reading one chain.
type chainState struct {
	end  Head // according to the database
	at   Head // according to the rows
	last int64
}

func newVerifier(s Snapshot, expected []Head) *verifier {
	v := &verifier{lastSeq: max(s.First-1, 0), snapshot: s, chains: make(map[int64]*chainState, len(s.Heads)), expected: expected, passed: make(map[Head]bool, len(expected))}
	for _, h := range s.Heads {
		v.chains[h.Chain] = &chainState{end: h, at: Head{Chain: h.Chain}}
		if h.Position > 0 {
			v.report.Heads = append(v.report.Heads, h)
		}
	}
	for _, h := range s.Cuts {
		if c := v.chains[h.Chain]; c != nil {
			c.at = h
		}
	}
	v.report.Chains, v.report.First = len(s.Heads), v.lastSeq+1
	return v
}

func (v *verifier) found(chain, position, seq int64, format string, args ...any) {
	v.report.Total++
	if len(v.report.Findings) < maxFindings {
		v.report.Findings = append(v.report.Findings, Finding{chain, position, seq, fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) row(e *keyserver.AuditEntry) {
	v.report.Rows++
	// The hash of the row is verified below, so an attacker cannot insert a row with the hash of an expected head.
	if here := (Head{Chain: e.Chain, Position: e.Position, Hash: e.Hash}); slices.Contains(v.expected, here) {
		v.passed[here] = true
	}
	if e.Seq > v.snapshot.LastSeq {
		v.found(e.Chain, e.Position, e.Seq, "inserted: the last row number that was assigned is %d", v.snapshot.LastSeq)
		return
	}
	v.missingSeqs += e.Seq - v.lastSeq - 1
	v.lastSeq = e.Seq
	c := v.chains[e.Chain]
	if c == nil {
		v.found(e.Chain, e.Position, e.Seq, "inserted: there is no chain %d", e.Chain)
		return
	}
	next := c.at.Position + 1
	var sum [32]byte
	if sum, v.scratch = Sum(v.scratch, e); sum != e.Hash {
		v.found(e.Chain, e.Position, e.Seq, "changed: its hash does not match its content")
		if e.Position != next && e.Previous != c.at.Hash {
			return // nothing shows that the row belongs to this position
		}
		// Later rows are checked as if this row were correct.
		c.at.Position, c.at.Hash, c.last = next, e.Hash, e.Seq
		return
	}
	switch {
	case e.Position > c.end.Position:
		v.found(e.Chain, e.Position, e.Seq, "inserted: the chain ends at position %d", c.end.Position)
		return
	case e.Position < next:
		v.found(e.Chain, e.Position, e.Seq, "inserted: the chain had passed this position before, at row %d", c.last)
		return
	case e.Position > next:
		v.missing(e.Chain, next, e.Position-1)
	case e.Previous != c.at.Hash:
		v.found(e.Chain, e.Position, e.Seq, "changed: it does not continue the row before it")
	}
	c.at.Position, c.at.Hash, c.last = e.Position, e.Hash, e.Seq
}

// cut returns the last archived row of a chain.
func (v *verifier) cut(chain int64) Head {
	for _, h := range v.snapshot.Cuts {
		if h.Chain == chain {
			return h
		}
	}
	return Head{Chain: chain}
}

func (v *verifier) missing(chain, from, to int64) {
	v.missingRows += to - from + 1
	if from == to {
		v.found(chain, from, 0, "missing: the row at position %d was removed", from)
		return
	}
	v.found(chain, from, 0, "missing: the rows at positions %d to %d were removed", from, to)
}

func (v *verifier) end() {
	for _, h := range v.snapshot.Heads {
		c := v.chains[h.Chain]
		switch {
		case c.at.Position < c.end.Position:
			v.missing(h.Chain, c.at.Position+1, c.end.Position)
		case c.at.Hash != c.end.Hash:
			v.found(h.Chain, c.at.Position, c.last, "changed: the hash of the last row differs from the head of the chain")
		}
	}
	for _, h := range v.expected {
		cut := v.cut(h.Chain)
		switch {
		case v.passed[h] || h == cut:
		case h.Position < cut.Position:
			v.found(h.Chain, h.Position, 0, "archived: the row of the expected head is only in the audit archive; verify the archive")
		default:
			v.found(h.Chain, h.Position, 0, "changed: the row at this position is missing, or is not the expected head")
		}
	}
	if gap := v.snapshot.LastSeq - v.lastSeq; gap > 0 {
		v.missingSeqs += gap
	}
	if more := v.missingSeqs - v.missingRows; more > 0 {
		v.found(0, 0, 0, "missing: %d more rows were written than the chains contain; a chain was removed", more)
	}
}
