package contract

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// of returns the issuer with a digest from a response.
func of(t testing.TB, a rig.Answer, digest string) rig.Object {
	t.Helper()
	issuers := a.List(t, "issuers")
	at := slices.IndexFunc(issuers, func(o rig.Object) bool { return o["digest"] == digest })
	if at < 0 {
		t.Fatalf("no issuer %s: %s", digest, a.Raw)
	}
	return issuers[at]
}

// TestRevocationIssuers checks GET /api/revocation/issuers: the trusted CAs by digest, with their policy and the age of
// their revocation evidence.
func TestRevocationIssuers(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/revocation/issuers"
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		ca := newCA(t, s.name("outside"))
		digest := s.trustIssuer(t, ca)
		for _, role := range []keyserver.ID{keyserver.RoleSecurityOfficer, keyserver.RoleAuditor} {
			issuer := of(t, s.OK(t, s.with(t, role), "GET", path, nil), digest)
			if issuer["digest"] != digest || issuer["mode"] != "off" || issuer["evidence"] != "none" || issuer["crl"] != nil || issuer["subject"] != s.name("/CN=outside") {
				t.Errorf("without policy and list: %v", issuer)
			}
		}
		id := s.OK(t, s.AsAdmin(t), "GET", "/api/trusted-cas?includeBodies=true", nil)
		if at := slices.IndexFunc(id.List(t, "trustedCAs"), func(row rig.Object) bool { return row["certificate"] == b64(ca.Certificate.Raw) }); at < 0 || id.List(t, "trustedCAs")[at]["revocationDigest"] != digest {
			t.Errorf("the trusted list shows %s", id.Raw)
		}
	})
}

// GET and PUT /api/revocation/issuers/{digest}/policy.
func TestRevocationPolicy(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		digest := s.trustIssuer(t, newCA(t, s.name("outside")))
		path := "/api/revocation/issuers/" + digest + "/policy"
		unknown := "/api/revocation/issuers/" + strings.Repeat("AB", 48) + "/policy"
		required := rig.Object{"mode": "required", "maxAgeSeconds": 3600}
		s.badRequests(t, s.AsAdmin(t), "PUT", path, map[string]badRequest{
			"NoMode":      {rig.Object{"maxAgeSeconds": 1}, 400, "BAD_REQUEST", "mode"},
			"UnknownMode": {rig.Object{"mode": "on"}, 400, "BAD_REQUEST", "mode"},
			"NegativeAge": {rig.Object{"mode": "required", "maxAgeSeconds": -1}, 400, "BAD_REQUEST", "maxAgeSeconds"},
			"EndlessAge":  {rig.Object{"mode": "required", "maxAgeSeconds": 31622401}, 400, "BAD_REQUEST", "maxAgeSeconds"},
			"Misspelt":    {rig.Object{"mode": "required", "maxAge": 60}, 400, "BAD_REQUEST", "maxAge"},
		})
		s.Refused(t, s.AsAdmin(t), "GET", unknown, nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, s.AsAdmin(t), "PUT", unknown, required, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, s.AsAdmin(t), "GET", "/api/revocation/issuers/abc/policy", nil, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "PUT", path, required, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")

		if a := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", path, nil); a.Body["mode"] != "off" || a.Body["maxAgeSeconds"] != 0.0 || a.Body["digest"] != digest {
			t.Errorf("a trusted CA without a policy: %s", a.Raw)
		}
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		if a := s.OK(t, officer, "PUT", path, required); a.Body["saved"] != true || a.Body["mode"] != "required" || a.Body["maxAgeSeconds"] != 3600.0 {
			t.Errorf("set: %s", a.Raw)
		}
		// A lower-case digest identifies the same issuer.
		if a := s.OK(t, officer, "GET", strings.Replace(path, digest, strings.ToLower(digest), 1), nil); a.Body["mode"] != "required" || a.Body["maxAgeSeconds"] != 3600.0 {
			t.Errorf("read: %s", a.Raw)
		}
		if a := s.OK(t, officer, "PUT", path, rig.Object{"mode": "when-available"}); a.Body["mode"] != "when-available" || a.Body["maxAgeSeconds"] != 0.0 {
			t.Errorf("set again: %s", a.Raw)
		}
	})
}

