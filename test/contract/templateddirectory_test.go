package contract

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func paths(list []rig.Object) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, d["path"].(string))
	}
	return out
}

// query adds parameters to a path. pairs are names and values; names may repeat.
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
		admin := s.AsAdmin(t)
		one, two := s.template(t, admin, "one"), s.template(t, admin, "two")
		in := s.path // all paths below are unique to the test
		for path, template := range map[string]string{"/a": one, "/a/b": one, "/c": two} {
			s.OK(t, admin, "POST", base, rig.Object{"path": in(path), "aclTemplateId": template})
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
				a := s.Refused(t, admin, "GET", tc.path, nil, http.StatusBadRequest, "BAD_REQUEST")
				if !strings.Contains(a.Text(t, "detail"), tc.names) {
					t.Errorf("%s: the detail %q does not name %q", tc.reason, a.Text(t, "detail"), tc.names)
				}
			})
		}

		cases := map[string]struct {
			reason             string
			path               string
			want               []string
			requested, queried []any // nil: not sent
		}{
			"All":            {"no filter", base, []string{in("/a/"), in("/a/b/"), in("/c/")}, nil, nil},
			"OnePath":        {"the slash is put right", query(base, "path", in("/a")), []string{in("/a/")}, []any{in("/a")}, []any{in("/a/")}},
			"Slashed":        {"as stored", query(base, "path", in("/a/")), []string{in("/a/")}, []any{in("/a/")}, []any{in("/a/")}},
			"Several":        {"by paths", query(base, "path", in("/c/"), "path", in("/a/b")), []string{in("/a/b/"), in("/c/")}, []any{in("/c/"), in("/a/b")}, []any{in("/c/"), in("/a/b/")}},
			"Twice":          {"two forms of one path find it once", query(base, "path", in("/a"), "path", in("/a/")), []string{in("/a/")}, []any{in("/a"), in("/a/")}, []any{in("/a/"), in("/a/")}},
			"Exact":          {"a path above or below is another", query(base, "path", in("/a/b/c"), "path", in("/")), []string{}, []any{in("/a/b/c"), in("/")}, []any{in("/a/b/c/"), in("/")}},
			"Case":           {"bytes, not letters", query(base, "path", in("/A")), []string{}, []any{in("/A")}, []any{in("/A/")}},
			"NoWildcard":     {"exactly", query(base, "path", in("/%")), []string{}, []any{in("/%")}, []any{in("/%/")}},
			"EmptyPath":      {"ignored", base + "?path=", []string{in("/a/"), in("/a/b/"), in("/c/")}, nil, nil},
			"EmptyAmong":     {"ignored", base + "?path=&path=" + in("/c") + "&path=", []string{in("/c/")}, []any{in("/c")}, []any{in("/c/")}},
			"EmptyTemplated": {"an ignored path excludes nothing", query(base, "path", "", "aclTemplateId", two), []string{in("/c/")}, nil, nil},
			"Template":       {"all of one template", query(base, "aclTemplateId", one), []string{in("/a/"), in("/a/b/")}, nil, nil},
			"UpperCase":      {"hex digits of either case", query(base, "aclTemplateId", strings.ToUpper(one)), []string{in("/a/"), in("/a/b/")}, nil, nil},
			"Templates":      {"of several", query(base, "aclTemplateId", one, "aclTemplateId", two), []string{in("/a/"), in("/a/b/"), in("/c/")}, nil, nil},
			"NoTemplate":     {"nothing matches", query(base, "aclTemplateId", noID), []string{}, nil, nil},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				a := s.OK(t, admin, "GET", tc.path, nil)
				got := slices.DeleteFunc(paths(a.List(t, "directories")), func(path string) bool { return !strings.HasPrefix(path, in("/")) })
				if !reflect.DeepEqual(got, tc.want) {
					t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
				}
				for field, want := range map[string][]any{"requestedPaths": tc.requested, "queriedPaths": tc.queried} {
					got, there := a.Body[field]
					if there != (want != nil) || there && !reflect.DeepEqual(got, any(want)) {
						t.Errorf("%s: %s is %v, want %v", tc.reason, field, got, want)
					}
				}
			})
		}
	})
}

