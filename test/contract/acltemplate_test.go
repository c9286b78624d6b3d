package contract

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const noID = "00000000deadbeef"

func (s *subject) template(t testing.TB, session, name string) string {
	t.Helper()
	return s.OK(t, session, "POST", "/api/acl-templates", rig.Object{"name": s.name(name)}).Text(t, "id")
}

// TestTemplatesOnASplitDeployment checks that the Administrator gets 403 for templates and directories. The
// Security Officer manages them, and the Auditor reads them.
func TestTemplatesOnASplitDeployment(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		_, pair := s.holder(t, keyserver.RoleExchanger)
		id := s.template(t, officer, "t")
		directory := s.OK(t, officer, "POST", "/api/templated-directories", rig.Object{"path": s.path("/a"), "aclTemplateId": id}).Text(t, "id")
		path := "/api/acl-templates/" + id
		member := join(pair, rig.Object{"rights": []string{"READ"}})
		calls := []struct {
			method, path string
			body         any
			auditor      string // the code that an auditor gets
		}{
			{"GET", "/api/acl-templates", nil, ""},
			{"POST", "/api/acl-templates", rig.Object{"name": "x"}, "ACCESS_DENIED"},
			{"PUT", path, rig.Object{"name": "x"}, "NOT_WRITABLE"},
			{"DELETE", path, nil, "ACCESS_DENIED"},
			{"GET", path + "/members", nil, ""},
			{"POST", path + "/members", member, "NOT_WRITABLE"},
			{"DELETE", path + "/members/1/1", nil, "NOT_WRITABLE"},
			{"GET", "/api/templated-directories", nil, ""},
			{"POST", "/api/templated-directories", rig.Object{"path": s.path("/b"), "aclTemplateId": id}, "ACCESS_DENIED"},
			{"DELETE", "/api/templated-directories/" + directory, nil, "ACCESS_DENIED"},
		}
		for _, c := range calls {
			s.Refused(t, "", c.method, c.path, c.body, http.StatusUnauthorized, "SESSION_NOT_FOUND")
			for _, role := range []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger} {
				s.Refused(t, s.with(t, role), c.method, c.path, c.body, http.StatusForbidden, "ACCESS_DENIED")
			}
			s.Refused(t, s.AsAdmin(t), c.method, c.path, c.body, http.StatusForbidden, "ACCESS_DENIED")
			if c.auditor == "" {
				s.OK(t, s.with(t, keyserver.RoleAuditor), c.method, c.path, c.body)
			} else {
				s.Refused(t, s.with(t, keyserver.RoleAuditor), c.method, c.path, c.body, http.StatusForbidden, c.auditor)
			}
		}
		s.OK(t, officer, "PUT", path, rig.Object{"name": s.name("renamed")})
		s.OK(t, officer, "POST", path+"/members", member)
	}, split)
}

// TestRenameACLTemplate checks PUT /api/acl-templates/{id}: a member with WRITE renames a template.
func TestRenameACLTemplate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
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
			"MalformedID": {"/api/acl-templates/xyz", rig.Object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"DecimalID":   {"/api/acl-templates/12345", rig.Object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"Unknown":     {"/api/acl-templates/" + noID, rig.Object{"name": "x"}, 404, "NOT_FOUND", ""},
			"NoName":      {path, rig.Object{}, 400, "BAD_REQUEST", "name"},
			"EmptyName":   {path, rig.Object{"name": ""}, 400, "BAD_REQUEST", "name"},
			"BlankName":   {path, rig.Object{"name": " \t\n"}, 400, "BAD_REQUEST", "name"},
			"TwoLines":    {path, rig.Object{"name": "a\nb"}, 400, "BAD_REQUEST", "name"},
			"NameOnly":    {path, rig.Object{"name": "x", "members": []any{}}, 400, "BAD_REQUEST", "members"},
			"Taken":       {path, rig.Object{"name": s.name("taken")}, 409, "ALREADY_EXISTS", ""},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.Refused(t, admin, "PUT", tc.path, tc.body, tc.status, tc.code)
				if detail, _ := a.Body["detail"].(string); !strings.Contains(detail, tc.names) {
					t.Errorf("the detail %q does not name %q", detail, tc.names)
				}
			})
		}

		// The caller must be a member with WRITE.
		officer, pair := s.holder(t, keyserver.RoleSecurityOfficer)
		s.Refused(t, officer, "PUT", path, rig.Object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		s.OK(t, admin, "POST", path+"/members", join(pair, rig.Object{"rights": []string{"READ"}}))
		s.Refused(t, officer, "PUT", path, rig.Object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		over := stamp(time.Now().Add(-time.Hour))
		s.OK(t, admin, "POST", path+"/members", join(pair, rig.Object{"rights": []string{"WRITE"}, "endTime": over}))
		s.Refused(t, officer, "PUT", path, rig.Object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		s.OK(t, admin, "POST", path+"/members", join(pair, rig.Object{"rights": []string{"WRITE"}}))

		after := s.name("after")
		a := s.OK(t, officer, "PUT", path, rig.Object{"name": "\r\n\t " + after + "\n" + strings.Repeat(" ", 128)})
		if a.Body["saved"] != true || a.Body["id"] != id || a.Body["requested"] != after || a.Text(t, "template", "name") != after {
			t.Errorf("renamed: %s", a.Raw)
		}
		if _, there := a.Body["missing"]; there {
			t.Errorf("missing is there although nothing is: %s", a.Raw)
		}
		// Saving the current name is allowed.
		s.OK(t, officer, "PUT", path, rig.Object{"name": after})
	})
}

