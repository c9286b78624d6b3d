package approval_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// cast has the principals of most tests. The principal to receives a duty.
type cast struct{ admin, officer, second, auditor, encryptor, to keyserver.Caller }

func (w *world) cast(t testing.TB) cast {
	return cast{
		w.add(t, "admin 1", keyserver.RoleAdministrator), w.add(t, "officer 1", keyserver.RoleSecurityOfficer),
		w.add(t, "officer 2", keyserver.RoleSecurityOfficer), w.add(t, "auditor", keyserver.RoleAuditor),
		w.add(t, "encryptor", keyserver.RoleEncryptor), w.add(t, "to"),
	}
}

// someLink is a hidden link that belongs to no key.
var someLink = base64.StdEncoding.EncodeToString([]byte(values.NewHiddenLink(1, values.IDFromUint64(7))))

// TestWhatCannotBeAskedFor checks that approval cannot be requested for some requests.
func TestWhatCannotBeAskedFor(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		roles := "/api/principals/" + c.to.Principal.ID.Hex() + "/roles"
		body := object{"roleIds": []string{}}
		for name, x := range map[string]struct {
			who    string
			method string
			path   string
			body   any
			status int
			code   string
			detail string
		}{
			"no such path":       {"admin 1", "PUT", "/api/nothing", body, 400, "BAD_REQUEST", "path"},
			"not of the API":     {"admin 1", "PUT", "https://elsewhere" + roles, body, 400, "BAD_REQUEST", "path"},
			"not clean":          {"admin 1", "PUT", "/api/../api/roles", body, 400, "BAD_REQUEST", "path"},
			"no such method":     {"admin 1", "DELETE", roles, nil, 400, "BAD_REQUEST", "path"},
			"a login":            {"admin 1", "POST", "/api/sessions", object{"method": "certificate"}, 400, "BAD_REQUEST", "path"},
			"a stream":           {"encryptor", "POST", "/api/crypto/hmac", object{"hiddenLink": "AAAA", "data": ""}, 400, "BAD_REQUEST", "path"},
			"a wait":             {"admin 1", "GET", "/api/changes?after=0", nil, 400, "BAD_REQUEST", "path"},
			"an approval":        {"admin 1", "POST", at("0000000000000001", "approve"), object{"digest": strings.Repeat("0", 64)}, 400, "BAD_REQUEST", "path"},
			"an execution":       {"admin 1", "POST", at("0000000000000001", "execute"), nil, 400, "BAD_REQUEST", "path"},
			"asking":             {"admin 1", "POST", "/api/approvals", administratorRequest(c.to), 400, "BAD_REQUEST", "path"},
			"a body of another":  {"admin 1", "PUT", roles, object{"roles": []string{}}, 400, "BAD_REQUEST", "body"},
			"no body":            {"admin 1", "PUT", roles, nil, 400, "BAD_REQUEST", "body"},
			"a path that is not": {"admin 1", "PUT", "/api/principals/x/roles", body, 400, "BAD_REQUEST", "id"},
			"a password":         {"admin 1", "POST", "/api/principals/password", object{"name": "n", "password": "planted secret", "roleIds": []string{}}, 400, "BAD_REQUEST", "body.password"},
			"key material":       {"encryptor", "POST", "/api/keys", object{"algorithm": "HMAC-SHA384", "material": "AAAA"}, 400, "BAD_REQUEST", "body.material"},
			"no right to it":     {"encryptor", "PUT", roles, body, 403, "ACCESS_DENIED", ""},
			"no rule":            {"admin 1", "GET", "/api/roles", nil, 400, "INVALID_ARGUMENT", "directly"},
		} {
			t.Run(name, func(t *testing.T) {
				asked := object{"method": x.method, "path": x.path, "reason": "for the test"}
				if x.body != nil {
					asked["body"] = x.body
				}
				a := is(t, w.ask(t, x.who, "POST", "/api/approvals", asked), x.status, x.code)
				if !strings.Contains(a.text("detail"), x.detail) || strings.Contains(a.raw, "planted secret") {
					t.Errorf("the sentence is %s", a.raw)
				}
			})
		}
		for name, reason := range map[string]string{
			"a line break": "one\ntwo", "a terminal's color": "\x1b[31mred", "another direction": "for \u202enimda", "no width": "ad\u200bmin", "deleted": "a\u007f", "no character": "a\ufffd",
			"a filler": "admin\u3164", "a joiner": "ad\u034fmin", "a blank": "\u2800", "a selector": "a\ufe0f", "blanks": "   ", "another line": "a\u2028b",
		} {
			asked := administratorRequest(c.to)
			asked["reason"] = reason
			if a := is(t, w.ask(t, "admin 1", "POST", "/api/approvals", asked), 400, "BAD_REQUEST"); !strings.Contains(a.text("detail"), "reason") {
				t.Errorf("%s: %s", name, a.raw)
			}
		}
		hidden := object{"method": "POST", "path": "/api/roles", "reason": "for the test", "body": object{"name": "\u202ex", "operations": []string{}}}
		if a := is(t, w.ask(t, "admin 1", "POST", "/api/approvals", hidden), 400, "BAD_REQUEST"); !strings.Contains(a.text("detail"), "body") {
			t.Errorf("a body that cannot be read: %s", a.raw)
		}
		for _, path := range []string{strings.Replace(roles, "/api", "/%61pi", 1), strings.Replace(roles, "-", "%2D", 1) + "?%61=1", "/api/approvals/policy%3f%7e"} {
			asked := administratorRequest(c.to)
			asked["path"] = path
			is(t, w.ask(t, "admin 1", "POST", "/api/approvals", asked), 400, "BAD_REQUEST")
		}
		if list := w.ok(t, "auditor", "GET", "/api/approvals", nil); list.body["count"] != 0.0 {
			t.Errorf("something was kept: %s", list.raw)
		}
	})
}

