package contract

import (
	"crypto/fips140"
	"testing"
)

// POST /api/config/get tells whether the service runs in FIPS 140-3 mode.
func TestCryptographyIsShown(t *testing.T) {
	s := one(t)
	attrs, _ := s.ok(t, s.admin(t), "POST", "/api/config/get", object{"xpath": "Cryptography"}).list(t, "nodes")[0]["attrs"].(object)
	want := "off"
	if fips140.Enabled() {
		want = "on"
	}
	if attrs["fips140"] != want || attrs["module"] != fips140.Version() {
		t.Errorf("got %v, want fips140 %s", attrs, want)
	}
}
