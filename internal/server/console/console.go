// Package console contains the files of the web console. hack/console.sh builds them from the directory console
// of this repository.
package console

import (
	"embed"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/httpapi"
)

// dist contains only .gitkeep until the console is built. So the repository contains no generated files, and all
// packages compile without Node.js.
//
//go:embed all:dist
var dist embed.FS

// ErrNotBuilt is the error if the binary was built without the console. Its text tells how to build with the console.
var ErrNotBuilt = errors.New("--console: this binary was built without the console; build it with \"make build\" on a machine with Node.js 20.19 or newer, or omit the flag")

// policy is the Content-Security-Policy of the pages. Pages may load files only from this server and connect only to
// it. Text is never executed: no inline script or style, no eval, no HTML from text (Trusted Types). No page can be
// framed, and no form is sent.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'; report-to csp"

// Site contains the files of the console in memory.
type Site struct {
	pages map[string]httpapi.Page
}

// Open reads the embedded files. It returns ErrNotBuilt if there are none.
func Open() (*Site, error) {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	return open(built)
}

func open(built fs.FS) (*Site, error) {
	s := &Site{pages: map[string]httpapi.Page{}}
	err := fs.WalkDir(built, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			return err
		}
		body, err := fs.ReadFile(built, name)
		s.pages[name] = httpapi.Page{Header: header(name), Body: body}
		return err
	})
	if err != nil {
		return nil, err
	}
	index, found := s.pages["index.html"]
	if !found {
		return nil, ErrNotBuilt
	}
	s.pages[""] = index
	delete(s.pages, "index.html") // so that the first page has only one URL
	return s, nil
}

// header returns the response header of a file. The names of files in the directory assets contain a hash of their
// content, so these files never change.
func header(name string) http.Header {
	h := http.Header{}
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("Reporting-Endpoints", `csp="`+httpapi.ReportsPath+`"`)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	return h
}

// Page implements httpapi.Pages.
func (s *Site) Page(name string) (httpapi.Page, bool) {
	p, found := s.pages[name]
	return p, found
}
