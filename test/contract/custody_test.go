package contract

import (
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestCustody checks GET /api/custody and POST /api/custody/rotate: a new data key replaces the old one while
// keys are minted and used.
func TestCustody(t *testing.T) {
	own(t, func(t *testing.T, s *subject) {
		const custody, rotate = "/api/custody", "/api/custody/rotate"
		s.Refused(t, "", "GET", custody, nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		auditor := s.with(t, keyserver.RoleAuditor)
		s.Refused(t, auditor, "GET", custody, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, auditor, "POST", rotate, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.AsAdmin(t), "POST", rotate, rig.Object{"id": "0000000000000001"}, http.StatusBadRequest, "BAD_REQUEST")

		link := s.mint(t, "key material")
		mac := func() string {
			return s.OK(t, s.AsAdmin(t), "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""}).Text(t, "mac")
		}
		before, first := mac(), s.OK(t, s.AsAdmin(t), "GET", custody, nil)
		kek, _ := first.Body["kek"].(rig.Object)
		if kek["scheme"] != "base64key" || len(kek["fingerprint"].(string)) != 16 || kek["previousNeeded"] != nil {
			t.Errorf("the key-encryption key: %v", kek)
		}
		keys := first.List(t, "dataKeys")
		if len(keys) != 1 || keys[0]["state"] != "active" || keys[0]["createdAt"] == nil {
			t.Fatalf("the data keys: %s", first.Raw)
		}

		made := s.OK(t, s.AsAdmin(t), "POST", rotate, nil).Text(t, "dataKeyId")
		var last rig.Answer
		rig.Soon(t, "the first data key is retired", func() bool {
			if mac() != before {
				t.Error("another MAC")
			}
			s.mint(t, "another key")
			last = s.OK(t, s.AsAdmin(t), "GET", custody, nil)
			return last.List(t, "dataKeys")[0]["state"] == "retired"
		})
		keys = last.List(t, "dataKeys")
		if len(keys) != 2 || rig.Number(keys[0]["wrapped"]) != "0" || keys[1]["id"] != made || keys[1]["state"] != "active" {
			t.Errorf("the data keys: %s", last.Raw)
		}
		s.Stop(t)
		s.Restart(t)
		if mac() != before {
			t.Error("another MAC after a start")
		}
		rows := s.OK(t, auditor, "GET", "/api/audit?operation=rotateDataKey", nil).List(t, "entries")
		if len(rows) != 1 { // refusals for a missing role are not among them
			t.Errorf("rows of the audit trail: %v", rows)
		}

		// The next rotation is refused until the old data key is retired, which takes longer than a request.
		for refused, tries := false, 0; !refused; tries++ {
			a := s.Send(t, s.AsAdmin(t), "POST", rotate, nil)
			if refused = a.Status != http.StatusOK; refused {
				is(t, a, http.StatusConflict, "REWRAP_RUNNING")
			} else if tries == 100 {
				t.Fatal("data keys are made however many are in use")
			}
		}
	})
}
