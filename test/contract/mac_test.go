package contract

import (
	"crypto/hmac"
	"crypto/sha512"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const (
	macPath         = "/api/crypto/mac"
	verifyPath      = "/api/crypto/mac/verify"
	batchPath       = "/api/crypto/mac/batch"
	verifyBatchPath = "/api/crypto/mac/verify/batch"
)

func hmacOf(key, message string) string {
	h := hmac.New(sha512.New384, []byte(key))
	h.Write([]byte(message))
	return b64(h.Sum(nil))
}

// aes creates an AES-256 key of the administrator.
func (s *subject) aes(t testing.TB) string {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}).Text(t, "ttag")
}

// TestMAC checks POST /api/crypto/mac (7.20): the newest enabled key of a lineage computes the MAC.
func TestMAC(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, line, aes := s.AsAdmin(t), s.mint(t, "key"), s.aes(t)
		for name, bad := range badLinks {
			t.Run("Lineage"+name, func(t *testing.T) {
				s.Refused(t, admin, "POST", macPath, rig.Object{"lineage": bad, "data": ""}, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		for name, body := range map[string]any{
			"NoLineage": rig.Object{"data": ""}, "NoData": rig.Object{"lineage": line}, "NullData": rig.Object{"lineage": line, "data": nil},
			"StrayBits": rig.Object{"lineage": line, "data": "QR=="}, "Unknown": rig.Object{"lineage": line, "data": "", "mac": ""},
			"ByKey": rig.Object{"ttag": line, "data": ""}, "Twice": `{"lineage":"` + line + `","data":"","lineage":"` + line + `"}`,
			"LongStray": rig.Object{"lineage": line, "data": strings.Repeat("QUJD", 60000) + "QR=="},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", macPath, body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", macPath, rig.Object{"lineage": line, "data": ""}, http.StatusForbidden, "ACL_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", macPath, rig.Object{"lineage": line, "data": ""}, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, admin, "POST", macPath, rig.Object{"lineage": "AAAAAQECAwQFBgcI", "data": ""}, http.StatusNotFound, "KEY_NOT_FOUND")
		if a := s.Refused(t, admin, "POST", macPath, rig.Object{"lineage": aes, "data": ""}, http.StatusBadRequest, "INVALID_ARGUMENT"); !strings.Contains(a.Field("detail"), "AES-256") {
			t.Errorf("says %s", a.Raw)
		}
		for _, message := range []string{"", "hello", strings.Repeat("long ", 50_000)} {
			for name, body := range map[string]string{
				"LineageFirst": `{"lineage":"` + line + `","data":"` + b64([]byte(message)) + `"}`,
				"DataFirst":    `{"data":"` + b64([]byte(message)) + `","lineage":"` + line + `"}`,
			} {
				a := s.OK(t, admin, "POST", macPath, body)
				if a.Text(t, "mac") != hmacOf("key", message) || a.Body["macBytes"] != 48.0 || a.Body["algorithm"] != "HMAC-SHA384" ||
					a.Text(t, "ttag") != line || a.Body["generation"] != 1.0 {
					t.Errorf("%s: got %s", name, a.Raw)
				}
				if got := rig.FormatRows(s.Rows(t, a.RequestID)); got != `["macData allowed"]` {
					t.Errorf("%s: the trail has %s", name, got)
				}
			}
		}
	})
}

// macCheck returns the members of a request to verify a MAC, after change. The value "none" removes a member.
func macCheck(key, mac, message string, change rig.Object) rig.Object {
	all := rig.Object{"ttag": key, "mac": mac, "data": b64([]byte(message))}
	maps.Copy(all, change)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == "none" })
	return all
}

