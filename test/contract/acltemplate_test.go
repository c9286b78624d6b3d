package contract

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const noID = "00000000deadbeef"

// template makes an ACL template and returns its id.
func (s *subject) template(t testing.TB, session, name string) string {
	t.Helper()
	return s.ok(t, session, "POST", "/api/acl-templates", object{"name": name}).text(t, "id")
}

// On a split deployment Administrator receives 403 on templates and
// directories; the Security Officer does the work, the Auditor reads.
func TestTemplatesOnASplitDeployment(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		_, pair := s.holder(t, keyserver.RoleExchanger)
		id := s.template(t, officer, "t")
		directory := s.ok(t, officer, "POST", "/api/templated-directories", object{"path": "/a", "aclTemplateId": id}).text(t, "id")
		path := "/api/acl-templates/" + id
		member := join(pair, object{"rights": []string{"READ"}})
		calls := []struct {
			method, path string
			body         any
			auditor      string // the code that an auditor gets, who may read
		}{
			{"GET", "/api/acl-templates", nil, ""},
			{"POST", "/api/acl-templates", object{"name": "x"}, "ACCESS_DENIED"},
			{"PUT", path, object{"name": "x"}, "NOT_WRITABLE"},
			{"DELETE", path, nil, "ACCESS_DENIED"},
			{"GET", path + "/members", nil, ""},
			{"POST", path + "/members", member, "NOT_WRITABLE"},
			{"DELETE", path + "/members/1/1", nil, "NOT_WRITABLE"},
			{"GET", "/api/templated-directories", nil, ""},
			{"POST", "/api/templated-directories", object{"path": "/b", "aclTemplateId": id}, "ACCESS_DENIED"},
			{"DELETE", "/api/templated-directories/" + directory, nil, "ACCESS_DENIED"},
		}
		for _, c := range calls {
			s.refused(t, "", c.method, c.path, c.body, http.StatusUnauthorized, "SESSION_NOT_FOUND")
			for _, role := range []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger} {
				s.refused(t, s.with(t, role), c.method, c.path, c.body, http.StatusForbidden, "ACCESS_DENIED")
			}
			s.refused(t, s.admin(t), c.method, c.path, c.body, http.StatusForbidden, "ACCESS_DENIED")
			if c.auditor == "" {
				s.ok(t, s.with(t, keyserver.RoleAuditor), c.method, c.path, c.body)
			} else {
				s.refused(t, s.with(t, keyserver.RoleAuditor), c.method, c.path, c.body, http.StatusForbidden, c.auditor)
			}
		}
		s.ok(t, officer, "PUT", path, object{"name": "renamed"})
		s.ok(t, officer, "POST", path+"/members", member)
	}, split)
}

// PUT /api/acl-templates/{id}: rename, by a write-holding member.
func TestRenameACLTemplate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		id := s.template(t, admin, "before")
		s.template(t, admin, "taken")
		path := "/api/acl-templates/" + id
		refusals := map[string]struct {
			path   string
			body   any
			status int
			code   string
			names  string
		}{
			"MalformedID": {"/api/acl-templates/xyz", object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"DecimalID":   {"/api/acl-templates/12345", object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"Unknown":     {"/api/acl-templates/" + noID, object{"name": "x"}, 404, "NOT_FOUND", ""},
			"NoName":      {path, object{}, 400, "BAD_REQUEST", "name"},
			"EmptyName":   {path, object{"name": ""}, 400, "BAD_REQUEST", "name"},
			"BlankName":   {path, object{"name": "  "}, 400, "BAD_REQUEST", "name"},
			"NameOnly":    {path, object{"name": "x", "members": []any{}}, 400, "BAD_REQUEST", "members"},
			"Taken":       {path, object{"name": "taken"}, 409, "ALREADY_EXISTS", ""},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.refused(t, admin, "PUT", tc.path, tc.body, tc.status, tc.code)
				if detail, _ := a.body["detail"].(string); !strings.Contains(detail, tc.names) {
					t.Errorf("the detail %q does not name %q", detail, tc.names)
				}
			})
		}

		// The caller must be a member that holds WRITE.
		officer, pair := s.holder(t, keyserver.RoleSecurityOfficer)
		s.refused(t, officer, "PUT", path, object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		s.ok(t, admin, "POST", path+"/members", join(pair, object{"rights": []string{"READ"}}))
		s.refused(t, officer, "PUT", path, object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		over := stamp(time.Now().Add(-time.Hour))
		s.ok(t, admin, "POST", path+"/members", join(pair, object{"rights": []string{"WRITE"}, "endTime": over}))
		s.refused(t, officer, "PUT", path, object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		s.ok(t, admin, "POST", path+"/members", join(pair, object{"rights": []string{"WRITE"}}))

		a := s.ok(t, officer, "PUT", path, object{"name": "  after "})
		if a.body["saved"] != true || a.body["id"] != id || a.body["requested"] != "after" || a.text(t, "template", "name") != "after" {
			t.Errorf("renamed: %s", a.raw)
		}
		if _, there := a.body["missing"]; there {
			t.Errorf("missing is there although nothing is: %s", a.raw)
		}
		// The name it has is a name to save, too.
		s.ok(t, officer, "PUT", path, object{"name": "after"})
	})
}

