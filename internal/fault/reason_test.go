package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
)

// recorded are the reasons as trails have them. Rows are added here, and none
// is changed: alerts and questions to a trail are written in these words.
var recorded = []string{
	"roleDenied", "aclDenied", "objectNotFound", "notInScope", "principalDisabled", "delegatorRefused", "chainedDelegation",
	"notTransportPrincipal", "notExposed", "restricted", "notForwarded", "peerUnavailable",
	"badCredentials", "throttled", "identityProviderUnavailable", "builtIn",
	"proofMalformed", "proofRequired", "proofInvalidSignature", "proofKeyMismatch", "proofMethodMismatch", "proofUriMismatch",
	"proofTokenMismatch", "proofStale", "proofReplayed",
	"certificateRevoked", "revocationStatusUnavailable", "revocationEvidenceStale", "certificateNotCurrent",
	"noCertificate", "notEnrolled", "issuerNotTrusted",
	"inUse", "invalidArgument", "badMessage", "limit", "failed",
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

// A reason that is declared and not listed would be walked by no test.
func TestEveryReasonIsListed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared, listed := map[string]bool{}, map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "Reason" {
				for _, name := range n.Names {
					declared[name.Name] = true
				}
			}
		case *ast.CompositeLit:
			if len(n.Elts) > 0 {
				if name, ok := n.Elts[0].(*ast.Ident); ok {
					listed[name.Name] = true
				}
			}
		}
		return true
	})
	if diff := cmp.Diff(declared, listed); diff != "" || len(declared) == 0 {
		t.Errorf("Reasons is not what is declared (-declared +listed):\n%s", diff)
	}
}