// TestWhoMayNotApprove checks which callers and sessions may not approve. Their attempts do not change the approval.
func TestWhoMayNotApprove(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		a := w.ok(t, "admin 1", "POST", "/api/approvals", administratorRequest(c.to))
		id, digest := a.text("approvalId"), a.text("digest")
		right, wrong := object{"digest": digest}, object{"digest": strings.Repeat("0", 64)}
		lent, narrow := c.officer, c.officer
		lent.Bound, lent.Kind, lent.Actor = true, keyserver.DelegatedSession, c.encryptor.Principal
		narrow.Bound, narrow.Kind, narrow.Scope = true, keyserver.ScopedSession, []keyserver.HiddenLink{}
		w.known.callers["lent"], w.known.callers["narrow"] = lent, narrow
		for name, x := range map[string]struct {
			who    string
			id     string
			body   object
			status int
			code   string
		}{
			"the asker":         {"admin 1", id, right, 403, "OWN_ACCOUNT"},
			"an unbound one":    {"officer 1 unbound", id, right, 403, "SESSION_NOT_BOUND"},
			"no duty":           {"encryptor", id, right, 403, "ACCESS_DENIED"},
			"nobody":            {"to", id, right, 403, "ACCESS_DENIED"},
			"a lent session":    {"lent", id, right, 403, ""},
			"a narrow one":      {"narrow", id, right, 403, "OBJECT_NOT_IN_CREDENTIAL_SCOPE"},
			"another digest":    {"officer 1", id, wrong, 409, "DIGEST_MISMATCH"},
			"another approval":  {"officer 1", "0000000000000001", right, 404, "NOT_FOUND"},
			"no session at all": {"stranger", id, right, 401, "SESSION_NOT_FOUND"},
		} {
			for _, what := range []string{"approve", "reject"} {
				t.Run(name+" "+what, func(t *testing.T) {
					a := w.ask(t, x.who, "POST", at(x.id, what), x.body)
					if x.code == "" {
						x.code = a.text("code")
					}
					is(t, a, x.status, x.code)
				})
			}
		}
		if v := w.ok(t, "auditor", "GET", at(id), nil); v.text("state") != "pending" || len(v.body["approvedBy"].([]any)) > 0 {
			t.Errorf("it moved: %s", v.raw)
		}
		w.ok(t, "officer 1", "POST", at(id, "approve"), right)
		is(t, w.ask(t, "officer 1", "POST", at(id, "approve"), right), 409, "APPROVAL_STATE")
		is(t, w.ask(t, "officer 2", "POST", at(id, "withdraw"), nil), 403, "ACCESS_DENIED")
		is(t, w.ask(t, "officer 1 unbound", "POST", at(id, "withdraw"), nil), 403, "SESSION_NOT_BOUND")
		if v := w.ok(t, "officer 1", "POST", at(id, "withdraw"), nil); v.text("state") != "pending" || len(v.body["approvedBy"].([]any)) > 0 {
			t.Errorf("an approval was withdrawn: %s", v.raw)
		}
		is(t, w.ask(t, "officer 1", "POST", at(id, "withdraw"), nil), 403, "ACCESS_DENIED")
		w.ok(t, "officer 1", "POST", at(id, "approve"), right)
		w.ok(t, "officer 1", "POST", at(id, "reject"), right) // an approver may still reject the request
		is(t, w.ask(t, "officer 1", "POST", at(id, "withdraw"), nil), 409, "APPROVAL_STATE")
		is(t, w.ask(t, "auditor", "POST", at(id, "approve"), right), 409, "APPROVAL_STATE")
		is(t, w.ask(t, "admin 1", "POST", at(id, "execute"), nil), 409, "APPROVAL_STATE")
	})
}

