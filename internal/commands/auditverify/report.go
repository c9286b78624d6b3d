package auditverify

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
)

// HeadText formats the last row of a chain as audit verify prints it and as --expect-head accepts it.
func HeadText(h audit.Head) string { return fmt.Sprintf("%d:%d:%x", h.Chain, h.Position, h.Hash) }

// Report has the findings of one verification.
type Report struct {
	Expected bool // there are expected heads (last rows), for example from --expect-head
	Remote   bool // the log was read from a key server, which does not return chains
	Options  tree.Options
	Chains   audit.Report
	Tree     tree.Report
	Filters  error // reason why filters may miss rows; nil if the filter index is correct
}

// Show prints the report. It returns an error if the audit log is not intact.
func (f *Report) Show(out io.Writer) error {
	total := f.Chains.Total + f.Tree.Total
	if !f.Remote && f.Chains.Chains == 0 && total == 0 {
		return errors.New("the database has no audit log: no key server has written to it; a copy of an embedded database " +
			"must include keyserver.db-wal, or be made while no server runs")
	}
	var b strings.Builder
	for _, f := range f.Chains.Findings {
		fmt.Fprintf(&b, "chain %d, position %d, seq %d: %s\n", f.Chain, f.Position, f.Seq, f.Problem)
	}
	for _, f := range f.Tree.Findings {
		fmt.Fprintf(&b, "tree, seq %d: %s\n", f.Seq, f.Problem)
	}
	rows := f.Chains.Rows
	if f.Remote {
		rows = f.Tree.Head.Size
	}
	if total == 0 {
		f.intact(&b, rows)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if total > 0 {
		return errors.Join(fmt.Errorf("the audit log is not intact: %d findings in %d rows", total, rows), f.Filters)
	}
	return f.Filters
}

func (f *Report) intact(b *strings.Builder, rows int64) {
	switch {
	case f.Remote:
		fmt.Fprintf(b, "audit log intact: %d rows\n", rows)
	case f.Filters != nil:
		fmt.Fprintf(b, "the rows of the audit log are intact, but the filter index is not: %d rows in %d chains\n", rows, f.Chains.Chains)
	default:
		fmt.Fprintf(b, "audit log intact: %d rows in %d chains\n", rows, f.Chains.Chains)
	}
	if f.Options.First > 1 {
		fmt.Fprintf(b, "It begins at row %d. The rows before it are in the audit archive: verify that with --archive.\n", f.Options.First)
	}
	for _, h := range f.Chains.Heads {
		fmt.Fprintf(b, "head %s\n", HeadText(h))
	}
	head := f.Tree.Head
	if head.Size > 0 {
		fmt.Fprintf(b, "tree of %d rows, root %s\n", head.Size, base64.StdEncoding.EncodeToString(head.Root[:]))
	}
	for _, n := range f.Options.Noted {
		fmt.Fprintf(b, "continues the checkpoint in %s (%d rows)\n", n.Name, n.Head.Size)
	}
	if f.Tree.Newer > 0 {
		fmt.Fprintf(b, "%d newer rows are not in the tree yet: only their chains were checked\n", f.Tree.Newer)
	}
	switch {
	case head.Size == 0:
	case f.Options.Key != nil:
		fmt.Fprintf(b, "signed by %s\n", f.Options.Key.Name())
	default:
		fmt.Fprintf(b, "signed by %s, as the checkpoint says. No --key was given: this proves nothing against\n"+
			"an attacker who could change the database and sign it with another key.\n", strings.Join(f.Tree.Signers, ", "))
	}
	if !f.Expected && len(f.Options.Noted) == 0 {
		b.WriteString("No head and no checkpoint of an earlier time was given. So this does not show whether an attacker with write\n" +
			"access to the database removed rows from the end, or replaced all of them. Save the response of\n" +
			"GET /api/audit/checkpoint in another place, and give it to the next run as --checkpoint.\n")
	}
}

// Begin adds a finding if the first rows were removed and are not in an archive.
func (f *Report) Begin(e audit.Extent) {
	if problem := checkExtent(e, f.Tree.Pruned); problem != "" {
		f.Tree.Total++
		f.Tree.Findings = append(f.Tree.Findings, audit.Finding{Seq: e.First, Problem: problem})
	}
}

// checkExtent returns a finding about the first row of an audit log, or "". pruned means that a row in the signed
// audit tree records the removal of earlier rows. The server writes that row before it removes a segment.
func checkExtent(e audit.Extent, pruned bool) string {
	switch {
	case e.First == 1:
		return ""
	case e.First < 1 || e.First > e.Archived+1:
		return fmt.Sprintf("removed: row %d is recorded as the first one, and row %d as the last one in the archive: the table audit_extent was changed, "+
			"and the rows in between may still be in the database", e.First, e.Archived)
	case e.First%audit.SegmentRows != 1:
		return fmt.Sprintf("removed: row %d is recorded as the first one, but no segment of an archive begins there: "+
			"rows were removed, or the table audit_extent was changed", e.First)
	case !pruned:
		return fmt.Sprintf("removed: row %d is recorded as the first one, but no row pruneAudit under the checkpoint records the removal of the rows %s: "+
			"rows were removed, or the table audit_extent was changed", e.First, audit.SegmentText(e.First-1))
	}
	return ""
}
