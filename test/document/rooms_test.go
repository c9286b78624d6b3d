package document

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mayImport finds the last sentence of a doc.go, which may span several lines.
var mayImport = regexp.MustCompile(`(?s)// May import: (.*)\npackage `)

// TestRooms compares the imports of the product with the diagram in docs/architecture.md and with the doc.go of each
// directory under internal. Code that only tests link is exempt.
func TestRooms(t *testing.T) {
	row := map[string]int{}
	_, picture, _ := strings.Cut(read(t, "docs/architecture.md"), "## Where things are")
	_, picture, _ = strings.Cut(picture, "```text\n")
	picture, _, _ = strings.Cut(picture, "```")
	for i, line := range strings.Split(picture, "\n") {
		for _, room := range strings.Fields(line) {
			row[room] = i
		}
	}
	used := map[string]map[string]bool{} // by the importing directory
	module := moduleName(t)
	for _, name := range product(t) {
		from := roomOf(name)
		if _, drawn := row[from]; !drawn {
			t.Errorf("%s is in no row of the picture in docs/architecture.md", from)
			row[from] = 0
		}
		for _, to := range imports(t, module, name) {
			if to == from {
				continue
			}
			if row[to] <= row[from] {
				t.Errorf("%s imports %s, which is not in a lower row of the picture in docs/architecture.md", name, to)
			}
			if used[from] == nil {
				used[from] = map[string]bool{}
			}
			used[from][to] = true
		}
	}

	entries, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 10 {
		t.Errorf("internal has %d entries; ten is the limit", len(entries))
	}
	for _, entry := range entries {
		room := "internal/" + entry.Name()
		text := read(t, room+"/doc.go")
		if lines := strings.Count(text, "\n"); lines > 12 {
			t.Errorf("%s/doc.go has %d lines; 12 is the limit", room, lines)
		}
		found := mayImport.FindStringSubmatch(text)
		if found == nil {
			t.Errorf(`%s/doc.go has no line "May import:"`, room)
			continue
		}
		allowed := slices.DeleteFunc(strings.Fields(strings.ReplaceAll(found[1], ",", " ")), func(word string) bool {
			return word == "//" || word == "nothing"
		})
		for to := range used[room] {
			if !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s, but its doc.go does not allow it", room, to)
			}
		}
		for _, to := range allowed {
			if !used[room][to] {
				t.Errorf("%s/doc.go allows %s, which is not imported", room, to)
			}
		}
	}
}

// product returns the Go files that are linked into a program for users.
func product(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(written(t), func(name string) bool {
		return path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || testSupport.MatchString(path.Dir(name))
	})
}

// roomOf returns the directory of the diagram that a file or package belongs to.
func roomOf(name string) string {
	parts := strings.Split(name, "/")
	switch {
	case parts[0] == "internal":
		return path.Join(parts[0], parts[1])
	case strings.HasPrefix(name, "clients/go/shared/"):
		return "clients/go/shared"
	case strings.HasPrefix(name, "httpapi/keyservertest/"):
		return "httpapi/keyservertest"
	case parts[0] == "clients":
		return "clients/go"
	default:
		return parts[0]
	}
}

// imports returns the directories of the diagram that a file imports.
func imports(t *testing.T, module, name string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var rooms []string
	for _, spec := range file.Imports {
		if local, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/"); ours {
			rooms = append(rooms, roomOf(local))
		}
	}
	return rooms
}
