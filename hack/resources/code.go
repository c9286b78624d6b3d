package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// code contains the parts of the page that come from Go source: constants with their comments, and events.
type code struct {
	constants []constant
	all       []event
}

type constant struct{ name, value, comment string }

type event struct {
	reason  string
	warning bool
	note    string
}

// Paths of the Go files that are read.
const (
	conditionsFile = "api/v1beta1/conditions.go"
	metadataFile   = "api/v1beta1/metadata.go"
	eventsFile     = "internal/operator/status/events.go"
)

func readCode(checkout fs.FS) (*code, error) {
	c := &code{}
	for _, name := range []string{conditionsFile, metadataFile} {
		file, err := parse(checkout, name)
		if err != nil {
			return nil, err
		}
		if err := c.readConstants(file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	file, err := parse(checkout, eventsFile)
	if err != nil {
		return nil, err
	}
	if err := c.readEvents(file); err != nil {
		return nil, fmt.Errorf("%s: %w", eventsFile, err)
	}
	return c, nil
}

func parse(checkout fs.FS, name string) (*ast.File, error) {
	text, err := fs.ReadFile(checkout, name)
	if err != nil {
		return nil, err
	}
	return parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
}

func (c *code) readConstants(file *ast.File) error {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
				continue
			}
			comment := spec.Doc.Text()
			if comment == "" && len(decl.Specs) == 1 {
				comment = decl.Doc.Text()
			}
			value, err := text(spec.Values[0])
			if err != nil {
				return err
			}
			c.constants = append(c.constants, constant{spec.Names[0].Name, value, strings.Join(strings.Fields(comment), " ")})
		}
	}
	return nil
}

func text(e ast.Expr) (string, error) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", errors.New("a constant is not a plain string")
	}
	return strconv.Unquote(literal.Value)
}

// list returns the comments of the constants with a name prefix, as a Markdown list. Each comment begins with the name
// of the constant.
func (c *code) list(prefix string) (string, error) {
	var out strings.Builder
	for _, k := range c.constants {
		if !strings.HasPrefix(k.name, prefix) {
			continue
		}
		said, ok := strings.CutPrefix(k.comment, k.name)
		if !ok {
			return "", fmt.Errorf("the comment of %s does not begin with its name", k.name)
		}
		fmt.Fprintf(&out, "- `%s`%s\n", k.value, said)
	}
	if out.Len() == 0 {
		return "", errors.New("there is no constant " + prefix + "…")
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *code) conditions() (string, error)  { return c.list("Condition") }
func (c *code) annotations() (string, error) { return c.list("Annotation") }
func (c *code) finalizers() (string, error)  { return c.list("Finalizer") }

func reasons() string {
	var out strings.Builder
	out.WriteString("| reason | Ready | Verified | | what to do |\n|---|---|---|---|---|\n")
	for _, r := range v1beta1.Reasons {
		outlook := map[v1beta1.Outlook]string{
			v1beta1.Settled: "", v1beta1.Retrying: "retries", v1beta1.NeedsHelp: "needs a change",
		}[r.Outlook]
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", r.Reason, r.Ready, r.Verified, outlook, cell(r.Next))
	}
	return strings.TrimSpace(out.String())
}

// byReason is the name of the function that creates the event with the reason of a condition. The page describes it in
// its own text.
const byReason = "ReasonEvent"

func (c *code) readEvents(file *ast.File) error {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name == byReason {
			continue
		}
		var failed error
		ast.Inspect(f, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || failed != nil {
				return failed == nil
			}
			if name, ok := literal.Type.(*ast.Ident); !ok || name.Name != "Event" {
				return true
			}
			var h event
			if h, failed = readEvent(literal); failed != nil {
				failed = fmt.Errorf("%s: %w", f.Name.Name, failed)
				return false
			}
			c.all = append(c.all, h)
			return true
		})
		if failed != nil {
			return failed
		}
	}
	if len(c.all) == 0 {
		return errors.New("no events were found")
	}
	return nil
}

var verb = regexp.MustCompile(`%[a-z]`)

func readEvent(literal *ast.CompositeLit) (event, error) {
	h := event{note: "…"}
	for _, e := range literal.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return h, errors.New("an event is made without the names of its fields")
		}
		key, _ := pair.Key.(*ast.Ident)
		switch key.Name {
		case "Reason":
			reason, err := text(pair.Value)
			if err != nil {
				return h, err
			}
			h.reason = reason
		case "Warning":
			value, ok := pair.Value.(*ast.Ident)
			h.warning = ok && value.Name == "true"
		case "Note":
			call, ok := pair.Value.(*ast.CallExpr)
			if !ok {
				continue // the message is created elsewhere
			}
			format, err := text(call.Args[0])
			if err != nil {
				return h, err
			}
			h.note = verb.ReplaceAllString(format, "…")
		}
	}
	return h, nil
}

func (c *code) events() string {
	var out strings.Builder
	out.WriteString("| event | type | note |\n|---|---|---|\n")
	for _, h := range c.all {
		kind := "Normal"
		if h.warning {
			kind = "Warning"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", h.reason, kind, cell(h.note))
	}
	return strings.TrimSpace(out.String())
}