// TestVerifyMAC checks POST /api/crypto/mac/verify (7.21): it reports whether a MAC is valid for the data.
func TestVerifyMAC(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, line, aes := s.AsAdmin(t), s.mint(t, "key"), s.aes(t)
		mac := hmacOf("key", "hello")
		body := func(change rig.Object) rig.Object { return macCheck(line, mac, "hello", change) }
		for name, change := range map[string]rig.Object{
			"NoKey": {"ttag": "none"}, "Both": {"lineage": line}, "NoMAC": {"mac": "none"}, "NullMAC": {"mac": nil}, "NoData": {"data": "none"},
			"EmptyMAC": {"mac": ""}, "CutMAC": {"mac": b64(unb64(t, mac)[:47])}, "HalfMAC": {"mac": b64(unb64(t, mac)[:24])},
			"ExtendedMAC": {"mac": b64(append(unb64(t, mac), 0))}, "HexMAC": {"mac": strings.Repeat("ab", 48)}, "StrayMAC": {"mac": "QR=="},
			"Unknown": {"dada": ""}, "StrayData": {"data": "QR=="},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", verifyPath, body(change), http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", verifyPath, body(nil), http.StatusForbidden, "ACL_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", verifyPath, body(nil), http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, admin, "POST", verifyPath, body(rig.Object{"ttag": "AAAAAQECAwQFBgcI"}), http.StatusNotFound, "KEY_NOT_FOUND")
		s.Refused(t, admin, "POST", verifyPath, body(rig.Object{"ttag": aes}), http.StatusBadRequest, "INVALID_ARGUMENT")

		flipped := unb64(t, mac)
		flipped[0] ^= 0x80
		for name, tc := range map[string]struct {
			change rig.Object
			valid  bool
		}{
			"ByKey": {nil, true}, "ByLine": {rig.Object{"ttag": "none", "lineage": line}, true},
			"Flipped": {rig.Object{"mac": b64(flipped)}, false}, "OtherData": {rig.Object{"data": ""}, false},
		} {
			a := s.OK(t, admin, "POST", verifyPath, body(tc.change))
			if a.Body["valid"] != tc.valid || a.Text(t, "ttag") != line || a.Body["generation"] != 1.0 {
				t.Errorf("%s: got %s", name, a.Raw)
			}
			if got := rig.FormatRows(s.Rows(t, a.RequestID)); got != `["verifyMAC allowed"]` {
				t.Errorf("%s: the trail has %s", name, got)
			}
		}
		long := strings.Repeat("long ", 50_000)
		members := []string{`"lineage":"` + line + `"`, `"mac":"` + hmacOf("key", long) + `"`, `"data":"` + b64([]byte(long)) + `"`}
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 2, 0}, {2, 1, 0}} {
			text := "{" + members[order[0]] + "," + members[order[1]] + "," + members[order[2]] + "}"
			if a := s.OK(t, admin, "POST", verifyPath, text); a.Body["valid"] != true {
				t.Errorf("%v: got %s", order, a.Raw)
			}
		}
		// The server checks a MAC that follows a long message when the MAC arrives.
		cut := `{` + members[0] + `,` + members[2] + `,"mac":"` + b64(make([]byte, 47)) + `"}`
		a := s.Refused(t, admin, "POST", verifyPath, cut, http.StatusBadRequest, "BAD_REQUEST")
		if got := rig.FormatRows(s.Rows(t, a.RequestID)); got != `["verifyMAC allowed" "verifyMAC failed badMessage"]` {
			t.Errorf("the trail has %s", got)
		}
	})
}

