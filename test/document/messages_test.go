package document

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// message is the format of a message. kind is the error code of a refusal or the reason of a condition. It is empty if
// the source does not have it as a constant.
type message struct{ class, kind, where, text string }

// subjects has a pattern for each class of messages. It matches the start of a message: the flag, field or object that
// has the problem.
var subjects = map[string]*regexp.Regexp{
	"usage error": regexp.MustCompile(`^(--\S+|%[sw]|[a-z]+:|[A-Z]+:|environment variable|unknown command %q)[ ,;:]`),
	"bad request": regexp.MustCompile(`^["\w.%-]+(\[%d\])?(\.%s)?: `),
	"problem":     regexp.MustCompile(`^[a-z]`), // a function adds the name of the field
	"refusal":     regexp.MustCompile(`^(["(%a-z]|ACL |Content-Encoding: )`),
	"condition":   regexp.MustCompile(`^(["%a-z]|[A-Z][a-zA-Z]+ %)`),
	"chart":       regexp.MustCompile(`^[a-zA-Z.%]+: `),
	"manifest":    regexp.MustCompile(`^[a-z]`),
}

var (
	// remedy matches the accepted values, or an instruction at the start of a clause.
	remedy = regexp.MustCompile(`\bmust\b|\b(are|allows) %s$|(^|[;:,] |, (and|or|so) )((to|for|if) [^;:,]*, )?(add|ask|change|check|connect|` +
		`correct|create|declare|delete|end|enrol|give|grant|keep|leave|list|log in|lower|mint|name|narrow|omit|page|percent-encode|prepare|read|` +
		`reject|remove|request|reset|restore|retire|run|see|send|set|split|stop|try|upgrade|use|wait|write)\b`)
	// continued matches a message that ends with another one, which has the remedy.
	continued = regexp.MustCompile(`([:;,]|%[qs],?) %[swv]$`)
	// wrapping matches a message that adds at most a name to another one.
	wrapping = regexp.MustCompile(`^[-\w.]*(%\w|\[%d\])?\.?:? ?%[swv]$`)
	unclean  = regexp.MustCompile(`^\s|[\s.!]$|\s\s|[\n\t]`)
)

// withoutRemedy has the codes of refusals that a change of the request cannot correct.
var withoutRemedy = []string{
	"NotFound", "KeyNotFound", "ACLNotFound", "NotTrusted", "AlreadyTrusted", // the object does not exist, or exists
	"CheckpointInconsistent", "CheckpointUnsigned", "StoreTampered", // an operator has to examine data
	"OpFailed", "NotSaved", "NotReady", "NotCurrent", "BuildNotAdmitted", "RequestTimeout", // the service failed
}

// maxLength is the maximum length of a format, so that the text with its arguments has about 300 characters.
const maxLength = 250

// mistakes returns the rules that a message breaks.
func (m message) mistakes() (all []string) {
	if wrapping.MatchString(m.text) {
		return nil
	}
	needsRemedy := true
	switch m.class {
	case "refusal":
		needsRemedy = m.kind != "" && !slices.Contains(withoutRemedy, m.kind)
	case "condition":
		needsRemedy = m.kind != "" && v1beta1.Reason(strings.TrimPrefix(m.kind, "Reason")).Entry().Outlook == v1beta1.NeedsHelp
	}
	if !subjects[m.class].MatchString(m.text) {
		all = append(all, "subject")
	}
	if unclean.MatchString(m.text) {
		all = append(all, "spaces or full stop")
	}
	if len(m.text) > maxLength {
		all = append(all, "length")
	}
	if needsRemedy && !remedy.MatchString(m.text) && !continued.MatchString(m.text) {
		all = append(all, "remedy")
	}
	return all
}

// maker is a function or type with a message, which is the argument or element text. The argument kindAt is the kind,
// if it is not -1.
type maker struct {
	class, kind  string
	kindAt, text int
}

// makers has functions and types by their package and name. learn adds functions that call them.
var makers = map[string]maker{
	"fault.New":             {"refusal", "", 0, 1},
	"fault.Temporary":       {"refusal", "", 0, 3},
	"fault.Field":           {"problem", "", -1, 1},
	"hmacbody.bad":          {"problem", "", -1, 1},
	"wire.refusal":          {"problem", "", -1, 1},
	"wire.FieldError":       {"problem", "", -1, 1},
	"peer.malformed":        {"refusal", "", -1, 0}, // only a defect of a peer causes these, so they need no remedy
	"program.Usagef":        {"usage error", "", -1, 0},
	"cmdline.Usagef":        {"usage error", "", -1, 0},
	"connection.NewProblem": {"condition", "", 0, 1},
	"reconcile.report":      {"condition", "", 0, 1},
	"reconcile.Uncreatable": {"condition", "ReasonInvalidSpec", -1, 0},
	"reconcile.Fixed":       {"condition", "ReasonConflict", -1, 0},
	"reconcile.Dependency":  {"condition", "ReasonDependencyNotReady", -1, 1},
	"reconcile.Consequence": {"condition", "ReasonProgressing", -1, 0},
}

