package contract

import (
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Contract 18.9, 18.10: the audit row of a receipt or an entry bundle names its rows, also
// if there are none.
func TestRowsOfReceipts(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		auditor := s.with(t, keyserver.RoleAuditor)
		for path, want := range map[string]struct {
			status  int
			trail   string
			objects string
		}{
			"/api/audit/1/receipt":                 {http.StatusOK, `["readAudit allowed"]`, "1"},
			"/api/audit/999999999/receipt":         {http.StatusNotFound, `["readAudit allowed" "readAudit failed objectNotFound"]`, "999999999"},
			"/api/audit/tile/entries/x001/000":     {http.StatusNotFound, `["readAudit allowed" "readAudit failed objectNotFound"]`, "256001-256256"},
			"/api/audit/tile/entries/x001/000.p/8": {http.StatusNotFound, `["readAudit allowed" "readAudit failed objectNotFound"]`, "256001-256008"},
			"/api/audit/tile/entries/000.p/1":      {http.StatusOK, `["readAudit allowed"]`, "1-1"},
		} {
			t.Run(path, func(t *testing.T) {
				a := s.Do(t, rig.Request{Session: auditor, Method: "GET", Path: path})
				if a.Status != want.status {
					t.Fatalf("got %d %s, want %d", a.Status, a.Raw, want.status)
				}
				rows := s.Rows(t, a.Header.Get("X-Request-Id"))
				if got := rig.Trail(rows); got != want.trail {
					t.Errorf("the rows are %s, want %s", got, want.trail)
				}
				for _, row := range rows {
					if row["object"] != want.objects {
						t.Errorf("the object is %v, want %s", row["object"], want.objects)
					}
				}
			})
		}
	})
}
