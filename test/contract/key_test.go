package contract

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// mint imports bytes as an HMAC key of the administrator and returns its hidden link.
func (s *subject) mint(t testing.TB, material string) string {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384", "material": b64([]byte(material))}).Text(t, "ttag")
}

// badLinks are invalid encodings of hidden links according to contract 1.4 and 2.7.
var badLinks = map[string]any{
	"Empty": "", "Null": nil, "Number": 7, "Array": []string{"AAAA"}, "StrayBits": "AAAAAR==", "NoPadding": "AAAAAQ",
	"LineBreak": "AAAA\nAQ==", "URLAlphabet": "AAAAA_8=", "Space": "AAAAAQ== ", "TooLong": strings.Repeat("AAAA", 30),
}

// POST /api/keys: mint or import.
func TestMintKey(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		for name, body := range map[string]any{
			"NoAlgorithm":      rig.Object{},
			"UnknownAlgorithm": rig.Object{"algorithm": "AES-128"},
			"EmptyMaterial":    rig.Object{"algorithm": "HMAC-SHA384", "material": ""},
			"LongMaterial":     rig.Object{"algorithm": "HMAC-SHA384", "material": b64(make([]byte, 1025))},
			"ShortAES":         rig.Object{"algorithm": "AES-256", "material": b64(make([]byte, 31))},
			"LongAES":          rig.Object{"algorithm": "AES-256", "material": b64(make([]byte, 33))},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", "/api/keys", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}, http.StatusForbidden, "ACCESS_DENIED")
		a := s.OK(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "AES-256"})
		if a.Body["keyBytes"] != 32.0 || a.Body["algorithm"] != "AES-256" || len(a.Text(t, "ttag")) != 16 {
			t.Errorf("got %s", a.Raw)
		}
		if a := s.OK(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384", "material": b64(make([]byte, 1024))}); a.Body["keyBytes"] != 1024.0 {
			t.Errorf("the longest import: %s", a.Raw)
		}
	})
}

