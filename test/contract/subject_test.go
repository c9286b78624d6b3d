package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// guardedRequest is a request that is approved, and a change that one administrator makes before its execution.
type guardedRequest struct {
	asker  string // session of the requester
	method string
	path   string
	body   rig.Object
	names  string                // name that the refusal must contain
	attack func() (asker string) // makes the change; returns a new session of the requester, or ""
}

// duty returns a request that grants a duty to a principal.
func (s *subject) duty(t *testing.T, id string) guardedRequest {
	return guardedRequest{
		asker: s.AsAdmin(t), method: "PUT", path: "/api/principals/" + id + "/roles", names: id,
		body: rig.Object{"roleIds": hexes(keyserver.RoleAdministrator)},
	}
}

// export returns a request to export a key to a new principal of that name, and its id.
func (s *subject) export(t *testing.T, to string) (guardedRequest, string) {
	agent := s.enroll(t, s.issue(t, to, newKey(t)))[0]
	owner := s.User(t, "owner of "+to, keyserver.RoleEncryptor)
	ttag := s.OK(t, owner.Session, "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}).Text(t, "ttag")
	id, _ := agent["id"].(string)
	return guardedRequest{
		asker: owner.Session, method: "POST", path: "/api/keys/export", names: "1/" + id,
		body: rig.Object{"ttag": ttag, "systemId": 1, "principalId": agent["principalId"]},
	}, id
}

// widens returns an attack that adds operations to a role. Another approval permits it.
func (s *subject) widens(t *testing.T, role string) func() string {
	return func() string {
		s.Approved(t, s.AsAdmin(t), s.Officer, "PUT", "/api/roles/"+role, rig.Object{"operations": hexes(keyserver.OpHMAC.ID, keyserver.OpSetPassword.ID)})
		return ""
	}
}

// byPasswordOf returns an attack that sets the password of a principal.
func (s *subject) byPasswordOf(t *testing.T, id string) func() string {
	return func() string {
		s.OK(t, s.AsAdmin(t), "PUT", passwordOf(id), rig.Object{"password": newPassword})
		return ""
	}
}

func (s *subject) join(t *testing.T, group, member string) {
	t.Helper()
	s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/groups/"+group+"/members/"+member, nil)
}

func (s *subject) role(t *testing.T, name string) string {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/roles", rig.Object{"name": s.name(name), "operations": hexes(keyserver.OpHMAC.ID)}).Text(t, "id")
}

// TestWhatAnApprovalNamesStays checks contract 4.17: an approved request applies to the objects that had its names when
// it was requested. No single administrator can change this. If the objects are unchanged, the request is executed.
func TestWhatAnApprovalNamesStays(t *testing.T) {
	attacks := map[string]func(t *testing.T, s *subject) guardedRequest{
		"PasswordOfWhoGetsADuty": func(t *testing.T, s *subject) guardedRequest {
			id := s.principal(t, t.Name())
			w := s.duty(t, id)
			w.attack = s.byPasswordOf(t, id)
			return w
		},
		"CertificateOfARecipient": func(t *testing.T, s *subject) guardedRequest {
			w, _ := s.export(t, "second key")
			w.attack = func() string { s.enroll(t, s.issue(t, "second key", newKey(t))); return "" }
			return w
		},
		"RecipientReset": func(t *testing.T, s *subject) guardedRequest {
			w, id := s.export(t, "other key")
			w.attack = func() string {
				s.OK(t, s.AsAdmin(t), "POST", "/api/transport-principals/reset", rig.Object{"principalId": id})
				s.enroll(t, s.issue(t, "other key", newKey(t)))
				return ""
			}
			return w
		},
		"PasswordOfTheAsker": func(t *testing.T, s *subject) guardedRequest {
			w, _ := s.export(t, "same key")
			w.names = s.self(t, w.asker)
			set := s.byPasswordOf(t, w.names)
			w.attack = func() string { set(); return s.LogIn(t, s.name("owner of same key"), newPassword) }
			return w
		},
		"AFriendInTheGroup": func(t *testing.T, s *subject) guardedRequest {
			group, friend := s.group(t, t.Name()), s.principal(t, t.Name())
			w := s.duty(t, group)
			w.attack = func() string { s.join(t, group, friend); return "" }
			return w
		},
		"PasswordOfAMember": func(t *testing.T, s *subject) guardedRequest {
			group, friend := s.group(t, t.Name()), s.principal(t, t.Name())
			s.join(t, group, friend)
			w := s.duty(t, group)
			w.attack = s.byPasswordOf(t, friend)
			return w
		},
		"AFriendHoldsTheRole": func(t *testing.T, s *subject) guardedRequest {
			role, friend := s.role(t, t.Name()), s.principal(t, t.Name())
			return guardedRequest{
				asker: s.AsAdmin(t), method: "PUT", path: "/api/roles/" + role, body: rig.Object{"operations": hexes(keyserver.OpSetPassword.ID)}, names: role,
				attack: func() string {
					s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+friend+"/roles", rig.Object{"roleIds": []string{role}})
					return ""
				},
			}
		},
		"WhatTheRoleOfTheGroupGrants": func(t *testing.T, s *subject) guardedRequest {
			role, group, to := s.role(t, t.Name()), s.group(t, t.Name()), s.principal(t, t.Name())
			s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+group+"/roles", rig.Object{"roleIds": []string{role}})
			return guardedRequest{
				asker: s.AsAdmin(t), method: "PUT", path: "/api/principals/groups/" + group + "/members/" + to, names: group,
				attack: s.widens(t, role),
			}
		},
		"WhatWhoGetsACertificateMayDo": func(t *testing.T, s *subject) guardedRequest {
			role := s.role(t, t.Name())
			agent := s.enroll(t, s.issue(t, t.Name(), newKey(t)))[0]
			id, _ := agent["id"].(string)
			s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+id+"/roles", rig.Object{"roleIds": []string{role}})
			w := s.duty(t, id)
			w.attack = s.widens(t, role)
			return w
		},
		"WhatTheRoleGrants": func(t *testing.T, s *subject) guardedRequest {
			role, to := s.role(t, t.Name()), s.principal(t, t.Name())
			w := s.duty(t, to)
			w.body, w.names = rig.Object{"roleIds": append(hexes(keyserver.RoleAdministrator), role)}, role
			w.attack = func() string {
				s.OK(t, s.AsAdmin(t), "PUT", "/api/roles/"+role, rig.Object{"operations": hexes(keyserver.OpHMAC.ID, keyserver.OpReadKey.ID)})
				return ""
			}
			return w
		},
	}
	on(t, func(t *testing.T, s *subject) {
		for name, prepare := range attacks {
			t.Run(name, func(t *testing.T) { s.withstands(t, prepare(t, s)) })
		}
	}, split)
}

