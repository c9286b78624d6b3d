package contract

import (
	"encoding/binary"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// stamp is the wire form of a point in time.
func stamp(t time.Time) string {
	return b64(binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli())))
}

// holder makes a principal with a role and returns its session and the pair
// that ACL routes take.
func (s *subject) holder(t testing.TB, role keyserver.ID) (session string, pair object) {
	t.Helper()
	session = s.with(t, role)
	p := s.ok(t, session, "GET", "/api/sessions/current", nil)
	return session, object{"systemId": p.at(t, "principal", "systemId"), "principalId": p.text(t, "principal", "principalId")}
}

// join merges objects; later ones win.
func join(objects ...object) object {
	out := object{}
	for _, o := range objects {
		for k, v := range o {
			out[k] = v
		}
	}
	return out
}

// POST /api/keys/acl/update, and grant with the same fields.
func TestAmendACLFields(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.admin(t), s.mint(t, "key")
		_, pair := s.holder(t, keyserver.RoleExchanger)
		good := join(pair, object{"ttag": link, "rights": []string{"READ"}})
		cases := map[string]object{
			"RightsAbsent":    {"rights": nil},
			"RightsNone":      {"rights": 0},
			"RightsNoNames":   {"rights": []string{}},
			"RightsUnknown":   {"rights": []string{"READ", "RAED"}},
			"RightsBeyond":    {"rights": 32},
			"RightsNegative":  {"rights": -1},
			"RightsFraction":  {"rights": 1.5},
			"MaxUsageBelow":   {"maxUsage": -2},
			"MaxUsageText":    {"maxUsage": "5"},
			"MaxUsageNull":    {"maxUsage": nil},
			"MaxUsageTypo":    {"maxusage": 5},
			"StampShort":      {"startTime": b64(make([]byte, 7))},
			"StampLong":       {"endTime": b64(make([]byte, 9))},
			"StampText":       {"startTime": "2026-01-01"},
			"Backwards":       {"startTime": stamp(time.Unix(2000, 0)), "endTime": stamp(time.Unix(1000, 0))},
			"PrincipalHex":    {"principalId": "00000000000000ff"},
			"PrincipalSigned": {"principalId": "+5"},
			"PrincipalZero":   {"principalId": 0},
			"PrincipalBig":    {"principalId": 18446744073709551615.0},
			"SystemText":      {"systemId": "1"},
			"SystemNegative":  {"systemId": -1},
		}
		for _, path := range []string{"/api/keys/acl/update", "/api/keys/acl/grant"} {
			for name, change := range cases {
				t.Run(path[len("/api/keys/acl/"):]+name, func(t *testing.T) {
					s.refused(t, admin, "POST", path, join(good, change), http.StatusBadRequest, "BAD_REQUEST")
				})
			}
			for name, bad := range badLinks {
				t.Run(path[len("/api/keys/acl/"):]+"Ttag"+name, func(t *testing.T) {
					s.refused(t, admin, "POST", path, join(good, object{"ttag": bad}), http.StatusBadRequest, "BAD_REQUEST")
				})
			}
		}
	})
}

