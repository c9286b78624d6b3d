// Package site builds the documents as a site, and reads it.
package site

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/browser"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
)

// policy is the strictest policy that a static site can have: no inline code and no other host.
// Pictures of the theme are data URLs in its style sheet.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func build(t testing.TB, into, docs, version string) (string, error) {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "site.sh"), into)
	cmd.Env = append(os.Environ(), "SITE_VERSION="+version, "SITE_DOCS="+docs)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func docs(t testing.TB) string {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	return filepath.Join(root, "docs")
}

// pages returns the names of the pages, without their extensions.
func pages(t testing.TB) []string {
	t.Helper()
	var names []string
	at := docs(t)
	rig.Must(t, filepath.WalkDir(at, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		name, err := filepath.Rel(at, path)
		names = append(names, strings.TrimSuffix(filepath.ToSlash(name), ".md"))
		return err
	}))
	if len(names) < 80 {
		t.Fatalf("only %d documents were found", len(names))
	}
	names[slices.Index(names, "README")] = "index"
	return names
}

// made is the site that all tests share: its directory, and a Once to build it.
var made struct {
	once sync.Once
	dir  string
}

func TestMain(m *testing.M) { os.Exit(inDirectory(m)) }

func inDirectory(m *testing.M) int {
	dir, err := os.MkdirTemp("", "site-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	made.dir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// site returns a directory with the current documents as two releases.
func site(t testing.TB) string {
	t.Helper()
	node.Packages(t, filepath.Join(docs(t), "..", "site")) // fails with a reason if a package is missing
	made.once.Do(func() {
		for _, version := range []string{"v0.1.0", "main"} {
			if out, err := build(t, made.dir, docs(t), version); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	})
	if _, err := os.Stat(filepath.Join(made.dir, "main", "index.html")); err != nil {
		t.Fatalf("the site was not built: %v", err)
	}
	return made.dir
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	rig.Must(t, err)
	return string(text)
}

// Each document is a page. It names its release, and every other page links to it.
func TestPages(t *testing.T) {
	dir := site(t)
	first := read(t, dir, "main", "index.html")
	for _, name := range pages(t) {
		page := read(t, dir, "main", filepath.FromSlash(name)+".html")
		if !strings.Contains(page, "Release main, made from ") {
			t.Errorf("%s does not say which release it is of", name)
		}
		to := "/main/" + name + ".html"
		if name == "index" {
			to = "/main/"
		}
		if !strings.Contains(first, `href="`+to+`"`) {
			t.Errorf("the sidebar does not lead to %s", name)
		}
	}
	for _, part := range []string{"tutorials", "how-to-guides", "reference", "explanation"} {
		if !strings.Contains(first, `href="/main/#`+part+`"`) {
			t.Errorf("the navigation does not lead to %s", part)
		}
	}
	if !strings.Contains(read(t, dir, "main", "metrics.html"), `href="https://github.com/keyserver-operator/keyserver-operator/blob/main/config/prometheus/rules.yaml"`) {
		t.Error("what is no page is not linked to in the repository")
	}
	if !strings.Contains(read(t, dir, "v0.1.0", "metrics.html"), `/blob/v0.1.0/config/prometheus/rules.yaml"`) {
		t.Error("the site of a release leads to files of another one")
	}
}

// The list of releases is also read by older sites.
func TestVersions(t *testing.T) {
	var list struct{ Versions []string }
	rig.Must(t, json.Unmarshal([]byte(read(t, site(t), "versions.json")), &list))
	if !slices.Equal(list.Versions, []string{"v0.1.0", "main"}) {
		t.Errorf("the releases are %q", list.Versions)
	}
}

// The search index has all pages.
func TestSearchIndex(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(site(t), "main", "assets", "chunks", "@localSearchIndexroot.*.js"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the index is %q, %v", found, err)
	}
	index := node.Run(t, ".", nil, "node", "--input-type=module", "-e", `import(process.argv[1]).then((m) => console.log(Object.values(JSON.parse(m.default).documentIds).join('\n')))`, found[0])
	for _, name := range pages(t) {
		if name == "index" {
			name = ""
		} else {
			name += ".html"
		}
		if !regexp.MustCompile(`(?m)^/main/` + regexp.QuoteMeta(name) + `(#.*)?$`).MatchString(index) {
			t.Errorf("no search finds %q", name)
		}
	}
}

// loads matches code that makes a browser load something from another host.
var loads = regexp.MustCompile(`(?i)(?:\b(?:src|srcset|data|action)=["']?|<link\b[^>]*\bhref=["']?|@import\s+(?:url\()?["']?|url\(["']?|\bimport\(["'` + "`" + `]|\bfetch\(["'` + "`" + `])(?:https?:)?//[a-z0-9]`)

// iconify is the URL from which VitePress loads the icon of an unknown social link. The site has
// none, and the policy would block it.
const iconify = "url('https://api.iconify.design/simple-icons/"

func TestNoOtherHost(t *testing.T) {
	for _, bad := range []string{`<script src="https://cdn.example/x.js">`, `<link rel="stylesheet" href="//fonts.example/f.css">`, `url(https://fonts.example/f.woff2)`, `import("https://x.example")`} {
		if !loads.MatchString(bad) {
			t.Fatalf("%s would not be seen", bad)
		}
	}
	seen := 0
	rig.Must(t, filepath.WalkDir(site(t), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".html", ".js", ".css"}, filepath.Ext(path)) {
			return err
		}
		seen++
		text := strings.ReplaceAll(read(t, path), iconify, "")
		// In these files, the content of a document is escaped text.
		if strings.HasSuffix(path, ".js") && (strings.Contains(path, ".md.") || strings.Contains(path, "@localSearchIndex")) {
			return nil
		}
		if found := loads.FindString(text); found != "" {
			t.Errorf("%s has %s", path, found)
		}
		return nil
	}))
	if seen < 300 {
		t.Errorf("only %d files were read", seen)
	}
}

