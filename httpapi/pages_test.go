package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

type onePage struct{}

func (onePage) Page(name string) (Page, bool) {
	return Page{Header: http.Header{"Content-Type": {"text/html"}, "X-Page": {"yes"}}, Body: []byte("<!doctype html>")}, name == ""
}

// Without pages, the paths of the pages are unknown paths.
func TestNoPages(t *testing.T) {
	f := newFixture(t)
	for _, target := range []string{"/console", "/console/", ReportsPath} {
		if w := f.do(http.MethodGet, target, ""); w.Code != http.StatusNotFound || errorOf(t, w).Code != "NOT_FOUND" {
			t.Errorf("%s answered %d %s", target, w.Code, w.Body)
		}
	}
}

func TestPages(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Pages = onePage{} })
	for _, target := range []string{"/console/nothing", "/console/assets/", "/console//", "/console/../api/roles"} {
		if w := f.do(http.MethodGet, target, ""); w.Code != http.StatusNotFound || errorOf(t, w).Code != "NOT_FOUND" {
			t.Errorf("%s answered %d %s", target, w.Code, w.Body)
		}
	}
	for target, allow := range map[string]string{"/console": "GET, HEAD", "/console/": "GET, HEAD", "/console/nothing": "GET, HEAD", ReportsPath: "POST"} {
		if w := f.do(http.MethodPut, target, ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != allow {
			t.Errorf("PUT %s answered %d, Allow %q", target, w.Code, w.Header().Get("Allow"))
		}
	}
	if w := f.do(http.MethodGet, "/console", ""); w.Code != http.StatusPermanentRedirect || w.Header().Get("Location") != "/console/" {
		t.Errorf("answered %d to %q", w.Code, w.Header().Get("Location"))
	}
	w := f.do(http.MethodGet, "/console/", "")
	if h := w.Header(); w.Code != http.StatusOK || w.Body.String() != "<!doctype html>" || h.Get("Content-Type") != "text/html" ||
		h.Get("X-Page") != "yes" || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("answered %d %v %s", w.Code, h, w.Body)
	}
	// RFC 9110, section 9.1: a resource with GET also has HEAD.
	server := httptest.NewServer(f.api)
	defer server.Close()
	head, err := server.Client().Head(server.URL + "/console/")
	if err != nil {
		t.Fatal(err)
	}
	defer head.Body.Close()
	if body, err := io.ReadAll(head.Body); err != nil || head.StatusCode != http.StatusOK || len(body) != 0 ||
		head.ContentLength != int64(len("<!doctype html>")) || head.Header.Get("Content-Type") != "text/html" || head.Header.Get("X-Page") != "yes" {
		t.Errorf("HEAD is answered %d %v %q, %v", head.StatusCode, head.Header, body, err)
	}
	for target, status := range map[string]int{"/console": http.StatusPermanentRedirect, "/console/nothing": http.StatusNotFound, ReportsPath: http.StatusMethodNotAllowed} {
		if w := f.do(http.MethodHead, target, ""); w.Code != status {
			t.Errorf("HEAD %s is answered %d, want %d", target, w.Code, status)
		}
	}
	if w := f.do(http.MethodPost, ReportsPath, strings.Repeat(" ", routes.SmallBody+1)); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a report of more than %d bytes is answered %d", routes.SmallBody, w.Code)
	}
	if w := f.do(http.MethodPost, ReportsPath, "[]"); w.Code != http.StatusOK {
		t.Errorf("a report is answered %d %s", w.Code, w.Body)
	}
	// An approval cannot be requested for a page.
	if w := f.do(http.MethodPost, "/api/approvals", `{"method": "GET", "path": "/console/", "reason": "x"}`); w.Code != http.StatusBadRequest {
		t.Errorf("an approval of a page is answered %d %s", w.Code, w.Body)
	}
}