// The life of an entry: grant, amend down, revoke, each read back.
func TestACLEntryLife(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.admin(t), s.mint(t, "key")
		user, pair := s.holder(t, keyserver.RoleExchanger)
		use := func() answer {
			return s.send(t, user, "POST", "/api/crypto/hmac", object{"hiddenLink": link, "data": ""})
		}
		entry := join(pair, object{"ttag": link})

		s.refused(t, admin, "POST", "/api/keys/acl/update", join(entry, object{"rights": 1}), http.StatusNotFound, "ACL_NOT_FOUND")
		s.refused(t, admin, "POST", "/api/keys/acl/revoke", entry, http.StatusNotFound, "ACL_NOT_FOUND")
		s.refused(t, admin, "POST", "/api/keys/acl/update", join(entry, object{"rights": 1, "ttag": "AAAAAQECAwQFBgcI"}), http.StatusNotFound, "ACL_NOT_FOUND")
		s.refused(t, admin, "POST", "/api/keys/acl/grant", join(entry, object{"rights": 1, "systemId": 99}), http.StatusNotFound, "NOT_FOUND")
		s.refused(t, user, "POST", "/api/keys/acl/grant", join(entry, object{"rights": 1}), http.StatusForbidden, "ACL_DENIED")
		auditor := s.with(t, keyserver.RoleAuditor)
		s.refused(t, auditor, "POST", "/api/keys/acl/grant", join(entry, object{"rights": 1}), http.StatusForbidden, "ACCESS_DENIED")

		a := s.ok(t, admin, "POST", "/api/keys/acl/grant", join(entry, object{"rights": []string{"WRITE"}}))
		if a.body["verified"] != true || a.body["requestedRights"] != 2.0 || a.at(t, "entry", "rights") != 3.0 {
			t.Errorf("WRITE reads back widened, apart from what was requested: %s", a.raw)
		}
		if a.at(t, "entry", "startTimeUnset") != true || a.at(t, "entry", "endTimeUnset") != true || a.at(t, "entry", "maxUsage") != -1.0 {
			t.Errorf("limits that were omitted: %s", a.raw)
		}
		list := a.text(t, "acl", "aclId")
		whole := object{
			"principalId": pair["principalId"], "systemId": 1.0, "aclEntryId": a.text(t, "entry", "aclEntryId"), "aclId": list,
			"rights": 3.0, "rightNames": []any{"READ", "WRITE"}, "maxUsage": -1.0, "userRight": 0.0,
			"startTime": "AAAAAAAAAAA=", "startTimeUnset": true, "endTime": "AAAAAAAAAAA=", "endTimeUnset": true,
		}
		if diff := cmp.Diff(any(whole), a.at(t, "entry")); diff != "" {
			t.Errorf("the entry (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(any([]any{"WRITE"}), a.body["requestedRightNames"]); diff != "" {
			t.Errorf("the names of what was requested (-want +got):\n%s", diff)
		}
		read := s.ok(t, admin, "POST", "/api/keys/acl/get", object{"ttag": link})
		ids := map[any]bool{list: true, "AAAAAAAAAAA=": true}
		for _, e := range read.at(t, "acl", "entries").([]any) {
			if e := e.(object); e["aclId"] != list || ids[e["aclEntryId"]] {
				t.Errorf("an entry of another list, or without an id of its own: %s", read.raw)
			} else {
				ids[e["aclEntryId"]] = true
			}
		}
		if read.at(t, "acl", "aclId") != list || !ids[whole["aclEntryId"]] || len(ids) != 4 {
			t.Errorf("the list read anew is another one: %s", read.raw)
		}
		if code := use().status; code != http.StatusOK {
			t.Errorf("after the grant: %d", code)
		}
		a = s.ok(t, admin, "POST", "/api/keys/acl/update", join(entry, object{"rights": 1, "maxUsage": 1}))
		if a.at(t, "entry", "rights") != 1.0 || a.at(t, "entry", "maxUsage") != 1.0 {
			t.Errorf("an amendment reduces: %s", a.raw)
		}
		if first, second := use().status, use().code(); first != http.StatusOK || second != "ACL_DENIED" {
			t.Errorf("maxUsage 1: got %d, then %s", first, second)
		}
		a = s.ok(t, admin, "POST", "/api/keys/acl/update", join(entry, object{"rights": 1, "startTime": stamp(time.Now().Add(time.Hour))}))
		if a.at(t, "entry", "startTimeUnset") != false || use().code() != "ACL_DENIED" {
			t.Errorf("a window that has not begun: %s", a.raw)
		}
		a = s.ok(t, admin, "POST", "/api/keys/acl/get", object{"ttag": link})
		if a.at(t, "acl", "entryCount") != 2.0 || a.at(t, "acl", "expired") != false {
			t.Errorf("the list: %s", a.raw)
		}
		a = s.ok(t, admin, "POST", "/api/keys/acl/update", join(entry, object{"rights": 1, "endTime": stamp(time.Now().Add(-time.Hour))}))
		if a.at(t, "entry", "endTimeUnset") != false || a.at(t, "acl", "expired") != true || use().code() != "ACL_DENIED" {
			t.Errorf("a window that has ended: %s", a.raw)
		}
		a = s.ok(t, admin, "POST", "/api/keys/acl/get", object{"ttag": link})
		if a.at(t, "acl", "expired") != true {
			t.Errorf("the list with an entry that has ended: %s", a.raw)
		}
		a = s.ok(t, admin, "POST", "/api/keys/acl/revoke", entry)
		if a.body["verified"] != true || a.body["entry"] != nil || a.body["requestedRights"] != nil || a.at(t, "acl", "entryCount") != 1.0 {
			t.Errorf("revoked: %s", a.raw)
		}
		if code := use().code(); code != "ACL_DENIED" {
			t.Errorf("after the revocation: %s", code)
		}
	})
}
