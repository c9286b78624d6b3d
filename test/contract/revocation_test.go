package contract

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// GET /api/revocation/issuers: the trusted CAs by digest, with policy and the
// freshness of the evidence.
func TestRevocationIssuers(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/revocation/issuers"
		s.refused(t, s.with(t, keyserver.RoleEncryptor), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		if a := s.ok(t, s.admin(t), "GET", path, nil); a.body["count"] != 0.0 {
			t.Errorf("a fresh server lists %s", a.raw)
		}
		ca := newCA(t, "outside")
		digest := s.trustIssuer(t, ca)
		for _, role := range []keyserver.ID{keyserver.RoleSecurityOfficer, keyserver.RoleAuditor} {
			issuer := s.ok(t, s.with(t, role), "GET", path, nil).list(t, "issuers")[0]
			if issuer["digest"] != digest || issuer["mode"] != "off" || issuer["evidence"] != "none" || issuer["crl"] != nil || issuer["subject"] != "/CN=outside" {
				t.Errorf("without policy and list: %v", issuer)
			}
		}
		cas := s.ok(t, s.admin(t), "GET", "/api/trusted-cas", nil).list(t, "trustedCAs")
		if cas[0]["revocationDigest"] != digest {
			t.Errorf("the trusted list shows %v", cas[0]["revocationDigest"])
		}
	})
}

// GET and PUT /api/revocation/issuers/{digest}/policy.
func TestRevocationPolicy(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		digest := s.trustIssuer(t, newCA(t, "outside"))
		path := "/api/revocation/issuers/" + digest + "/policy"
		unknown := "/api/revocation/issuers/" + strings.Repeat("AB", 48) + "/policy"
		required := object{"mode": "required", "maxAgeSeconds": 3600}
		s.badRequests(t, s.admin(t), "PUT", path, map[string]badRequest{
			"NoMode":      {object{"maxAgeSeconds": 1}, 400, "BAD_REQUEST", "mode"},
			"UnknownMode": {object{"mode": "on"}, 400, "BAD_REQUEST", "mode"},
			"NegativeAge": {object{"mode": "required", "maxAgeSeconds": -1}, 400, "BAD_REQUEST", "maxAgeSeconds"},
			"EndlessAge":  {object{"mode": "required", "maxAgeSeconds": 31622401}, 400, "BAD_REQUEST", "maxAgeSeconds"},
			"Misspelt":    {object{"mode": "required", "maxAge": 60}, 400, "BAD_REQUEST", "maxAge"},
		})
		s.refused(t, s.admin(t), "GET", unknown, nil, http.StatusNotFound, "NOT_FOUND")
		s.refused(t, s.admin(t), "PUT", unknown, required, http.StatusNotFound, "NOT_FOUND")
		s.refused(t, s.admin(t), "GET", "/api/revocation/issuers/abc/policy", nil, http.StatusBadRequest, "BAD_REQUEST")
		s.refused(t, s.with(t, keyserver.RoleAuditor), "PUT", path, required, http.StatusForbidden, "ACCESS_DENIED")
		s.refused(t, s.with(t, keyserver.RoleExchanger), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")

		if a := s.ok(t, s.with(t, keyserver.RoleAuditor), "GET", path, nil); a.body["mode"] != "off" || a.body["maxAgeSeconds"] != 0.0 || a.body["digest"] != digest {
			t.Errorf("a trusted CA without a policy: %s", a.raw)
		}
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		if a := s.ok(t, officer, "PUT", path, required); a.body["saved"] != true || a.body["mode"] != "required" || a.body["maxAgeSeconds"] != 3600.0 {
			t.Errorf("set: %s", a.raw)
		}
		// Lower case names the same issuer.
		if a := s.ok(t, officer, "GET", strings.Replace(path, digest, strings.ToLower(digest), 1), nil); a.body["mode"] != "required" || a.body["maxAgeSeconds"] != 3600.0 {
			t.Errorf("read: %s", a.raw)
		}
		if a := s.ok(t, officer, "PUT", path, object{"mode": "when-available"}); a.body["mode"] != "when-available" || a.body["maxAgeSeconds"] != 0.0 {
			t.Errorf("set again: %s", a.raw)
		}
	})
}