// walker finds messages in Go files.
type walker struct{ makers map[string]maker }

// walk returns the messages of Go files, whose names are paths below the root.
func walk(t *testing.T, texts map[string]string) (all []message) {
	t.Helper()
	w, positions, files := walker{maps.Clone(makers)}, token.NewFileSet(), map[string]*ast.File{}
	each := func(do func(file string, n ast.Node)) {
		for name, file := range files {
			ast.Inspect(file, func(n ast.Node) bool { do(name, n); return true })
		}
	}
	for name, text := range texts {
		file, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	for range 2 { // some functions call one that is learned
		each(w.learn)
	}
	each(func(file string, n ast.Node) {
		if m, ok := w.messageOf(file, n); ok {
			m.where = positions.Position(n.Pos()).String()
			all = append(all, m)
		}
	})
	return all
}

// learn adds a function that passes its parameter format on to a known function.
func (w walker) learn(file string, n ast.Node) {
	var (
		name   ast.Expr
		typ    *ast.FuncType
		params []string
	)
	switch n := n.(type) {
	case *ast.FuncDecl:
		name, typ = n.Name, n.Type
	case *ast.AssignStmt:
		if f, ok := n.Rhs[0].(*ast.FuncLit); ok {
			name, typ = n.Lhs[0], f.Type
		}
	}
	if name == nil {
		return
	}
	for _, field := range typ.Params.List {
		for _, p := range field.Names {
			params = append(params, p.Name)
		}
	}
	key, format := path.Base(path.Dir(file))+"."+nameOf(name), slices.Index(params, "format")
	if _, known := w.makers[key]; known || format < 0 {
		return
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if m, ok := w.find(file, call.Fun); ok {
				if m.kindAt >= 0 {
					m.kind, m.kindAt = constant(call.Args[m.kindAt]), slices.Index(params, nameOf(call.Args[m.kindAt]))
				}
				m.text = format
				w.makers[key] = m
			}
		}
		return true
	})
}

// find returns the maker that an expression names.
func (w walker) find(file string, e ast.Expr) (m maker, ok bool) {
	if s, selects := e.(*ast.SelectorExpr); selects {
		if m, ok = w.makers[nameOf(s.X)+"."+nameOf(s)]; ok {
			return m, ok
		}
	}
	m, ok = w.makers[path.Base(path.Dir(file))+"."+nameOf(e)] // a function, type or method of this package
	return m, ok
}

// messageOf returns the message of a call or a literal.
func (w walker) messageOf(file string, n ast.Node) (message, bool) {
	var (
		made  ast.Expr
		parts []ast.Expr
	)
	switch n := n.(type) {
	case *ast.CallExpr:
		made, parts = n.Fun, n.Args
	case *ast.CompositeLit:
		made, parts = n.Type, n.Elts
		if strings.HasPrefix(file, "controllers/") || strings.HasPrefix(file, "internal/operator/") {
			if text := member(n, "Message", "Note"); text != nil {
				return message{class: "condition", kind: constant(member(n, "Reason")), text: format(text)}, true
			}
		}
	}
	m, ok := w.find(file, made)
	if !ok || m.text >= len(parts) {
		return message{}, false
	}
	if m.kindAt >= 0 {
		m.kind = constant(parts[m.kindAt])
	}
	if m.kind == "BadRequest" {
		m.class = "bad request"
	}
	return message{class: m.class, kind: m.kind, text: format(parts[m.text])}, true
}

// member returns the value of the first field that has one of the names.
func member(of *ast.CompositeLit, names ...string) ast.Expr {
	for _, e := range of.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && slices.Contains(names, nameOf(kv.Key)) {
			return kv.Value
		}
	}
	return nil
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// constant returns the name of a code or a reason.
func constant(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok && slices.Contains([]string{"fault", "v1beta1"}, nameOf(s.X)) {
		return nameOf(s)
	}
	return ""
}

// format returns the text of a message with a verb for each operand that is not a literal.
func format(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return format(e.X) + format(e.Y)
	case *ast.CallExpr:
		if nameOf(e.Fun) == "Sprintf" {
			return format(e.Args[0])
		}
	}
	return "%s"
}