// TestHMAC checks POST /api/crypto/hmac: it computes the HMAC-SHA384 of data under the key, 48 bytes.
func TestHMAC(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		const path = "/api/crypto/hmac"
		for name, bad := range badLinks {
			t.Run("HiddenLink"+name, func(t *testing.T) {
				s.Refused(t, admin, "POST", path, rig.Object{"hiddenLink": bad, "data": ""}, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		for name, body := range map[string]any{
			"MissingLink":   rig.Object{"data": ""},
			"MissingData":   rig.Object{"hiddenLink": link},
			"NullData":      rig.Object{"hiddenLink": link, "data": nil},
			"DataStrayBits": rig.Object{"hiddenLink": link, "data": "QR=="},
			"DataLineBreak": rig.Object{"hiddenLink": link, "data": "QUJD\r\nQUJD"},
			"Unknown":       rig.Object{"hiddenLink": link, "data": "", "dada": ""},
			"Trailing":      `{"hiddenLink":"` + link + `","data":""} {}`,
			"Duplicate":     `{"hiddenLink":"` + link + `","data":"","data":""}`,
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", path, body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", path, rig.Object{"hiddenLink": link, "data": ""}, http.StatusForbidden, "ACL_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, rig.Object{"hiddenLink": link, "data": ""}, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, admin, "POST", path, rig.Object{"hiddenLink": "AAAAAQECAwQFBgcI", "data": ""}, http.StatusNotFound, "KEY_NOT_FOUND")

		for _, message := range []string{"", "hello", strings.Repeat("long ", 50_000)} {
			reference := hmac.New(sha512.New384, []byte("key"))
			reference.Write([]byte(message))
			for name, body := range map[string]any{
				"LinkFirst": `{"hiddenLink":"` + link + `","data":"` + b64([]byte(message)) + `"}`,
				"DataFirst": `{"data":"` + b64([]byte(message)) + `","hiddenLink":"` + link + `"}`,
			} {
				a := s.OK(t, admin, "POST", path, body)
				if a.Text(t, "mac") != b64(reference.Sum(nil)) || a.Body["macBytes"] != 48.0 || a.Body["algorithm"] != "HMAC-SHA384" {
					t.Errorf("%s: got %s", name, a.Raw)
				}
			}
		}
	})
}

// TestAuditReasons checks that each refusal has an audit row with its reason, and that queries can filter by the
// reason.
func TestAuditReasons(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		link := s.mint(t, "key")
		auditor := s.with(t, keyserver.RoleAuditor)
		s.Send(t, s.with(t, keyserver.RoleExchanger), "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
		s.Send(t, auditor, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
		s.Send(t, s.AsAdmin(t), "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": "AAAAAQECAwQFBgcI", "data": ""})
		for _, reason := range []string{"aclDenied", "roleDenied", "objectNotFound"} {
			rows := s.OK(t, auditor, "GET", s.trail("reason="+reason, "operation=hmacData"), nil).List(t, "entries")
			if len(rows) != 1 || rows[0]["outcome"] != "refused" || rows[0]["reason"] != reason {
				t.Errorf("%s: got %v", reason, rows)
			}
		}
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", "/api/audit", nil, http.StatusForbidden, "ACCESS_DENIED")
		for _, query := range []string{"limit=0", "limit=1001", "limit=x", "reasons=aclDenied", "since=yesterday", "after=-1", "limit=1&limit=2"} {
			s.Refused(t, auditor, "GET", "/api/audit?"+query, nil, http.StatusBadRequest, "BAD_REQUEST")
		}
	})
}

// TestMessageSizeLimit checks that a message of 16777216 bytes is accepted and a longer one gets 400.
func TestMessageSizeLimit(t *testing.T) {
	s := one(t)
	admin, link := s.AsAdmin(t), s.mint(t, "key")
	most := bytes.Repeat([]byte{0xa5}, keyserver.MaxMessage)
	reference := hmac.New(sha512.New384, []byte("key"))
	reference.Write(most)
	a := s.OK(t, admin, "POST", "/api/crypto/hmac", `{"hiddenLink":"`+link+`","data":"`+b64(most)+`"}`)
	if a.Text(t, "mac") != b64(reference.Sum(nil)) {
		t.Errorf("the longest message: got %s", a.Raw)
	}
	for name, body := range map[string]string{
		"LinkFirst": `{"hiddenLink":"` + link + `","data":"` + b64(append(most, 0)) + `"}`,
		"DataFirst": `{"data":"` + b64(append(most, 0)) + `","hiddenLink":"` + link + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s.Refused(t, admin, "POST", "/api/crypto/hmac", body, http.StatusBadRequest, "BAD_REQUEST")
		})
	}
}

// TestAuthorizeKey checks POST /api/keys/authorize: status 200 means that the use is granted.
func TestAuthorizeKey(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		const path = "/api/keys/authorize"
		for name, bad := range badLinks {
			t.Run("Ttag"+name, func(t *testing.T) {
				s.Refused(t, admin, "POST", path, rig.Object{"ttag": bad}, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", path, rig.Object{"ttag": link}, http.StatusForbidden, "ACL_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", path, rig.Object{"ttag": link}, http.StatusForbidden, "ACCESS_DENIED")
		a := s.OK(t, admin, "POST", path, rig.Object{"ttag": link})
		if a.Body["authorized"] != true || a.Body["systemId"] != 1.0 || a.Body["filenameAudited"] != false {
			t.Errorf("got %s", a.Raw)
		}
		a = s.OK(t, admin, "POST", path, rig.Object{"ttag": link, "filename": "plans.pdf"})
		rows := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", s.trail("operation=authorizeKey&limit=1000"), nil).List(t, "entries")
		if a.Body["filenameAudited"] != true || rows[len(rows)-1]["filename"] != "plans.pdf" {
			t.Errorf("got %s and the row %v", a.Raw, rows[len(rows)-1])
		}
	})
}

// POST /api/keys/get needs a transport principal.
func TestKeyMetadataIsForTransportPrincipals(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		for name, bad := range badLinks {
			t.Run("Ttag"+name, func(t *testing.T) {
				s.Refused(t, admin, "POST", "/api/keys/get", rig.Object{"ttag": bad}, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, admin, "POST", "/api/keys/get", rig.Object{"ttag": link}, http.StatusForbidden, "ACCESS_DENIED")
	})
}
