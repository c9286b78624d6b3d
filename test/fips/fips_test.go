// Package fips shows that the product works with Go's FIPS 140-3 module in
// its approved mode (docs/fips.md): it runs the tests of everything that
// encrypts, signs or hashes again, in processes with GODEBUG=fips140=on.
package fips

import (
	"context"
	"crypto/fips140"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// mode turns the FIPS 140-3 mode on for a process and its children.
const mode = "GODEBUG=fips140=on"

// limit bounds one package, with its compilation on a cold cache.
const limit = 10 * time.Minute

// paths are the packages whose tests are run, and which of them; all where
// none is named.
var paths = []struct {
	reason, pkg string
	tests       []string
}{
	{"the mode is on in these processes", "./test/fips", []string{"TestTheModeIsOn"}},
	{"sessions: tokens, their hashes, password logins", "./internal/session", nil},
	{"proofs of possession", "./internal/dpop", nil},
	{"certificates, requests, revocation lists, chains", "./internal/pki", nil},
	{"key wrapping and export", "./internal/custody", nil},
	{"the hash chain of the audit trail", "./internal/audit", nil},
	{"release manifests", "./internal/release", nil},
	{"password hashes", "./internal/password", nil},
	{"TLS of the API, both versions", "./internal/server", []string{"TestOldTLSIsRefused", "TestNoConnectionIsResumed", "TestOnePathThroughEverything"}},
	{
		"the service as a whole, on both databases", "./test/contract",
		[]string{
			"TestCryptographyIsShown", "TestCertificateLogin", "TestKeyMetadataForATransportPrincipal", "TestRevocationOfCertificateSessions",
			"TestClientWithCertificateCredentials", "TestProofsAtLogin", "TestHMAC", "TestMintKey",
			"TestExportKey", "TestIssueCertificate", "TestRenewCertificate", "TestImportCRL",
		},
	},
}

func TestCryptographyUnderFIPS(t *testing.T) {
	for _, p := range paths {
		t.Run(strings.TrimPrefix(p.pkg, "./"), func(t *testing.T) {
			args := []string{"test", "-v", "-count=1"} // the mode is not part of what go test caches by
			if p.tests != nil {
				args = append(args, "-run", "^("+strings.Join(p.tests, "|")+")$")
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			cmd := exec.CommandContext(ctx, "go", append(args, p.pkg)...)
			cmd.Dir, cmd.Env = "../..", append(os.Environ(), mode)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", p.reason, err, out)
			}
			passed := passes(string(out))
			if len(passed) == 0 {
				t.Errorf("%s: no test passed\n%s", p.reason, out)
			}
			for _, name := range p.tests { // one that was renamed, or skipped, shows nothing
				if !passed[name] {
					t.Errorf("%s: %s did not run", p.reason, name)
				}
			}
		})
	}
}

// passes are the tests that go test -v says have passed, subtests left out.
func passes(out string) map[string]bool {
	passed := map[string]bool{}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "--- PASS: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			passed[name] = true
		}
	}
	return passed
}

// TestTheModeIsOn runs in a process of the test above.
func TestTheModeIsOn(t *testing.T) {
	if !strings.Contains(os.Getenv("GODEBUG"), "fips140=on") {
		t.Skip("is about a process that TestCryptographyUnderFIPS starts")
	}
	if !fips140.Enabled() {
		t.Error("GODEBUG=fips140=on does not turn the mode on")
	}
}
