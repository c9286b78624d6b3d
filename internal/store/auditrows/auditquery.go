package auditrows

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Limits of a query of the audit log.
const (
	defaultAuditPage = 100
	maxAuditPage     = 1000
	// auditWindow is the number of rows that one statement may read if no block (see auditBlock) covers these rows.
	// auditBudget is the number of rows that one call may read. In addition, each statement counts as statementBudget
	// rows, and each block as blockBudget rows.
	auditWindow     = 50_000
	auditBudget     = 1_000_000
	statementBudget = 500
	blockBudget     = 16
	// blockSearch is the number of blocks that one statement may read. blockPage is the
	// number of blocks that it may return.
	blockSearch = 16_384
	blockPage   = 64
)

// auditConditions are the conditions of a filter, with parameters $4 to $14 and the same text for every filter. CASE
// hides the conditions from the query planner, so that it selects rows by seq only. The blocks limit the range of seq.
const auditConditions = `CASE WHEN time >= $4 AND time < $5
	AND ($6 = '' OR reason = $6) AND ($7 = '' OR operation = $7) AND ($8 = '' OR outcome = $8)
	AND ($9 = '' OR object = $9) AND ($10 = '' OR address = $10)
	AND ($11 = 0 OR principal_id = $12) AND ($13 = 0 OR session_id = $14) THEN TRUE END`

// auditSpan is the range of rows with after < seq <= last.
type auditSpan struct{ after, last int64 }

func (s auditSpan) rows() int64 { return s.last - s.after }

// auditQuery is a filter with the arguments of its statements.
type auditQuery struct {
	newest bool
	times  [2]any // the times since and until of the filter
	args   []any  // arguments of auditConditions
	keys   []keyInBlock
	all    bool // the filter has no condition
}

func newAuditQuery(f keyserver.AuditFilter) auditQuery {
	q := auditQuery{newest: f.Newest, times: [2]any{int64(math.MinInt64), int64(math.MaxInt64)}}
	if !f.Since.IsZero() {
		q.times[0] = f.Since.UnixMicro()
	}
	if !f.Until.IsZero() {
		q.times[1] = f.Until.UnixMicro()
	}
	q.args = q.times[:]
	text := func(value string, kind blockKind) {
		q.args = append(q.args, value)
		if value != "" {
			q.keys = append(q.keys, keyInBlock{kind, string(blockKey([]byte(value)))})
		}
	}
	text(f.Reason, byReason)
	text(f.Operation, byOperation)
	text(string(f.Outcome), byOutcome)
	text(f.Object, byObject)
	text(f.Address, byAddress)
	id := func(id *keyserver.ID, kind blockKind) {
		if id == nil {
			q.args = append(q.args, 0, []byte{})
			return
		}
		q.args = append(q.args, 1, id[:])
		q.keys = append(q.keys, keyInBlock{kind, string(id[:])})
	}
	id(f.Principal, byPrincipal)
	id(f.Session, bySession)
	q.all = len(q.keys) == 0 && f.Since.IsZero() && f.Until.IsZero()
	return q
}

// AuditRows returns a page of the rows that a filter selects. The page has at most filter.Limit rows: 100 by default,
// 1000 at most. AuditRows reads a limited number of rows. Therefore a page may have fewer rows, or none, although Next
// says that there may be more.
func (r Reads) AuditRows(ctx context.Context, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	return r.auditRows(ctx, filter, auditBudget)
}

func (r Reads) auditRows(ctx context.Context, filter keyserver.AuditFilter, budget int64) (keyserver.AuditPage, error) {
	limit := filter.Limit
	if limit <= 0 {
		limit = defaultAuditPage
	}
	limit = min(limit, maxAuditPage)
	left, blocks, first, err := r.auditSpan(ctx, filter)
	if err != nil {
		return keyserver.AuditPage{}, err
	}
	q := newAuditQuery(filter)
	if q.all {
		blocks = auditSpan{}
	}
	page := keyserver.AuditPage{Entries: []keyserver.AuditEntry{}, ArchivedBefore: first}
	for left.rows() > 0 && budget > 0 {
		windows, passed, err := r.auditWindows(ctx, q, left, blocks)
		if err != nil {
			return keyserver.AuditPage{}, err
		}
		for _, window := range windows {
			args := append([]any{window.after, window.last, limit - len(page.Entries) + 1}, q.args...)
			rows, err := r.auditEntries(ctx, q.statement(), args...)
			if err != nil {
				return keyserver.AuditPage{}, err
			}
			page.Entries = append(page.Entries, rows...)
			if len(page.Entries) > limit {
				page.Entries = page.Entries[:limit]
				page.Next = page.Entries[limit-1].Seq
				return page, nil
			}
			left = left.rest(window, q.newest)
			if budget -= window.rows() + statementBudget; budget <= 0 {
				break
			}
		}
		if budget > 0 {
			budget -= passed.rows()/auditBlock*blockBudget + statementBudget
			left = left.rest(passed, q.newest)
		}
	}
	if left.rows() > 0 {
		page.Next = left.cursor(q.newest)
	}
	return page, nil
}

// rest returns the rows of a span that remain after part was read.
func (s auditSpan) rest(part auditSpan, newest bool) auditSpan {
	if newest {
		return auditSpan{s.after, min(s.last, part.after)}
	}
	return auditSpan{max(s.after, part.last), s.last}
}

// cursor returns the value of AuditFilter.After with which the next call reads the span.
func (s auditSpan) cursor(newest bool) int64 {
	if newest {
		return s.last + 1
	}
	return s.after
}