// rules returns the messages of the validation rules in a definition.
func rules(where string, node any) (all []message) {
	switch node := node.(type) {
	case []any:
		for _, n := range node {
			all = append(all, rules(where, n)...)
		}
	case map[string]any:
		if text, ok := node["message"].(string); ok && node["rule"] != nil {
			all = append(all, message{class: "manifest", where: where, text: text})
		}
		for _, n := range node {
			all = append(all, rules(where, n)...)
		}
	}
	return all
}

var chartRefusal = regexp.MustCompile(`\bfail \(?(?:printf )?"([^"]*)"`)

// TestMessages checks each message for its subject, length, punctuation and remedy: usage errors, refusals of the API,
// conditions and events, refusals of the chart, and validation rules of manifests.
func TestMessages(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, name := range written(t) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "test/") {
			texts[name] = read(t, name)
		}
	}
	all := walk(t, texts)
	const chart, bases = "config/chart/templates/_refusals.tpl", "config/crd/bases/"
	for _, found := range chartRefusal.FindAllStringSubmatch(read(t, chart), -1) {
		all = append(all, message{class: "chart", where: chart, text: found[1]})
	}
	files, err := filepath.Glob(filepath.Join(root, bases, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var definition any
		if err := yaml.Unmarshal([]byte(read(t, bases+filepath.Base(file))), &definition); err != nil {
			t.Fatal(err)
		}
		all = append(all, rules(file, definition)...)
	}
	count := map[string]int{}
	for _, m := range all {
		count[m.class]++
		for _, mistake := range m.mistakes() {
			t.Errorf("%s: %s %q breaks the rule on its %s", m.where, m.class, m.text, mistake)
		}
	}
	for class := range subjects {
		t.Log(class, count[class])
		if count[class] < 10 {
			t.Errorf("only %d messages of the class %s were found", count[class], class)
		}
	}
}

// TestBadMessages plants messages that break the rules, in each form that the code uses.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`program.Usagef("--to is missing")`:                                               {"remedy"},
		`program.Usagef("--to is missing; see %s --help", name)`:                          nil,
		`program.Usagef("--to: %w", err)`:                                                 nil,
		`cmdline.Usagef("Please give --to")`:                                              {"subject", "remedy"},
		`fault.New(fault.BadRequest, "limit: must be from 1 to %d.", most)`:               {"spaces or full stop"},
		`fault.New(fault.BadRequest, "limit must be from 1 to %d", most)`:                 {"subject"},
		`fault.New(fault.BadRequest, "limit: " + name + " is too large")`:                 {"remedy"},
		`fault.New(fault.NotFound, "no role has the id %s", id)`:                          nil,
		`fault.New(fault.AccessDenied, "no role grants %s", op)`:                          {"remedy"},
		`fault.New(fault.AccessDenied, "No role grants %s; ask for one", op)`:             {"subject"},
		`fault.Temporary(fault.Overloaded, scope, wait, "the limit is  reached")`:         {"spaces or full stop", "remedy"},
		`fault.Field("limit", fmt.Sprintf("is above %d", most))`:                          {"remedy"},
		`fault.Field("limit", "must be ` + strings.Repeat("a", maxLength) + `")`:          {"length"},
		`wire.FieldError{name, "is too large"}`:                                           {"remedy"},
		`own("body: is empty")`:                                                           {"remedy"},
		`x.method("body: is empty")`:                                                      {"remedy"},
		`closure("body: is empty")`:                                                       {"remedy"},
		`connection.NewProblem(v1beta1.ReasonInvalidSpec, "spec.groups: %s is odd")`:      {"remedy"},
		`connection.NewProblem(v1beta1.ReasonProgressing, "spec.groups: %s is odd")`:      nil,
		`Blocker{Reason: v1beta1.ReasonConflict, Message: "the key " + name + " is odd"}`: {"remedy"},
		`Event{Note: "deleted the key."}`:                                                 {"spaces or full stop"},
	} {
		source := `package p
			func own(format string, args ...any) error { return fault.New(fault.BadRequest, format, args...) }
			func (x) method(format string, args ...any) error { return own(format, args...) }
			func f() { closure := func(format string) error { return own(format) }; _ = ` + text + ` }`
		var got []string
		for _, m := range walk(t, map[string]string{"controllers/p.go": source}) {
			got = append(got, m.mistakes()...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for class, text := range map[string]string{"chart": "backups.to is missing; set it", "manifest": "validityDays needs request"} {
		if m := (message{class: class, text: text}); len(m.mistakes()) != 1 {
			t.Errorf("%q breaks the rules on %v", text, m.mistakes())
		}
	}
}
