package document

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// written returns the names of all hand-written files, selected by their extensions.
func written(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "node_modules", ".keyserver"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
		case slices.Contains([]string{".go", ".md", ".tmpl", ".sh", ".yml", ".yaml", ".sql", ".proto", ".txt", ".mjs"}, path.Ext(name)),
			slices.Contains([]string{"Makefile", "Dockerfile"}, entry.Name()):
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 300 {
		t.Fatalf("only %d files were found", len(names))
	}
	return names
}

// prose returns a text as one line without comment signs, because a reference may span two lines.
func prose(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		for _, sign := range []string{"//", "--", "#", "* "} {
			line = strings.TrimPrefix(line, sign)
		}
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, " ")
}

var (
	clause = regexp.MustCompile(`(?m)^<a id="([^"]*)"></a>(?:\n## |\*\*)(\d+(?:\.\d+)?)\b`)
	anchor = regexp.MustCompile(`<a id="([^"]*)"></a>`)
)

// clauses returns the numbers of the contract's sections and clauses in their order.
func clauses(t *testing.T) []string {
	t.Helper()
	var numbers []string
	for _, m := range clause.FindAllStringSubmatch(read(t, "docs/contract.md"), -1) {
		if m[1] != m[2] {
			t.Errorf("clause %s has the anchor %s", m[2], m[1])
		}
		numbers = append(numbers, m[2])
	}
	return numbers
}

// TestClauses checks that each clause has an anchor with its number, and that the numbers increase.
func TestClauses(t *testing.T) {
	numbers := clauses(t)
	if all := anchor.FindAllString(read(t, "docs/contract.md"), -1); len(all) != len(numbers) || len(all) < 150 {
		t.Errorf("%d anchors, and %d of them before a clause", len(all), len(numbers))
	}
	section, last := 0, 0
	for _, number := range numbers {
		of, n, is := strings.Cut(number, ".")
		switch {
		case !is && atoi(of) == section+1:
			section, last = section+1, 0
		case is && atoi(of) == section && atoi(n) > last:
			last = atoi(n)
		default:
			t.Errorf("%s comes after %d.%d", number, section, last)
		}
	}
}

func atoi(digits string) (n int) {
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

var (
	// cited matches clause numbers after the contract's name: one number, or several.
	cited = regexp.MustCompile(`\b[Cc]ontract(?:\.md\)?)?[` + "`" + `\]]*,? (\d+(?:\.\d+)?(?:(?:, | and | or | to )\d+\.\d+)*)`)
	// named matches the contract's name without a clause.
	named  = regexp.MustCompile(`\b[Tt]he contract\b|\([Cc]ontract[,)]|\b[Cc]ontract, [A-Z]`)
	number = regexp.MustCompile(`\d+(?:\.\d+)?`)

	// appeals finds any kind of reference, as a fast first test.
	appeals = regexp.MustCompile(`[Cc]ontract|ADR|adr/`)

	decision = regexp.MustCompile(`\bADR (\d+)((?:(?:, | and )\d+\b)*)|\badr/(\d{4})`)
)

// TestReferences checks that cited clauses of the contract and cited ADRs exist in the repository.
func TestReferences(t *testing.T) {
	known, decisions := clauses(t), map[int]bool{}
	adrs, err := filepath.Glob(filepath.Join(root, "docs", "adr", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, adr := range adrs {
		decisions[atoi(filepath.Base(adr)[:4])] = true
	}
	// Split, so that this file does not match.
	papers := regexp.MustCompile(`\bDES` + `IGN\b|\bMEAS` + `URED\.md|\bSEC` + `OND\.md|http-inter` + `face\.md`)
	toClauses, toDecisions := 0, 0
	for _, name := range written(t) {
		if name == "docs/contract.md" { // in this file, references are links
			continue
		}
		text := read(t, name)
		if found := papers.FindString(text); found != "" {
			t.Errorf("%s appeals to %s, which is not in the repository", name, found)
		}
		if !appeals.MatchString(text) {
			continue
		}
		text = prose(text)
		references := cited.FindAllStringSubmatch(text, -1)
		for _, m := range references {
			for _, n := range number.FindAllString(m[1], -1) {
				toClauses++
				if !slices.Contains(known, n) {
					t.Errorf("%s: %q: there is no clause %s in docs/contract.md", name, m[0], n)
				}
			}
		}
		if found := named.FindString(text); found != "" && len(references) == 0 && !strings.Contains(text, "contract.md") {
			t.Errorf("%s: %q names no clause, and nothing here says where the contract is: cite one, or docs/contract.md", name, found)
		}
		for _, m := range decision.FindAllStringSubmatch(text, -1) {
			for _, n := range number.FindAllString(m[1]+" "+m[2]+" "+m[3], -1) {
				toDecisions++
				if !decisions[atoi(n)] {
					t.Errorf("%s: %q: there is no such decision in docs/adr", name, m[0])
				}
			}
		}
	}
	if toClauses < 60 || toDecisions < 30 {
		t.Errorf("only %d references to clauses and %d to decisions were read", toClauses, toDecisions)
	}
}

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	inline  = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	symbols = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks checks that each relative link of a document leads to a file, and its fragment to a
// heading or an anchor there.
func TestLinks(t *testing.T) {
	links, known := 0, map[string][]string{}
	for _, name := range written(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		text := fenced.ReplaceAllString(read(t, name), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, fragment, _ := strings.Cut(m[2], "#")
			if strings.Contains(target, ":") { // an external link
				continue
			}
			links++
			to := name
			if target != "" {
				to = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %s: there is no %s", name, m[0], to)
				continue
			}
			if known[to] == nil && fragment != "" && path.Ext(to) == ".md" {
				known[to] = fragments(t, to)
			}
			if fragment != "" && !slices.Contains(known[to], fragment) {
				t.Errorf("%s: %s: there is no #%s in %s", name, m[0], fragment, to)
			}
			// If the text and the target of the link both name a clause, it is the same one.
			if told := number.FindString(m[1]); path.Base(to) == "contract.md" && number.MatchString(fragment) &&
				strings.TrimPrefix(strings.ToLower(prose(m[1])), "contract ") == told && told != fragment {
				t.Errorf("%s: %s leads to clause %s", name, m[0], fragment)
			}
		}
	}
	if links < 200 {
		t.Errorf("only %d links were read", links)
	}
}

// fragments returns the fragments that links into a document can use.
func fragments(t *testing.T, name string) []string {
	t.Helper()
	text := fenced.ReplaceAllString(read(t, name), "")
	var all []string
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		title := link.ReplaceAllString(inline.ReplaceAllStringFunc(m[1], func(code string) string { return strings.Trim(code, "`") }), "$1")
		all = append(all, strings.ReplaceAll(symbols.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
	}
	return all
}
