package fips

import (
	"crypto/fips140"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCryptographyUnderFIPS runs the tests of this package again. It also checks that each other package in rows has a
// test that calls Again.
func TestCryptographyUnderFIPS(t *testing.T) {
	Again(t, "test/fips")
	for _, r := range rows {
		if r.pkg == "test/fips" {
			continue
		}
		files, err := filepath.Glob(filepath.Join("../..", r.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), `func TestUnderFIPS(t *testing.T) { fips.Again(t, "`+r.pkg+`") }`)
		}
		if !found {
			t.Errorf("%s: %s does not run its tests again", r.reason, r.pkg)
		}
	}
}

// TestTheModeIsOn runs in a process that TestCryptographyUnderFIPS starts.
func TestTheModeIsOn(t *testing.T) {
	if !strings.Contains(os.Getenv("GODEBUG"), "fips140=on") {
		t.Skip("is about a process that TestCryptographyUnderFIPS starts")
	}
	if !fips140.Enabled() {
		t.Error("GODEBUG=fips140=on does not turn the mode on")
	}
}
