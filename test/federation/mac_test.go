package federation

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The peer that has a key or key lineage executes and counts POST /api/crypto/mac, mac/verify, encrypt and decrypt.
// Both key servers have audit rows. A batch is not forwarded.
func TestForwardedMACsAndEncryption(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		material := []byte("the key that stays at home")
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleExchanger)
		line := owner.Mint(t, material)
		aes := b.OK(t, owner.Session, "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}).Text(t, "ttag")
		encode := base64.StdEncoding.EncodeToString

		mac := func(message []byte) rig.Object { return rig.Object{"lineage": line, "data": encode(message)} }
		refusal := a.Refused(t, caller.Session, "POST", "/api/crypto/mac", mac(nil), http.StatusForbidden, "ACCESS_DENIED")
		if rows := b.Rows(t, refusal.RequestID); len(rows) != 0 {
			t.Errorf("the peer was told: %s", rig.FormatRows(rows))
		}
		a.Expose(t, caller.ID, b.Site)
		refusal = a.Refused(t, caller.Session, "POST", "/api/crypto/mac", mac(nil), http.StatusForbidden, "ACL_DENIED")
		if got := rig.FormatRows(b.Rows(t, refusal.RequestID)); got != `["macData refused aclDenied"]` {
			t.Errorf("where the key is: %s", got)
		}
		owner.Grant(t, line, caller, "READ")
		owner.Grant(t, aes, caller, "READ")
		done := func(out rig.Answer, op, ttag string) {
			t.Helper()
			if out.Text(t, "ttag") != ttag || out.Body["generation"] != 1.0 {
				t.Errorf("%s: got %.200s", op, out.Raw)
			}
			for _, s := range []*site{a, b} {
				rows := s.Rows(t, out.RequestID)
				if got := rig.FormatRows(rows); got != `["`+op+` allowed"]` || rows[0]["object"] != ttag {
					t.Errorf("%s, at %d: %s %v", op, s.System, got, rows)
				}
			}
		}
		for _, length := range []int{0, 1000, 64 << 10, 200_000} {
			message := make([]byte, length)
			out := a.OK(t, caller.Session, "POST", "/api/crypto/mac", mac(message))
			if out.Field("mac") != macOf(material, message) {
				t.Errorf("%d bytes: %s is not the MAC", length, out.Field("mac"))
			}
			done(out, "macData", line)
			for _, ask := range []rig.Object{{"ttag": line}, {"lineage": line}, {"lineage": line, "mac": macOf([]byte("other"), message)}} {
				valid := ask["mac"] == nil
				if valid {
					ask["mac"] = macOf(material, message)
				}
				ask["data"] = encode(message)
				out := a.OK(t, caller.Session, "POST", "/api/crypto/mac/verify", ask)
				if out.Body["valid"] != valid {
					t.Errorf("%d bytes: %s", length, out.Raw)
				}
				done(out, "verifyMAC", line)
			}
		}
		for _, length := range []int{0, 1000, 64 << 10} {
			ask := rig.Object{"lineage": aes, "data": encode(make([]byte, length)), "associatedData": encode(make([]byte, 4096))}
			out := a.OK(t, caller.Session, "POST", "/api/crypto/encrypt", ask)
			done(out, "encryptData", aes)
			back := a.OK(t, caller.Session, "POST", "/api/crypto/decrypt", rig.Object{"ttag": aes, "ciphertext": out.Field("ciphertext"), "associatedData": ask["associatedData"]})
			if back.Field("data") != ask["data"] {
				t.Errorf("%d bytes: got %.200s", length, back.Raw)
			}
			done(back, "decryptData", aes)
			a.Refused(t, caller.Session, "POST", "/api/crypto/decrypt", rig.Object{"ttag": aes, "ciphertext": out.Field("ciphertext")}, http.StatusBadRequest, "INVALID_ARGUMENT")
		}
		items := a.OK(t, caller.Session, "POST", "/api/crypto/mac/batch", rig.Object{"items": []rig.Object{mac(nil)}}).List(t, "items")
		if items[0]["code"] != "INVALID_ARGUMENT" {
			t.Errorf("a batch: %v", items)
		}
		items = a.OK(t, caller.Session, "POST", "/api/crypto/mac/verify/batch", rig.Object{"items": []rig.Object{{"ttag": line, "mac": macOf(material, nil), "data": ""}}}).List(t, "items")
		if items[0]["code"] != "INVALID_ARGUMENT" {
			t.Errorf("a batch of MACs to verify: %v", items)
		}

		// Each use is counted once, at the key's own key server.
		counted := owner.Mint(t, material)
		entry := caller.Entry(counted, "READ")
		entry["maxUsage"] = 2
		b.OK(t, owner.Session, "POST", "/api/keys/acl/grant", entry)
		ask := rig.Object{"lineage": counted, "data": ""}
		a.OK(t, caller.Session, "POST", "/api/crypto/mac", ask)
		a.OK(t, caller.Session, "POST", "/api/crypto/mac/verify", rig.Object{"ttag": counted, "mac": macOf(material, nil), "data": ""})
		a.Refused(t, caller.Session, "POST", "/api/crypto/mac", ask, http.StatusForbidden, "ACL_DENIED")
	})
}
