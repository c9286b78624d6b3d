package httpapi

import (
	"net/http"
	"strings"
	"testing"
)

// A refusal names the invalid parameter, and the audit log is not read.
func TestAuditRefusals(t *testing.T) {
	for query, names := range map[string]string{
		"order=newest":                        "order",
		"order=":                              "order",
		"order=DESC":                          "order",
		"order=asc&order=desc":                "order",
		"outcome=denied":                      "outcome",
		"outcome=":                            "outcome",
		"session=1":                           "session",
		"session=00000000000003e":             "session",
		"session=zzzzzzzzzzzzzzzz":            "session",
		"session=":                            "session",
		"object=":                             "object",
		"object=a%00b":                        "object",
		"object=%ff":                          "object",
		"cursor=-1":                           "cursor",
		"cursor=0000000000000001x":            "cursor",
		"cursor=1.5&order=desc":               "cursor",
		"cursor=9007199254740993":             "cursor",
		"address=192.0.2.1:443":               "address",
		"since=yesterday":                     "since",
		"object=" + strings.Repeat("a", 4097): "object",
	} {
		f := newFixture(t)
		w := f.do(http.MethodGet, "/api/audit?"+query, "")
		if e := errorOf(t, w); w.Code != http.StatusBadRequest || e.Code != "BAD_REQUEST" || !strings.Contains(e.Detail, names) {
			t.Errorf("%.60s answered %d %s, want a refusal that names %s", query, w.Code, w.Body, names)
		}
		if f.ops.got != nil {
			t.Errorf("%.60s: the trail was asked for %+v", query, f.ops.got)
		}
	}
}
