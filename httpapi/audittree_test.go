package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/auditverify"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestTilesHaveOneSpelling checks that a tile path that is not canonical is refused, and not redirected.
func TestTilesHaveOneSpelling(t *testing.T) {
	for path, want := range map[string]int{
		"/api/audit/tile/00/067": 400, "/api/audit/tile/64/067": 400, "/api/audit/tile/data/067": 400,
		"/api/audit/tile/0/67": 400, "/api/audit/tile/0/1067": 400, "/api/audit/tile/0/067.p/256": 400, "/api/audit/tile/0/x000/067": 400,
		"/api/audit/tile/0/": 400, "/api/audit/tile/entries/": 400, "/api/audit/tile/entries/x001": 400,
		"/api/audit/01/receipt": 400, "/api/audit/0/receipt": 400,
		"/api/audit/tile": 404, "/api/audit/tile/": 404, "/api/audit/tile/0": 404, "/api/audit/tile/entries": 404, "/api/audit/tile/0//067": 404,
		"/api/audit/tile/0/x001/../067": 404, "/api/audit/tile/receipt": 404, "/api/audit/1/other": 404, "/api/audit/1": 404,
	} {
		f := newFixture(t)
		w := f.do(http.MethodGet, path, "")
		if w.Code != want || w.Header().Get("Content-Type") != routes.MediaJSON {
			t.Errorf("%s: answered %d %s", path, w.Code, w.Body)
		}
		if seen := f.ops.seen(); len(seen) > 0 {
			t.Errorf("%s: reached %v", path, seen)
		}
	}
}

// TestAnswersThatAreNoJSON checks that successes have the media type of the route, and that refusals are JSON.
func TestAnswersThatAreNoJSON(t *testing.T) {
	for path, want := range map[string]struct {
		media string
		bytes int
	}{
		"/api/audit/checkpoint":             {"text/plain; charset=utf-8", 13},
		"/api/audit/1/receipt":              {"text/plain; charset=utf-8", 23},
		"/api/audit/tile/0/x001/067":        {"application/octet-stream", 256 * 32},
		"/api/audit/tile/entries/067.p/255": {"application/octet-stream", 255 * 32},
		"/api/audit/key":                    {routes.MediaJSON, 61},
	} {
		f := newFixture(t)
		w := f.do(http.MethodGet, path, "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want.media || w.Body.Len() != want.bytes || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, %d bytes, %v", path, w.Code, w.Body.Len(), w.Header())
		}
		f.ops.err = fault.Temporary(fault.NotReady, fault.ScopeProcess, 1, "the detail")
		w = f.do(http.MethodGet, path, "")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Content-Type") != routes.MediaJSON || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s: the refusal is %d %s, %v", path, w.Code, w.Body, w.Header())
		}
	}
}

// TestAnEntryIsItsRow checks that a response has all fields that the hash covers.
func TestAnEntryIsItsRow(t *testing.T) {
	plain := keyserver.AuditEntry{
		Seq: 6, Time: epoch.Add(time.Microsecond), Operation: "hmacData", Outcome: keyserver.Refused, Reason: "aclDenied", Principal: someRef, Object: "o",
		Kind: keyserver.PasswordSession, RequestID: "r", Count: 1, Chain: 2, Position: 3, Hash: [32]byte{1}, Previous: [32]byte{31: 2},
	}
	full := plain
	full.Actor, full.Address, full.Session, full.For, full.Count, full.Approval, full.Filename = otherRef, "192.0.2.1", someID, "f", 7, newID, "n"
	for _, want := range []keyserver.AuditEntry{plain, full} {
		entry := AuditEntryOf(want)
		got, err := auditverify.Row(&entry)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		entry.Hash = entry.Hash[1:]
		if _, err := auditverify.Row(&entry); err == nil {
			t.Error("a hash of 31 bytes is taken")
		}
		entry = AuditEntryOf(want)
		entry.Time = entry.Time.Add(1)
		if _, err := auditverify.Row(&entry); err == nil {
			t.Error("a time is taken of which no hash has the last digits")
		}
	}
}
