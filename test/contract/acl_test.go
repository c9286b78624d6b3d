package contract

import (
	"encoding/binary"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// stamp encodes a time as in requests and responses.
func stamp(t time.Time) string {
	return b64(binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli())))
}

// holder creates a principal with a role. It returns its session and the ids that ACL routes use.
func (s *subject) holder(t testing.TB, role keyserver.ID) (session string, pair rig.Object) {
	t.Helper()
	session = s.with(t, role)
	p := s.OK(t, session, "GET", "/api/sessions/current", nil)
	return session, rig.Object{"systemId": p.At(t, "principal", "systemId"), "principalId": p.Text(t, "principal", "principalId")}
}

// join merges objects. Later objects override earlier ones.
func join(objects ...rig.Object) rig.Object {
	out := rig.Object{}
	for _, o := range objects {
		for k, v := range o {
			out[k] = v
		}
	}
	return out
}

// TestAmendACLFields checks the fields of POST /api/keys/acl/update, and of grant, which has the same fields.
func TestAmendACLFields(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		_, pair := s.holder(t, keyserver.RoleExchanger)
		good := join(pair, rig.Object{"ttag": link, "rights": []string{"READ"}})
		cases := map[string]rig.Object{
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
					s.Refused(t, admin, "POST", path, join(good, change), http.StatusBadRequest, "BAD_REQUEST")
				})
			}
			for name, bad := range badLinks {
				t.Run(path[len("/api/keys/acl/"):]+"Ttag"+name, func(t *testing.T) {
					s.Refused(t, admin, "POST", path, join(good, rig.Object{"ttag": bad}), http.StatusBadRequest, "BAD_REQUEST")
				})
			}
		}
	})
}

// TestOwnACLEntry checks a principal that removes its own entry or loses READ access to the ACL by its own change. The
// response shows only this entry.
func TestOwnACLEntry(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		user, pair := s.holder(t, keyserver.RoleEncryptor)
		entry := join(pair, rig.Object{"ttag": link})
		owns := func() {
			t.Helper()
			s.OK(t, admin, "POST", "/api/keys/acl/grant", join(entry, rig.Object{"rights": []string{"OWNER"}}))
		}
		shut := func() {
			t.Helper()
			s.Refused(t, user, "POST", "/api/keys/acl/get", rig.Object{"ttag": link}, http.StatusForbidden, "ACL_DENIED")
		}

		owns()
		a := s.OK(t, user, "POST", "/api/keys/acl/revoke", entry)
		if a.Body["verified"] != true || a.Body["entry"] != nil || a.At(t, "acl", "entryCount") != 0.0 {
			t.Errorf("its own entry was revoked: %s", a.Raw)
		}
		shut()

		owns()
		a = s.OK(t, user, "POST", "/api/keys/acl/update", join(entry, rig.Object{"rights": []string{"OWNER"}, "endTime": stamp(time.Now().Add(-time.Hour))}))
		if a.Body["verified"] != true || a.At(t, "entry", "endTimeUnset") != false || a.At(t, "acl", "entryCount") != 1.0 || a.At(t, "acl", "expired") != true {
			t.Errorf("its own entry has ended: %s", a.Raw)
		}
		shut()
	})
}

