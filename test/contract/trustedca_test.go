package contract

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
)

// newCA makes a CA that nobody trusts yet.
func newCA(t testing.TB, name string) pki.Identity {
	t.Helper()
	ca, err := pki.NewCA(name, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// trust adds a CA and returns its certificateId.
func (s *subject) trust(t testing.TB, ca pki.Identity) string {
	t.Helper()
	a := s.ok(t, s.admin(t), "POST", "/api/trusted-cas", object{"certificate": b64(ca.Certificate.Raw)})
	return a.text(t, "trustedCA", "certificateId")
}

// POST /api/trusted-cas: one DER CA certificate, verified by a fresh read.
func TestAddTrustedCA(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, ca := s.admin(t), newCA(t, "new")
		leaf, err := ca.IssueServer("leaf", nil, nil, time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der := ca.Certificate.Raw
		for name, body := range map[string]any{
			"Absent":       object{},
			"Null":         object{"certificate": nil},
			"Empty":        object{"certificate": ""},
			"Array":        object{"certificate": []string{b64(der)}},
			"PEM":          object{"certificate": string(pki.EncodePEM(der))},
			"PEMAsBase64":  object{"certificate": b64(pki.EncodePEM(der))},
			"Two":          object{"certificate": b64(append(append([]byte{}, der...), der...))},
			"Leaf":         object{"certificate": b64(leaf.Certificate.Raw)},
			"LineBreak":    object{"certificate": b64(der)[:64] + "\n" + b64(der)[64:]},
			"NotCanonical": object{"certificate": base64.RawStdEncoding.EncodeToString(der[:10])},
		} {
			t.Run(name, func(t *testing.T) {
				s.refused(t, admin, "POST", "/api/trusted-cas", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.refused(t, "", "POST", "/api/trusted-cas", object{"certificate": b64(der)}, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.refused(t, s.with(t, keyserver.RoleAuditor), "POST", "/api/trusted-cas", object{"certificate": b64(der)}, http.StatusForbidden, "ACCESS_DENIED")

		a := s.ok(t, admin, "POST", "/api/trusted-cas", object{"certificate": b64(der)})
		if a.body["saved"] != true || a.body["matchedBy"] != "certificate-body" || a.body["listCountBefore"] != 0.0 || a.body["listCountAfter"] != 1.0 {
			t.Errorf("added: %s", a.raw)
		}
		if a.text(t, "trustedCA", "subject") != "/CN=new" || a.text(t, "trustedCA", "statusLabel") != "CA" {
			t.Errorf("the row: %s", a.raw)
		}
		if body, sent := a.at(t, "trustedCA").(object)["certificate"]; sent {
			t.Errorf("a body is there although none was asked for: %v", body)
		}
		s.refused(t, admin, "POST", "/api/trusted-cas", object{"certificate": b64(der)}, http.StatusConflict, "ALREADY_TRUSTED")
	})
}

// GET /api/trusted-cas: the list, with each CA's revocation digest.
func TestListTrustedCAs(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		if list := s.ok(t, s.admin(t), "GET", "/api/trusted-cas", nil).list(t, "trustedCAs"); len(list) != 0 {
			t.Errorf("a fresh server trusts %v", list)
		}
		ca := newCA(t, "listed")
		id := s.trust(t, ca)
		list := s.ok(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/trusted-cas", nil).list(t, "trustedCAs")
		if len(list) != 1 || list[0]["certificateId"] != id || list[0]["revocationDigest"] != pki.RevocationDigest(ca.Certificate.Raw) {
			t.Errorf("got %v", list)
		}
		if list[0]["certificate"] != nil {
			t.Error("the list has bodies that nobody asked for")
		}
		s.refused(t, s.admin(t), "GET", "/api/trusted-cas?includeBodies=yes", nil, http.StatusBadRequest, "BAD_REQUEST")
		list = s.ok(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/trusted-cas?includeBodies=true", nil).list(t, "trustedCAs")
		if len(list) != 1 || list[0]["certificate"] != b64(ca.Certificate.Raw) {
			t.Errorf("with bodies: %v", list)
		}
	})
}

// POST /api/trusted-cas/remove: verified by absence from a fresh read.
func TestRemoveTrustedCA(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		ca := newCA(t, "removed")
		id := s.trust(t, ca)
		raw, err := base64.StdEncoding.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string]any{
			"Absent": object{}, "Empty": object{"certificateId": ""}, "Number": object{"certificateId": 5},
			"Hex": object{"certificateId": keyserver.ID(raw).Hex()}, "Decimal": object{"certificateId": keyserver.ID(raw).Decimal()},
			"SevenBytes": object{"certificateId": b64(raw[:7])}, "Zero": object{"certificateId": b64(make([]byte, 8))},
		} {
			t.Run(name, func(t *testing.T) {
				s.refused(t, admin, "POST", "/api/trusted-cas/remove", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.refused(t, admin, "POST", "/api/trusted-cas/remove", object{"certificateId": b64([]byte("12345678"))}, http.StatusNotFound, "NOT_TRUSTED")
		s.refused(t, s.with(t, keyserver.RoleAuditor), "POST", "/api/trusted-cas/remove", object{"certificateId": id}, http.StatusForbidden, "ACCESS_DENIED")

		a := s.ok(t, admin, "POST", "/api/trusted-cas/remove", object{"certificateId": id})
		if a.body["gone"] != true || a.body["certificateId"] != id || a.body["listCountBefore"] != 1.0 || a.body["listCountAfter"] != 0.0 {
			t.Errorf("removed: %s", a.raw)
		}
		if a.text(t, "trustedCA", "subject") != "/CN=removed" {
			t.Errorf("the row as it stood before: %s", a.raw)
		}
		s.refused(t, admin, "POST", "/api/trusted-cas/remove", object{"certificateId": id}, http.StatusNotFound, "NOT_TRUSTED")
	})
}

// On a split deployment, trust is the Security Officer's.
func TestTrustedCAsOnASplitDeployment(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		body := object{"certificate": b64(newCA(t, "split").Certificate.Raw)}
		s.refused(t, s.admin(t), "POST", "/api/trusted-cas", body, http.StatusForbidden, "ACCESS_DENIED")
		s.ok(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", "/api/trusted-cas", body)
		s.ok(t, s.admin(t), "GET", "/api/trusted-cas", nil)
	}, split)
}