// TestRefusalsHaveOneRow checks that a refused decision about an approval, and a refused change of duties, writes only
// one audit row, with the reason.
func TestRefusalsHaveOneRow(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		a := w.ok(t, "admin 1", "POST", "/api/approvals", administratorRequest(c.to))
		id, right, wrong := a.text("approvalId"), object{"digest": a.text("digest")}, object{"digest": strings.Repeat("0", 64)}
		roles := "/api/principals/" + c.to.Principal.ID.Hex() + "/roles"
		for name, x := range map[string]struct {
			who, method, path string
			body              any
			code, row         string
		}{
			"own approval":    {"admin 1", "POST", at(id, "approve"), right, "OWN_ACCOUNT", "approve refused notApprovable"},
			"own rejection":   {"admin 1", "POST", at(id, "reject"), right, "OWN_ACCOUNT", "reject refused notApprovable"},
			"unbound session": {"officer 1 unbound", "POST", at(id, "approve"), right, "SESSION_NOT_BOUND", "approve refused sessionNotBound"},
			"no duty":         {"encryptor", "POST", at(id, "approve"), right, "ACCESS_DENIED", "approve refused roleDenied"},
			"other digest":    {"officer 1", "POST", at(id, "approve"), wrong, "DIGEST_MISMATCH", "approve refused notApprovable"},
			"other's":         {"officer 1", "POST", at(id, "withdraw"), nil, "ACCESS_DENIED", "withdrawApproval refused notApprovable"},
			"not approved":    {"admin 1", "POST", at(id, "execute"), nil, "APPROVAL_STATE", "executeApproval refused notApprovable"},
			"not asked for":   {"admin 1", "PUT", roles, object{"roleIds": []string{keyserver.RoleAdministrator.Hex()}}, "APPROVAL_REQUIRED", "updatePrincipalRoles refused approvalRequired"},
			"two duties": {"officer 1", "PUT", "/api/principals/" + c.admin.Principal.ID.Hex() + "/roles",
				object{"roleIds": []string{keyserver.RoleAdministrator.Hex(), keyserver.RoleSecurityOfficer.Hex()}},
				"DUTIES_CONFLICT", "updatePrincipalRoles refused dutiesConflict"},
			"escalation": {"officer 1", "PUT", roles, object{"roleIds": []string{keyserver.RoleAdministrator.Hex()}}, "ESCALATION", "updatePrincipalRoles refused escalation"},
		} {
			t.Run(name, func(t *testing.T) {
				answered := w.ask(t, x.who, x.method, x.path, x.body)
				if answered.text("code") != x.code {
					t.Errorf("got %s, want %s", answered.raw, x.code)
				}
				operation, _, _ := strings.Cut(x.row, " ")
				var rows []string
				for _, r := range w.AllRows(t) {
					if r.RequestID == answered.id && r.Operation == operation {
						rows = append(rows, r.Operation+" "+string(r.Outcome)+" "+r.Reason)
					}
				}
				if !slices.Equal(rows, []string{x.row}) {
					t.Errorf("the rows are %q, want %q alone", rows, x.row)
				}
			})
		}
		if v := w.ok(t, "auditor", "GET", at(id), nil); v.text("state") != "pending" {
			t.Errorf("it moved: %s", v.raw)
		}
	})
}