// A dead link fails the build, and the error names it.
func TestDeadLinks(t *testing.T) {
	node.Packages(t, filepath.Join(docs(t), "..", "site"))
	for reason, tc := range map[string]struct{ text, want string }{
		"to a page":                {"[gone](../gone.md)", "../gone"},
		"to a heading":             {"[gone](../README.md#gone)", "#gone: there is no such fragment there"},
		"to a heading of the page": {"[gone](#gone)", "start/reader.html: #gone: there is no such fragment"},
		"to a file":                {"[gone](../../config/gone.yaml)", "../../config/gone.yaml leads to nothing in the repository"},
		"nothing is dead":          {"[there](../README.md#there) [too](#for-a-reader) [and](../../config/samples)", ""},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"README.md":       "# Documents\n\n## There\n\n## Tutorials\n\n## How-to guides\n\n## Reference\n\n## Explanation\n",
				"openapi.json":    "{}\n",
				"start/reader.md": "# For a reader\n\nTutorial. " + tc.text + "\n", "glossary.md": "# Glossary\n\nReference.\n", "adr/0001-a.md": "# 1. A\n",
			} {
				path := filepath.Join(dir, filepath.FromSlash(name))
				rig.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
				rig.Must(t, os.WriteFile(path, []byte(text), 0o600))
			}
			out, err := build(t, t.TempDir(), dir, "main")
			if tc.want == "" {
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			if err == nil || !strings.Contains(out, tc.want) {
				t.Errorf("the build says %v, want %q:\n%s", err, tc.want, out)
			}
		})
	}
}

// TestReaders runs the steps in site.test.mjs, with the packages of test/console.
func TestReaders(t *testing.T) {
	chromium, dir := browser.Chromium(t), t.TempDir()
	names, err := json.Marshal(pages(t))
	rig.Must(t, err)
	files := http.FileServer(http.Dir(site(t)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	rig.Must(t, os.WriteFile(filepath.Join(dir, "site.test.mjs"), []byte(read(t, "site.test.mjs")), 0o600))
	rig.Must(t, os.Symlink(node.Packages(t, filepath.Join("..", "console")), filepath.Join(dir, "node_modules")))
	t.Log(node.Run(t, dir, []string{"RIG_CHROMIUM=" + chromium, "SITE_URL=" + server.URL, "SITE_PAGES=" + string(names)},
		"node", "--test", "--test-reporter=spec", "site.test.mjs"))
}
