package audit

import "fmt"

// Extent is what of the trail is where.
type Extent struct {
	First    int64 // the first row that the database has; those before it are in the archive
	Archived int64 // the last row that the archive has
}

// SegmentRows is how many rows a segment of the archive has: a tile of level 1 of the
// tree, whose 256 hashes are of tiles of level 0.
const SegmentRows = 1 << 16

// Segment names the segment that has a row, or will have it, so that the names sort as
// the rows do.
func Segment(seq int64) string { return fmt.Sprintf("%020d", (seq-1)/SegmentRows*SegmentRows+1) }

// SegmentText says which rows the segment has that ends with a row, as a row pruneAudit
// does.
func SegmentText(last int64) string { return fmt.Sprintf("%d-%d", last-SegmentRows+1, last) }
