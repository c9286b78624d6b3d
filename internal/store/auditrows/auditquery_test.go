package auditrows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	trailRows = 60_000 // three blocks, and 10,848 rows without a block
	rowPeriod = 10 * time.Millisecond
)

var trailStart = time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)

func rowTime(seq int64) time.Time { return trailStart.Add(time.Duration(seq) * rowPeriod) }

// fillTrail creates an audit log. Its first 8,000 rows differ from the later rows. Row
// 30,000 has values that no other row has.
func fillTrail(t *testing.T, s *Store) {
	t.Helper()
	blob := func(hex string) string {
		if s.Shared() {
			return `'\x` + hex + `'::bytea`
		}
		return `x'` + hex + `'`
	}
	three := func(early, late, rare string) string {
		return fmt.Sprintf(`CASE WHEN i = 30000 THEN %s WHEN i <= 8000 THEN %s ELSE %s END`, rare, early, late)
	}
	id := func(n string) string { return blob("00000000000000" + n) }
	values := []string{
		`i`, fmt.Sprintf(`%d + i * %d`, trailStart.UnixMicro(), rowPeriod.Microseconds()),
		`CASE WHEN i = 30000 THEN 'createRole' WHEN i <= 8000 AND i % 3 = 0 THEN 'listKeys' ELSE 'hmacData' END`,
		`CASE WHEN i = 30000 THEN 'failed' WHEN i <= 8000 AND i % 3 = 0 THEN 'refused' ELSE 'allowed' END`,
		`CASE WHEN i = 30000 THEN 'internalError' WHEN i <= 8000 AND i % 3 = 0 THEN 'aclDenied' ELSE '' END`,
		`1`, three(id("01"), id("02"), id("03")), three(`'AAAAAQAAAAAAAAAB'`, `'AAAAAQAAAAAAAAAC'`, `'AAAAAQAAAAAAAAAB for 7'`),
		`'password'`, `'request'`, `''`, `1`, `i`, id("05"), id("05"), `0`, blobNull(s),
		three(`'192.0.2.1'`, `'192.0.2.2'`, `'2001:db8::7'`),
		`CASE WHEN i % 10 = 0 AND i <> 30000 THEN NULL ELSE ` + three(id("11"), id("12"), id("13")) + ` END`, `''`, `1`, blobNull(s),
	}
	_, err := s.db.ExecCommitted(t.Context(), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO audit (%s) SELECT %s FROM n`, trailRows, auditColumns, strings.Join(values, ", ")))
	if err != nil {
		t.Fatal(err)
	}
}

func blobNull(s *Store) string {
	if s.Shared() {
		return `NULL::bytea`
	}
	return `NULL`
}

type recorder struct {
	sqldb.Runner
	texts *[]string
	rows  *int64
}

func (r recorder) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	*r.texts = append(*r.texts, text)
	if strings.Contains(text, auditConditions) {
		*r.rows += args[1].(int64) - args[0].(int64)
	}
	return r.Runner.QueryContext(ctx, text, args...)
}

func recorded(s *Store, texts *[]string, rows *int64) Reads {
	return NewReads(sqldb.Statements{Run: recorder{s.db.Run, texts, rows}, Dialect: s.db.Dialect()})
}

func plan(t *testing.T, s *Store, text string) string {
	t.Helper()
	conn, err := s.db.Pools().Read.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	arguments := make([]any, 0, 16)
	for strings.Contains(text, fmt.Sprintf("$%d", len(arguments)+1)) {
		arguments = append(arguments, nil)
	}
	explain, columns := `EXPLAIN QUERY PLAN `+text, 4
	if s.Shared() {
		for _, text := range []string{`SET plan_cache_mode = force_generic_plan`, `PREPARE explained AS ` + text} {
			if _, err := conn.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		explain = `EXPLAIN EXECUTE explained (NULL` + strings.Repeat(`, NULL`, len(arguments)-1) + `)`
		columns, arguments = 1, nil
	}
	rows, err := conn.QueryContext(t.Context(), explain, arguments...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		dest := slices.Repeat([]any{new(any)}, columns)
		dest[columns-1] = &line
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if s.Shared() {
		if _, err := conn.ExecContext(t.Context(), `DEALLOCATE explained`); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(lines, "\n")
}

type trailCase struct {
	reason string
	filter keyserver.AuditFilter
	where  string // the filter as an SQL condition
	looks  int64
}

// anyRows is a limit for cases in which the number of rows read does not matter.
const anyRows = trailRows * trailRows

// trailCases returns filters, with the maximum number of rows that they read in addition
// to rows without a block.
func trailCases() map[string]trailCase {
	early, late, rare, nobody := values.IDFromUint64(1), values.IDFromUint64(2), values.IDFromUint64(3), values.IDFromUint64(4)
	earlySession, rareSession, noSession := values.IDFromUint64(0x11), values.IDFromUint64(0x13), values.IDFromUint64(0x14)
	return map[string]trailCase{
		"Early principal":    {"frequent, and none in most of the trail", keyserver.AuditFilter{Principal: &early, Limit: 1000}, `principal_id = $1`, anyRows},
		"Nobody":             {"selects nothing", keyserver.AuditFilter{Principal: &nobody}, ``, 0},
		"Early session":      {"frequent", keyserver.AuditFilter{Session: &earlySession, Limit: 1000}, `session_id = $1`, anyRows},
		"Rare session":       {"one row", keyserver.AuditFilter{Session: &rareSession}, `seq = 30000`, 1},
		"No session":         {"selects nothing", keyserver.AuditFilter{Session: &noSession}, ``, 0},
		"Early address":      {"frequent", keyserver.AuditFilter{Address: "192.0.2.1", Limit: 1000}, `seq <= 8000`, anyRows},
		"No address":         {"selects nothing", keyserver.AuditFilter{Address: "192.0.2.9"}, ``, 0},
		"Object":             {"another object begins like it", keyserver.AuditFilter{Object: "AAAAAQAAAAAAAAAB", Limit: 1000}, `seq <= 8000`, anyRows},
		"Longer object":      {"frequent ones begin like it", keyserver.AuditFilter{Object: "AAAAAQAAAAAAAAAB for 7"}, `seq = 30000`, 1},
		"No object":          {"selects nothing", keyserver.AuditFilter{Object: "nobody"}, ``, 0},
		"Refused":            {"frequent", keyserver.AuditFilter{Outcome: keyserver.Refused, Limit: 1000}, `outcome = 'refused'`, anyRows},
		"Failed":             {"one row", keyserver.AuditFilter{Outcome: keyserver.Failed}, `seq = 30000`, 1},
		"Reason":             {"one row", keyserver.AuditFilter{Reason: "internalError"}, `seq = 30000`, 1},
		"Rare operation":     {"one row", keyserver.AuditFilter{Operation: "createRole"}, `seq = 30000`, 1},
		"No operation":       {"selects nothing", keyserver.AuditFilter{Operation: "deleteRole"}, ``, 0},
		"Bulk operation":     {"selects nothing", keyserver.AuditFilter{Operation: "decryptData"}, ``, 0},
		"Allowed":            {"most of the trail", keyserver.AuditFilter{Outcome: keyserver.Allowed, Until: rowTime(4_000), Limit: 1000}, `outcome = 'allowed' AND seq < 4000`, anyRows},
		"Two":                {"each of many, and of few together", keyserver.AuditFilter{Principal: &late, Address: "2001:db8::7"}, ``, 1},
		"Three":              {"three of one row", keyserver.AuditFilter{Principal: &rare, Outcome: keyserver.Failed, Operation: "createRole"}, `seq = 30000`, 1},
		"Apart":              {"two frequent ones of other times", keyserver.AuditFilter{Principal: &early, Address: "192.0.2.2"}, ``, 0},
		"Together":           {"two frequent ones that do", keyserver.AuditFilter{Principal: &early, Outcome: keyserver.Refused, Limit: 1000}, `outcome = 'refused'`, anyRows},
		"Times":              {"a piece of the trail", keyserver.AuditFilter{Since: rowTime(40_000), Until: rowTime(40_500), Limit: 1000}, `seq >= 40000 AND seq < 40500`, auditBlock},
		"Times and address":  {"a piece that has none", keyserver.AuditFilter{Address: "192.0.2.1", Since: rowTime(40_000)}, ``, 0},
		"Before the trail":   {"no time is earlier", keyserver.AuditFilter{Until: rowTime(1)}, ``, 0},
		"Behind the trail":   {"no time is later", keyserver.AuditFilter{Since: rowTime(trailRows + 1)}, ``, 0},
		"The end by time":    {"behind the last block", keyserver.AuditFilter{Since: rowTime(trailRows - 100)}, `seq >= 59900`, anyRows},
		"The start by time":  {"in the first block", keyserver.AuditFilter{Until: rowTime(101)}, `seq <= 100`, anyRows},
		"Turned around":      {"until before since", keyserver.AuditFilter{Since: rowTime(40_000), Until: rowTime(20_000)}, ``, 0},
		"Everything, lately": {"no condition but a time", keyserver.AuditFilter{Since: rowTime(59_000), Limit: 300}, `seq >= 59000`, anyRows},
		"Never together":     {"frequent in the same blocks", keyserver.AuditFilter{Outcome: keyserver.Refused, Operation: "hmacData"}, ``, 8000},
	}
}

// maxCalls is the maximum number of pages that are not full.
const maxCalls = 2

// TestAuditBlocks checks that each filter finds its rows in both orders, with and without
// blocks, and with a small budget for each call. It also checks that no statement reads
// rows of blocks that cannot have a match.
func TestAuditBlocks(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, s *Store) {
		fillTrail(t, s)
		cases := trailCases()
		want := map[string][]int64{}
		for name, tc := range cases {
			want[name] = plainly(t, s, tc.where, tc.filter)
		}
		run := map[string]bool{} // statements
		look := func(state string, newest bool, budget int64) {
			for name, tc := range cases {
				want := slices.Clone(want[name])
				if tc.filter.Newest = newest; newest {
					slices.Reverse(want)
				}
				var texts []string
				var rows int64
				if got := seqsOf(t, recorded(s, &texts, &rows), tc.filter, budget); !cmp.Equal(want, got) {
					t.Errorf("%s, %s: %s, newest first %v: %d rows, want %d", state, name, tc.reason, newest, len(got), len(want))
				}
				if tail := int64(trailRows % auditBlock); state == "blocks" && rows > tail+tc.looks {
					t.Errorf("%s: %s, newest first %v: %d rows were looked at, where %d are in no block", name, tc.reason, newest, rows, tail)
				}
				for _, text := range texts {
					run[text] = text != auditEnds && text != auditExtent
				}
			}
		}
		// Each order is tested with a large and with a small budget for each call.
		look("no blocks, little by little", true, auditWindow)
		fillBlocks(t, s, trailRows/auditBlock)
		look("blocks", false, auditBudget)
		look("blocks", true, auditBudget)
		look("blocks, little by little", false, 10_000)
		manyObjects(t, s) // if there are few keys, PostgreSQL reads all of them
		emptyBlocks(t, s)
		fillBlocks(t, s, trailRows/auditBlock)
		for _, statistics := range []string{"without statistics", "with statistics"} {
			for text, looks := range run {
				if !looks {
					continue
				}
				if plan := plan(t, s, text); !bounded(plan) {
					t.Errorf("%s: looks at too much:\n%s\n%s", statistics, text, plan)
				}
			}
			if _, err := s.db.ExecCommitted(t.Context(), `ANALYZE`); err != nil {
				t.Fatal(err)
			}
		}
		checkClockPutBack(t, s)
	})
}

// fillBlocks stores all full blocks. The test fails if their number is not want.
func fillBlocks(t *testing.T, s *Store, want int) {
	t.Helper()
	for n := 0; ; n++ {
		more, err := s.FillAuditBlock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			if n != want {
				t.Errorf("%d blocks were noted, want %d", n, want)
			}
			return
		}
	}
}

func emptyBlocks(t *testing.T, s *Store) {
	t.Helper()
	err := s.db.WriteAlone(t.Context(), func(in sqldb.Statements) error {
		_, err := in.Exec(t.Context(), `DELETE FROM audit_blocks`)
		_, again := in.Exec(t.Context(), `DELETE FROM audit_block_keys`)
		return errors.Join(err, again)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkClockPutBack checks that filters find rows, even a single one, that were written
// while the clock was an hour late.
func checkClockPutBack(t *testing.T, s *Store) {
	t.Helper()
	const late = `(seq > 20000 AND seq <= 30000 OR seq = 40001)`
	_, err := s.db.ExecCommitted(t.Context(), fmt.Sprintf(`UPDATE audit SET time = time - %d WHERE %s`, time.Hour.Microseconds(), late))
	if err != nil {
		t.Fatal(err)
	}
	emptyBlocks(t, s)
	fillBlocks(t, s, trailRows/auditBlock)
	for where, filter := range map[string]keyserver.AuditFilter{
		late: {Until: rowTime(1)},
		`(seq > 24999 AND seq <= 30000 OR seq = 40001)`: {Since: rowTime(25_000).Add(-time.Hour), Until: rowTime(1)},
		`seq >= 15000 AND seq < 45000 AND NOT ` + late:  {Since: rowTime(15_000), Until: rowTime(45_000)},
	} {
		filter.Limit = maxAuditPage
		want := plainly(t, s, where, filter)
		if got := seqsOf(t, s.reads, filter, auditBudget); !cmp.Equal(want, got) {
			t.Errorf("%s: %d rows, want %d", where, len(got), len(want))
		}
	}
}

// bounded reports whether a plan reads audit rows by a range with two limits, and keys of
// blocks by their complete primary key. Scans of the small table audit_blocks are allowed.
func bounded(plan string) bool {
	lines := strings.Split(plan+"\n", "\n")
	for i, line := range lines {
		if !strings.Contains(line, "SCAN ") && !strings.Contains(line, "SEARCH ") && !strings.Contains(line, "Scan ") ||
			strings.Contains(line, "audit_blocks") || strings.Contains(line, "SEARCH b ") {
			continue
		}
		switch line += lines[i+1]; {
		case strings.Contains(line, "(rowid>? AND rowid<?)"), strings.Contains(line, "Index Cond: ((seq > $1) AND (seq <= $2))"):
		case strings.Contains(line, "(block=? AND kind=? AND key=?)"), strings.Contains(line, "Index Cond: ((block = b.block) AND (kind ="):
		default:
			return false
		}
	}
	return true
}

// TestAuditCursor checks that the next call continues after the ranges of the last call.
func TestAuditCursor(t *testing.T) {
	span := auditSpan{after: 0, last: 100}
	if up := span.rest(auditSpan{0, 30}, false); up != (auditSpan{30, 100}) || up.cursor(false) != 30 {
		t.Errorf("upwards %+v is left, from %d on", up, up.cursor(false))
	}
	if down := span.rest(auditSpan{70, 100}, true); down != (auditSpan{0, 70}) || down.cursor(true) != 71 {
		t.Errorf("downwards %+v is left, from %d on", down, down.cursor(true))
	}
}

// seqsOf returns the sequence numbers of all pages of a filter.
func seqsOf(t *testing.T, r Reads, filter keyserver.AuditFilter, budget int64) []int64 {
	t.Helper()
	seqs := []int64{}
	for calls := 1; ; calls++ {
		page, err := r.auditRows(t.Context(), filter, budget)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			seqs = append(seqs, e.Seq)
		}
		if page.Next == 0 {
			return seqs
		}
		if filter.After = page.Next; int64(calls) > int64(len(seqs)/max(filter.Limit, defaultAuditPage))+maxCalls*auditBudget/budget {
			t.Fatalf("%d calls answered %d rows", calls, len(seqs))
		}
	}
}

// plainly returns the same sequence numbers as seqsOf by one simple query.
func plainly(t *testing.T, s *Store, where string, filter keyserver.AuditFilter) []int64 {
	t.Helper()
	seqs := []int64{}
	if where == "" {
		return seqs
	}
	var args []any
	switch {
	case !strings.Contains(where, "$1"):
	case filter.Session != nil:
		args = []any{filter.Session[:]}
	default:
		args = []any{filter.Principal[:]}
	}
	err := s.db.Each(t.Context(), `SELECT seq FROM audit WHERE `+where+` ORDER BY seq`, args, func(row sqldb.Scanner) error {
		seqs = append(seqs, 0)
		return row.Scan(&seqs[len(seqs)-1])
	})
	if err != nil {
		t.Fatal(err)
	}
	return seqs
}
