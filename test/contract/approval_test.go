package contract

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestApprovalsOverTwoReplicas checks contract 4.12 to 4.15: a request that one replica receives is approved at another
// replica, and executed once by any replica. With an embedded database, one process has both parts.
func TestApprovalsOverTwoReplicas(t *testing.T) {
	replicated(t, func(t *testing.T, here, there *subject) {
		defer here.keepPolicy(t)()
		admin, to := here.AsAdmin(t), here.principal(t, "to")
		path, body := "/api/principals/"+to+"/roles", rig.Object{"roleIds": hexes(keyserver.RoleAdministrator)}
		there.Refused(t, admin, "PUT", path, body, http.StatusForbidden, "APPROVAL_REQUIRED")
		asked := here.OK(t, admin, "POST", "/api/approvals", rig.Object{"method": "PUT", "path": path, "body": body, "reason": "for a test"})
		there.Approve(t, there.Officer, asked)
		id := asked.Text(t, "approvalId")
		execute := "/api/approvals/" + id + "/execute"

		answers := make([]rig.Answer, 8)
		var all sync.WaitGroup
		for i := range answers {
			s := []*subject{here, there}[i%2]
			all.Go(func() { answers[i] = s.Send(t, admin, "POST", execute, nil) })
		}
		all.Wait()
		done := 0
		for _, a := range answers {
			if a.Status == http.StatusOK {
				done++
				rows := here.Rows(t, a.RequestID)
				for _, row := range rows {
					if row["approval"] != id && row["operation"] != "readApprovals" {
						t.Errorf("a row without the approval: %v", row)
					}
				}
				if trail := rig.FormatRows(rows); !strings.Contains(trail, "executeApproval allowed") || !strings.Contains(trail, "updatePrincipalRoles allowed") {
					t.Errorf("the trail has %s", trail)
				}
			} else {
				is(t, a, http.StatusConflict, "APPROVAL_STATE")
			}
		}
		if done != 1 {
			t.Errorf("it was executed %d times", done)
		}
		if p := there.OK(t, admin, "GET", "/api/principals/"+to, nil); !strings.Contains(string(p.Raw), keyserver.RoleAdministrator.Hex()) {
			t.Errorf("it had no effect: %s", p.Raw)
		}

		// A policy takes effect on all replicas, and changing the policy itself needs an approval.
		const policy = "/api/approvals/policy"
		here.Refused(t, admin, "PUT", policy, rig.Object{"rules": []rig.Object{}}, http.StatusForbidden, "APPROVAL_REQUIRED")
		guards := rig.Object{"rules": []rig.Object{{"operation": "listRoles", "approvers": 1, "duty": "any"}}}
		here.OK(t, admin, "GET", "/api/roles", nil)
		there.OK(t, admin, "GET", "/api/roles", nil)
		here.Approved(t, admin, here.Officer, "PUT", policy, guards)
		there.Until(t, rig.Request{Session: admin, Method: "GET", Path: "/api/roles"}, http.StatusForbidden, "APPROVAL_REQUIRED")
		there.OK(t, admin, "PUT", policy, rig.Object{"rules": []rig.Object{}})
		here.Until(t, rig.Request{Session: admin, Method: "GET", Path: "/api/roles"}, http.StatusOK, "")
	}, split, alone)
}

// keepPolicy returns a function that restores the current approval policy. Call it when that needs no approval.
func (s *subject) keepPolicy(t *testing.T) (restore func()) {
	t.Helper()
	const policy = "/api/approvals/policy"
	rules := s.OK(t, s.AsAdmin(t), "GET", policy, nil).Body["rules"]
	return func() { s.OK(t, s.AsAdmin(t), "PUT", policy, rig.Object{"rules": rules}) }
}

// TestApprovalsAreReadAndFew checks contract 4.12 and 4.13: a vote contains the digest of the request, and the
// number of pending requests of one requester is limited.
func TestApprovalsAreReadAndFew(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		body := rig.Object{
			"method": "PUT", "path": "/api/principals/" + s.principal(t, "to") + "/roles", "reason": "for a test",
			"body": rig.Object{"roleIds": hexes(keyserver.RoleAdministrator)},
		}
		asked := s.OK(t, s.AsAdmin(t), "POST", "/api/approvals", body)
		misread := rig.Answer{Body: maps.Clone(asked.Body)}
		misread.Body["digest"] = strings.Repeat("0", 64)
		var refused *client.Error
		if err := s.TryToApprove(t, s.Officer, misread); !errors.As(err, &refused) || refused.Status != http.StatusConflict || refused.Code != "DIGEST_MISMATCH" {
			t.Errorf("what was not read was approved: %v", err)
		} else {
			seen.add(refused.Code)
		}
		for range 19 {
			s.OK(t, s.AsAdmin(t), "POST", "/api/approvals", body)
		}
		s.Refused(t, s.AsAdmin(t), "POST", "/api/approvals", body, http.StatusConflict, "APPROVAL_LIMIT")
		s.Approve(t, s.Officer, asked)
		s.OK(t, s.AsAdmin(t), "POST", "/api/approvals/"+asked.Text(t, "approvalId")+"/execute", nil)
		s.OK(t, s.AsAdmin(t), "POST", "/api/approvals", body)
	}, split)
}