// TestOnceAndAsApproved checks the sequence: a direct request is refused; approval is requested and given; the request
// is executed once; the audit log has all steps.
func TestOnceAndAsApproved(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		g := administratorRequest(c.to)
		path := g["path"].(string)
		is(t, w.ask(t, "admin 1", "PUT", path, g["body"]), 403, "APPROVAL_REQUIRED")
		spelt := `{"reason":"why","path":"` + path + `" , "method":"PUT","body": { "roleIds" : [ "` + keyserver.RoleAdministrator.Hex() + `" ] } }`
		a := w.ok(t, "admin 1", "POST", "/api/approvals", spelt)
		id := a.text("approvalId")
		form := `{"body":{"roleIds":["` + keyserver.RoleAdministrator.Hex() + `"]},"method":"PUT","path":"` + path + `"}`
		if sum := sha256.Sum256([]byte(form)); a.text("digest") != hex.EncodeToString(sum[:]) {
			t.Errorf("the digest is %s, that of %s is %x", a.text("digest"), form, sum)
		}
		if a.text("state") != "pending" || a.body["required"] != 1.0 {
			t.Errorf("it begins as %s", a.raw)
		}
		is(t, w.ask(t, "admin 1", "POST", at(id, "execute"), nil), 409, "APPROVAL_STATE")
		v := w.ok(t, "officer 1", "POST", at(id, "approve"), object{"digest": a.text("digest")})
		if v.text("state") != "approved" {
			t.Errorf("it is %s", v.raw)
		}
		is(t, w.ask(t, "officer 1", "POST", at(id, "execute"), nil), 403, "ACCESS_DENIED")
		is(t, w.ask(t, "admin 1", "PUT", path, g["body"]), 403, "APPROVAL_REQUIRED") // the direct request still needs an approval
		done := w.ok(t, "admin 1", "POST", at(id, "execute"), nil)
		if _, ok := done.body["principal"]; !ok || w.rolesOf(t, c.to) != fmt.Sprint([]keyserver.ID{keyserver.RoleAdministrator}) {
			t.Errorf("the route answers %s", done.raw)
		}
		is(t, w.ask(t, "admin 1", "POST", at(id, "execute"), nil), 409, "APPROVAL_STATE")
		if rows := w.under(t, id); !slices.Contains(rows, "updatePrincipalRoles allowed") || slices.ContainsFunc(rows, func(r string) bool { return !strings.HasSuffix(r, "allowed") }) {
			t.Errorf("under the approval the trail has %v", rows)
		}
		if v := w.ok(t, "admin 1", "GET", at(id), nil); v.text("state") != "executed" || v.body["decidedBy"] == nil {
			t.Errorf("it stays as %s", v.raw)
		}
	})
}

