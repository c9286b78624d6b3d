package contract

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func paths(list []object) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, d["path"].(string))
	}
	return out
}

// query spells repeated parameters.
func query(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return path + "?" + q.Encode()
}

// GET /api/templated-directories: all, by one path, by several, by templates.
func TestListTemplatedDirectories(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const base = "/api/templated-directories"
		admin := s.admin(t)
		one, two := s.template(t, admin, "one"), s.template(t, admin, "two")
		if a := s.ok(t, admin, "GET", base, nil); len(a.list(t, "directories")) != 0 {
			t.Errorf("a fresh server lists %s", a.raw)
		}
		for path, template := range map[string]string{"/a": one, "/a/b": one, "/c": two} {
			s.ok(t, admin, "POST", base, object{"path": path, "aclTemplateId": template})
		}
		refusals := map[string]struct {
			reason string
			path   string
			names  string
		}{
			"Both":             {"path and aclTemplateId exclude each other", query(base, "path", "/a", "aclTemplateId", one), "aclTemplateId"},
			"ShortTemplate":    {"16 hex digits", query(base, "aclTemplateId", "abc"), "aclTemplateId"},
			"DecimalTemplate":  {"16 hex digits", query(base, "aclTemplateId", "12345"), "aclTemplateId"},
			"EmptyTemplate":    {"16 hex digits", base + "?aclTemplateId=", "aclTemplateId"},
			"SecondTemplate":   {"each of them", query(base, "aclTemplateId", one, "aclTemplateId", "x"), "aclTemplateId"},
			"UnknownParameter": {"a misspelt filter must not list everything", query(base, "paht", "/a"), "paht"},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.refused(t, admin, "GET", tc.path, nil, http.StatusBadRequest, "BAD_REQUEST")
				if !strings.Contains(a.text(t, "detail"), tc.names) {
					t.Errorf("%s: the detail %q does not name %q", tc.reason, a.text(t, "detail"), tc.names)
				}
			})
		}

		cases := map[string]struct {
			reason             string
			path               string
			want               []string
			requested, queried []any // nil is absent
		}{
			"All":            {"no filter", base, []string{"/a/", "/a/b/", "/c/"}, nil, nil},
			"OnePath":        {"the slash is put right", query(base, "path", "/a"), []string{"/a/"}, []any{"/a"}, []any{"/a/"}},
			"Slashed":        {"as stored", query(base, "path", "/a/"), []string{"/a/"}, []any{"/a/"}, []any{"/a/"}},
			"Several":        {"by paths", query(base, "path", "/c/", "path", "/a/b"), []string{"/a/b/", "/c/"}, []any{"/c/", "/a/b"}, []any{"/c/", "/a/b/"}},
			"Twice":          {"two forms of one path find it once", query(base, "path", "/a", "path", "/a/"), []string{"/a/"}, []any{"/a", "/a/"}, []any{"/a/", "/a/"}},
			"Exact":          {"a path above or below is another", query(base, "path", "/a/b/c", "path", "/"), []string{}, []any{"/a/b/c", "/"}, []any{"/a/b/c/", "/"}},
			"Case":           {"bytes, not letters", query(base, "path", "/A"), []string{}, []any{"/A"}, []any{"/A/"}},
			"NoWildcard":     {"exactly", query(base, "path", "/%"), []string{}, []any{"/%"}, []any{"/%/"}},
			"EmptyPath":      {"ignored", base + "?path=", []string{"/a/", "/a/b/", "/c/"}, nil, nil},
			"EmptyAmong":     {"ignored", base + "?path=&path=/c&path=", []string{"/c/"}, []any{"/c"}, []any{"/c/"}},
			"EmptyTemplated": {"an ignored path excludes nothing", query(base, "path", "", "aclTemplateId", two), []string{"/c/"}, nil, nil},
			"Template":       {"all of one template", query(base, "aclTemplateId", one), []string{"/a/", "/a/b/"}, nil, nil},
			"UpperCase":      {"hex digits of either case", query(base, "aclTemplateId", strings.ToUpper(one)), []string{"/a/", "/a/b/"}, nil, nil},
			"Templates":      {"of several", query(base, "aclTemplateId", one, "aclTemplateId", two), []string{"/a/", "/a/b/", "/c/"}, nil, nil},
			"NoTemplate":     {"nothing matches", query(base, "aclTemplateId", noID), []string{}, nil, nil},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				a := s.ok(t, admin, "GET", tc.path, nil)
				if got := paths(a.list(t, "directories")); !reflect.DeepEqual(got, tc.want) {
					t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
				}
				for field, want := range map[string][]any{"requestedPaths": tc.requested, "queriedPaths": tc.queried} {
					got, there := a.body[field]
					if there != (want != nil) || there && !reflect.DeepEqual(got, any(want)) {
						t.Errorf("%s: %s is %v, want %v", tc.reason, field, got, want)
					}
				}
			})
		}
	})
}

