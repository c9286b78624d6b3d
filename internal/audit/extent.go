package audit

import "fmt"

// Extent says which rows of the audit log are in the database and in the archive.
type Extent struct {
	First    int64 // the first row in the database; earlier rows are in the archive
	Archived int64 // the last row in the archive
}

// SegmentRows is the number of rows in a segment of the archive. A segment is a tile of level 1 of the audit tree: each
// of its 256 hashes is the root of a tile of level 0.
const SegmentRows = 1 << 16

// Segment returns the name of the archive segment for the row seq. The names sort in the order of the rows.
func Segment(seq int64) string { return fmt.Sprintf("%020d", (seq-1)/SegmentRows*SegmentRows+1) }

// SegmentText returns the numbers of the first and the last row of the segment that ends with the row last. The audit
// row of pruneAudit contains this text.
func SegmentText(last int64) string { return fmt.Sprintf("%d-%d", last-SegmentRows+1, last) }