const auditEnds = `SELECT (SELECT first - 1 FROM audit_extent), (SELECT coalesce(max(seq), 0) FROM audit),
	(SELECT coalesce(min(block), 0) FROM audit_blocks), (SELECT coalesce(max(block), -1) FROM audit_blocks)`

// auditSpan returns the range of rows after the cursor of a filter, the range of rows that
// blocks cover, and the first row in the database. The first row is 0 if the database has
// all rows. auditSpan rejects a cursor if its page would begin before the first row.
func (r Reads) auditSpan(ctx context.Context, f keyserver.AuditFilter) (span, blocks auditSpan, first int64, err error) {
	if err := r.sql.Row(ctx, auditEnds, nil, &span.after, &span.last, &blocks.after, &blocks.last); err != nil {
		return span, blocks, 0, err
	}
	if span.after > 0 {
		first = span.after + 1
		begin := f.After + 1
		if f.Newest {
			begin = f.After - 1
		}
		if f.After > 0 && begin < first {
			return span, blocks, first, archived(max(begin, 1), first)
		}
	}
	blocks.after, blocks.last = blocks.after*auditBlock, (blocks.last+1)*auditBlock
	switch {
	case f.After <= 0:
	case f.Newest:
		span.last = min(span.last, f.After-1)
	default:
		span.after = max(span.after, f.After)
	}
	return span, blocks, first, nil
}

// auditWindows searches the beginning of a span. It returns the ranges that may have rows that the filter selects, in
// the order of the query. Each range is small enough for one statement. passed is the part of the span that was
// searched.
func (r Reads) auditWindows(ctx context.Context, q auditQuery, left, blocks auditSpan) (windows []auditSpan, passed auditSpan, err error) {
	known := auditSpan{max(left.after, blocks.after), min(left.last, blocks.last)}
	if known.rows() > 0 && (q.newest && known.last == left.last || !q.newest && known.after == left.after) {
		return r.searchBlocks(ctx, q, known)
	}
	part := left.first(auditWindow, q.newest)
	switch { // part must not overlap the rows that blocks cover
	case known.rows() <= 0:
	case q.newest:
		part.after = max(part.after, known.last)
	default:
		part.last = min(part.last, known.after)
	}
	return []auditSpan{part}, part, nil
}

// first returns the part of a span that has its first rows in the order of the query.
func (s auditSpan) first(rows int64, newest bool) auditSpan {
	if newest {
		return auditSpan{max(s.after, s.last-rows), s.last}
	}
	return auditSpan{s.after, min(s.last, s.after+rows)}
}

// searchBlocks is auditWindows for a span that blocks cover.
func (r Reads) searchBlocks(ctx context.Context, q auditQuery, left auditSpan) (windows []auditSpan, passed auditSpan, err error) {
	passed = left.first(blockSearch*auditBlock, q.newest)
	args := append([]any{passed.after / auditBlock, (passed.last - 1) / auditBlock, blockPage}, q.times[:]...)
	for _, k := range q.keys {
		args = append(args, []byte(k.key))
	}
	row := make([]any, 1+2*len(q.keys))
	numbers := make([]int64, len(row))
	for i := range row {
		row[i] = &numbers[i]
	}
	found := 0
	err = r.sql.Each(ctx, q.blockStatement(), args, func(scan sqldb.Scanner) error {
		if err := scan.Scan(row...); err != nil {
			return err
		}
		before := numbers[0] * auditBlock
		found++
		if found == blockPage { // there may be more blocks
			passed = auditSpan{max(passed.after, before), passed.last}
			if !q.newest {
				passed = auditSpan{left.after, min(left.last, before+auditBlock)}
			}
		}
		window := auditSpan{max(left.after, before), min(left.last, before+auditBlock)}
		for i := 1; i < len(numbers); i += 2 {
			window = auditSpan{max(window.after, before+numbers[i]), min(window.last, before+numbers[i+1]+1)}
		}
		if window.rows() > 0 {
			windows = append(windows, window)
		}
		return nil
	})
	return windows, passed, err
}

func (q auditQuery) direction() string {
	if q.newest {
		return " DESC"
	}
	return ""
}

// blockStatement returns a statement that finds at most $3 of the blocks $1 to $2. The times of their rows overlap $4
// to $5, and they have every key. The keys are the parameters from $6. Each key is a subquery and not a join, so that
// the planner of each database looks up the key separately for each block.
func (q auditQuery) blockStatement() string {
	columns, conditions := "block", ""
	for i, k := range q.keys {
		of := func(column string) string {
			return fmt.Sprintf("(SELECT k.%s FROM audit_block_keys k WHERE k.block = b.block AND k.kind = %d AND k.key = $%d)", column, k.kind, 6+i)
		}
		columns += ", " + of("first_row") + ", " + of("last_row")
		conditions += " AND " + of("first_row") + " IS NOT NULL"
	}
	return strings.Join([]string{"SELECT", columns, "FROM audit_blocks b WHERE block >= $1 AND block <= $2 AND latest >= $4 AND earliest < $5" +
		conditions, "ORDER BY block" + q.direction(), "LIMIT $3"}, " ")
}

// statement returns a statement that reads at most $3 rows that a filter selects, with $1 < seq <= $2.
func (q auditQuery) statement() string {
	return `SELECT ` + auditColumns + ` FROM audit WHERE seq > $1 AND seq <= $2 AND ` + auditConditions + ` ORDER BY seq` + q.direction() + ` LIMIT $3`
}