// TestWhatCountsAtTheExecution checks that the execution depends on the current state of approvers and asker.
func TestWhatCountsAtTheExecution(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		n := 0
		ready := func(t *testing.T, by string) (string, keyserver.Caller) {
			t.Helper()
			n++
			to := w.add(t, fmt.Sprint("target ", n))
			a := w.ok(t, "admin 1", "POST", "/api/approvals", administratorRequest(to))
			w.ok(t, by, "POST", at(a.text("approvalId"), "approve"), object{"digest": a.text("digest")})
			return a.text("approvalId"), to
		}
		for name, x := range map[string]struct {
			undo, redo func()
			status     int
			code       string
			spent      bool
		}{
			"the approver lost the duty": {
				func() { w.setRoles(t, c.officer) }, func() { w.setRoles(t, c.officer, keyserver.RoleSecurityOfficer) }, 409, "APPROVAL_STATE", false,
			},
			"the approver is disabled": {
				func() { w.enable(t, c.officer, false) }, func() { w.enable(t, c.officer, true) }, 409, "APPROVAL_STATE", false,
			},
			"the asker is disabled": {
				func() { w.enable(t, c.admin, false) }, func() { w.enable(t, c.admin, true) }, 403, "PRINCIPAL_DISABLED", false,
			},
			"the asker lost his right": {
				func() { w.setRoles(t, c.admin) }, func() { w.setRoles(t, c.admin, keyserver.RoleAdministrator) }, 403, "ACCESS_DENIED", true,
			},
		} {
			t.Run(name, func(t *testing.T) {
				id, to := ready(t, "officer 1")
				x.undo()
				is(t, w.ask(t, "admin 1", "POST", at(id, "execute"), nil), x.status, x.code)
				x.redo()
				if got := w.rolesOf(t, to); got != "[]" {
					t.Errorf("%s was given", got)
				}
				again := w.ask(t, "admin 1", "POST", at(id, "execute"), nil)
				if x.spent {
					is(t, again, 409, "APPROVAL_STATE") // the first execution failed, but counts
				} else {
					is(t, again, 200, "")
				}
			})
		}
		t.Run("its time is over", func(t *testing.T) {
			id, _ := ready(t, "officer 1")
			w.Clock.Advance(24 * time.Hour)
			is(t, w.ask(t, "admin 1", "POST", at(id, "execute"), nil), 409, "APPROVAL_STATE")
			v := w.ok(t, "auditor", "GET", at(id), nil)
			is(t, w.ask(t, "auditor", "POST", at(id, "approve"), object{"digest": v.text("digest")}), 409, "APPROVAL_STATE")
			if v.text("state") != "expired" {
				t.Errorf("it is %s", v.raw)
			}
		})
		t.Run("the policy asks for more", func(t *testing.T) {
			id, _ := ready(t, "officer 1")
			set := func(text string) {
				ctx := context.Background()
				fatal(t, w.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetApprovalPolicy(ctx, []byte(text)) }))
			}
			set(`[{"operation":"giveDuties","approvers":2,"duty":"any"}]`)
			is(t, w.ask(t, "admin 1", "POST", at(id, "execute"), nil), 409, "APPROVAL_STATE")
			v := w.ok(t, "auditor", "GET", at(id), nil)
			w.ok(t, "auditor", "POST", at(id, "approve"), object{"digest": v.text("digest")})
			w.ok(t, "admin 1", "POST", at(id, "execute"), nil)
		})
	})
}

