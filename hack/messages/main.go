// Command messages copies the messages of Go files, and the summaries and descriptions of alert rules, to text files
// for a linter of prose. A message keeps its file name and line. Usage: messages DIRECTORY FILE...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: messages DIRECTORY FILE...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(1)
	}
}

func run(dir string, files []string) error {
	into, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = into.Close() }()
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the caller names its own files
		if err != nil {
			return err
		}
		read := ofYAML
		if filepath.Ext(file) == ".go" {
			read = ofGo
		}
		messages, err := read(file, text)
		if err != nil {
			return err
		}
		if err := into.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return err
		}
		if err := into.WriteFile(file+".txt", placed(messages), 0o600); err != nil {
			return err
		}
	}
	return nil
}

type message struct {
	line int
	text string
}

// placed returns a text in which each message is on its own line number. Messages that begin on the same line are in
// one line.
func placed(messages []message) []byte {
	var out strings.Builder
	line := 1
	for _, m := range messages {
		for ; line < m.line; line++ {
			out.WriteByte('\n')
		}
		out.WriteString(m.text + " ")
	}
	out.WriteByte('\n')
	return []byte(out.String())
}

var (
	verb = regexp.MustCompile(`%[-+# 0-9.\[\]]*[a-zA-Z]`)
	// code matches SQL, URLs with parameters, and templates, which are not messages.
	code = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|SET|WITH|BEGIN|PRAGMA|FROM|WHERE|AND|ORDER|LOCK|VALUES|NOT)\b|[{}<>|]|::|=\$`)
	rule = regexp.MustCompile(`^\s*(?:summary|description): (.*)`)
)

// ofGo returns the string literals of a Go file that have at least three words.
func ofGo(file string, text []byte) (messages []message, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && len(strings.Fields(s)) > 2 && !code.MatchString(s) {
				s = verb.ReplaceAllString(strings.Join(strings.Fields(s), " "), "X")
				messages = append(messages, message{files.Position(n.Pos()).Line, s})
			}
		}
		return true
	})
	return messages, nil
}

func ofYAML(_ string, text []byte) (messages []message, err error) {
	for i, line := range strings.Split(string(text), "\n") {
		if found := rule.FindStringSubmatch(line); found != nil {
			messages = append(messages, message{i + 1, strings.Trim(found[1], `'"`)})
		}
	}
	return messages, nil
}
