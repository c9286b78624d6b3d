package routes

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Finder finds the route of each request, and no other route.
func TestFinder(t *testing.T) {
	f, err := NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	for target, code := range map[string]fault.Code{
		"/api/nowhere": fault.NotFound, "/": fault.NotFound, "/api//roles": fault.NotFound, "/api/keys/../roles": fault.NotFound, "/api/roles/": fault.NotFound,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		r.URL.Path = target
		if found, _, err := f.Find(r); fault.CodeOf(err) != code {
			t.Errorf("%s: %v, %v", target, found, err)
		}
	}
	if _, allow, err := f.Find(httptest.NewRequest(http.MethodPatch, "/api/roles", nil)); fault.CodeOf(err) != fault.MethodNotAllowed || allow != "GET, HEAD, POST" {
		t.Errorf("got %q, %v", allow, err)
	}
	field := regexp.MustCompile(`\{[^}]+\}`)
	var keys []string
	for _, r := range All() {
		path := field.ReplaceAllString(r.Path, "0000000000000001")
		if found, _, err := f.Find(httptest.NewRequest(r.Method, path, nil)); err != nil || found.Name != r.Name {
			t.Errorf("%s %s is for %v, %v", r.Method, path, found, err)
		}
		if r.NamesKeys() {
			keys = append(keys, r.Name)
		} else if r.Streamed() {
			t.Errorf("%s is streamed and names no key", r.Name)
		}
	}
	slices.Sort(keys)
	// These names come from the tags of package schema. If a name is missing here, no
	// rule of an agent (--allow) can limit the route to keys.
	want := "authorizeKey computeHmac computeMac computeMacs decrypt destroyKey disableKey enableKey encrypt exportKey getAcl getKey grantAcl listKeys restoreKey revokeAcl rotateKey setKeyRotation updateAcl verifyMac verifyMacs"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("got %s", got)
	}
}
