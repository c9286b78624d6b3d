package contract

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// newCA creates a CA that is not trusted yet.
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
	a := s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-cas", rig.Object{"certificate": b64(ca.Certificate.Raw)})
	return a.Text(t, "trustedCA", "certificateId")
}

// rows returns the objects of a list whose member has this value.
func rows(list []rig.Object, member string, value any) []rig.Object {
	return slices.DeleteFunc(list, func(o rig.Object) bool { return o[member] != value })
}

// listed returns a CA from the trust list.
func (s *subject) listed(t testing.TB, ca pki.Identity) rig.Object {
	t.Helper()
	all := s.OK(t, s.AsAdmin(t), "GET", "/api/trusted-cas", nil)
	list := rows(all.List(t, "trustedCAs"), "revocationDigest", pki.RevocationDigest(ca.Certificate.Raw))
	if len(list) != 1 {
		t.Fatalf("%s is not in the list once: %s", ca.Certificate.Subject, all.Raw)
	}
	return list[0]
}

// POST /api/trusted-cas: one CA certificate in DER, verified by a new read.
func TestAddTrustedCA(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, ca := s.AsAdmin(t), newCA(t, s.name("new"))
		leaf, err := ca.IssueServer("leaf", nil, nil, time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der := ca.Certificate.Raw
		for name, body := range map[string]any{
			"Absent":       rig.Object{},
			"Null":         rig.Object{"certificate": nil},
			"Empty":        rig.Object{"certificate": ""},
			"Array":        rig.Object{"certificate": []string{b64(der)}},
			"PEM":          rig.Object{"certificate": string(pki.EncodePEM(der))},
			"PEMAsBase64":  rig.Object{"certificate": b64(pki.EncodePEM(der))},
			"Two":          rig.Object{"certificate": b64(append(append([]byte{}, der...), der...))},
			"Leaf":         rig.Object{"certificate": b64(leaf.Certificate.Raw)},
			"LineBreak":    rig.Object{"certificate": b64(der)[:64] + "\n" + b64(der)[64:]},
			"NotCanonical": rig.Object{"certificate": base64.RawStdEncoding.EncodeToString(der[:10])},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", "/api/trusted-cas", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, "", "POST", "/api/trusted-cas", rig.Object{"certificate": b64(der)}, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", "/api/trusted-cas", rig.Object{"certificate": b64(der)}, http.StatusForbidden, "ACCESS_DENIED")

		before := float64(len(s.OK(t, admin, "GET", "/api/trusted-cas", nil).List(t, "trustedCAs")))
		a := s.OK(t, admin, "POST", "/api/trusted-cas", rig.Object{"certificate": b64(der)})
		if a.Body["saved"] != true || a.Body["matchedBy"] != "certificate-body" || a.Body["listCountBefore"] != before || a.Body["listCountAfter"] != before+1 {
			t.Errorf("added: %s", a.Raw)
		}
		if a.Text(t, "trustedCA", "subject") != s.name("/CN=new") || a.Text(t, "trustedCA", "statusLabel") != "CA" {
			t.Errorf("the row: %s", a.Raw)
		}
		if body, sent := a.At(t, "trustedCA").(rig.Object)["certificate"]; sent {
			t.Errorf("a body is there although none was asked for: %v", body)
		}
		s.Refused(t, admin, "POST", "/api/trusted-cas", rig.Object{"certificate": b64(der)}, http.StatusConflict, "ALREADY_TRUSTED")
	}, alone)
}

// GET /api/trusted-cas: the list, with each CA's revocation digest.
func TestListTrustedCAs(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		ca := newCA(t, s.name("listed"))
		id := s.trust(t, ca)
		list := rows(s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/trusted-cas", nil).List(t, "trustedCAs"), "certificateId", id)
		if len(list) != 1 || list[0]["revocationDigest"] != pki.RevocationDigest(ca.Certificate.Raw) {
			t.Errorf("got %v", list)
		}
		if list[0]["certificate"] != nil {
			t.Error("the list has bodies that nobody asked for")
		}
		s.Refused(t, s.AsAdmin(t), "GET", "/api/trusted-cas?includeBodies=yes", nil, http.StatusBadRequest, "BAD_REQUEST")
		list = rows(s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/trusted-cas?includeBodies=true", nil).List(t, "trustedCAs"), "certificateId", id)
		if len(list) != 1 || list[0]["certificate"] != b64(ca.Certificate.Raw) {
			t.Errorf("with bodies: %v", list)
		}
	})
}

// TestRemoveTrustedCA checks POST /api/trusted-cas/remove, which verifies the removal by a new read.
func TestRemoveTrustedCA(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		ca := newCA(t, s.name("removed"))
		id := s.trust(t, ca)
		raw, err := base64.StdEncoding.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string]any{
			"Absent": rig.Object{}, "Empty": rig.Object{"certificateId": ""}, "Number": rig.Object{"certificateId": 5},
			"Hex": rig.Object{"certificateId": keyserver.ID(raw).Hex()}, "Decimal": rig.Object{"certificateId": keyserver.ID(raw).Decimal()},
			"SevenBytes": rig.Object{"certificateId": b64(raw[:7])}, "Zero": rig.Object{"certificateId": b64(make([]byte, 8))},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", "/api/trusted-cas/remove", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, admin, "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": b64([]byte("12345678"))}, http.StatusNotFound, "NOT_TRUSTED")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": id}, http.StatusForbidden, "ACCESS_DENIED")

		before := float64(len(s.OK(t, admin, "GET", "/api/trusted-cas", nil).List(t, "trustedCAs")))
		a := s.OK(t, admin, "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": id})
		if a.Body["gone"] != true || a.Body["certificateId"] != id || a.Body["listCountBefore"] != before || a.Body["listCountAfter"] != before-1 {
			t.Errorf("removed: %s", a.Raw)
		}
		if a.Text(t, "trustedCA", "subject") != s.name("/CN=removed") {
			t.Errorf("the row as it stood before: %s", a.Raw)
		}
		s.Refused(t, admin, "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": id}, http.StatusNotFound, "NOT_TRUSTED")
	}, alone)
}

// TestTrustedCAsOnASplitDeployment checks that in a split deployment the Security Officer manages trusted CAs.
func TestTrustedCAsOnASplitDeployment(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		body := rig.Object{"certificate": b64(newCA(t, s.name("split")).Certificate.Raw)}
		s.Refused(t, s.AsAdmin(t), "POST", "/api/trusted-cas", body, http.StatusForbidden, "ACCESS_DENIED")
		s.OK(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", "/api/trusted-cas", body)
		s.OK(t, s.AsAdmin(t), "GET", "/api/trusted-cas", nil)
	}, split)
}