// TestRevocationOnASplitDeployment checks that in a split deployment the Security Officer manages revocation.
func TestRevocationOnASplitDeployment(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		path := "/api/revocation/issuers/" + strings.Repeat("AB", 32) + "/policy"
		s.Refused(t, s.AsAdmin(t), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.AsAdmin(t), "PUT", path, rig.Object{"mode": "off"}, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.AsAdmin(t), "POST", "/api/revocation/crls", rig.Object{"crl": "AAAA"}, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "GET", path, nil, http.StatusNotFound, "NOT_FOUND")
	}, split)
}

// TestImportCRL checks POST /api/revocation/crls: a CRL must be signed by a trusted CA, not older than the
// current one, and before its nextUpdate.
func TestImportCRL(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/revocation/crls"
		ca, stranger := newCA(t, s.name("outside")), newCA(t, s.name("outside"))
		digest := s.trustIssuer(t, ca)
		now := time.Now().Truncate(time.Second)
		revoked := enginetest.NewAgent(t, ca, s.name("agent"), now, nil).Certificate
		held := enginetest.NewCRL(t, ca, 5, now.Add(-time.Minute), nil, revoked)
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		for form, spelled := range map[string]string{"base64": b64(held), "PEM": pemOf("X509 CRL", held)} {
			a := s.OK(t, officer, "POST", path, rig.Object{"crl": spelled})
			issuer := of(t, a, digest)
			crl, _ := issuer["crl"].(rig.Object)
			if a.Body["saved"] != true || issuer["digest"] != digest || issuer["evidence"] != "current" || crl["revoked"] != 1.0 ||
				crl["thisUpdate"] != now.Add(-time.Minute).UTC().Format(time.RFC3339) || crl["number"] != b64([]byte{5}) {
				t.Errorf("%s: %s", form, a.Raw)
			}
			if !strings.Contains(a.Text(t, "detail"), "off") {
				t.Errorf("does not say that the policy is off: %s", a.Raw)
			}
		}
		broken := bytes.Clone(held)
		broken[len(broken)-1] ^= 1
		s.badRequests(t, officer, "POST", path, map[string]badRequest{
			"Absent":     {rig.Object{}, 400, "BAD_REQUEST", "crl"},
			"Empty":      {rig.Object{"crl": ""}, 400, "BAD_REQUEST", "crl"},
			"TooLong":    {rig.Object{"crl": strings.Repeat("AAAA", 1398102)}, 400, "BAD_REQUEST", "crl"},
			"NoList":     {rig.Object{"crl": b64([]byte("x"))}, 400, "INVALID_ARGUMENT", ""},
			"Signature":  {rig.Object{"crl": b64(broken)}, 400, "INVALID_ARGUMENT", "signed"},
			"Stranger":   {rig.Object{"crl": b64(enginetest.NewCRL(t, stranger, 6, now, nil))}, 400, "INVALID_ARGUMENT", "trusted"},
			"Older":      {rig.Object{"crl": b64(enginetest.NewCRL(t, ca, 6, now.Add(-time.Hour), nil))}, 400, "INVALID_ARGUMENT", "older"},
			"NumberBack": {rig.Object{"crl": b64(enginetest.NewCRL(t, ca, 4, now, nil))}, 400, "INVALID_ARGUMENT", "older"},
			"NextUpdate": {rig.Object{"crl": b64(enginetest.NewCRL(t, ca, 6, now.Add(-8*24*time.Hour), nil))}, 400, "INVALID_ARGUMENT", "current one"},
		})
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, rig.Object{"crl": b64(held)}, http.StatusForbidden, "ACCESS_DENIED")
		s.OK(t, officer, "POST", path, rig.Object{"crl": b64(enginetest.NewCRL(t, ca, 6, now, nil))})
	})
}