// On a split deployment revocation is the Security Officer's.
func TestRevocationOnASplitDeployment(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		path := "/api/revocation/issuers/" + strings.Repeat("AB", 32) + "/policy"
		s.refused(t, s.admin(t), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.refused(t, s.admin(t), "PUT", path, object{"mode": "off"}, http.StatusForbidden, "ACCESS_DENIED")
		s.refused(t, s.admin(t), "POST", "/api/revocation/crls", object{"crl": "AAAA"}, http.StatusForbidden, "ACCESS_DENIED")
		s.refused(t, s.with(t, keyserver.RoleSecurityOfficer), "GET", path, nil, http.StatusNotFound, "NOT_FOUND")
	}, split)
}

// POST /api/revocation/crls: only from a trusted CA, signed, not older than the
// one held, nextUpdate not passed.
func TestImportCRL(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/revocation/crls"
		ca, stranger := newCA(t, "outside"), newCA(t, "outside")
		digest := s.trustIssuer(t, ca)
		now := time.Now().Truncate(time.Second)
		revoked := enginetest.NewAgent(t, ca, "agent", now, nil).Certificate
		held := enginetest.NewCRL(t, ca, 5, now.Add(-time.Minute), nil, revoked)
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		for form, spelled := range map[string]string{"base64": b64(held), "PEM": pemOf("X509 CRL", held)} {
			a := s.ok(t, officer, "POST", path, object{"crl": spelled})
			issuer := a.list(t, "issuers")[0]
			crl, _ := issuer["crl"].(object)
			if a.body["saved"] != true || issuer["digest"] != digest || issuer["evidence"] != "current" || crl["revoked"] != 1.0 ||
				crl["thisUpdate"] != now.Add(-time.Minute).UTC().Format(time.RFC3339) || crl["number"] != b64([]byte{5}) {
				t.Errorf("%s: %s", form, a.raw)
			}
			if !strings.Contains(a.text(t, "detail"), "off") {
				t.Errorf("does not say that the policy is off: %s", a.raw)
			}
		}
		broken := bytes.Clone(held)
		broken[len(broken)-1] ^= 1
		s.badRequests(t, officer, "POST", path, map[string]badRequest{
			"Absent":     {object{}, 400, "BAD_REQUEST", "crl"},
			"Empty":      {object{"crl": ""}, 400, "BAD_REQUEST", "crl"},
			"TooLong":    {object{"crl": strings.Repeat("AAAA", 1398102)}, 400, "BAD_REQUEST", "crl"},
			"NoList":     {object{"crl": b64([]byte("x"))}, 400, "INVALID_ARGUMENT", ""},
			"Signature":  {object{"crl": b64(broken)}, 400, "INVALID_ARGUMENT", "signed"},
			"Stranger":   {object{"crl": b64(enginetest.NewCRL(t, stranger, 6, now, nil))}, 400, "INVALID_ARGUMENT", "trusted"},
			"Older":      {object{"crl": b64(enginetest.NewCRL(t, ca, 6, now.Add(-time.Hour), nil))}, 400, "INVALID_ARGUMENT", "older"},
			"NumberBack": {object{"crl": b64(enginetest.NewCRL(t, ca, 4, now, nil))}, 400, "INVALID_ARGUMENT", "older"},
			"NextUpdate": {object{"crl": b64(enginetest.NewCRL(t, ca, 6, now.Add(-8*24*time.Hour), nil))}, 400, "INVALID_ARGUMENT", "current one"},
		})
		s.refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, object{"crl": b64(held)}, http.StatusForbidden, "ACCESS_DENIED")
		s.ok(t, officer, "POST", path, object{"crl": b64(enginetest.NewCRL(t, ca, 6, now, nil))})
	})
}
