package httpapi

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var namedRoute = regexp.MustCompile("`(?:(GET|POST|PUT|DELETE|PATCH|HEAD) )?(/(?:api|access)/[^`\\s?|]*)")

// Every route that a document names is there, with that method. A document may also name the
// beginning of routes.
func TestDocumentsNameRoutesThatExist(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d documents, %v", len(pages), err)
	}
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for number, line := range strings.Split(string(text), "\n") {
			for _, named := range namedRoute.FindAllStringSubmatch(line, -1) {
				seen++
				if !names(named[1], strings.TrimRight(named[2], ".,;)")) {
					t.Errorf("%s:%d names %s %s, which is no route", page, number+1, named[1], named[2])
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d routes are named", seen)
	}
}

// names reports whether a route has the method, if one is said, and the path or, without
// method, the beginning of the path.
func names(method, path string) bool {
	if method+" "+path == "POST /api/witness/add-checkpoint" { // C2SP's, beside the table
		return true
	}
	asked := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for _, r := range Routes() {
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