// POST and DELETE /api/templated-directories.
func TestTemplatedDirectories(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const base = "/api/templated-directories"
		admin := s.AsAdmin(t)
		template := s.template(t, admin, "t")
		good := rig.Object{"path": s.path("/a/b"), "aclTemplateId": template}
		refusals := map[string]struct {
			change rig.Object
			code   string
			names  string
		}{
			"EmptyPath":       {rig.Object{"path": ""}, "BAD_REQUEST", "path"},
			"DotDot":          {rig.Object{"path": "/a/../b"}, "BAD_REQUEST", "path"},
			"Hole":            {rig.Object{"path": "/a//b"}, "BAD_REQUEST", "path"},
			"DecimalTemplate": {rig.Object{"aclTemplateId": "12345"}, "BAD_REQUEST", "aclTemplateId"},
			"ZeroTemplate":    {rig.Object{"aclTemplateId": "0000000000000000"}, "BAD_REQUEST", "aclTemplateId"},
			"NoTemplate":      {rig.Object{"aclTemplateId": noID}, "INVALID_ARGUMENT", "aclTemplateId"},
			"NegativeFlag":    {rig.Object{"flag": -1}, "BAD_REQUEST", "flag"},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.Refused(t, admin, "POST", base, join(good, tc.change), http.StatusBadRequest, tc.code)
				if !strings.Contains(a.Text(t, "detail"), tc.names) {
					t.Errorf("the detail %q does not name %q", a.Text(t, "detail"), tc.names)
				}
			})
		}
		a := s.OK(t, admin, "POST", base, join(good, rig.Object{"alias": "docs", "hostId": "host-1", "flag": 5}))
		id := a.Text(t, "id")
		want := rig.Object{"id": id, "path": s.path("/a/b/"), "alias": "docs", "hostId": "host-1", "aclTemplateId": template, "flag": float64(5)}
		if a.Body["saved"] != true || !reflect.DeepEqual(a.Body["directory"], any(want)) {
			t.Errorf("created: %s", a.Raw)
		}
		s.Refused(t, admin, "POST", base, join(good, rig.Object{"path": s.path("/a/b/")}), http.StatusConflict, "ALREADY_EXISTS")
		s.Refused(t, admin, "DELETE", base+"/12345", nil, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, admin, "DELETE", base+"/"+noID, nil, http.StatusNotFound, "NOT_FOUND")
		a = s.OK(t, admin, "DELETE", base+"/"+id, nil)
		if a.Body["gone"] != true || !reflect.DeepEqual(a.Body["directory"], any(want)) {
			t.Errorf("deleted: %s", a.Raw)
		}
		s.Refused(t, admin, "DELETE", base+"/"+id, nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// TestMintUnderATemplatedDirectory checks POST /api/keys with a path: the members of the nearest templated directory
// and the creator get ACL entries. The creator owns the key.
func TestMintUnderATemplatedDirectory(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		reader, readers := s.holder(t, keyserver.RoleExchanger)
		minter, minters := s.holder(t, keyserver.RoleEncryptor)
		top, deep := s.template(t, admin, "top"), s.template(t, admin, "deep")
		s.OK(t, admin, "POST", "/api/acl-templates/"+deep+"/members", join(readers, rig.Object{"rights": []string{"READ"}, "maxUsage": 1}))
		s.OK(t, admin, "POST", "/api/acl-templates/"+deep+"/members", join(minters, rig.Object{"rights": []string{"READ"}, "maxUsage": 0}))
		s.OK(t, admin, "POST", "/api/templated-directories", rig.Object{"path": s.path("/data"), "aclTemplateId": top})
		s.OK(t, admin, "POST", "/api/templated-directories", rig.Object{"path": s.path("/data/shared"), "aclTemplateId": deep})

		for name, tc := range map[string]struct{ path, code string }{
			"Empty":   {"", "BAD_REQUEST"},
			"Climbs":  {s.path("/data/../etc"), "BAD_REQUEST"},
			"Outside": {s.path("/other"), "INVALID_ARGUMENT"},
			"Sibling": {s.path("/database"), "INVALID_ARGUMENT"},
			"Above":   {"/", "INVALID_ARGUMENT"},
		} {
			t.Run(name, func(t *testing.T) {
				a := s.Refused(t, minter, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384", "path": tc.path}, http.StatusBadRequest, tc.code)
				if !strings.Contains(a.Text(t, "detail"), "path") {
					t.Errorf("the detail %q does not name path", a.Text(t, "detail"))
				}
			})
		}

		mint := func(body rig.Object) (link string, entries []rig.Object) {
			t.Helper()
			link = s.OK(t, minter, "POST", "/api/keys", join(rig.Object{"algorithm": "HMAC-SHA384"}, body)).Text(t, "ttag")
			acl := s.OK(t, minter, "POST", "/api/keys/acl/get", rig.Object{"ttag": link})
			for _, e := range acl.At(t, "acl", "entries").([]any) {
				entries = append(entries, e.(rig.Object))
			}
			return link, entries
		}
		entry := func(entries []rig.Object, who rig.Object) rig.Object {
			for _, e := range entries {
				if e["principalId"] == who["principalId"] {
					return e
				}
			}
			return nil
		}
		if _, entries := mint(rig.Object{}); len(entries) != 1 || entry(entries, minters)["rights"] != float64(7) {
			t.Errorf("without a path the creator alone has an entry: %v", entries)
		}
		if _, entries := mint(rig.Object{"path": s.path("/data/own/x")}); len(entries) != 2 || entry(entries, readers) != nil {
			t.Errorf("the nearest directory is /data: %v", entries)
		}
		for _, path := range []string{s.path("/data/shared"), s.path("/data/shared/"), s.path("/data/shared/a/b")} {
			link, entries := mint(rig.Object{"path": path})
			mine, theirs := entry(entries, minters), entry(entries, readers)
			if len(entries) != 3 || mine["rights"] != float64(7) || mine["maxUsage"] != float64(-1) || theirs["rights"] != float64(1) || theirs["maxUsage"] != float64(1) {
				t.Errorf("%s: the members of /data/shared and the creator without limits: %v", path, entries)
			}
			// The entry is an ordinary entry: its single use counts.
			s.OK(t, reader, "POST", "/api/keys/authorize", rig.Object{"ttag": link})
			s.Refused(t, reader, "POST", "/api/keys/authorize", rig.Object{"ttag": link}, http.StatusForbidden, "ACL_DENIED")
		}
		// Later changes of a template do not affect existing keys.
		link, _ := mint(rig.Object{"path": s.path("/data/shared")})
		s.OK(t, admin, "DELETE", "/api/acl-templates/"+deep+"/members/1/"+readers["principalId"].(string), nil)
		s.OK(t, reader, "POST", "/api/keys/authorize", rig.Object{"ttag": link})
	})
}
