// Package fips shows that the product works with Go's FIPS 140-3 module in its approved mode (docs/fips.md).
// The tests of the packages that encrypt, sign or hash run again in processes with GODEBUG=fips140=on.
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

// mode enables the FIPS 140-3 mode in a process and its children.
const mode = "GODEBUG=fips140=on"

// limit is the timeout for the tests of one package.
const limit = 10 * time.Minute

// row is a package whose tests run again. tests has their names. If it is empty, all tests run.
type row struct {
	reason, pkg string
	tests       []string
}

// rows has all packages. In each of them a test calls Again.
var rows = []row{
	{"the mode is on in these processes", "test/fips", []string{"TestTheModeIsOn"}},
	{"sessions: tokens, their hashes, password logins", "internal/auth/session", nil},
	{"proofs of possession", "internal/auth/dpop", nil},
	{"certificates, requests, revocation lists, chains", "internal/crypto/pki", nil},
	{"key wrapping and export", "internal/crypto/keyring", nil},
	{"the MACs of rows", "internal/crypto/rowmac", nil},
	{"the hash chain of the audit trail", "internal/audit", nil},
	{"release manifests", "internal/server/admission", nil},
	{"password hashes", "internal/crypto/password", nil},
	{"TLS of the API, both versions", "internal/server", []string{"TestOldTLSIsRefused", "TestNoConnectionIsResumed", "TestOnePathThroughEverything"}},
	{
		"the service as a whole, on both databases", "test/contract",
		[]string{
			"TestCryptographyIsShown", "TestCertificateLogin", "TestKeyMetadataForATransportPrincipal", "TestRevocationOfCertificateSessions",
			"TestClientWithCertificateCredentials", "TestProofsAtLogin", "TestHMAC", "TestMintKey",
			"TestExportKey", "TestIssueCertificate", "TestRenewCertificate", "TestImportCRL",
		},
	},
}

// Again runs the tests of a package again in FIPS 140-3 mode. It starts the test binary that called it, so that nothing
// is compiled.
func Again(t *testing.T, pkg string) {
	t.Helper()
	if fips140.Enabled() {
		t.Skip("this process is the one with the mode on")
	}
	t.Parallel() // the tests mostly wait
	for _, r := range rows {
		if r.pkg == pkg {
			r.again(t)
			return
		}
	}
	t.Fatalf("package fips has no row for %s", pkg)
}

func (r row) again(t *testing.T) {
	t.Helper()
	args := []string{"-test.v"}
	if r.tests != nil {
		args = append(args, "-test.run", "^("+strings.Join(r.tests, "|")+")$")
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), mode)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", r.reason, err, out)
	}
	passed := passes(string(out))
	if len(passed) == 0 {
		t.Errorf("%s: no test passed\n%s", r.reason, out)
	}
	for _, name := range r.tests { // the result is not valid if a test was renamed or skipped
		if !passed[name] {
			t.Errorf("%s: %s did not run", r.reason, name)
		}
	}
}

// passes returns the names of passed tests in the output of -test.v, without subtests.
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
