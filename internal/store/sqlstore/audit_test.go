package sqlstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func openWriter(t testing.TB, s audit.Store, options audit.Options) *audit.Writer {
	t.Helper()
	w, err := audit.NewWriter(t.Context(), s, options)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closeWriter(t testing.TB, w *audit.Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func row(operation, reason string, who uint64) keyserver.AuditEntry {
	e := keyserver.AuditEntry{
		Operation: operation, Outcome: keyserver.Allowed, Reason: reason, Principal: ref(who), Object: "object ü",
		Kind: keyserver.PasswordSession, RequestID: "request", Filename: "file",
		Address: "192.0.2.1", Session: id(77), For: "cluster/namespace/Role/name", Count: 2, Approval: id(78),
	}
	if reason != "" {
		e.Outcome = keyserver.Refused
	}
	return e
}

func writeRows(t testing.TB, w *audit.Writer, rows ...keyserver.AuditEntry) {
	t.Helper()
	for _, r := range rows {
		if err := w.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func verify(t testing.TB, s audit.Reader) audit.Report {
	t.Helper()
	report, err := audit.Verify(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func testAuditFilters(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	now := at(0)
	w := openWriter(t, s, audit.Options{Clock: func() time.Time { return now }})
	defer closeWriter(t, w)
	elsewhere := row("login", "badCredentials", 0)
	elsewhere.Address = "2001:db8::7"
	for _, r := range []keyserver.AuditEntry{row("hmacData", "", 1), row("hmacData", "aclDenied", 2), elsewhere, row("login", "", 2)} {
		now = now.Add(time.Second)
		writeRows(t, w, r)
	}
	page, err := s.AuditRows(t.Context(), keyserver.AuditFilter{})
	if err != nil {
		t.Fatal(err)
	}
	all := page.Entries
	for i, e := range all {
		if e.Seq != int64(i+1) || e.Position != int64(i+1) || e.Chain != 1 || !e.Time.Equal(at(0).Add(time.Duration(i+1)*time.Second)) {
			t.Errorf("row %d is %+v", i+1, e)
		}
	}
	got := all[1]
	got.Seq, got.Position, got.Chain, got.Time, got.Hash, got.Previous = 0, 0, 0, time.Time{}, [32]byte{}, [32]byte{}
	if diff := cmp.Diff(row("hmacData", "aclDenied", 2), got); diff != "" {
		t.Errorf("a row comes back as it was written: %s", diff)
	}
	newest := slices.Clone(all)
	slices.Reverse(newest)
	two, session, nobody := id(2), id(77), id(79)
	cases := map[string]struct {
		reason string
		filter keyserver.AuditFilter
		want   keyserver.AuditPage
	}{
		"Reason":    {"by reason", keyserver.AuditFilter{Reason: "aclDenied"}, keyserver.AuditPage{Entries: all[1:2]}},
		"Principal": {"by principal", keyserver.AuditFilter{Principal: &two}, keyserver.AuditPage{Entries: []keyserver.AuditEntry{all[1], all[3]}}},
		"Operation": {"by operation", keyserver.AuditFilter{Operation: "login"}, keyserver.AuditPage{Entries: all[2:4]}},
		"Address":   {"by address", keyserver.AuditFilter{Address: "2001:db8::7"}, keyserver.AuditPage{Entries: all[2:3]}},
		"Part":      {"an address is one, not the beginning of several", keyserver.AuditFilter{Address: "2001:db8::"}, keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}},
		"Since":     {"since is inclusive", keyserver.AuditFilter{Since: all[2].Time}, keyserver.AuditPage{Entries: all[2:4]}},
		"Until":     {"until is exclusive", keyserver.AuditFilter{Until: all[2].Time}, keyserver.AuditPage{Entries: all[:2]}},
		"Together": {"conditions add up", keyserver.AuditFilter{Operation: "login", Principal: &two, Reason: "badCredentials"},
			keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}},
		"Outcome": {"by outcome", keyserver.AuditFilter{Outcome: keyserver.Allowed}, keyserver.AuditPage{Entries: []keyserver.AuditEntry{all[0], all[3]}}},
		"Refused": {"by outcome, newest first", keyserver.AuditFilter{Outcome: keyserver.Refused, Newest: true}, keyserver.AuditPage{Entries: newest[1:3]}},
		"Object":  {"by object", keyserver.AuditFilter{Object: "object ü"}, keyserver.AuditPage{Entries: all}},
		"Long":    {"a long one, whose beginning the index has", keyserver.AuditFilter{Object: longObject}, keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}},
		"Session": {"by session", keyserver.AuditFilter{Session: &session, Address: "2001:db8::7"}, keyserver.AuditPage{Entries: all[2:3]}},
		"Other session": {"of a session and a principal that never met", keyserver.AuditFilter{Principal: &two, Session: &nobody},
			keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}},
		"No session": {"of a session that did nothing", keyserver.AuditFilter{Session: &nobody},
			keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}},
		"Newest":       {"newest first", keyserver.AuditFilter{Newest: true}, keyserver.AuditPage{Entries: newest}},
		"Newest page":  {"a full page names the next", keyserver.AuditFilter{Newest: true, Limit: 3}, keyserver.AuditPage{Entries: newest[:3], Next: 2}},
		"Newest after": {"which ends with the first row", keyserver.AuditFilter{Newest: true, Limit: 3, After: 2}, keyserver.AuditPage{Entries: newest[3:]}},
		"Newest end":   {"behind which there is none", keyserver.AuditFilter{Newest: true, After: 1}, keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}},
		"Newest high":  {"a cursor above the trail is its end", keyserver.AuditFilter{Newest: true, After: 1 << 53}, keyserver.AuditPage{Entries: newest}},
		"Newest since": {"with a time", keyserver.AuditFilter{Newest: true, Since: all[2].Time}, keyserver.AuditPage{Entries: newest[:2]}},
		"Newest until": {"with a time", keyserver.AuditFilter{Newest: true, Until: all[2].Time, Principal: &two}, keyserver.AuditPage{Entries: newest[2:3]}},
		"Limit":        {"a full page names the next", keyserver.AuditFilter{Limit: 3}, keyserver.AuditPage{Entries: all[:3], Next: 3}},
		"After":        {"which starts behind it", keyserver.AuditFilter{Limit: 3, After: 3}, keyserver.AuditPage{Entries: all[3:]}},
		"Exact":        {"a page that is just full may be the last", keyserver.AuditFilter{Limit: 4}, keyserver.AuditPage{Entries: all}},
		"Quote":        {"a filter is data", keyserver.AuditFilter{Reason: "' OR 1=1 --"}, keyserver.AuditPage{Entries: []keyserver.AuditEntry{}}},
	}
	for name, tc := range cases {
		got, err := s.AuditRows(t.Context(), tc.filter)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s: %s", name, tc.reason, diff)
		}
	}
}