// TestMACBatch checks POST /api/crypto/mac/batch (7.22): each item has its own result or code, and its own
// audit row.
func TestMACBatch(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, line, aes := s.AsAdmin(t), s.mint(t, "key"), s.aes(t)
		item := func(line, message string) rig.Object {
			return rig.Object{"lineage": line, "data": b64([]byte(message))}
		}
		batch := func(items ...rig.Object) rig.Object { return rig.Object{"items": items} }
		for name, body := range map[string]any{
			"NoItems": rig.Object{}, "Empty": rig.Object{"items": []rig.Object{}}, "TooMany": batch(slices.Repeat([]rig.Object{item(line, "")}, 1001)...),
			"NoLineage": batch(rig.Object{"data": ""}), "NoData": batch(rig.Object{"lineage": line}), "Unknown": batch(rig.Object{"lineage": line, "data": "", "x": 1}),
			"LongData": batch(item(line, strings.Repeat("x", 65537))), "StrayBits": batch(item(line, ""), rig.Object{"lineage": line, "data": "QR=="}),
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", batchPath, body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, admin, "POST", batchPath, batch(slices.Repeat([]rig.Object{item(line, strings.Repeat("x", 65536))}, 13)...), http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", batchPath, batch(item(line, "")), http.StatusForbidden, "ACCESS_DENIED")

		a := s.OK(t, admin, "POST", batchPath, batch(item(line, "one"), item("AAAAAQECAwQFBgcI", ""), item(aes, ""), item(line, "two"), item("AAAACQECAwQFBgcI", "")))
		items := a.List(t, "items")
		want := []rig.Object{{"mac": hmacOf("key", "one")}, {"code": "KEY_NOT_FOUND"}, {"code": "INVALID_ARGUMENT"}, {"mac": hmacOf("key", "two")}, {"code": "INVALID_ARGUMENT"}}
		for i, w := range want {
			if items[i]["mac"] != w["mac"] || items[i]["code"] != w["code"] || (items[i]["detail"] == nil) != (w["code"] == nil) {
				t.Errorf("item %d: got %v, want %v", i, items[i], w)
			}
		}
		if items[0]["ttag"] != line || items[0]["generation"] != 1.0 || items[0]["macBytes"] != 48.0 || items[0]["algorithm"] != "HMAC-SHA384" {
			t.Errorf("got %v", items[0])
		}
		if !strings.Contains(items[4]["detail"].(string), "POST /api/crypto/mac") {
			t.Errorf("a peer's line: %v", items[4])
		}
		if got := rig.FormatRows(s.Rows(t, a.RequestID)); got !=
			`["macData allowed" "macData refused objectNotFound" "macData refused invalidArgument" "macData allowed" "macData refused notForwarded"]` {
			t.Errorf("the trail has %s", got)
		}
		whole := s.OK(t, admin, "POST", batchPath, batch(slices.Repeat([]rig.Object{item(line, "m")}, 1000)...)).List(t, "items")
		if len(whole) != 1000 || whole[999]["mac"] != hmacOf("key", "m") {
			t.Errorf("%d items, the last %v", len(whole), whole[len(whole)-1])
		}
	})
}

