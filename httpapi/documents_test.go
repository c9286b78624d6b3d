package httpapi

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// namedRoute matches paths of /api in text and in commands, and paths of /access in backquotes. It does not match a
// source directory such as ../api/v1beta1.
var namedRoute = regexp.MustCompile("(?:\\b(GET|POST|PUT|DELETE|PATCH|HEAD) )?['\"`]?(?:(/api/[\\w{}*/.-]*)|`(/access/[^`\\s?|]*))")

// goImport matches a line of an import in a Go example.
var goImport = regexp.MustCompile(`^\t(\w+ )?"[\w.]+/[\w./-]+"$`)

// Every route that a document names exists, with the method in the document. A document may also name the beginning of
// a path, and write * for the rest.
func TestDocumentsNameRoutesThatExist(t *testing.T) {
	pages := []string{"../README.md"}
	for _, at := range []string{"../docs/*.md", "../docs/start/*.md", "../docs/guides/*.md"} {
		found, err := filepath.Glob(at)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d documents, %v", at, len(found), err)
		}
		pages = append(pages, found...)
	}
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for number, line := range strings.Split(string(text), "\n") {
			if goImport.MatchString(line) {
				continue
			}
			for _, named := range namedRoute.FindAllStringSubmatch(line, -1) {
				path := strings.TrimRight(named[2]+named[3], ".,;)*")
				if strings.HasPrefix(path, "/api/v1beta1") {
					continue
				}
				seen++
				if !names(named[1], path) {
					t.Errorf("%s:%d names %s %s, which is no route", page, number+1, named[1], path)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d routes are named", seen)
	}
}

// names reports whether a route has the method, if there is one, and the path. Without a
// method, the path may be the beginning of a route's path.
func names(method, path string) bool {
	if method+" "+path == "POST /api/witness/add-checkpoint" { // the route of C2SP is not in the table
		return true
	}
	asked := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for _, r := range routes.All() {
		have := strings.Split(r.Path, "/")
		if len(have) < len(asked) || method != "" && (r.Method != method || len(have) != len(asked)) {
			continue
		}
		same := true
		for i, part := range asked {
			same = same && (part == have[i] || strings.HasPrefix(have[i], "{"))
		}
		if same {
			return true
		}
	}
	return false
}
