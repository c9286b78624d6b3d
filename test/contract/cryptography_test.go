package contract

import (
	"crypto/fips140"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestCryptographyIsShown checks that POST /api/config/get shows whether the key server runs in FIPS 140-3 mode.
func TestCryptographyIsShown(t *testing.T) {
	s := one(t)
	attrs, _ := s.OK(t, s.AsAdmin(t), "POST", "/api/config/get", rig.Object{"xpath": "Cryptography"}).List(t, "nodes")[0]["attrs"].(rig.Object)
	want := "off"
	if fips140.Enabled() {
		want = "on"
	}
	if attrs["fips140"] != want || attrs["module"] != fips140.Version() {
		t.Errorf("got %v, want fips140 %s", attrs, want)
	}
}
