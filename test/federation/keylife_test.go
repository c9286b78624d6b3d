package federation

import (
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The state of a key also applies to the principals of peers, and their responses show it. Only the
// key's own key server changes the state.
func TestForwardedKeyStates(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner, caller := b.User(t, "owner", keyserver.RoleEncryptor), a.User(t, "caller", keyserver.RoleEncryptor)
		ttag := owner.Mint(t, []byte("key"))
		a.Expose(t, caller.ID, b.Site)
		owner.Grant(t, ttag, caller, "OWNER")
		link := rig.Object{"ttag": ttag}
		for _, act := range []string{"disable", "enable", "destroy", "restore", "rotate"} {
			a.Refused(t, caller.Session, "POST", "/api/keys/"+act, link, http.StatusBadRequest, "INVALID_ARGUMENT")
		}
		a.Refused(t, caller.Session, "PUT", "/api/keys/rotation", rig.Object{"ttag": ttag, "everyDays": 1, "verifyOnlyDays": 1, "destroyAfterDays": 1},
			http.StatusBadRequest, "INVALID_ARGUMENT")

		a.OK(t, caller.Session, "POST", "/api/crypto/hmac", hmacOf(ttag, nil))
		b.OK(t, owner.Session, "POST", "/api/keys/disable", link)
		for path, body := range map[string]rig.Object{"/api/keys/authorize": link, "/api/crypto/hmac": hmacOf(ttag, nil)} {
			refusal := a.Refused(t, caller.Session, "POST", path, body, http.StatusForbidden, "KEY_DISABLED")
			op := map[string]string{"/api/keys/authorize": "authorizeKey", "/api/crypto/hmac": "hmacData"}[path]
			if got := rig.FormatRows(a.Rows(t, refusal.RequestID)); got != `["`+op+` allowed" "`+op+` failed keyDisabled"]` {
				t.Errorf("%s, where it was asked: %s", path, got)
			}
			if got := rig.FormatRows(b.Rows(t, refusal.RequestID)); got != `["`+op+` refused keyDisabled"]` {
				t.Errorf("%s, where the key is: %s", path, got)
			}
		}
		b.OK(t, owner.Session, "POST", "/api/keys/enable", link)
		a.OK(t, caller.Session, "POST", "/api/crypto/hmac", hmacOf(ttag, nil))
		// Only the key's own key server counts the uses by a peer.
		for _, key := range b.OK(t, owner.Session, "GET", "/api/keys", nil).List(t, "keys") {
			if key["ttag"] == ttag && key["uses"] != 2.0 {
				t.Errorf("used %v times", key["uses"])
			}
		}
		if keys := a.OK(t, caller.Session, "GET", "/api/keys", nil).List(t, "keys"); len(keys) != 0 {
			t.Errorf("the caller's key server lists %v", keys)
		}
	})
}
