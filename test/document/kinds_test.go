package document

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// parts maps the kind of a document to its part, which is a heading of docs/README.md.
var parts = map[string]string{
	"Tutorial": "Tutorials", "How-to": "How-to guides", "Reference": "Reference", "Explanation": "Explanation",
}

// beginning matches the title of a document and the first word below it.
var beginning = regexp.MustCompile(`(?m)^# .+\n+([A-Z][a-z]+(?:-to)?)\b`)

// TestKinds checks that each document begins with its kind, and that docs/README.md lists the document in the part of
// that kind. The site builds its sidebar from the kinds. Decisions have a separate directory.
func TestKinds(t *testing.T) {
	listed := map[string]string{}
	for part := range strings.SplitSeq(read(t, "docs/README.md"), "\n## ") {
		title, text, _ := strings.Cut(part, "\n")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			listed[path.Join("docs", m[2])] = title
		}
	}
	for _, name := range documents(t) {
		if name == "README.md" || name == "docs/README.md" || strings.HasPrefix(name, "docs/adr/") {
			continue
		}
		m := beginning.FindStringSubmatch(read(t, name))
		if m == nil || parts[m[1]] == "" {
			t.Errorf("%s does not begin with its kind: Tutorial, How-to, Reference or Explanation", name)
			continue
		}
		if got := listed[name]; got != parts[m[1]] {
			t.Errorf("%s belongs to the part %q; docs/README.md lists it under %q", name, parts[m[1]], got)
		}
	}
}
