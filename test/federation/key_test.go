package federation

import (
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func macOf(key, message []byte) string {
	h := hmac.New(sha512.New384, key)
	h.Write(message)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func hmacOf(ttag string, message []byte) rig.Object {
	return rig.Object{"hiddenLink": ttag, "data": base64.StdEncoding.EncodeToString(message)}
}

// POST /api/keys/authorize rule 3 and POST /api/crypto/hmac: a request for a key of a peer is forwarded with the
// caller's principal. Both key servers write audit rows with the same request id.
func TestForwardedKeyUse(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		material := []byte("the key that stays at home")
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleExchanger)
		ttag := owner.Mint(t, material)
		ask := rig.Object{"ttag": ttag, "filename": "/a/file"}

		// The principal is not exposed, so that the peer gets no request.
		refusal := a.Refused(t, caller.Session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		if got := rig.FormatRows(a.Rows(t, refusal.RequestID)); got != `["authorizeKey refused notExposed"]` {
			t.Errorf("not exposed: %s", got)
		}
		if rows := b.Rows(t, refusal.RequestID); len(rows) != 0 {
			t.Errorf("the peer was told: %s", rig.FormatRows(rows))
		}

		// The principal is exposed, but not in the ACL.
		a.Expose(t, caller.ID, b.Site)
		for path, body := range map[string]rig.Object{"/api/keys/authorize": ask, "/api/crypto/hmac": hmacOf(ttag, []byte("message"))} {
			refusal = a.Refused(t, caller.Session, "POST", path, body, http.StatusForbidden, "ACL_DENIED")
			op := map[string]string{"/api/keys/authorize": "authorizeKey", "/api/crypto/hmac": "hmacData"}[path]
			if got, want := rig.FormatRows(a.Rows(t, refusal.RequestID)), `["`+op+` allowed" "`+op+` failed aclDenied"]`; got != want {
				t.Errorf("%s, where it was asked: %s, want %s", path, got, want)
			}
			rows := b.Rows(t, refusal.RequestID)
			if got := rig.FormatRows(rows); got != `["`+op+` refused aclDenied"]` {
				t.Errorf("%s, where the key is: %s", path, got)
			}
			if len(rows) == 1 && (rows[0]["principalId"] != caller.Decimal && rows[0]["principalId"] != caller.ID || rows[0]["systemId"] != float64(a.System) || rows[0]["sessionKind"] != "peer") {
				t.Errorf("the row names %v", rows[0])
			}
		}

		// The principal is in the ACL.
		owner.Grant(t, ttag, caller, "READ")
		grant := a.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)
		if grant.Body["authorized"] != true || grant.Body["systemId"] != float64(b.System) || grant.Body["filenameAudited"] != true {
			t.Errorf("granted: %s", grant.Raw)
		}
		for _, s := range []*site{a, b} {
			rows := s.Rows(t, grant.RequestID)
			if got := rig.FormatRows(rows); got != `["authorizeKey allowed"]` || rows[0]["filename"] != "/a/file" || rows[0]["object"] != ttag {
				t.Errorf("at %d: %s %v", s.System, got, rows)
			}
		}
		for _, length := range []int{0, 1, 64, 1000, 64 << 10, 64<<10 + 1, 200_000, keyserver.MaxMessage} {
			message := make([]byte, length)
			for i := range message {
				message[i] = byte(i * 7)
			}
			out := a.OK(t, caller.Session, "POST", "/api/crypto/hmac", hmacOf(ttag, message))
			if out.Field("mac") != macOf(material, message) {
				t.Errorf("%d bytes: %s is not the HMAC", length, out.Field("mac"))
			}
			for _, s := range []*site{a, b} {
				if got := rig.FormatRows(s.Rows(t, out.RequestID)); got != `["hmacData allowed"]` {
					t.Errorf("%d bytes, at %d: %s", length, s.System, got)
				}
			}
		}

		// The caller's key server checks the role, and forwards nothing without it.
		auditor := a.User(t, "auditor", keyserver.RoleAuditor)
		a.Expose(t, auditor.ID, b.Site)
		refusal = a.Refused(t, auditor.Session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		if got := rig.FormatRows(a.Rows(t, refusal.RequestID)); got != `["authorizeKey refused roleDenied"]` {
			t.Errorf("without a role: %s", got)
		}
	})
}