// A group's membership counts for those who are in the group.
func TestAGroupWritesATemplate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		path := "/api/acl-templates/" + s.template(t, admin, "t")
		officer, _ := s.holder(t, keyserver.RoleSecurityOfficer)
		me := s.ok(t, officer, "GET", "/api/sessions/current", nil).text(t, "principal", "id")
		group := s.ok(t, admin, "POST", "/api/principals/groups", object{"name": "writers"})
		pair := object{"systemId": group.at(t, "principal", "systemId"), "principalId": group.text(t, "principal", "principalId")}
		s.ok(t, admin, "POST", path+"/members", join(pair, object{"rights": []string{"WRITE"}}))
		s.refused(t, officer, "PUT", path, object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		s.ok(t, admin, "PUT", "/api/principals/groups/"+group.text(t, "principal", "id")+"/members/"+me, nil)
		s.ok(t, officer, "PUT", path, object{"name": "x"})
	})
}

// GET, POST and DELETE of templates: the creator owns, and a template in use stays.
func TestACLTemplates(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		if a := s.ok(t, admin, "GET", "/api/acl-templates", nil); a.body["count"] != float64(0) || len(a.list(t, "templates")) != 0 {
			t.Errorf("a fresh server lists %s", a.raw)
		}
		s.refused(t, admin, "POST", "/api/acl-templates", object{"name": " "}, http.StatusBadRequest, "BAD_REQUEST")
		a := s.ok(t, admin, "POST", "/api/acl-templates", object{"name": " t "})
		id := a.text(t, "id")
		if a.body["saved"] != true || a.text(t, "template", "name") != "t" || a.at(t, "template", "writable") != true {
			t.Errorf("created: %s", a.raw)
		}
		s.refused(t, admin, "POST", "/api/acl-templates", object{"name": "t"}, http.StatusConflict, "ALREADY_EXISTS")
		path := "/api/acl-templates/" + id
		me := s.ok(t, admin, "GET", "/api/sessions/current", nil)
		members := s.ok(t, admin, "GET", path+"/members", nil).list(t, "members")
		if len(members) != 1 || members[0]["principalId"] != me.text(t, "principal", "principalId") || members[0]["rights"] != float64(7) {
			t.Errorf("the creator is not the first member with OWNER: %v", members)
		}
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		if list := s.ok(t, officer, "GET", "/api/acl-templates", nil).list(t, "templates"); len(list) != 1 || list[0]["writable"] != false || list[0]["memberCount"] != float64(1) {
			t.Errorf("somebody who is no member sees %v", list)
		}

		directory := s.ok(t, admin, "POST", "/api/templated-directories", object{"path": "/a", "aclTemplateId": id}).text(t, "id")
		s.refused(t, admin, "DELETE", "/api/acl-templates/"+noID, nil, http.StatusNotFound, "NOT_FOUND")
		s.refused(t, admin, "DELETE", path, nil, http.StatusConflict, "IN_USE")
		s.ok(t, admin, "DELETE", "/api/templated-directories/"+directory, nil)
		// Deleting asks for the role alone, so that a template outlives its
		// members only until somebody wants it gone.
		a = s.ok(t, officer, "DELETE", path, nil)
		if a.body["gone"] != true || a.text(t, "template", "name") != "t" {
			t.Errorf("deleted: %s", a.raw)
		}
		s.refused(t, admin, "DELETE", path, nil, http.StatusNotFound, "NOT_FOUND")
		s.refused(t, admin, "GET", path+"/members", nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// /api/acl-templates/{id}/members: the fields of the ACL routes, decimal
// spellings, widening, and a last writer who stays.
func TestACLTemplateMembers(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		path := "/api/acl-templates/" + s.template(t, admin, "t") + "/members"
		_, pair := s.holder(t, keyserver.RoleExchanger)
		good := join(pair, object{"rights": []string{"READ"}})
		for name, change := range map[string]object{
			"RightsNone":     {"rights": 0},
			"RightsUnknown":  {"rights": []string{"RAED"}},
			"RightsBeyond":   {"rights": 32},
			"MaxUsageBelow":  {"maxUsage": -2},
			"MaxUsageTypo":   {"maxusage": 5},
			"StampShort":     {"startTime": b64(make([]byte, 7))},
			"Backwards":      {"startTime": stamp(time.Unix(2000, 0)), "endTime": stamp(time.Unix(1000, 0))},
			"PrincipalHex":   {"principalId": "00000000000000ff"},
			"PrincipalZero":  {"principalId": 0},
			"SystemNegative": {"systemId": -1},
		} {
			t.Run(name, func(t *testing.T) {
				s.refused(t, admin, "POST", path, join(good, change), http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.refused(t, admin, "POST", path, join(good, object{"principalId": "12345"}), http.StatusNotFound, "NOT_FOUND")
		s.refused(t, admin, "POST", "/api/acl-templates/"+noID+"/members", good, http.StatusNotFound, "NOT_FOUND")
		s.refused(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", path, good, http.StatusForbidden, "NOT_WRITABLE")
		if n := s.ok(t, admin, "GET", path, nil).body["count"]; n != float64(1) {
			t.Fatalf("refused members are there: %v", n)
		}

		end := stamp(time.Now().Add(time.Hour))
		a := s.ok(t, admin, "POST", path, join(pair, object{"rights": []string{"WRITE"}, "maxUsage": 3, "endTime": end}))
		if a.body["saved"] != true || a.body["requestedRights"] != float64(2) || a.at(t, "member", "rights") != float64(3) ||
			a.at(t, "member", "maxUsage") != float64(3) || a.at(t, "member", "endTime") != end || a.at(t, "member", "startTimeUnset") != true {
			t.Errorf("widened: %s", a.raw)
		}
		a = s.ok(t, admin, "POST", path, good)
		if a.at(t, "member", "rights") != float64(1) || a.at(t, "member", "maxUsage") != float64(-1) || len(a.list(t, "members")) != 2 {
			t.Errorf("a member is set to exactly what is asked for: %s", a.raw)
		}

		who := s.ok(t, admin, "GET", "/api/sessions/current", nil)
		me := object{"systemId": who.at(t, "principal", "systemId"), "principalId": who.text(t, "principal", "principalId")}
		mine := path + "/1/" + who.text(t, "principal", "principalId")
		theirs := path + "/1/" + pair["principalId"].(string)
		for name, bad := range map[string]string{
			"Hex": path + "/1/00000000000000ff", "Zeros": path + "/01/5", "Signed": path + "/1/-5", "System": path + "/x/5", "Large": path + "/4294967296/5",
			"Zero": path + "/1/0",
		} {
			t.Run("Delete"+name, func(t *testing.T) {
				s.refused(t, admin, "DELETE", bad, nil, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.refused(t, admin, "DELETE", path+"/1/12345", nil, http.StatusNotFound, "NOT_FOUND")
		s.refused(t, admin, "DELETE", path+"/2/"+pair["principalId"].(string), nil, http.StatusNotFound, "NOT_FOUND")
		s.refused(t, admin, "DELETE", mine, nil, http.StatusConflict, "LAST_WRITER")
		s.refused(t, admin, "POST", path, join(me, object{"rights": []string{"READ"}}), http.StatusConflict, "LAST_WRITER")
		s.refused(t, admin, "POST", path, join(me, object{"rights": []string{"OWNER"}, "endTime": end}), http.StatusConflict, "LAST_WRITER")
		a = s.ok(t, admin, "DELETE", theirs, nil)
		if a.body["gone"] != true || a.body["principalId"] != pair["principalId"] || len(a.list(t, "members")) != 1 {
			t.Errorf("removed: %s", a.raw)
		}
		// With another writer the first may leave, and is none then.
		s.ok(t, admin, "POST", path, join(pair, object{"rights": []string{"WRITE"}}))
		s.ok(t, admin, "DELETE", mine, nil)
		s.refused(t, admin, "DELETE", theirs, nil, http.StatusForbidden, "NOT_WRITABLE")
	})
}
