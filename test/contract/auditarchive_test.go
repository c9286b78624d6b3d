package contract

import (
	"strings"
	"testing"
)

// TestRowsThatAreArchived checks audit queries when the oldest rows are in the archive, as after
// --audit-retention. The tests of internal/audit/archive use a real archive.
func TestRowsThatAreArchived(t *testing.T) {
	intrude(t, &serverConfig{}, func(t *testing.T, s *subject, in intruder) {
		admin := s.AsAdmin(t)
		if all := s.OK(t, admin, "GET", "/api/audit", nil); all.Body["archivedBefore"] != nil || len(all.List(t, "entries")) < 3 {
			t.Fatalf("a trail of which nothing is archived: %s", all.Raw)
		}
		in.run(t, `UPDATE audit_extent SET first = 3, archived = 2`)
		in.run(t, `DELETE FROM audit WHERE seq < 3`)
		page := s.OK(t, admin, "GET", "/api/audit?limit=1", nil)
		if first := page.List(t, "entries")[0]["seq"]; first != float64(3) || page.Body["archivedBefore"] != float64(3) {
			t.Errorf("the first page: %s", page.Raw)
		}
		if page := s.OK(t, admin, "GET", "/api/audit?cursor=2&reason=noSuch", nil); page.Body["archivedBefore"] != float64(3) {
			t.Errorf("a page of a filter: %s", page.Raw)
		}
		refusal := s.Refused(t, admin, "GET", "/api/audit?cursor=1", nil, 410, "ARCHIVED")
		if detail := refusal.Field("detail"); !strings.Contains(detail, "segment 00000000000000000001") || !strings.Contains(detail, "audit show --archive") {
			t.Error(detail)
		}
	})
}