// TestExecutedTwiceAtOnce checks that only one of several concurrent executions runs.
func TestExecutedTwiceAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		a := w.ok(t, "admin 1", "POST", "/api/approvals", administratorRequest(c.to))
		id := a.text("approvalId")
		w.ok(t, "officer 1", "POST", at(id, "approve"), object{"digest": a.text("digest")})
		var mu sync.Mutex
		got := map[string]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				a := w.ask(t, "admin 1", "POST", at(id, "execute"), nil)
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprint(a.status, a.text("code"))]++
			})
		}
		all.Wait()
		if got["200"] != 1 || got["409APPROVAL_STATE"] != 7 {
			t.Errorf("the answers are %v", got)
		}
		rows := slices.DeleteFunc(w.under(t, id), func(r string) bool { return !strings.HasPrefix(r, "updatePrincipalRoles") })
		if len(rows) != 1 {
			t.Errorf("the trail has %v", rows)
		}
	})
}

// TestPolicy checks that a change of the policy needs an approval itself, and that a policy that cannot be satisfied is
// refused.
func TestPolicy(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		w.cast(t)
		const path = "/api/approvals/policy"
		if p := w.ok(t, "admin 1", "GET", path, nil); !strings.Contains(p.raw, `"giveDuties"`) || !strings.Contains(p.raw, `"exportKey"`) || !strings.Contains(p.raw, `"destroyKey"`) || !strings.Contains(p.raw, `"setApprovalPolicy"`) {
			t.Errorf("where duties are apart it begins as %s", p.raw)
		}
		rule := func(operation string, approvers int, duty string) object {
			return object{"operation": operation, "approvers": approvers, "duty": duty}
		}
		policy := func(rules ...object) object { return object{"rules": append([]object{}, rules...)} }
		is(t, w.ask(t, "admin 1", "PUT", path, policy()), 403, "APPROVAL_REQUIRED")
		is(t, w.ask(t, "officer 1", "PUT", path, policy()), 403, "ACCESS_DENIED")
		is(t, w.ask(t, "encryptor", "GET", path, nil), 403, "ACCESS_DENIED")
		set := func(t *testing.T, body object) answer {
			t.Helper()
			a := w.ok(t, "admin 1", "POST", "/api/approvals", object{"method": "PUT", "path": path, "body": body, "reason": "why"})
			w.ok(t, "officer 1", "POST", at(a.text("approvalId"), "approve"), object{"digest": a.text("digest")})
			return w.ask(t, "admin 1", "POST", at(a.text("approvalId"), "execute"), nil)
		}
		for name, x := range map[string]struct {
			body   object
			detail string
		}{
			"no operation":      {policy(rule("nothing", 1, "any")), "rules[0].operation"},
			"two for one":       {policy(rule("exportKey", 1, "any"), rule("exportKey", 2, "any")), "rules[1].operation"},
			"what streams":      {policy(rule("hmacData", 1, "any")), "rules[0].operation"},
			"what waits":        {policy(rule("watchChanges", 1, "any")), "rules[0].operation"},
			"what is secret":    {policy(rule("setPassword", 1, "any")), "rules[0].operation"},
			"too few of a duty": {policy(rule("exportKey", 3, "trust")), "rules[0].duty"},
			"himself left out":  {policy(rule("exportKey", 2, "administration")), "rules[0].duty"}, // only the first administrator could approve
		} {
			t.Run(name, func(t *testing.T) {
				if a := is(t, set(t, x.body), http.StatusBadRequest, "INVALID_ARGUMENT"); !strings.Contains(a.text("detail"), x.detail) {
					t.Errorf("the sentence is %s", a.raw)
				}
			})
		}
		both := policy(rule("exportKey", 2, "trust"), rule("readAudit", 1, "any"))
		if a := is(t, set(t, both), http.StatusOK, ""); a.body["saved"] != true {
			t.Errorf("it answers %s", a.raw)
		}
		is(t, w.ask(t, "auditor", "GET", "/api/audit", nil), 403, "APPROVAL_REQUIRED")
		w.ok(t, "admin 1", "PUT", path, policy()) // no rule guards the policy after this
		w.ok(t, "auditor", "GET", "/api/audit", nil)
	})
}