// TestAGroupWritesATemplate checks that the members of a group have the group's rights on a template.
func TestAGroupWritesATemplate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		path := "/api/acl-templates/" + s.template(t, admin, "t")
		officer, _ := s.holder(t, keyserver.RoleSecurityOfficer)
		me := s.OK(t, officer, "GET", "/api/sessions/current", nil).Text(t, "principal", "id")
		group := s.OK(t, admin, "POST", "/api/principals/groups", rig.Object{"name": s.name("writers")})
		pair := rig.Object{"systemId": group.At(t, "principal", "systemId"), "principalId": group.Text(t, "principal", "principalId")}
		s.OK(t, admin, "POST", path+"/members", join(pair, rig.Object{"rights": []string{"WRITE"}}))
		s.Refused(t, officer, "PUT", path, rig.Object{"name": "x"}, http.StatusForbidden, "NOT_WRITABLE")
		s.OK(t, admin, "PUT", "/api/principals/groups/"+group.Text(t, "principal", "id")+"/members/"+me, nil)
		s.OK(t, officer, "PUT", path, rig.Object{"name": s.name("x")})
	})
}

// TestACLTemplates checks GET, POST and DELETE of templates: the creator becomes owner, and a template in use
// cannot be deleted.
func TestACLTemplates(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		s.Refused(t, admin, "POST", "/api/acl-templates", rig.Object{"name": " "}, http.StatusBadRequest, "BAD_REQUEST")
		a := s.OK(t, admin, "POST", "/api/acl-templates", rig.Object{"name": " " + s.name("t") + " "})
		id := a.Text(t, "id")
		if a.Body["saved"] != true || a.Text(t, "template", "name") != s.name("t") || a.At(t, "template", "writable") != true {
			t.Errorf("created: %s", a.Raw)
		}
		s.Refused(t, admin, "POST", "/api/acl-templates", rig.Object{"name": s.name("t")}, http.StatusConflict, "ALREADY_EXISTS")
		path := "/api/acl-templates/" + id
		listed := func(session, query string) rig.Object {
			t.Helper()
			list := s.OK(t, session, "GET", "/api/acl-templates"+query, nil).List(t, "templates")
			at := slices.IndexFunc(list, func(o rig.Object) bool { return o["id"] == id })
			if at < 0 {
				t.Fatalf("%s is not among %v", id, list)
			}
			return list[at]
		}
		me := s.OK(t, admin, "GET", "/api/sessions/current", nil)
		members := s.OK(t, admin, "GET", path+"/members", nil).List(t, "members")
		if len(members) != 1 || members[0]["principalId"] != me.Text(t, "principal", "principalId") || members[0]["rights"] != float64(7) {
			t.Errorf("the creator is not the first member with OWNER: %v", members)
		}
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		if seen := listed(officer, ""); seen["writable"] != false || seen["memberCount"] != float64(1) {
			t.Errorf("somebody who is no member sees %v", seen)
		}

		digest := func() any {
			t.Helper()
			digest := listed(officer, "?includeDigests=true")["membersDigest"]
			if alone := s.OK(t, admin, "GET", path+"/members", nil).Body["digest"]; digest == "" || digest != alone {
				t.Errorf("the digest is %v in the list, and %v alone", digest, alone)
			}
			return digest
		}
		before := digest()
		s.OK(t, admin, "POST", path+"/members", join(rig.Object{"systemId": members[0]["systemId"], "principalId": members[0]["principalId"]}, rig.Object{"rights": []string{"OWNER"}, "maxUsage": 5}))
		if digest() == before {
			t.Error("other members, and the same digest")
		}
		if _, there := listed(officer, "")["membersDigest"]; there {
			t.Error("a digest that nobody asked for")
		}

		directory := s.OK(t, admin, "POST", "/api/templated-directories", rig.Object{"path": s.path("/a"), "aclTemplateId": id}).Text(t, "id")
		s.Refused(t, admin, "DELETE", "/api/acl-templates/"+noID, nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "DELETE", path, nil, http.StatusConflict, "IN_USE")
		s.OK(t, admin, "DELETE", "/api/templated-directories/"+directory, nil)
		// Deleting requires only the role. So a template without members can be deleted, too.
		a = s.OK(t, officer, "DELETE", path, nil)
		if a.Body["gone"] != true || a.Text(t, "template", "name") != s.name("t") {
			t.Errorf("deleted: %s", a.Raw)
		}
		s.Refused(t, admin, "DELETE", path, nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "GET", path+"/members", nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// TestACLTemplateMembers checks /api/acl-templates/{id}/members: the fields of the ACL routes, decimal ids, added
// rights, and that the last member with WRITE cannot be removed.
func TestACLTemplateMembers(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		path := "/api/acl-templates/" + s.template(t, admin, "t") + "/members"
		_, pair := s.holder(t, keyserver.RoleExchanger)
		good := join(pair, rig.Object{"rights": []string{"READ"}})
		for name, change := range map[string]rig.Object{
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
				s.Refused(t, admin, "POST", path, join(good, change), http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, admin, "POST", path, join(good, rig.Object{"principalId": "12345"}), http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "POST", "/api/acl-templates/"+noID+"/members", good, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", path, good, http.StatusForbidden, "NOT_WRITABLE")
		if n := s.OK(t, admin, "GET", path, nil).Body["count"]; n != float64(1) {
			t.Fatalf("refused members are there: %v", n)
		}

		end := stamp(time.Now().Add(time.Hour))
		a := s.OK(t, admin, "POST", path, join(pair, rig.Object{"rights": []string{"WRITE"}, "maxUsage": 3, "endTime": end}))
		if a.Body["saved"] != true || a.Body["requestedRights"] != float64(2) || a.At(t, "member", "rights") != float64(3) ||
			a.At(t, "member", "maxUsage") != float64(3) || a.At(t, "member", "endTime") != end || a.At(t, "member", "startTimeUnset") != true {
			t.Errorf("widened: %s", a.Raw)
		}
		a = s.OK(t, admin, "POST", path, good)
		if a.At(t, "member", "rights") != float64(1) || a.At(t, "member", "maxUsage") != float64(-1) || len(a.List(t, "members")) != 2 {
			t.Errorf("a member is set to exactly what is asked for: %s", a.Raw)
		}

		who := s.OK(t, admin, "GET", "/api/sessions/current", nil)
		me := rig.Object{"systemId": who.At(t, "principal", "systemId"), "principalId": who.Text(t, "principal", "principalId")}
		mine := path + "/1/" + who.Text(t, "principal", "principalId")
		theirs := path + "/1/" + pair["principalId"].(string)
		for name, bad := range map[string]string{
			"Hex": path + "/1/00000000000000ff", "Zeros": path + "/01/5", "Signed": path + "/1/-5", "System": path + "/x/5", "Large": path + "/4294967296/5",
			"Zero": path + "/1/0",
		} {
			t.Run("Delete"+name, func(t *testing.T) {
				s.Refused(t, admin, "DELETE", bad, nil, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, admin, "DELETE", path+"/1/12345", nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "DELETE", path+"/2/"+pair["principalId"].(string), nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "DELETE", mine, nil, http.StatusConflict, "LAST_WRITER")
		s.Refused(t, admin, "POST", path, join(me, rig.Object{"rights": []string{"READ"}}), http.StatusConflict, "LAST_WRITER")
		s.Refused(t, admin, "POST", path, join(me, rig.Object{"rights": []string{"OWNER"}, "endTime": end}), http.StatusConflict, "LAST_WRITER")
		a = s.OK(t, admin, "DELETE", theirs, nil)
		if a.Body["gone"] != true || a.Body["principalId"] != pair["principalId"] || len(a.List(t, "members")) != 1 {
			t.Errorf("removed: %s", a.Raw)
		}
		// If there is another member with WRITE, the first one can remove itself.
		s.OK(t, admin, "POST", path, join(pair, rig.Object{"rights": []string{"WRITE"}}))
		s.OK(t, admin, "DELETE", mine, nil)
		s.Refused(t, admin, "DELETE", theirs, nil, http.StatusForbidden, "NOT_WRITABLE")
	})
}
