package federation

import (
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// macOf is what an HMAC has to be.
func macOf(key, message []byte) string {
	h := hmac.New(sha512.New384, key)
	h.Write(message)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func hmacOf(ttag string, message []byte) object {
	return object{"hiddenLink": ttag, "data": base64.StdEncoding.EncodeToString(message)}
}

// POST /api/keys/authorize rule 3 and POST /api/crypto/hmac: a foreign system
// id is forwarded with the caller's principal, and both sides write rows under
// one request id.
func TestForwardedKeyUse(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		material := []byte("the key that stays at home")
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		caller := a.user(t, "caller", keyserver.RoleExchanger)
		ttag := owner.mint(t, material)
		ask := object{"ttag": ttag, "filename": "/a/file"}

		// Not exposed: the peer is not even told.
		refusal := a.refused(t, caller.session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		if got := brief(a.rows(t, refusal.requestID)); got != "[authorizeKey refused notExposed]" {
			t.Errorf("not exposed: %s", got)
		}
		if rows := b.rows(t, refusal.requestID); len(rows) != 0 {
			t.Errorf("the peer was told: %s", brief(rows))
		}

		// Exposed, but not on the list.
		a.expose(t, caller.id, b)
		for path, body := range map[string]object{"/api/keys/authorize": ask, "/api/crypto/hmac": hmacOf(ttag, []byte("message"))} {
			refusal = a.refused(t, caller.session, "POST", path, body, http.StatusForbidden, "ACL_DENIED")
			op := map[string]string{"/api/keys/authorize": "authorizeKey", "/api/crypto/hmac": "hmacData"}[path]
			if got, want := brief(a.rows(t, refusal.requestID)), "["+op+" allowed  "+op+" failed aclDenied]"; got != want {
				t.Errorf("%s, where it was asked: %s, want %s", path, got, want)
			}
			rows := b.rows(t, refusal.requestID)
			if got := brief(rows); got != "["+op+" refused aclDenied]" {
				t.Errorf("%s, where the key is: %s", path, got)
			}
			if len(rows) == 1 && (rows[0]["principalId"] != caller.decimal && rows[0]["principalId"] != caller.id || rows[0]["systemId"] != float64(a.system) || rows[0]["sessionKind"] != "peer") {
				t.Errorf("the row names %v", rows[0])
			}
		}

		// On the list.
		owner.grant(t, ttag, caller, "READ")
		grant := a.ok(t, caller.session, "POST", "/api/keys/authorize", ask)
		if grant.body["authorized"] != true || grant.body["systemId"] != float64(b.system) || grant.body["filenameAudited"] != true {
			t.Errorf("granted: %s", grant.raw)
		}
		for _, s := range []*site{a, b} {
			rows := s.rows(t, grant.requestID)
			if got := brief(rows); got != "[authorizeKey allowed ]" || rows[0]["filename"] != "/a/file" || rows[0]["object"] != ttag {
				t.Errorf("at %d: %s %v", s.system, got, rows)
			}
		}
		for _, length := range []int{0, 1, 64, 1000, 64 << 10, 64<<10 + 1, 200_000, keyserver.MaxMessage} {
			message := make([]byte, length)
			for i := range message {
				message[i] = byte(i * 7)
			}
			out := a.ok(t, caller.session, "POST", "/api/crypto/hmac", hmacOf(ttag, message))
			if out.text("mac") != macOf(material, message) {
				t.Errorf("%d bytes: %s is not the HMAC", length, out.text("mac"))
			}
			for _, s := range []*site{a, b} {
				if got := brief(s.rows(t, out.requestID)); got != "[hmacData allowed ]" {
					t.Errorf("%d bytes, at %d: %s", length, s.system, got)
				}
			}
		}

		// The role is the home's to judge, and nothing is sent without it.
		auditor := a.user(t, "auditor", keyserver.RoleAuditor)
		a.expose(t, auditor.id, b)
		refusal = a.refused(t, auditor.session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		if got := brief(a.rows(t, refusal.requestID)); got != "[authorizeKey refused roleDenied]" {
			t.Errorf("without a role: %s", got)
		}
	})
}
