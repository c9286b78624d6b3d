package contract

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestPrincipalTrusts creates, lists, changes and deletes a principal trust.
func TestPrincipalTrusts(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/principal-trusts"
		admin := s.AsAdmin(t)
		s.registerPeer(t, admin)
		self := s.OK(t, admin, "GET", "/api/sessions/current", nil).Text(t, "principal", "id")
		request := func(principal, server, flag any) rig.Object {
			return rig.Object{"principalId": principal, "trustedServerSystemId": server, "flag": flag}
		}
		refusals := map[string]struct {
			body   any
			status int
			code   string
		}{
			"DecimalPrincipal": {request("12345", s.peerSystem(), "expose"), 400, "BAD_REQUEST"},
			"ZeroPrincipal":    {request("0000000000000000", s.peerSystem(), "expose"), 400, "BAD_REQUEST"},
			"HexServer":        {request(self, "0000000000000007", "expose"), 400, "BAD_REQUEST"},
			"UnknownFlag":      {request(self, s.peerSystem(), "allow"), 400, "BAD_REQUEST"},
			"NumericFlag":      {request(self, s.peerSystem(), 2), 400, "BAD_REQUEST"},
			"NoFlag":           {rig.Object{"principalId": self, "trustedServerSystemId": s.peerSystem()}, 400, "BAD_REQUEST"},
			"UnknownServer":    {request(self, 8, "expose"), 404, "NOT_FOUND"},
			"UnknownPrincipal": {request("00000000deadbeef", s.peerSystem(), "expose"), 404, "NOT_FOUND"},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) { s.Refused(t, admin, "POST", path, tc.body, tc.status, tc.code) })
		}
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, request(self, s.peerSystem(), "expose"), http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")

		a := s.OK(t, admin, "POST", path, request(self, s.peerSystem(), "expose"))
		want := rig.Object{
			"id": a.Text(t, "principalTrust", "id"), "principalId": self, "trustedServerId": values.IDFromUint64(uint64(s.peerSystem())).Hex(),
			"trustedServerSystemId": float64(s.peerSystem()), "flag": float64(keyserver.Expose), "flagLabel": "expose",
		}
		if got := a.At(t, "principalTrust"); a.Body["saved"] != true || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("made: %s, want %v", a.Raw, want)
		}
		s.Refused(t, admin, "POST", path, request(self, s.peerSystem(), "restrict"), http.StatusConflict, "ALREADY_EXISTS")

		own := "?principalId=" + self
		for _, query := range []string{"", own, fmt.Sprint("?trustedServerSystemId=", s.peerSystem()), own + "&limit=1", own + "&limit=1&offset=0"} {
			list := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", path+query, nil).List(t, "principalTrusts")
			if query == "" {
				list = slices.DeleteFunc(list, func(row rig.Object) bool { return row["principalId"] != self })
			}
			if len(list) != 1 || fmt.Sprint(list[0]) != fmt.Sprint(want) {
				t.Errorf("%s lists %v", query, list)
			}
		}
		for _, query := range []string{"?principalId=00000000deadbeef", "?trustedServerSystemId=8", own + "&limit=1&offset=1"} {
			if list := s.OK(t, admin, "GET", path+query, nil).List(t, "principalTrusts"); len(list) != 0 {
				t.Errorf("%s lists %v", query, list)
			}
		}
		for _, query := range []string{"?limit=0", "?limit=501", "?offset=1", "?principalId=12345", "?flag=expose"} {
			s.Refused(t, admin, "GET", path+query, nil, http.StatusBadRequest, "BAD_REQUEST")
		}
		s.changeTrust(t, admin, path+"/"+a.Text(t, "principalTrust", "id"))
	})
}

// changeTrust changes and deletes a principal trust whose flag is expose.
func (s *subject) changeTrust(t *testing.T, admin, row string) {
	t.Helper()
	s.Refused(t, admin, "PUT", row, rig.Object{"flag": "none"}, http.StatusBadRequest, "BAD_REQUEST")
	s.Refused(t, admin, "PUT", row, rig.Object{}, http.StatusBadRequest, "BAD_REQUEST")
	s.Refused(t, admin, "PUT", "/api/principal-trusts/7", rig.Object{"flag": "expose"}, http.StatusBadRequest, "BAD_REQUEST")
	s.Refused(t, admin, "PUT", "/api/principal-trusts/00000000deadbeef", rig.Object{"flag": "expose"}, http.StatusNotFound, "NOT_FOUND")
	s.Refused(t, s.with(t, keyserver.RoleAuditor), "PUT", row, rig.Object{"flag": "restrict"}, http.StatusForbidden, "ACCESS_DENIED")
	cursor := s.cursor(t, admin)
	for _, flag := range []string{"restrict", "restrict", "expose"} {
		a := s.OK(t, admin, "PUT", row, rig.Object{"flag": flag})
		if a.Body["saved"] != true || a.Text(t, "principalTrust", "flagLabel") != flag {
			t.Errorf("%s: %s", flag, a.Raw)
		}
	}
	// After a peer is removed, its principal trusts remain until they are deleted.
	s.OK(t, admin, "DELETE", peerPath(s.peerSystem()), nil)
	if a := s.OK(t, admin, "PUT", row, rig.Object{"flag": "restrict"}); a.Body["saved"] != true {
		t.Errorf("an orphan's flag: %s", a.Raw)
	}
	s.Refused(t, admin, "DELETE", "/api/principal-trusts/00000000deadbeef", nil, http.StatusNotFound, "NOT_FOUND")
	a := s.OK(t, admin, "DELETE", row, nil)
	if a.Body["gone"] != true || a.Text(t, "principalTrust", "flagLabel") != "restrict" {
		t.Errorf("deleted: %s", a.Raw)
	}
	s.Refused(t, admin, "DELETE", row, nil, http.StatusNotFound, "NOT_FOUND")
	var seen int
	for _, change := range s.changedSince(t, admin, cursor, path.Base(row)) {
		if change == "principalTrust updated" || change == "principalTrust deleted" {
			seen++
		}
	}
	if seen != 5 {
		t.Errorf("the feed has %d changes of the row, want 5", seen)
	}
}