// TestACLEntryLife grants, reduces and revokes an entry, and reads the entry after each step.
func TestACLEntryLife(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		user, pair := s.holder(t, keyserver.RoleExchanger)
		use := func() rig.Answer {
			return s.Send(t, user, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
		}
		entry := join(pair, rig.Object{"ttag": link})

		s.Refused(t, admin, "POST", "/api/keys/acl/update", join(entry, rig.Object{"rights": 1}), http.StatusNotFound, "ACL_NOT_FOUND")
		s.Refused(t, admin, "POST", "/api/keys/acl/revoke", entry, http.StatusNotFound, "ACL_NOT_FOUND")
		s.Refused(t, admin, "POST", "/api/keys/acl/update", join(entry, rig.Object{"rights": 1, "ttag": "AAAAAQECAwQFBgcI"}), http.StatusNotFound, "ACL_NOT_FOUND")
		s.Refused(t, admin, "POST", "/api/keys/acl/grant", join(entry, rig.Object{"rights": 1, "systemId": 99}), http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, user, "POST", "/api/keys/acl/grant", join(entry, rig.Object{"rights": 1}), http.StatusForbidden, "ACL_DENIED")
		auditor := s.with(t, keyserver.RoleAuditor)
		s.Refused(t, auditor, "POST", "/api/keys/acl/grant", join(entry, rig.Object{"rights": 1}), http.StatusForbidden, "ACCESS_DENIED")

		a := s.OK(t, admin, "POST", "/api/keys/acl/grant", join(entry, rig.Object{"rights": []string{"WRITE"}}))
		if a.Body["verified"] != true || a.Body["requestedRights"] != 2.0 || a.At(t, "entry", "rights") != 3.0 {
			t.Errorf("WRITE reads back widened, apart from what was requested: %s", a.Raw)
		}
		if a.At(t, "entry", "startTimeUnset") != true || a.At(t, "entry", "endTimeUnset") != true || a.At(t, "entry", "maxUsage") != -1.0 {
			t.Errorf("limits that were omitted: %s", a.Raw)
		}
		list := a.Text(t, "acl", "aclId")
		whole := rig.Object{
			"principalId": pair["principalId"], "systemId": 1.0, "aclEntryId": a.Text(t, "entry", "aclEntryId"), "aclId": list,
			"rights": 3.0, "rightNames": []any{"READ", "WRITE"}, "maxUsage": -1.0, "userRight": 0.0,
			"startTime": "AAAAAAAAAAA=", "startTimeUnset": true, "endTime": "AAAAAAAAAAA=", "endTimeUnset": true,
		}
		if diff := cmp.Diff(any(whole), a.At(t, "entry")); diff != "" {
			t.Errorf("the entry (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(any([]any{"WRITE"}), a.Body["requestedRightNames"]); diff != "" {
			t.Errorf("the names of what was requested (-want +got):\n%s", diff)
		}
		read := s.OK(t, admin, "POST", "/api/keys/acl/get", rig.Object{"ttag": link})
		ids := map[any]bool{list: true, "AAAAAAAAAAA=": true}
		for _, e := range read.At(t, "acl", "entries").([]any) {
			if e := e.(rig.Object); e["aclId"] != list || ids[e["aclEntryId"]] {
				t.Errorf("an entry of another list, or without an id of its own: %s", read.Raw)
			} else {
				ids[e["aclEntryId"]] = true
			}
		}
		if read.At(t, "acl", "aclId") != list || !ids[whole["aclEntryId"]] || len(ids) != 4 {
			t.Errorf("the list read anew is another one: %s", read.Raw)
		}
		if code := use().Status; code != http.StatusOK {
			t.Errorf("after the grant: %d", code)
		}
		a = s.OK(t, admin, "POST", "/api/keys/acl/update", join(entry, rig.Object{"rights": 1, "maxUsage": 1}))
		if a.At(t, "entry", "rights") != 1.0 || a.At(t, "entry", "maxUsage") != 1.0 {
			t.Errorf("an amendment reduces: %s", a.Raw)
		}
		if first, second := use().Status, use().Code(); first != http.StatusOK || second != "ACL_DENIED" {
			t.Errorf("maxUsage 1: got %d, then %s", first, second)
		}
		a = s.OK(t, admin, "POST", "/api/keys/acl/update", join(entry, rig.Object{"rights": 1, "startTime": stamp(time.Now().Add(time.Hour))}))
		if a.At(t, "entry", "startTimeUnset") != false || use().Code() != "ACL_DENIED" {
			t.Errorf("a window that has not begun: %s", a.Raw)
		}
		a = s.OK(t, admin, "POST", "/api/keys/acl/get", rig.Object{"ttag": link})
		if a.At(t, "acl", "entryCount") != 2.0 || a.At(t, "acl", "expired") != false {
			t.Errorf("the list: %s", a.Raw)
		}
		a = s.OK(t, admin, "POST", "/api/keys/acl/update", join(entry, rig.Object{"rights": 1, "endTime": stamp(time.Now().Add(-time.Hour))}))
		if a.At(t, "entry", "endTimeUnset") != false || a.At(t, "acl", "expired") != true || use().Code() != "ACL_DENIED" {
			t.Errorf("a window that has ended: %s", a.Raw)
		}
		a = s.OK(t, admin, "POST", "/api/keys/acl/get", rig.Object{"ttag": link})
		if a.At(t, "acl", "expired") != true {
			t.Errorf("the list with an entry that has ended: %s", a.Raw)
		}
		a = s.OK(t, admin, "POST", "/api/keys/acl/revoke", entry)
		if a.Body["verified"] != true || a.Body["entry"] != nil || a.Body["requestedRights"] != nil || a.At(t, "acl", "entryCount") != 1.0 {
			t.Errorf("revoked: %s", a.Raw)
		}
		if code := use().Code(); code != "ACL_DENIED" {
			t.Errorf("after the revocation: %s", code)
		}
	})
}
