package console

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

// TestNotBuilt checks that a binary without the console returns ErrNotBuilt.
func TestNotBuilt(t *testing.T) {
	if _, err := open(fstest.MapFS{".gitkeep": {}}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("got %v, want ErrNotBuilt", err)
	}
}

func TestPages(t *testing.T) {
	s, err := open(fstest.MapFS{
		".gitkeep": {}, "index.html": {Data: []byte("<!doctype html>")},
		"assets/main-x.js": {Data: []byte("1")}, "assets/main-x.css": {Data: []byte("a{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{".gitkeep", "index.html", "assets", "assets/", "../console.go", "nothing"} {
		if _, found := s.Page(absent); found {
			t.Errorf("%q is served", absent)
		}
	}
	for name, want := range map[string]struct{ kind, cache string }{
		"":                  {"text/html; charset=utf-8", ""}, // the API's no-store stays
		"assets/main-x.js":  {"text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		"assets/main-x.css": {"text/css; charset=utf-8", "public, max-age=31536000, immutable"},
	} {
		p, found := s.Page(name)
		if !found || p.Header.Get("Content-Type") != want.kind || p.Header.Get("Cache-Control") != want.cache {
			t.Errorf("%q: %v, %v", name, found, p.Header)
		}
		for _, never := range []string{"unsafe", "http:", "https:", "*", "data:"} {
			if csp := p.Header.Get("Content-Security-Policy"); csp == "" || strings.Contains(csp, never) {
				t.Errorf("%q: the policy %q allows %s", name, csp, never)
			}
		}
	}
}
