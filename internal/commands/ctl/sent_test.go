package ctl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// shown returns the output of the request for an approver.
func shown(t *testing.T, method, path, body string, wide int) string {
	t.Helper()
	all := theTable(t)
	var out bytes.Buffer
	p := &printer{options: &options{output: asTable, routes: all}, out: &out, notes: &out, width: wide}
	answer := `{"approvalId":"00000000000003e9","digest":"` + strings.Repeat("ab", 32) + `","method":"` + method + `","path":"` + path + `","body":` + body + `}`
	if err := p.print(all.find("approvals get"), jsontext.Value(answer)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestApprovalIsRead checks that an approver sees the entire request, and explanations of times, rights, operations and
// ids.
func TestApprovalIsRead(t *testing.T) {
	for _, c := range []struct {
		reason, method, path, body string
		want                       []string
	}{
		{"an entry", "POST", "/api/keys/acl/grant", `{"endTime":"AAABo2kKnAA=","principalId":"3761612968308393162","rights":1,"startTime":"AAAAAAAAAAA=","systemId":1,"ttag":"AAAA"}`, []string{
			`  "endTime": "AAABo2kKnAA=",`, `  "rights": 1,`, "body, in words\n", "\nendTime: until 2027-01-31T00:00:00Z\n", "\nrights: READ\n", "\nstartTime: unset, no bound\n",
			"\nprincipalId: 3433ef10968644ca, in hexadecimal digits\n",
		}},
		{"more is held than is asked for", "POST", "/api/keys/acl/update", `{"rights":2}`, []string{"rights: WRITE (held as READ, WRITE)"}},
		{"a role", "POST", "/api/roles", `{"name":"Signers","operations":["0000000000000304","00000000000fffff"]}`, []string{
			`    "0000000000000304",`, "\noperations[0]: ",
		}},
		{"what would be cut in a cell", "POST", "/api/roles", `{"name":"` + strings.Repeat("x", 300) + `"}`, []string{strings.Repeat("x", 80)}},
		{"what a terminal would act upon", "POST", "/api/roles", "{\"name\":\"a\u202e\"}", []string{`"a\u202e"`}},
		{"a route that this build does not know", "POST", "/api/nosuch", `{"rights":1}`, []string{`"rights": 1`}},
		{"a time that no calendar has", "POST", "/api/keys/acl/grant", `{"endTime":"//////////8="}`, []string{"endTime: until 18446744073709551615 ms after 1970"}},
	} {
		got := shown(t, c.method, c.path, c.body, 100)
		for _, want := range append(c.want, strings.Repeat("ab", 32)) {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in\n%s", c.reason, want, got)
			}
		}
		if n := strings.Count(got, "x"); strings.Contains(c.body, "xxx") && n < 300 {
			t.Errorf("%s: %d of 300 letters are shown", c.reason, n)
		}
	}
}

// TestRouteOfRequest checks that a path belongs to the route with matching literal segments.
func TestRouteOfRequest(t *testing.T) {
	all := theTable(t)
	for request, want := range map[string]string{
		"GET /api/approvals/policy": "getApprovalPolicy", "GET /api/approvals/00000000000003e9?x=y": "getApproval", "PUT /api/nosuch": "",
	} {
		method, path, _ := strings.Cut(request, " ")
		got := ""
		if v := all.route(method, path); v != nil {
			got = v.route.Name
		}
		if got != want {
			t.Errorf("%s is %q, want %q", request, got, want)
		}
	}
}