// longObject is longer than a key of a block.
const longObject = "object ü and much more"

// testAuditPaging checks that a reader in descending order gets each row once, even
// if rows are appended meanwhile. A reader in ascending order gets the appended
// rows, too.
func testAuditPaging(t *testing.T, make newDatabase) {
	s := openStore(t, make)
	w := openWriter(t, s, audit.Options{})
	defer closeWriter(t, w)
	for range 7 {
		writeRows(t, w, row("hmacData", "", 1))
	}
	session := id(77)
	for name, filter := range map[string]keyserver.AuditFilter{"All": {}, "Session": {Session: &session}, "Two": {Session: &session, Address: "192.0.2.1"}} {
		filter.Limit = 3
		for _, newest := range []bool{true, false} {
			filter.Newest, filter.After = newest, 0
			var got, want []int64
			end := int64(0)
			for page := 0; ; page++ {
				rows, err := s.AuditRows(t.Context(), filter)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range rows.Entries {
					got = append(got, e.Seq)
				}
				if page == 0 {
					snapshot, err := s.AuditSnapshot(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					end = snapshot.MaxSeq
				}
				if page < 2 {
					writeRows(t, w, row("hmacData", "", 1))
				}
				if filter.After = rows.Next; rows.Next == 0 {
					break
				}
			}
			for seq := end; newest && seq > 0; seq-- {
				want = append(want, seq)
			}
			for seq := int64(1); !newest && seq <= end+2; seq++ {
				want = append(want, seq)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, newest first %v: %s", name, newest, diff)
			}
		}
	}
}

func testAuditTampering(t *testing.T, make newDatabase) {
	d := make(t)
	s := d.open(t)
	w := openWriter(t, s, audit.Options{})
	for range 5 {
		writeRows(t, w, row("hmacData", "", 1), row("hmacData", "aclDenied", 2))
	}
	closeWriter(t, w)
	if report := verify(t, s); !report.Intact() || report.Rows != 10 || report.Chains != 1 {
		t.Fatalf("an honest trail: %+v", report)
	}
	closeStore(t, s)

	const copied = `time, operation, outcome, reason, system_id, principal_id, object, kind, request_id, filename, chain, position, hash, previous, actor_system, actor_id,
		address, session_id, acting_for, times, approval_id`
	cases := map[string]struct {
		reason string
		tamper []string
		undo   []string
		want   audit.Finding
	}{
		"Content": {"one bit of one text", []string{`UPDATE audit SET object = 'objecu ü' WHERE seq = 4`}, []string{`UPDATE audit SET object = 'object ü' WHERE seq = 4`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
		"Time": {"one bit of one number", []string{`UPDATE audit SET time = time + 1 WHERE seq = 4`}, []string{`UPDATE audit SET time = time - 1 WHERE seq = 4`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
		"Moved": {"a place in the chain is content too", []string{`UPDATE audit SET position = 7 WHERE seq = 4`}, []string{`UPDATE audit SET position = 4 WHERE seq = 4`},
			audit.Finding{Chain: 1, Position: 7, Seq: 4, Problem: "changed"}},
		"Boundary": {"a byte that moves to the next text", []string{`UPDATE audit SET request_id = 'reques', filename = 'tfile' WHERE seq = 4`},
			[]string{`UPDATE audit SET request_id = 'request', filename = 'file' WHERE seq = 4`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
		"Actor": {"somebody who did not act", []string{`UPDATE audit SET actor_system = 1, actor_id = principal_id WHERE seq = 4`},
			[]string{`UPDATE audit SET actor_system = 0, actor_id = NULL WHERE seq = 4`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
		"Address": {"another client", []string{`UPDATE audit SET address = '192.0.2.9' WHERE seq = 4`}, []string{`UPDATE audit SET address = '192.0.2.1' WHERE seq = 4`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
		"Fields": {"what earlier versions did not have, taken away", []string{`CREATE TABLE aside AS SELECT * FROM audit WHERE seq = 4`,
			`UPDATE audit SET address = '', session_id = NULL, acting_for = '', times = 1, approval_id = NULL WHERE seq = 4`},
			[]string{`DELETE FROM audit WHERE seq = 4`, `INSERT INTO audit SELECT * FROM aside`, `DROP TABLE aside`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
		"Times": {"often instead of once", []string{`UPDATE audit SET times = times + 1 WHERE seq = 4`}, []string{`UPDATE audit SET times = times - 1 WHERE seq = 4`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
		"Removed": {"a row in the middle", []string{`CREATE TABLE aside AS SELECT * FROM audit WHERE seq = 4`, `DELETE FROM audit WHERE seq = 4`},
			[]string{`INSERT INTO audit SELECT * FROM aside`, `DROP TABLE aside`},
			audit.Finding{Chain: 1, Position: 4, Problem: "missing"}},
		"Cut": {"the last row", []string{`CREATE TABLE aside AS SELECT * FROM audit WHERE seq = 10`, `DELETE FROM audit WHERE seq = 10`},
			[]string{`INSERT INTO audit SELECT * FROM aside`, `DROP TABLE aside`},
			audit.Finding{Chain: 1, Position: 10, Problem: "missing"}},
		"Inserted": {"a copy at the end", []string{`INSERT INTO audit SELECT 11, ` + copied + ` FROM audit WHERE seq = 10`}, []string{`DELETE FROM audit WHERE seq = 11`},
			audit.Finding{Chain: 1, Position: 10, Seq: 11, Problem: "inserted"}},
		"Replaced": {"a copy in the place of another row", []string{`CREATE TABLE aside AS SELECT * FROM audit WHERE seq = 4`, `DELETE FROM audit WHERE seq = 4`,
			`INSERT INTO audit SELECT 4, ` + copied + ` FROM audit WHERE seq = 3`},
			[]string{`DELETE FROM audit WHERE seq = 4`, `INSERT INTO audit SELECT * FROM aside`, `DROP TABLE aside`},
			audit.Finding{Chain: 1, Position: 3, Seq: 4, Problem: "changed"}},
		"Head": {"a head put back", []string{`UPDATE audit_chains SET position = 9`}, []string{`UPDATE audit_chains SET position = 10`},
			audit.Finding{Chain: 1, Position: 10, Seq: 10, Problem: "inserted"}},
		"Chain": {"a chain taken away", []string{`CREATE TABLE aside AS SELECT * FROM audit_chains`, `CREATE TABLE aside_rows AS SELECT * FROM audit`,
			`DELETE FROM audit_chains`, `DELETE FROM audit`},
			[]string{`INSERT INTO audit_chains SELECT * FROM aside`, `INSERT INTO audit SELECT * FROM aside_rows`, `DROP TABLE aside`, `DROP TABLE aside_rows`},
			audit.Finding{Problem: "missing"}},
		"Short": {"a hash of the wrong length does not stop the search", []string{`CREATE TABLE aside AS SELECT * FROM audit WHERE seq = 4`, `UPDATE audit SET hash = eight.bytes FROM eight WHERE seq = 4`},
			[]string{`DELETE FROM audit WHERE seq = 4`, `INSERT INTO audit SELECT * FROM aside`, `DROP TABLE aside`},
			audit.Finding{Chain: 1, Position: 4, Seq: 4, Problem: "changed"}},
	}
	d.tamper(t, `CREATE TABLE eight AS SELECT principal_id AS bytes FROM audit WHERE seq = 1`)
	for name, tc := range cases {
		d.tamper(t, tc.tamper...)
		report := readOnly(t, d)
		if len(report.Findings) == 0 {
			t.Errorf("%s: %s: not found", name, tc.reason)
		} else {
			got := report.Findings[0]
			kind, rest, _ := strings.Cut(got.Problem, ": ")
			if got.Problem = kind; got != tc.want || rest == "" {
				t.Errorf("%s: %s: got %+v (%s), want %+v", name, tc.reason, got, rest, tc.want)
			}
		}
		d.tamper(t, tc.undo...)
		if report := readOnly(t, d); !report.Intact() {
			t.Fatalf("%s: not undone: %+v", name, report)
		}
	}
}

func readOnly(t *testing.T, d database) audit.Report {
	t.Helper()
	s, err := sqlstore.OpenReadOnly(t.Context(), d.config)
	if err != nil {
		t.Fatal(err)
	}
	s.UseRowKey(rowKey(t))
	defer closeStore(t, s)
	return verify(t, s)
}

func testAuditWhileServing(t *testing.T, make newDatabase) {
	d := make(t)
	s := d.open(t)
	defer closeStore(t, s)
	w := openWriter(t, s, audit.Options{})
	defer closeWriter(t, w)
	if err := w.Write(t.Context(), row("hmacData", "", 1)); err != nil { // at least one row, even if the goroutines write none
		t.Fatal(err)
	}
	stop := newSignal()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := w.Write(context.Background(), row("hmacData", "", 1)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 5 {
		if report := readOnly(t, d); !report.Intact() {
			t.Errorf("a trail that grows is intact: %+v", report)
		}
	}
	close(stop)
	wg.Wait()
	if report := verify(t, s); !report.Intact() || report.Rows == 0 {
		t.Errorf("at the end: %+v", report)
	}
}

// testAuditChains checks that a chain has one writer at a time, and that the next
// writer continues it.
func testAuditChains(t *testing.T, make newDatabase) {
	d := make(t)
	s := d.open(t)
	defer closeStore(t, s)
	for round := range int64(2) {
		w := openWriter(t, s, audit.Options{})
		writeRows(t, w, row("hmacData", "", 1))
		if second, err := s.ClaimChain(t.Context()); err == nil {
			head, err := second.Head(t.Context())
			if err != nil || head.Chain == 1 {
				t.Errorf("chain 1 has its writer: got %+v, %v", head, err)
			}
			if err := second.Release(); err != nil {
				t.Error(err)
			}
		}
		closeWriter(t, w)
		snapshot, err := s.AuditSnapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if snapshot.LastSeq != round+1 || snapshot.Heads[0].Position != round+1 {
			t.Errorf("round %d continues the chain: %+v", round, snapshot)
		}
	}
	chain, err := s.ClaimChain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer chain.Release() //nolint:errcheck // the store is closed after it
	err = chain.Append(t.Context(), audit.Head{Chain: 1}, []keyserver.AuditEntry{row("hmacData", "", 1)},
		func(int64) audit.Head { return audit.Head{Chain: 1, Position: 1} })
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an append behind a head that is gone: %v", err)
	}
	if report := verify(t, s); !report.Intact() {
		t.Errorf("it leaves nothing: %+v", report)
	}
}