// POST and DELETE of templated directories.
func TestTemplatedDirectories(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const base = "/api/templated-directories"
		admin := s.admin(t)
		template := s.template(t, admin, "t")
		good := object{"path": "/a/b", "aclTemplateId": template}
		refusals := map[string]struct {
			change object
			code   string
			names  string
		}{
			"EmptyPath":       {object{"path": ""}, "BAD_REQUEST", "path"},
			"DotDot":          {object{"path": "/a/../b"}, "BAD_REQUEST", "path"},
			"Hole":            {object{"path": "/a//b"}, "BAD_REQUEST", "path"},
			"DecimalTemplate": {object{"aclTemplateId": "12345"}, "BAD_REQUEST", "aclTemplateId"},
			"ZeroTemplate":    {object{"aclTemplateId": "0000000000000000"}, "BAD_REQUEST", "aclTemplateId"},
			"NoTemplate":      {object{"aclTemplateId": noID}, "INVALID_ARGUMENT", "aclTemplateId"},
			"NegativeFlag":    {object{"flag": -1}, "BAD_REQUEST", "flag"},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.refused(t, admin, "POST", base, join(good, tc.change), http.StatusBadRequest, tc.code)
				if !strings.Contains(a.text(t, "detail"), tc.names) {
					t.Errorf("the detail %q does not name %q", a.text(t, "detail"), tc.names)
				}
			})
		}
		a := s.ok(t, admin, "POST", base, join(good, object{"alias": "docs", "hostId": "host-1", "flag": 5}))
		id := a.text(t, "id")
		want := object{"id": id, "path": "/a/b/", "alias": "docs", "hostId": "host-1", "aclTemplateId": template, "flag": float64(5)}
		if a.body["saved"] != true || !reflect.DeepEqual(a.body["directory"], any(want)) {
			t.Errorf("created: %s", a.raw)
		}
		s.refused(t, admin, "POST", base, join(good, object{"path": "/a/b/"}), http.StatusConflict, "ALREADY_EXISTS")
		s.refused(t, admin, "DELETE", base+"/12345", nil, http.StatusBadRequest, "BAD_REQUEST")
		s.refused(t, admin, "DELETE", base+"/"+noID, nil, http.StatusNotFound, "NOT_FOUND")
		a = s.ok(t, admin, "DELETE", base+"/"+id, nil)
		if a.body["gone"] != true || !reflect.DeepEqual(a.body["directory"], any(want)) {
			t.Errorf("deleted: %s", a.raw)
		}
		s.refused(t, admin, "DELETE", base+"/"+id, nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// POST /api/keys with a path: the members of the nearest templated directory
// get entries, besides the creator who owns the key.
func TestMintUnderATemplatedDirectory(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		reader, readers := s.holder(t, keyserver.RoleExchanger)
		minter, minters := s.holder(t, keyserver.RoleEncryptor)
		top, deep := s.template(t, admin, "top"), s.template(t, admin, "deep")
		s.ok(t, admin, "POST", "/api/acl-templates/"+deep+"/members", join(readers, object{"rights": []string{"READ"}, "maxUsage": 1}))
		s.ok(t, admin, "POST", "/api/acl-templates/"+deep+"/members", join(minters, object{"rights": []string{"READ"}, "maxUsage": 0}))
		s.ok(t, admin, "POST", "/api/templated-directories", object{"path": "/data", "aclTemplateId": top})
		s.ok(t, admin, "POST", "/api/templated-directories", object{"path": "/data/shared", "aclTemplateId": deep})

		for name, tc := range map[string]struct{ path, code string }{
			"Empty":   {"", "BAD_REQUEST"},
			"Climbs":  {"/data/../etc", "BAD_REQUEST"},
			"Outside": {"/other", "INVALID_ARGUMENT"},
			"Sibling": {"/database", "INVALID_ARGUMENT"},
			"Above":   {"/", "INVALID_ARGUMENT"},
		} {
			t.Run(name, func(t *testing.T) {
				a := s.refused(t, minter, "POST", "/api/keys", object{"algorithm": "HMAC-SHA384", "path": tc.path}, http.StatusBadRequest, tc.code)
				if !strings.Contains(a.text(t, "detail"), "path") {
					t.Errorf("the detail %q does not name path", a.text(t, "detail"))
				}
			})
		}

		mint := func(body object) (link string, entries []object) {
			t.Helper()
			link = s.ok(t, minter, "POST", "/api/keys", join(object{"algorithm": "HMAC-SHA384"}, body)).text(t, "ttag")
			acl := s.ok(t, minter, "POST", "/api/keys/acl/get", object{"ttag": link})
			for _, e := range acl.at(t, "acl", "entries").([]any) {
				entries = append(entries, e.(object))
			}
			return link, entries
		}
		entry := func(entries []object, who object) object {
			for _, e := range entries {
				if e["principalId"] == who["principalId"] {
					return e
				}
			}
			return nil
		}
		if _, entries := mint(object{}); len(entries) != 1 || entry(entries, minters)["rights"] != float64(7) {
			t.Errorf("without a path the creator alone has an entry: %v", entries)
		}
		if _, entries := mint(object{"path": "/data/own/x"}); len(entries) != 2 || entry(entries, readers) != nil {
			t.Errorf("the nearest directory is /data: %v", entries)
		}
		for _, path := range []string{"/data/shared", "/data/shared/", "/data/shared/a/b"} {
			link, entries := mint(object{"path": path})
			mine, theirs := entry(entries, minters), entry(entries, readers)
			if len(entries) != 3 || mine["rights"] != float64(7) || mine["maxUsage"] != float64(-1) || theirs["rights"] != float64(1) || theirs["maxUsage"] != float64(1) {
				t.Errorf("%s: the members of /data/shared and the creator without limits: %v", path, entries)
			}
			// The entry is one like any other: its one use counts.
			s.ok(t, reader, "POST", "/api/keys/authorize", object{"ttag": link})
			s.refused(t, reader, "POST", "/api/keys/authorize", object{"ttag": link}, http.StatusForbidden, "ACL_DENIED")
		}
		// What a template becomes later changes no key that was minted before.
		link, _ := mint(object{"path": "/data/shared"})
		s.ok(t, admin, "DELETE", "/api/acl-templates/"+deep+"/members/1/"+readers["principalId"].(string), nil)
		s.ok(t, reader, "POST", "/api/keys/authorize", object{"ttag": link})
	})
}
