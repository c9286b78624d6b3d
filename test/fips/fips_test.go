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
// there is no pattern.
var paths = []struct{ reason, pkg, run string }{
	{"the mode is on in these processes", "./test/fips", "^TestTheModeIsOn$"},
	{"sessions: tokens, their hashes, password logins", "./internal/session", ""},
	{"proofs of possession", "./internal/dpop", ""},
	{"certificates, requests, revocation lists, chains", "./internal/pki", ""},
	{"key wrapping and export", "./internal/custody", ""},
	{"the hash chain of the audit trail", "./internal/audit", ""},
	{"release manifests", "./internal/release", ""},
	{"password hashes", "./internal/password", ""},
	{"TLS of the API, both versions", "./internal/server", "^(TestOldTLSIsRefused|TestNoConnectionIsResumed|TestOnePathThroughEverything)$"},
	{
		"the service as a whole, on both databases", "./test/contract",
		"^(TestCryptographyIsShown|TestCertificateLogin|TestKeyMetadataForATransportPrincipal|TestRevocationOfCertificateSessions|" +
			"TestClientWithCertificateCredentials|TestProofsAtLogin|TestHMAC|TestMintKey|TestExportKey|TestIssueCertificate|TestRenewCertificate|TestImportCRL)$",
	},
}

func TestCryptographyUnderFIPS(t *testing.T) {
	for _, p := range paths {
		t.Run(strings.TrimPrefix(p.pkg, "./"), func(t *testing.T) {
			args := []string{"test", "-count=1"} // the mode is not part of what go test caches by
			if p.run != "" {
				args = append(args, "-run", p.run)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			cmd := exec.CommandContext(ctx, "go", append(args, p.pkg)...)
			cmd.Dir, cmd.Env = "../..", append(os.Environ(), mode)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "no tests to run") {
				t.Errorf("%s: %v\n%s", p.reason, err, out)
			}
		})
	}
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
