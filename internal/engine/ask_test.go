package engine_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// withAllOperations adds a principal with a role that grants all operations.
func withAllOperations(t *testing.T, f *enginetest.Fixture) keyserver.Caller {
	t.Helper()
	all := make([]keyserver.ID, len(keyserver.Operations))
	for i, op := range keyserver.Operations {
		all[i] = op.ID
	}
	role := enginetest.Must(f.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: "everything", Operations: all}))(t)
	return f.Add(t, keyserver.CertificatePrincipal, "machine", []keyserver.ID{role}, nil)
}

// TestEveryOperationIsAsked checks that each operation can be explained, without a key and, if it concerns a key, with
// a key. A missing key is refused, so the explanation does not check only the role.
func TestEveryOperationIsAsked(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		machine := withAllOperations(t, f)
		rows := len(f.AllRows(t))
		for _, op := range keyserver.Operations {
			is := enginetest.Must(f.Explain(ctx, machine, keyserver.Question{Operation: op}))(t)
			if !is.Allowed {
				t.Errorf("%s: %v", op.Key, is.Refusal)
			}
			if rows++; len(f.AllRows(t)) != rows {
				t.Errorf("asking about %s left other rows than its own", op.Key)
			}
			if !op.AboutKey() {
				continue
			}
			is = enginetest.Must(f.Explain(ctx, machine, keyserver.Question{Operation: op, Link: values.NewHiddenLink(f.Prepared.System, values.IDFromUint64(5))}))(t)
			if code := fault.CodeOf(is.Refusal); code != fault.KeyNotFound && code != fault.ACLNotFound {
				t.Errorf("%s of a key that there is not: %v", op.Key, is.Refusal)
			}
			rows++
		}
	})
}

// TestQuestionsOfTheirOwn checks that an explanation calls every function that passes its own checks to the gate
// (ask.go). Otherwise explanations would omit these checks.
func TestQuestionsOfTheirOwn(t *testing.T) {
	called := []string{ // by Engine.explainOperation
		"ACL", "AuthorizeKey", "Decrypt", "DelegateLogin", "Encrypt", "ExportKey", "HMAC", "Key", "KeyLineage", "KeyState", "MAC", "VerifyMAC", "amend",
	}
	alike := []string{ // have the same checks as a function in called
		"ChangeKeyState", "RotateKey", "SetKeyRotation", // like KeyState, KeyLineage
		"forwardKey", // like Key
	}
	others := []string{
		"ACLTemplate", "ACLTemplates", "ListKeys", // always pass
		"AddTrustedServer", "RenameACLTemplate", "changeMembers", // check only arguments that a question does not have
		"OwnACL",                                 // has a different check than ACL
		"performAll",                             // same as MAC and VerifyMAC, but only for own lineages
		"explainOperation", "Consult", "Forward", // pass on the checks of others
	}
	want := slices.Concat(called, alike, others)
	slices.Sort(want)
	if diff := cmp.Diff(want, asksOfItsOwn(t)); diff != "" {
		t.Errorf("have Engine.explainOperation call what is new, and name it here (-want +got):\n%s", diff)
	}
}

// asksOfItsOwn returns the functions of the engine that pass their own checks to the gate.
func asksOfItsOwn(t *testing.T) []string {
	t.Helper()
	checksFrom := map[string]int{"AuthorizeAndAudit": 2, "AuthorizeAll": 5, "Perform": 3, "PerformOn": 3, "authorize": 2, "Consult": 5, "Forward": 5}
	found := map[string]bool{}
	var names []string
	for _, pattern := range []string{"*.go", "trust/*.go", "internal/*/*.go"} { // directories that may import the gate
		names = append(names, enginetest.Must(fs.Glob(os.DirFS("."), pattern))(t)...)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := enginetest.Must(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))(t)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				to, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if from, ok := checksFrom[to.Sel.Name]; ok && len(call.Args) > from && !isNil(call.Args[from]) {
					found[f.Name.Name] = true
				}
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func isNil(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "nil"
}