// TestANewDataKeyVoidsNoApproval checks that rewrapping a key does not change its identity.
func TestANewDataKeyVoidsNoApproval(t *testing.T) {
	own(t, func(t *testing.T, s *subject) {
		w, _ := s.export(t, "data key")
		asked := s.OK(t, w.asker, "POST", "/api/approvals", rig.Object{"method": w.method, "path": w.path, "body": w.body, "reason": "for a test"})
		s.Approve(t, s.Officer, asked)
		s.OK(t, s.AsAdmin(t), "POST", "/api/custody/rotate", nil)
		rig.Soon(t, "the first data key is retired", func() bool {
			return s.OK(t, s.AsAdmin(t), "GET", "/api/custody", nil).List(t, "dataKeys")[0]["state"] == "retired"
		})
		s.OK(t, w.asker, "POST", "/api/approvals/"+asked.Text(t, "approvalId")+"/execute", nil)
	}, divided)
}

// withstands makes the attack on two approvals: between the vote and the execution of the first one, and before any
// vote of the second one.
func (s *subject) withstands(t *testing.T, w guardedRequest) {
	t.Helper()
	ask := func() rig.Answer {
		asked := rig.Object{"method": w.method, "path": w.path, "reason": "for a test"}
		if w.body != nil {
			asked["body"] = w.body
		}
		return s.OK(t, w.asker, "POST", "/api/approvals", asked)
	}
	at := func(a rig.Answer, what string) string { return "/api/approvals/" + a.Text(t, "approvalId") + what }
	approved, pending := ask(), ask()
	s.Approve(t, s.Officer, approved)
	reader := s.As(t, s.Officer.Name, s.Officer.Password) // the requester may not be allowed to read all details
	if seen := s.OK(t, reader, "GET", at(approved, ""), nil); !names(t, seen, w.names, false) {
		t.Errorf("before, it is about %s", seen.Raw)
	}
	if as := w.attack(); as != "" {
		w.asker = as
	}
	refused := s.Refused(t, w.asker, "POST", at(approved, "/execute"), nil, http.StatusConflict, "APPROVAL_STATE")
	if !strings.Contains(refused.Text(t, "detail"), w.names+" has changed since approval was requested") {
		t.Errorf("the refusal does not name %s: %s", w.names, refused.Raw)
	}
	if seen := s.OK(t, reader, "GET", at(approved, ""), nil); !names(t, seen, w.names, true) || seen.Text(t, "state") != "approved" {
		t.Errorf("after, it is %s", seen.Raw)
	}
	if err := s.TryToApprove(t, s.Officer, pending); err == nil || !strings.Contains(err.Error(), "has changed since approval was requested") {
		t.Errorf("approving what changed: %v", err)
	}
	again := ask()
	s.Approve(t, s.Officer, again)
	s.LogIn(t, s.Administrator.Name, s.Administrator.Password) // a login changes no named object
	s.OK(t, w.asker, "POST", at(again, "/execute"), nil)
}

// names reports whether an approval lists the subject with its name and the expected value of changed.
func names(t testing.TB, a rig.Answer, id string, changed bool) bool {
	t.Helper()
	for _, s := range a.List(t, "subjects") {
		if s["id"] == id {
			return s["name"] != nil && s["changed"] == changed
		}
	}
	return false
}
