package contract

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestExportToWhatIsNotInForce checks that a key is exported only to a certificate that is valid for a login at that
// time.
func TestExportToWhatIsNotInForce(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/keys/export"
		admin, outside := s.AsAdmin(t), newCA(t, s.name("outside"))
		digest := s.trustIssuer(t, outside)
		listed := s.listed(t, outside)["certificateId"]
		agent := s.agent(t, outside, "agent")
		id := s.principalNamed(t, "/CN=agent")
		export := rig.Object{"ttag": s.mint(t, "key"), "systemId": 1, "principalId": decimal(t, id)}
		refused := func() {
			t.Helper()
			s.Refused(t, admin, "POST", path, export, http.StatusBadRequest, "INVALID_ARGUMENT")
		}
		s.OK(t, admin, "POST", path, export)
		s.OK(t, admin, "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": listed})
		refused()
		s.trustIssuer(t, outside)
		s.OK(t, admin, "POST", path, export)

		s.flags(t, id, rig.Object{"disabled": true})
		refused()
		s.flags(t, id, rig.Object{"disabled": false})
		s.OK(t, admin, "PUT", "/api/revocation/issuers/"+digest+"/policy", rig.Object{"mode": "required"})
		refused()
		crl := enginetest.NewCRL(t, outside, 1, time.Now().Add(-time.Hour), nil, agent.Certificate)
		s.OK(t, admin, "POST", "/api/revocation/crls", rig.Object{"crl": b64(crl)})
		refused()
		s.OK(t, admin, "PUT", "/api/revocation/issuers/"+digest+"/policy", rig.Object{"mode": "off"})
		list := s.OK(t, admin, "GET", "/api/revocation/issuers", nil)
		if detail := list.Text(t, "detail"); !strings.Contains(detail, s.name("/CN=outside")) || !strings.Contains(detail, "no effect") {
			t.Errorf("does not say that the list has no effect: %s", detail)
		}
		s.OK(t, admin, "POST", path, export)
	})
}

// TestExportKey checks POST /api/keys/export: the key is encrypted for an enrolled principal and never returned
// in clear. It requires OWNER and is audited.
func TestExportKey(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/keys/export"
		admin := s.AsAdmin(t)
		material := []byte("0123456789abcdef0123456789abcdef")
		ttag := s.OK(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "AES-256", "material": b64(material)}).Text(t, "ttag")
		key := newKey(t)
		agent := s.enroll(t, s.issue(t, "agent", key))[0]
		to := func(id any) rig.Object { return rig.Object{"ttag": ttag, "systemId": 1, "principalId": id} }
		self := s.OK(t, admin, "GET", "/api/sessions/current", nil).Text(t, "principal", "principalId")
		s.badRequests(t, admin, "POST", path, map[string]badRequest{
			"NoKey":       {rig.Object{"systemId": 1, "principalId": agent["principalId"]}, 400, "BAD_REQUEST", "ttag"},
			"EmptyKey":    {rig.Object{"ttag": "", "systemId": 1, "principalId": agent["principalId"]}, 400, "BAD_REQUEST", "ttag"},
			"NoSystem":    {rig.Object{"ttag": ttag, "principalId": agent["principalId"]}, 400, "BAD_REQUEST", "systemId"},
			"HexID":       {to("00000000000003e9"), 400, "BAD_REQUEST", "principalId"},
			"Zero":        {to(0), 400, "BAD_REQUEST", "principalId"},
			"Nobody":      {to("77"), 404, "NOT_FOUND", "77"},
			"OtherSystem": {rig.Object{"ttag": ttag, "systemId": 2, "principalId": agent["principalId"]}, 404, "NOT_FOUND", "systemId"},
			"UnknownKey":  {rig.Object{"ttag": b64([]byte("\x00\x00\x00\x01nosuchky")), "systemId": 1, "principalId": agent["principalId"]}, 404, "KEY_NOT_FOUND", ""},
			"NoRecipient": {to(self), 400, "INVALID_ARGUMENT", "certificate"},
		})
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", path, to(agent["principalId"]), http.StatusForbidden, "ACCESS_DENIED")
		encryptor := s.with(t, keyserver.RoleEncryptor)
		s.Refused(t, encryptor, "POST", path, to(agent["principalId"]), http.StatusForbidden, "ACL_DENIED")
		other := s.OK(t, encryptor, "GET", "/api/sessions/current", nil).Text(t, "principal", "principalId")
		s.OK(t, admin, "POST", "/api/keys/acl/grant", rig.Object{"ttag": ttag, "systemId": 1, "principalId": other, "rights": []string{"WRITE"}})
		s.Refused(t, encryptor, "POST", path, to(agent["principalId"]), http.StatusForbidden, "ACL_DENIED")

		a := s.OK(t, admin, "POST", path, to(agent["principalId"]))
		if a.Text(t, "algorithm") != "ECDH-ES+A256KW" || a.At(t, "recipient", "principalId") != agent["principalId"] || a.Text(t, "detail") == "" {
			t.Errorf("answered %s", a.Raw)
		}
		object, err := jose.ParseEncryptedCompact(a.Text(t, "jwe"), []jose.KeyAlgorithm{jose.ECDH_ES_A256KW}, []jose.ContentEncryption{jose.A256GCM})
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := object.Decrypt(key); err != nil || !bytes.Equal(plain, material) {
			t.Errorf("opens as %d bytes, %v", len(plain), err)
		}
		for _, clear := range []string{string(material), b64(material)} {
			if strings.Contains(string(a.Raw), clear) {
				t.Error("the key is in the answer in clear")
			}
		}
		rows := s.OK(t, admin, "GET", s.trail("operation=exportKey&limit=1000"), nil).List(t, "entries")
		outcomes := map[any]int{}
		for _, r := range rows {
			outcomes[r["outcome"]]++
			if who, _ := r["object"].(string); !strings.Contains(who, " for ") {
				t.Errorf("the row does not name the recipient: %v", r)
			}
		}
		if outcomes["allowed"] != 1 || outcomes["refused"] < 6 {
			t.Errorf("audited as %v", outcomes)
		}
	})
}