// TestDestroyingTakesAnApproval checks contract 4.12: in a split deployment no principal can destroy a key
// without an approval, from the first start on.
func TestDestroyingTakesAnApproval(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		owner := s.with(t, keyserver.RoleEncryptor)
		link := s.OK(t, owner, "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}).Text(t, "ttag")
		const path = "/api/keys/destroy"
		body := rig.Object{"ttag": link, "afterDays": 7}
		s.Refused(t, owner, "POST", path, body, http.StatusForbidden, "APPROVAL_REQUIRED")
		if got := s.facts(t, owner, link)["state"]; got != "enabled" {
			t.Errorf("the key is %v after a refusal", got)
		}
		// Changes that can be undone immediately need no approval.
		s.turn(t, owner, "disable", rig.Object{"ttag": link})
		s.turn(t, owner, "enable", rig.Object{"ttag": link})
		s.Refused(t, owner, "POST", "/api/approvals", rig.Object{
			"method": "POST", "path": "/api/keys/disable", "body": rig.Object{"ttag": link}, "reason": "for a test",
		}, http.StatusBadRequest, "INVALID_ARGUMENT")

		if a := s.Approved(t, owner, s.Officer, "POST", path, body); a.Body["state"] != "destroying" || a.Body["saved"] != true {
			t.Errorf("approved: %s", a.Raw)
		}
		s.turn(t, owner, "restore", rig.Object{"ttag": link})
		s.Refused(t, owner, "POST", path, body, http.StatusForbidden, "APPROVAL_REQUIRED")
	}, split)
}

// TestBreakGlass checks contract 4.16: with --break-glass, no request needs an approval until the process ends, and the
// audit log records the break-glass mode.
func TestBreakGlass(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		to := s.principal(t, "to")
		path, body := "/api/principals/"+to+"/roles", rig.Object{"roleIds": hexes(keyserver.RoleAdministrator)}
		s.Refused(t, s.AsAdmin(t), "PUT", path, body, http.StatusForbidden, "APPROVAL_REQUIRED")
		s.Stop(t)
		s.Restart(t, func(c *server.Config) { c.BreakGlass = true })
		s.HTTP.CloseIdleConnections()
		a := s.OK(t, s.AsAdmin(t), "PUT", path, body)
		if trail := rig.FormatRows(s.Rows(t, a.RequestID)); !strings.Contains(trail, `"breakGlass allowed" "updatePrincipalRoles allowed"`) {
			t.Errorf("the trail has %s", trail)
		}
		s.Stop(t)
		s.Restart(t, func(c *server.Config) { c.BreakGlass = false })
		s.HTTP.CloseIdleConnections()
		s.Refused(t, s.AsAdmin(t), "PUT", "/api/principals/"+s.principal(t, "another")+"/roles", body, http.StatusForbidden, "APPROVAL_REQUIRED")
	}, split, alone)
}

// TestApprovalsKeepNoSecret checks contract 4.13: a request that contains a secret is not stored, so that no list of
// approvals contains it.
func TestApprovalsKeepNoSecret(t *testing.T) {
	s := one(t, alone)
	before := s.OK(t, s.AsAdmin(t), "GET", "/api/approvals", nil).Body["count"]
	s.OK(t, s.AsAdmin(t), "PUT", "/api/approvals/policy", rig.Object{"rules": []rig.Object{}})
	a := s.Refused(t, s.AsAdmin(t), "POST", "/api/approvals", rig.Object{
		"method": "POST", "path": "/api/principals/password", "reason": "for a test",
		"body": rig.Object{"name": "n", "password": somePassword, "roleIds": hexes(keyserver.RoleAdministrator)},
	}, http.StatusBadRequest, "BAD_REQUEST")
	if strings.Contains(string(a.Raw), somePassword) {
		t.Errorf("the refusal shows it: %s", a.Raw)
	}
	if list := s.OK(t, s.AsAdmin(t), "GET", "/api/approvals", nil); list.Body["count"] != before {
		t.Errorf("something was kept: %s", list.Raw)
	}
}
