package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Contract 18.9, 18.10: the audit row of a request for a receipt or an entry bundle names the requested rows, even if
// there are none.
func TestRowsOfReceipts(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		auditor := s.with(t, keyserver.RoleAuditor)
		for path, want := range map[string]struct {
			status  int
			trail   string
			objects string
		}{
			"/api/audit/1/receipt":                     {http.StatusOK, `["readAudit allowed"]`, "1"},
			"/api/audit/999999999/receipt":             {http.StatusNotFound, `["readAudit allowed" "readAudit failed objectNotFound"]`, "999999999"},
			"/api/audit/tile/entries/x001%2F000":       {http.StatusNotFound, `["readAudit allowed" "readAudit failed objectNotFound"]`, "256001-256256"},
			"/api/audit/tile/entries/x001%2F000.p%2F8": {http.StatusNotFound, `["readAudit allowed" "readAudit failed objectNotFound"]`, "256001-256008"},
			"/api/audit/tile/entries/000.p%2F1":        {http.StatusOK, `["readAudit allowed"]`, "1-1"},
		} {
			t.Run(path, func(t *testing.T) {
				a := s.Do(t, rig.Request{Session: auditor, Method: "GET", Path: path})
				if a.Status != want.status {
					t.Fatalf("got %d %s, want %d", a.Status, a.Raw, want.status)
				}
				rows := s.Rows(t, a.Header.Get("X-Request-Id"))
				if got := rig.FormatRows(rows); got != want.trail {
					t.Errorf("the rows are %s, want %s", got, want.trail)
				}
				for _, row := range rows {
					if row["object"] != want.objects {
						t.Errorf("the object is %v, want %s", row["object"], want.objects)
					}
				}
			})
		}
	})
}

// TestTheSameStateAgain checks contract 7.13: a request for the state that an object already has gets 200 and changes
// nothing.
func TestTheSameStateAgain(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, body := s.AsAdmin(t), rig.Object{"ttag": s.mint(t, "key")}
		for _, act := range []string{"enable", "disable", "destroy", "restore"} {
			first := s.OK(t, admin, "POST", "/api/keys/"+act, body)
			again := s.OK(t, admin, "POST", "/api/keys/"+act, body)
			for _, field := range []string{"saved", "state", "destroyAt"} {
				if again.Body[field] != first.Body[field] {
					t.Errorf("%s again: %s, before that %s", act, again.Raw, first.Raw)
				}
			}
		}
		days := func(n int) rig.Object { return join(body, rig.Object{"afterDays": n}) }
		first := s.OK(t, admin, "POST", "/api/keys/destroy", days(7))
		for _, other := range []rig.Object{days(6), days(8), body} { // body requests 30 days
			s.Refused(t, admin, "POST", "/api/keys/destroy", other, http.StatusConflict, "KEY_STATE")
		}
		if again := s.OK(t, admin, "POST", "/api/keys/destroy", days(7)); again.Body["destroyAt"] != first.Body["destroyAt"] {
			t.Errorf("destroyed again: %s, before that %s", again.Raw, first.Raw)
		}
	})
}

// TestExplainedUses checks contract 18.18: an explanation has the number of remaining uses after each use, and
// the age of its evidence.
func TestExplainedUses(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		user := s.User(t, "ann", keyserver.RoleExchanger)
		s.OK(t, admin, "POST", "/api/keys/acl/grant", rig.Object{
			"ttag": link, "systemId": 1, "principalId": decimal(t, user.ID), "rights": []string{"READ"}, "maxUsage": 3,
		})
		asked := rig.Object{"operation": "hmacData", "hiddenLink": link, "principalId": user.ID}
		for left := 3.0; left >= 0; left-- {
			a := s.OK(t, admin, "POST", "/api/explain", asked)
			if age, _ := a.Body["evidenceAge"].(float64); a.Body["uses"] != left || a.Body["allowed"] != (left > 0) || age <= 0 {
				t.Errorf("with %v uses left: %s", left, a.Raw)
			}
			if left > 0 {
				s.OK(t, user.Session, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
			}
		}
	})
}

// TestGroupsThatOwnKeys checks contract 4.9: to add a member to a group, the caller must have the group's rights on
// keys.
func TestGroupsThatOwnKeys(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		members, err := values.ParseHexID(s.OK(t, admin, "POST", "/api/roles", rig.Object{
			"name": "members", "operations": opIDs(keyserver.OpChangeGroupMembers, keyserver.OpListGroupMembers, keyserver.OpReadPrincipal),
		}).Text(t, "id"))
		rig.Must(t, err)
		clerk := s.User(t, "clerk", members, keyserver.RoleEncryptor)
		second := s.User(t, "second", keyserver.RoleEncryptor)
		group := s.group(t, "owners")
		entry := func(id string, rights string) rig.Object {
			return rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, id), "rights": []string{rights}}
		}
		path := "/api/principals/groups/" + group + "/members/" + second.ID
		s.OK(t, clerk.Session, "PUT", path, nil) // the group has no rights yet
		s.OK(t, clerk.Session, "DELETE", path, nil)
		s.OK(t, admin, "POST", "/api/keys/acl/grant", entry(group, "OWNER"))
		a := s.Refused(t, clerk.Session, "PUT", path, nil, http.StatusForbidden, "ESCALATION")
		if rows := rig.FormatRows(s.Rows(t, a.Header.Get("X-Request-Id"))); !strings.Contains(rows, `"changeGroupMembers refused escalation"`) || strings.Contains(rows, "changeGroupMembers allowed") {
			t.Errorf("the rows are %s", rows)
		}
		s.Refused(t, second.Session, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""}, http.StatusForbidden, "ACL_DENIED")
		s.OK(t, admin, "POST", "/api/keys/acl/grant", entry(clerk.ID, "OWNER"))
		s.OK(t, clerk.Session, "PUT", path, nil)
		s.OK(t, second.Session, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
	})
}

// TestLimitOfALine checks contract 3.7: a usage quota belongs to the key lineage, and each use of any generation
// counts.
func TestLimitOfALine(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const limit = 5
		admin, first := s.AsAdmin(t), s.mint(t, "key")
		user := s.User(t, "ann", keyserver.RoleExchanger)
		entry := rig.Object{"systemId": 1, "principalId": decimal(t, user.ID), "rights": []string{"READ"}, "maxUsage": limit}
		s.OK(t, admin, "POST", "/api/keys/acl/grant", join(entry, rig.Object{"ttag": first}))
		line := []string{first}
		for range 3 {
			line = append(line, s.OK(t, admin, "POST", "/api/keys/rotate", rig.Object{"ttag": first}).Text(t, "ttag"))
		}
		uses := func() (granted int) {
			for range limit + 1 {
				for _, link := range line {
					a := s.Send(t, user.Session, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
					if a.Status == http.StatusOK {
						granted++
						continue
					}
					is(t, a, http.StatusForbidden, "ACL_DENIED")
				}
			}
			return granted
		}
		if got := uses(); got != limit {
			t.Errorf("%d uses were granted, the limit is %d", got, limit)
		}
		s.Refused(t, user.Session, "POST", "/api/crypto/mac", rig.Object{"lineage": first, "data": ""}, http.StatusForbidden, "ACL_DENIED")
		s.OK(t, admin, "POST", "/api/keys/acl/update", join(entry, rig.Object{"ttag": line[2], "maxUsage": limit - 1})) // this restarts the count
		if got := uses(); got != limit {
			t.Errorf("%d uses were granted anew, of at most %d", got, limit)
		}
	})
}
