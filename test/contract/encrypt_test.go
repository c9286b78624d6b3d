package contract

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const (
	encryptPath = "/api/crypto/encrypt"
	decryptPath = "/api/crypto/decrypt"
)

// POST /api/crypto/encrypt and decrypt (7.23).
func TestEncryptAndDecrypt(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, key, other, hmac := s.AsAdmin(t), s.aes(t), s.aes(t), s.mint(t, "key")
		body := func(all, change rig.Object) rig.Object {
			all = maps.Clone(all)
			maps.Copy(all, change)
			maps.DeleteFunc(all, func(_ string, v any) bool { return v == "none" })
			return all
		}
		encrypt := rig.Object{"ttag": key, "data": b64([]byte("a text")), "associatedData": b64([]byte("of somebody"))}
		for name, change := range map[string]rig.Object{
			"NoKey": {"ttag": "none"}, "Both": {"lineage": key}, "NoData": {"data": "none"}, "StrayData": {"data": "QR=="},
			"LongData": {"data": b64(make([]byte, 65537))}, "LongAssociated": {"associatedData": b64(make([]byte, 4097))},
			"NullAssociated": {"associatedData": nil}, "Unknown": {"nonce": ""},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", encryptPath, body(encrypt, change), http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		for _, path := range []string{encryptPath, decryptPath} {
			ask := encrypt
			if path == decryptPath {
				ask = rig.Object{"ttag": key, "ciphertext": b64(append([]byte{1}, unb64(t, key)[4:]...)) + strings.Repeat("AAAA", 10)}
			}
			s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", path, ask, http.StatusForbidden, "ACL_DENIED")
			s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, ask, http.StatusForbidden, "ACCESS_DENIED")
			s.Refused(t, admin, "POST", path, body(ask, rig.Object{"ttag": "AAAAAQECAwQFBgcI"}), http.StatusNotFound, "KEY_NOT_FOUND")
			s.Refused(t, admin, "POST", path, body(ask, rig.Object{"ttag": hmac}), http.StatusBadRequest, "INVALID_ARGUMENT")
		}
		for name, change := range map[string]rig.Object{
			"ByKey": nil, "ByLine": {"ttag": "none", "lineage": key}, "Empty": {"data": ""}, "NoAssociated": {"associatedData": "none"},
			"Longest": {"data": b64(make([]byte, 65536)), "associatedData": b64(make([]byte, 4096))},
		} {
			asked := body(encrypt, change)
			a := s.OK(t, admin, "POST", encryptPath, asked)
			sealed := unb64(t, a.Text(t, "ciphertext"))
			if a.Text(t, "ttag") != key || a.Body["generation"] != 1.0 || a.Body["algorithm"] != "AES-256-GCM" ||
				sealed[0] != 1 || string(sealed[1:9]) != string(unb64(t, key)[4:]) || len(sealed) != len(unb64(t, asked["data"].(string)))+37 {
				t.Errorf("%s: got %.200s", name, a.Raw)
			}
			ask := rig.Object{"ciphertext": b64(sealed), "associatedData": "none"}
			if asked["associatedData"] != nil {
				ask["associatedData"] = asked["associatedData"]
			}
			for _, named := range []string{"ttag", "lineage"} {
				a := s.OK(t, admin, "POST", decryptPath, body(ask, rig.Object{named: key}))
				if a.Text(t, "data") != asked["data"] || a.Text(t, "ttag") != key || a.Body["generation"] != 1.0 {
					t.Errorf("%s: got %.200s", name, a.Raw)
				}
			}
		}
		sealed := s.OK(t, admin, "POST", encryptPath, encrypt).Text(t, "ciphertext")
		flipped := unb64(t, sealed)
		flipped[len(flipped)-1] ^= 1
		decrypt := rig.Object{"ttag": key, "ciphertext": sealed, "associatedData": b64([]byte("of somebody"))}
		for name, change := range map[string]rig.Object{
			"Flipped": {"ciphertext": b64(flipped)}, "OtherAssociated": {"associatedData": ""}, "NoAssociated": {"associatedData": "none"},
			"OtherKey": {"ttag": other}, "OtherLine": {"ttag": "none", "lineage": other}, "NoCiphertext": {"ciphertext": "AAAA"},
		} {
			a := s.Refused(t, admin, "POST", decryptPath, body(decrypt, change), http.StatusBadRequest, "INVALID_ARGUMENT")
			rows := s.Rows(t, a.RequestID)
			if last := rows[len(rows)-1]; last["reason"] != "invalidArgument" || last["operation"] != "decryptData" {
				t.Errorf("%s: the trail has %s", name, rig.FormatRows(rows))
			}
		}
		for name, change := range map[string]rig.Object{
			"Empty": {"ciphertext": ""}, "TooLong": {"ciphertext": b64(make([]byte, 65574))}, "Both": {"lineage": key}, "NoKey": {"ttag": "none"},
		} {
			t.Run("Decrypt"+name, func(t *testing.T) {
				s.Refused(t, admin, "POST", decryptPath, body(decrypt, change), http.StatusBadRequest, "BAD_REQUEST")
			})
		}
	})
}

// TestEncryptionKeysEnd checks that a key lineage decrypts ciphertext of every generation, and that the number
// of encryptions of one key is limited (7.23, 7.24).
func TestEncryptionKeysEnd(t *testing.T) {
	intrude(t, opened, func(t *testing.T, s *subject, in intruder) {
		line := s.aes(t)
		first := s.uses(t, encryptPath, line, 1)
		in.succeed(t, s, line, keyserver.KeyEnabled)
		second := s.uses(t, encryptPath, line, 2)
		for _, a := range []rig.Answer{first, second} {
			got := s.OK(t, s.AsAdmin(t), "POST", decryptPath, rig.Object{"lineage": line, "ciphertext": a.Text(t, "ciphertext")})
			if got.Text(t, "data") != b64([]byte("a text")) || got.Body["generation"] != a.Body["generation"] {
				t.Errorf("got %s", got.Raw)
			}
		}

		key := s.aes(t)
		in.run(t, `INSERT INTO key_encryptions (key_id, reserved) VALUES ($1, $2)`, unb64(t, key)[4:], int64(keyserver.MaxEncryptions-2))
		ask := rig.Object{"ttag": key, "data": ""}
		var sealed string
		for range 2 {
			sealed = s.OK(t, s.AsAdmin(t), "POST", encryptPath, ask).Text(t, "ciphertext")
		}
		a := s.Refused(t, s.AsAdmin(t), "POST", encryptPath, ask, http.StatusConflict, "KEY_EXHAUSTED")
		if got := rig.FormatRows(s.Rows(t, a.RequestID)); got != `["encryptData refused keyExhausted"]` {
			t.Errorf("the trail has %s", got)
		}
		s.OK(t, s.AsAdmin(t), "POST", decryptPath, rig.Object{"ttag": key, "ciphertext": sealed})
	})
}
