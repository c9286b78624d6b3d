package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// recorded contains the reasons in existing audit logs. Add reasons, but never change one, because alerts and queries
// use them.
var recorded = []string{
	"roleDenied", "aclDenied", "keyDisabled", "keyExhausted", "objectNotFound", "notInScope", "principalDisabled", "delegatorRefused", "chainedDelegation",
	"notTransportPrincipal", "notExposed", "restricted", "notForwarded", "peerUnavailable",
	"badCredentials", "throttled", "identityProviderUnavailable", "builtIn",
	"proofMalformed", "proofRequired", "proofInvalidSignature", "proofKeyMismatch", "proofMethodMismatch", "proofUriMismatch",
	"proofTokenMismatch", "proofStale", "proofReplayed",
	"certificateRevoked", "certificateMismatch", "revocationStatusUnavailable", "revocationEvidenceStale", "certificateNotCurrent",
	"noCertificate", "notEnrolled", "issuerNotTrusted",
	"inUse", "invalidArgument", "badMessage", "limit", "escalation", "dutiesConflict", "notLent",
	"storeTampered", "approvalRequired", "notApprovable", "sessionNotBound", "authorityState", "owned",
	"notExportable", "keyState", "logForked", "logRolledBack", "logForged", "logKeyChanged", "failed",
}

func TestReasons(t *testing.T) {
	var got []string
	seen := map[fault.Reason]bool{}
	for _, e := range fault.Reasons {
		got = append(got, string(e.Reason))
		if seen[e.Reason] {
			t.Errorf("%s is there twice", e.Reason)
		}
		seen[e.Reason] = true
		if !strings.HasSuffix(e.Meaning, ".") {
			t.Errorf("the meaning of %s is no sentence: %q", e.Reason, e.Meaning)
		}
	}
	if diff := cmp.Diff(recorded, got); diff != "" {
		t.Errorf("the reasons of trails are others (-recorded +now):\n%s", diff)
	}
}

// TestCodes checks that each code exists once and has the required format, because clients and alerts compare codes.
func TestCodes(t *testing.T) {
	spelling := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)
	seen := map[fault.Code]bool{}
	for _, e := range fault.Catalogue {
		if seen[e.Code] || !spelling.MatchString(string(e.Code)) {
			t.Errorf("%q is there twice, or is spelt in another way", e.Code)
		}
		seen[e.Code] = true
		if !strings.HasSuffix(e.Meaning, ".") {
			t.Errorf("the meaning of %s is no sentence: %q", e.Code, e.Meaning)
		}
	}
}

// TestEveryCodeAndReasonIsListed checks that each declared code and reason is in its catalogue. Otherwise no test would
// cover it.
func TestEveryCodeAndReasonIsListed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := spec.Type.(*ast.Ident); ok && (kind.Name == "Code" || kind.Name == "Reason") {
				t.Errorf("%s: %s is declared without a row", name, spec.Names[0])
			}
			for _, v := range spec.Values {
				if call, ok := v.(*ast.CallExpr); ok {
					rows[call.Fun.(*ast.Ident).Name]++
				}
			}
			return true
		})
	}
	want := map[string]int{"code": 0, "extension": 0, "reason": len(fault.Reasons)}
	for _, e := range fault.Catalogue {
		if e.Extension {
			want["extension"]++
		} else {
			want["code"]++
		}
	}
	if diff := cmp.Diff(want, rows); diff != "" || len(fault.Catalogue) == 0 || len(fault.Reasons) == 0 {
		t.Errorf("the catalogues are not what is declared (-listed +declared):\n%s", diff)
	}
}