// TestVerifyMACBatch checks POST /api/crypto/mac/verify/batch (7.22): each item has its own verdict or code, and its own
// audit row.
func TestVerifyMACBatch(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, line, aes := s.AsAdmin(t), s.mint(t, "key"), s.aes(t)
		mac := hmacOf("key", "hello")
		item := func(change rig.Object) rig.Object { return macCheck(line, mac, "hello", change) }
		batch := func(items ...rig.Object) rig.Object { return rig.Object{"items": items} }
		for name, body := range map[string]rig.Object{
			"NoItems": {}, "Empty": batch(), "TooMany": batch(slices.Repeat([]rig.Object{item(nil)}, 1001)...),
			"NoKey": batch(item(nil), item(rig.Object{"ttag": "none"})), "Both": batch(item(rig.Object{"lineage": line})), "NoMAC": batch(item(rig.Object{"mac": "none"})),
			"CutMAC": batch(item(rig.Object{"mac": b64(unb64(t, mac)[:47])})), "LongMAC": batch(item(rig.Object{"mac": b64(append(unb64(t, mac), 0))})),
			"NoData": batch(item(rig.Object{"data": "none"})), "LongData": batch(item(rig.Object{"data": b64(make([]byte, 65537))})), "Unknown": batch(item(rig.Object{"x": 1})),
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "POST", verifyBatchPath, body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", verifyBatchPath, batch(item(nil)), http.StatusForbidden, "ACCESS_DENIED")

		a := s.OK(t, admin, "POST", verifyBatchPath, batch(
			item(nil), item(rig.Object{"data": ""}), item(rig.Object{"ttag": "AAAAAQECAwQFBgcI"}), item(rig.Object{"ttag": aes}),
			item(rig.Object{"ttag": "none", "lineage": line}), item(rig.Object{"ttag": "AAAACQECAwQFBgcI"}),
		))
		items := a.List(t, "items")
		want := []rig.Object{{"valid": true}, {"valid": false}, {"code": "KEY_NOT_FOUND"}, {"code": "INVALID_ARGUMENT"}, {"valid": true}, {"code": "INVALID_ARGUMENT"}}
		for i, w := range want {
			if items[i]["valid"] != w["valid"] || items[i]["code"] != w["code"] || (items[i]["detail"] == nil) != (w["code"] == nil) {
				t.Errorf("item %d: got %v, want %v", i, items[i], w)
			}
		}
		if items[1]["ttag"] != line || items[1]["generation"] != 1.0 {
			t.Errorf("got %v", items[1])
		}
		if !strings.Contains(items[5]["detail"].(string), "POST /api/crypto/mac/verify") {
			t.Errorf("a peer's key: %v", items[5])
		}
		if got := rig.FormatRows(s.Rows(t, a.RequestID)); got !=
			`["verifyMAC allowed" "verifyMAC allowed" "verifyMAC refused objectNotFound" "verifyMAC refused invalidArgument" "verifyMAC allowed" "verifyMAC refused notForwarded"]` {
			t.Errorf("the audit rows are %s", got)
		}
	})
}

// TestLines checks that a key lineage keeps its name through its generations (7.20, 7.21), and that a key that
// is not enabled computes no MACs (7.25).
func TestLines(t *testing.T) {
	intrude(t, opened, func(t *testing.T, s *subject, in intruder) {
		line := s.mint(t, "key")
		old := hmacOf("key", "m")
		second := in.succeed(t, s, line, keyserver.KeyEnabled)
		s.uses(t, macPath, line, 2)
		admin := s.AsAdmin(t)
		made := s.OK(t, admin, "POST", macPath, rig.Object{"lineage": line, "data": b64([]byte("m"))})
		if made.Text(t, "ttag") != second || made.Body["generation"] != 2.0 || made.Text(t, "mac") == old {
			t.Errorf("got %s", made.Raw)
		}
		for mac, key := range map[string]string{old: line, made.Text(t, "mac"): second} {
			a := s.OK(t, admin, "POST", verifyPath, rig.Object{"lineage": line, "mac": mac, "data": b64([]byte("m"))})
			if a.Body["valid"] != true || a.Text(t, "ttag") != key {
				t.Errorf("got %s", a.Raw)
			}
		}
		third := in.succeed(t, s, line, keyserver.KeyVerifyOnly)
		fourth := in.succeed(t, s, line, keyserver.KeyDisabled)
		admin = s.AsAdmin(t)
		if a := s.OK(t, admin, "POST", macPath, rig.Object{"lineage": line, "data": ""}); a.Text(t, "ttag") != second {
			t.Errorf("got %s", a.Raw)
		}
		check := func(key string) rig.Object { return rig.Object{"ttag": key, "mac": old, "data": ""} }
		s.OK(t, admin, "POST", verifyPath, check(third))
		a := s.Refused(t, admin, "POST", verifyPath, check(fourth), http.StatusForbidden, "KEY_DISABLED")
		if got := rig.FormatRows(s.Rows(t, a.RequestID)); got != `["verifyMAC refused keyDisabled"]` {
			t.Errorf("the trail has %s", got)
		}
	})
}