// TestWhoReads checks that a caller needs a role to read approvals that other principals requested.
func TestWhoReads(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		var ids []string
		for range 3 {
			ids = append(ids, w.ok(t, "admin 1", "POST", "/api/approvals", administratorRequest(c.to)).text("approvalId"))
		}
		slices.Sort(ids)
		own := "/api/approvals?asker="
		is(t, w.ask(t, "encryptor", "GET", at(ids[0]), nil), 403, "ACCESS_DENIED")
		is(t, w.ask(t, "encryptor", "GET", "/api/approvals", nil), 403, "ACCESS_DENIED")
		is(t, w.ask(t, "encryptor", "GET", own+c.admin.Principal.ID.Hex(), nil), 403, "ACCESS_DENIED")
		is(t, w.ask(t, "officer 1", "GET", own+"0000000000000000", nil), 400, "BAD_REQUEST")
		is(t, w.ask(t, "officer 1", "GET", at("0000000000000001"), nil), 404, "NOT_FOUND")
		if a := w.ok(t, "encryptor", "GET", own+c.encryptor.Principal.ID.Hex(), nil); a.body["count"] != 0.0 {
			t.Errorf("%s", a.raw)
		}
		w.setRoles(t, c.admin)
		w.ok(t, "admin 1", "GET", at(ids[0]), nil)
		if a := w.ok(t, "admin 1", "GET", own+c.admin.Principal.ID.Hex(), nil); a.body["count"] != 3.0 {
			t.Errorf("%s", a.raw)
		}
		var got []string
		for page := ""; ; {
			a := w.ok(t, "auditor", "GET", "/api/approvals?open=true&limit=2"+page, nil)
			for _, one := range a.body["approvals"].([]any) {
				got = append(got, one.(object)["approvalId"].(string))
			}
			if a.body["next"] == nil {
				break
			}
			page = "&after=" + a.text("next")
		}
		if !slices.Equal(got, ids) {
			t.Errorf("got %v, want %v", got, ids)
		}
		w.Clock.Advance(24 * time.Hour)
		if a := w.ok(t, "auditor", "GET", "/api/approvals?open=true", nil); a.body["count"] != 0.0 {
			t.Errorf("expired ones are open: %s", a.raw)
		}
	})
}

// TestHowManyWait checks the limits of pending approvals, per asker and in total, and that old decided approvals are
// deleted.
func TestHowManyWait(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		w.add(t, "admin 2", keyserver.RoleAdministrator)
		for range 20 {
			w.ok(t, "admin 1", "POST", "/api/approvals", administratorRequest(c.to))
		}
		is(t, w.ask(t, "admin 1", "POST", "/api/approvals", administratorRequest(c.to)), 409, "APPROVAL_LIMIT")
		a := w.ok(t, "admin 2", "POST", "/api/approvals", administratorRequest(c.to))
		w.ok(t, "officer 1", "POST", at(a.text("approvalId"), "reject"), object{"digest": a.text("digest")})
		ctx, first := context.Background(), c.admin
		stored := 0
		fill := func(n int) {
			fatal(t, w.Store.Update(ctx, func(tx *sqlstore.Tx) error {
				for range n {
					now := w.Clock.Now()
					stored++
					if err := tx.InsertApproval(ctx, keyserver.Approval{ID: values.IDFromUint64(uint64(stored)), Asker: first.Principal, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		fill(780)
		export := object{"method": "POST", "path": "/api/keys/export", "reason": "for the test", "body": object{"ttag": someLink, "systemId": 1, "principalId": c.to.Principal.ID.Decimal()}}
		if a := is(t, w.ask(t, "encryptor", "POST", "/api/approvals", export), 409, "APPROVAL_LIMIT"); !strings.Contains(a.text("detail"), "duty") {
			t.Errorf("the last places: %s", a.raw)
		}
		w.ok(t, "admin 2", "POST", "/api/approvals", administratorRequest(c.to))
		fill(199)
		is(t, w.ask(t, "admin 2", "POST", "/api/approvals", administratorRequest(c.to)), 409, "APPROVAL_LIMIT")

		// An approval that can no longer be executed does not count.
		w.enable(t, first, false)
		w.ok(t, "admin 2", "POST", "/api/approvals", administratorRequest(c.to))
		w.ok(t, "encryptor", "POST", "/api/approvals", export)
		w.enable(t, first, true)
		w.Clock.Advance(31 * 24 * time.Hour)
		last := w.ok(t, "admin 1", "POST", "/api/approvals", administratorRequest(c.to))
		if list := w.ok(t, "auditor", "GET", "/api/approvals?limit=1000", nil); list.body["count"] == 0.0 || list.body["count"].(float64) > 30 || !strings.Contains(list.raw, last.text("approvalId")) {
			t.Errorf("%v are left", list.body["count"])
		}
	})
}

// TestPagesOfApprovalsAreBounded checks that a page ends when its bodies reach 1 MiB, and that withdrawn approvals are
// deleted later.
func TestPagesOfApprovalsAreBounded(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		w.cast(t)
		large, err := asn1.Marshal(struct{ Filler []byte }{bytes.Repeat([]byte{'A'}, 47_000)})
		fatal(t, err)
		asked := object{"method": "POST", "path": "/api/certificates/enroll", "reason": "for the test", "body": object{
			"certificates": []string{base64.StdEncoding.EncodeToString(large)},
		}}
		for range 40 {
			a := w.ok(t, "admin 1", "POST", "/api/approvals", asked)
			w.ok(t, "admin 1", "POST", at(a.text("approvalId"), "withdraw"), nil)
		}
		for range 20 {
			w.ok(t, "admin 1", "POST", "/api/approvals", asked)
		}
		seen, pages := map[string]bool{}, 0
		for after := ""; ; pages++ {
			page := w.ok(t, "auditor", "GET", "/api/approvals?limit=1000"+after, nil)
			if len(page.raw) > 2<<20 {
				t.Errorf("a page has %d bytes", len(page.raw))
			}
			for _, a := range page.body["approvals"].([]any) {
				seen[a.(object)["approvalId"].(string)] = true
			}
			if page.body["next"] == nil {
				break
			}
			after = "&after=" + page.text("next")
		}
		if pages == 0 || len(seen) != 40 {
			t.Errorf("%d approvals on %d pages", len(seen), pages+1)
		}
	})
}

// TestAskingTellsNothing checks that a request for approval reveals nothing about the objects that it names.
func TestAskingTellsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		asked := w.ok(t, "encryptor", "POST", "/api/approvals", object{"method": "POST", "path": "/api/keys/export", "reason": "for the test",
			"body": object{"ttag": someLink, "systemId": 1, "principalId": c.to.Principal.ID.Decimal()}})
		path := at(asked.text("approvalId"))
		for what, a := range map[string]answer{"asking": asked, "reading": w.ok(t, "encryptor", "GET", path, nil)} {
			for _, s := range a.body["subjects"].([]any) {
				if s := s.(object); s["name"] != nil || s["changed"] != nil || s["type"] != nil || s["people"] != nil {
					t.Errorf("%s tells %v", what, s)
				}
			}
		}
		if a := w.ok(t, "auditor", "GET", "/api/audit?operation=readApprovals", nil); strings.Contains(a.raw, `"refused"`) {
			t.Errorf("nothing was refused, and the trail has %s", a.raw)
		}
		if a := w.ok(t, "auditor", "GET", path, nil); !strings.Contains(a.raw, c.to.Name) || !strings.Contains(a.raw, `"type":"password"`) {
			t.Errorf("who reads approvals is told %s", a.raw)
		}
	})
}
