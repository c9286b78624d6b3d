package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const (
	somePassword = "a password for tests"
	issuer       = "https://kubernetes.default.svc.cluster.local"
)

// created returns the id of a created principal.
func created(t testing.TB, a rig.Answer) string { t.Helper(); return a.Text(t, "principal", "id") }

func (s *subject) principal(t testing.TB, name string, roles ...keyserver.ID) string {
	t.Helper()
	if s.Officer.Name != "" && len(roles) > 0 {
		id := s.principal(t, name)
		s.GrantRolesByDuty(t, id, s.name(name), roles...)
		return id
	}
	return created(t, s.OK(t, s.AsAdmin(t), "POST", "/api/principals/password",
		rig.Object{"name": s.name(name), "password": somePassword, "roleIds": hexes(roles...)}))
}

func (s *subject) group(t testing.TB, name string, roles ...keyserver.ID) string {
	t.Helper()
	return created(t, s.OK(t, s.AsAdmin(t), "POST", "/api/principals/groups", rig.Object{"name": s.name(name), "roleIds": hexes(roles...)}))
}

// self returns the id of the principal of a session.
func (s *subject) self(t testing.TB, session string) string {
	t.Helper()
	return s.OK(t, session, "GET", "/api/sessions/current", nil).Text(t, "principal", "id")
}

func hexes(ids ...keyserver.ID) []string {
	list := []string{}
	for _, id := range ids {
		list = append(list, id.Hex())
	}
	return list
}

func decimal(t testing.TB, hex string) string {
	t.Helper()
	id, err := values.ParseHexID(hex)
	if err != nil {
		t.Fatal(err)
	}
	return id.Decimal()
}

// systemDefined returns the id of the server's own transport principal.
func (s *subject) systemDefined(t testing.TB) string {
	t.Helper()
	list := s.OK(t, s.AsAdmin(t), "GET", "/api/principals?type=certificate&name="+bootstrap.SystemName, nil).List(t, "principals")
	if len(list) != 1 {
		t.Fatalf("a fresh server has %d principals named %s", len(list), bootstrap.SystemName)
	}
	return list[0]["id"].(string)
}

// Ids of no principal. One in two thousand random ids has 16 decimal digits, so it is valid in both forms.
const (
	nobody        = "00000000deadbeef"     // not valid in decimal
	nobodyDecimal = "12345678901234567890" // not valid in hexadecimal
)

type refusal struct {
	path   string
	body   any
	status int
	code   string
	names  string // text that the detail must contain
}

func (s *subject) refusals(t *testing.T, session, method string, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := s.Refused(t, session, method, tc.path, tc.body, tc.status, tc.code)
			if detail, _ := a.Body["detail"].(string); !strings.Contains(detail, tc.names) {
				t.Errorf("the detail %q does not name %q", detail, tc.names)
			}
		})
	}
}

// TestListPrincipals checks GET /api/principals: a type, a window, a prefix. The page shows the applied values.
func TestListPrincipals(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, path := s.AsAdmin(t), "/api/principals?type=password"
		s.Refused(t, "", "GET", path, nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, admin, "GET", map[string]refusal{
			"NoType":             {"/api/principals", nil, 400, "BAD_REQUEST", "password, certificate, ldap, xauth, group"},
			"UnknownType":        {"/api/principals?type=user", nil, 400, "BAD_REQUEST", "password, certificate, ldap, xauth, group"},
			"TypeInOtherCase":    {"/api/principals?type=Password", nil, 400, "BAD_REQUEST", "type"},
			"LimitZero":          {path + "&limit=0", nil, 400, "BAD_REQUEST", "limit"},
			"LimitAbove":         {path + "&limit=501", nil, 400, "BAD_REQUEST", "limit"},
			"OffsetAlone":        {path + "&offset=1", nil, 400, "BAD_REQUEST", "offset"},
			"OffsetZeroAlone":    {path + "&offset=0", nil, 400, "BAD_REQUEST", "offset"},
			"OffsetNegative":     {path + "&limit=1&offset=-1", nil, 400, "BAD_REQUEST", "offset"},
			"EmptyName":          {path + "&name=", nil, 400, "BAD_REQUEST", "name"},
			"MisspeltParameter":  {path + "&limits=1", nil, 400, "BAD_REQUEST", "limits"},
			"ParameterSentTwice": {path + "&limit=1&limit=2", nil, 400, "BAD_REQUEST", "limit"},
		})
		for _, role := range []keyserver.ID{keyserver.RoleSecurityOfficer, keyserver.RoleAuditor} {
			s.OK(t, s.with(t, role), "GET", path, nil)
		}

		for _, name := range []string{"b%1", "b%2", "bx1", "b_1", "b*1", `b\1`, "Bx", "zz", "ü", "bü"} {
			s.OK(t, admin, "POST", "/api/principals/ldap", rig.Object{"name": name, "roleIds": []string{}})
		}
		names := func(query string) []string {
			t.Helper()
			a := s.OK(t, admin, "GET", "/api/principals?type=ldap"+query, nil)
			list := []string{}
			for _, p := range a.List(t, "principals") {
				list = append(list, p["name"].(string))
			}
			if a.Body["count"] != float64(len(list)) {
				t.Errorf("counts %v of %d", a.Body["count"], len(list))
			}
			return list
		}
		for query, want := range map[string][]string{
			"":                         {"Bx", "b%1", "b%2", "b*1", `b\1`, "b_1", "bx1", "bü", "zz", "ü"}, // sorted by the bytes of the name
			"&name=b":                  {"b%1", "b%2", "b*1", `b\1`, "b_1", "bx1", "bü"},                  // a case-sensitive prefix
			"&name=b%25":               {"b%1", "b%2"},                                                    // % is literal
			"&name=b_":                 {"b_1"},                                                           // literal _
			"&name=b*":                 {"b*1"},                                                           // literal *
			"&name=b%5C":               {`b\1`},                                                           // \ is literal
			"&name=%C3%BC":             {"ü"},
			"&name=x":                  {},
			"&limit=500":               {"Bx", "b%1", "b%2", "b*1", `b\1`, "b_1", "bx1", "bü", "zz", "ü"},
			"&limit=2&offset=1":        {"b%1", "b%2"},
			"&limit=3&name=b&offset=5": {"bx1", "bü"},
			"&limit=1&offset=10":       {},
		} {
			if got := names(query); !slices.Equal(got, want) {
				t.Errorf("%q lists %q, want %q", query, got, want)
			}
		}

		a := s.OK(t, admin, "GET", "/api/principals?type=ldap&limit=2&offset=1&name=b%25", nil)
		if a.Body["type"] != "ldap" || a.Text(t, "className") == "" || a.Text(t, "detail") == "" {
			t.Errorf("%s", a.Raw)
		}
		page := a.At(t, "page").(rig.Object)
		for member, want := range map[string]any{
			"applied": true, "limit": 2., "offset": 1., "name": "b%", "pattern": `b\%%`, "orderedBy": "name",
		} {
			if page[member] != want {
				t.Errorf("page.%s is %v, want %v", member, page[member], want)
			}
		}
		if _, total := a.Body["total"]; total {
			t.Error("there is a total")
		}
		page = s.OK(t, admin, "GET", "/api/principals?type=ldap&name=b", nil).At(t, "page").(rig.Object)
		if page["applied"] != false || page["pattern"] != "b%" {
			t.Errorf("a prefix alone is no window: %v", page)
		}
	}, untouched)
}

// TestListingAboveThePackageLimit checks GET /api/principals. With more than 1,024 objects, a list request needs a
// window, and pages of any size return all objects.
func TestListingAboveThePackageLimit(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, path := s.AsAdmin(t), "/api/principals?type=group"
		s.groups(t, 0, keyserver.MaxUnwindowed)
		if a := s.OK(t, admin, "GET", path, nil); a.Body["count"] != float64(keyserver.MaxUnwindowed) {
			t.Fatalf("counts %v", a.Body["count"])
		}
		s.groups(t, keyserver.MaxUnwindowed, 2)
		a := s.Refused(t, admin, "GET", path, nil, http.StatusBadRequest, "INVALID_ARGUMENT")
		if !strings.Contains(a.Text(t, "detail"), "page") {
			t.Errorf("the detail does not say to page: %s", a.Raw)
		}
		s.Refused(t, admin, "GET", path+"&name=p", nil, http.StatusBadRequest, "INVALID_ARGUMENT")
		s.OK(t, admin, "GET", path+"&name=p-00", nil)
		s.OK(t, admin, "GET", path+"&limit=1", nil)

		whole := s.pages(t, path, 500)
		if len(whole) != keyserver.MaxUnwindowed+2 || !slices.IsSorted(whole) || len(slices.Compact(slices.Clone(whole))) != len(whole) {
			t.Fatalf("pages of 500 list %d, sorted: %v", len(whole), slices.IsSorted(whole))
		}
		for _, size := range []int{171, 342, 499} { // 171 and 342 divide the total, so that their last page is full
			if got := s.pages(t, path, size); !slices.Equal(got, whole) {
				t.Errorf("pages of %d list %d principals, want %d", size, len(got), len(whole))
			}
		}
	}, untouched)
}

// groups creates n groups whose names sort by number.
func (s *subject) groups(t *testing.T, from, n int) []string {
	t.Helper()
	ids := make([]string, n)
	admin := s.AsAdmin(t)
	var wg sync.WaitGroup
	next := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range next {
				a := s.Send(t, admin, "POST", "/api/principals/groups", rig.Object{"name": s.name(fmt.Sprintf("p-%04d", from+i))})
				if a.Status != http.StatusOK {
					t.Errorf("%s", a.Raw)
					continue
				}
				ids[i], _ = a.Body["principal"].(rig.Object)["id"].(string)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return ids
}

// pages reads pages until a page is not full, and returns the names.
func (s *subject) pages(t testing.TB, path string, size int) []string {
	t.Helper()
	var names []string
	for {
		q := url.Values{"limit": {fmt.Sprint(size)}, "offset": {fmt.Sprint(len(names))}}
		list := s.OK(t, s.AsAdmin(t), "GET", path+"&"+q.Encode(), nil).List(t, "principals")
		for _, p := range list {
			names = append(names, p["name"].(string))
		}
		if len(list) < size {
			return names
		}
	}
}

// TestGetPrincipal checks GET /api/principals/{id}: the path accepts only one of three encodings of an id.
func TestGetPrincipal(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		id := s.principal(t, "ann", keyserver.RoleAuditor)
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", "/api/principals/"+id, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, admin, "GET", map[string]refusal{
			"Unknown": {"/api/principals/" + nobody, nil, 404, "NOT_FOUND", nobody},
			"Zero":    {"/api/principals/0000000000000000", nil, 400, "BAD_REQUEST", "id"},
			"Decimal": {"/api/principals/" + nobodyDecimal, nil, 400, "BAD_REQUEST", "id"},
		})
		p := s.OK(t, admin, "GET", "/api/principals/"+strings.ToUpper(id), nil)
		if p.Text(t, "id") != id || p.Text(t, "principalId") != decimal(t, id) || p.Body["systemId"] != 1. ||
			p.Text(t, "name") != s.name("ann") || p.Text(t, "className") == "" || p.Body["disabled"] != false {
			t.Errorf("%s", p.Raw)
		}
		if roles := p.At(t, "roleIds").([]any); len(roles) != 1 || roles[0] != keyserver.RoleAuditor.Hex() {
			t.Errorf("%s", p.Raw)
		}
		if groups := p.At(t, "groupIds").([]any); len(groups) != 0 {
			t.Errorf("%s", p.Raw)
		}
	})
}

// TestSpellingsOfPrincipalIDs checks that the encodings of ids are not interchangeable: for any id, the path
// accepts only hexadecimal, and a pair only decimal.
func TestSpellingsOfPrincipalIDs(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		rapid.Check(t, func(r *rapid.T) {
			id := values.IDFromUint64(rapid.Uint64Min(1).Draw(r, "id"))
			if a := s.Send(t, admin, "GET", "/api/principals/"+id.Hex(), nil); a.Status != http.StatusNotFound {
				r.Fatalf("hexadecimal: %s", a.Raw)
			}
			if len(id.Decimal()) != 16 { // 16 digits are also valid in hexadecimal
				if a := s.Send(t, admin, "GET", "/api/principals/"+id.Decimal(), nil); a.Code() != "BAD_REQUEST" {
					r.Fatalf("decimal: %s", a.Raw)
				}
			}
			if a := s.Send(t, admin, "GET", "/api/principals/"+url.PathEscape(id.Base64()), nil); a.Code() != "BAD_REQUEST" {
				r.Fatalf("base64: %s", a.Raw)
			}
			pair := func(spelling string) rig.Object {
				return rig.Object{"principals": []rig.Object{{"systemId": 1, "principalId": spelling}}}
			}
			if a := s.Send(t, admin, "POST", "/api/principals/lookup", pair(id.Decimal())); a.Status != http.StatusOK {
				r.Fatalf("decimal pair: %s", a.Raw)
			}
			for _, wrong := range []string{id.Hex(), id.Base64()} {
				if _, err := values.ParseDecimalID(wrong); err == nil {
					continue // these digits are also valid in decimal
				}
				if a := s.Send(t, admin, "POST", "/api/principals/lookup", pair(wrong)); a.Code() != "BAD_REQUEST" {
					r.Fatalf("pair %s: %s", wrong, a.Raw)
				}
			}
		})
	})
}

// POST /api/principals/password, ldap, xauth, groups: verified creation.
func TestCreatePrincipals(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		auditor := hexes(keyserver.RoleAuditor)
		ann, web := s.name("ann"), s.name("system:serviceaccount:shop:web")
		good := map[string]rig.Object{
			"password": {"name": ann, "password": somePassword, "roleIds": auditor},
			"ldap":     {"name": ann, "roleIds": auditor},
			"xauth":    {"name": ann, "roleIds": auditor, "issuer": issuer, "subject": web, "audiences": []string{"b", "a", "a"}},
			"groups":   {"name": ann, "roleIds": auditor},
		}
		for kind, body := range good {
			path := "/api/principals/" + kind
			with := func(name string, value any) rig.Object {
				b := rig.Object{}
				for k, v := range body {
					b[k] = v
				}
				b[name] = value
				return b
			}
			s.Refused(t, "", "POST", path, body, http.StatusUnauthorized, "SESSION_NOT_FOUND")
			s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", path, body, http.StatusForbidden, "ACCESS_DENIED")
			s.refusals(t, admin, "POST", map[string]refusal{
				"EmptyName":   {path, with("name", ""), 400, "BAD_REQUEST", "name"},
				"BlankName":   {path, with("name", "   "), 400, "BAD_REQUEST", "name"},
				"LongName":    {path, with("name", strings.Repeat("n", 129)), 400, "BAD_REQUEST", "name"},
				"UnknownRole": {path, with("roleIds", []string{nobody}), 400, "INVALID_ARGUMENT", nobody},
				"DecimalRole": {path, with("roleIds", []string{"5"}), 400, "BAD_REQUEST", "roleIds"},
				"AType":       {path, with("type", "certificate"), 400, "BAD_REQUEST", "type"},
			})
			a := s.OK(t, admin, "POST", path, body)
			if a.Body["saved"] != true || a.Text(t, "principal", "name") != ann || a.Text(t, "detail") == "" {
				t.Errorf("%s: %s", kind, a.Raw)
			}
			if got := s.OK(t, admin, "GET", "/api/principals/"+created(t, a), nil); fmt.Sprint(got.Body) != fmt.Sprint(a.At(t, "principal")) {
				t.Errorf("%s reads back as %s, was answered as %s", kind, got.Raw, a.Raw)
			}
			s.Refused(t, admin, "POST", path, body, http.StatusConflict, "ALREADY_EXISTS")
		}

		xauth := func(name string, value any) rig.Object {
			b := rig.Object{"name": s.name("other"), "roleIds": []string{}, "issuer": issuer, "subject": s.name("system:serviceaccount:shop:db")}
			b[name] = value
			return b
		}
		s.refusals(t, admin, "POST", map[string]refusal{
			"EmptyIssuer":    {"/api/principals/xauth", xauth("issuer", ""), 400, "BAD_REQUEST", "issuer"},
			"EmptySubject":   {"/api/principals/xauth", xauth("subject", ""), 400, "BAD_REQUEST", "subject"},
			"SpaceAtEnd":     {"/api/principals/xauth", xauth("subject", "web "), 400, "BAD_REQUEST", "subject"},
			"NotASCII":       {"/api/principals/xauth", xauth("issuer", "https://ıssuer"), 400, "BAD_REQUEST", "issuer"},
			"EmptyAudience":  {"/api/principals/xauth", xauth("audiences", []string{""}), 400, "BAD_REQUEST", "audiences"},
			"ManyAudiences":  {"/api/principals/xauth", xauth("audiences", slices.Repeat([]string{"a"}, 17)), 400, "BAD_REQUEST", "audiences"},
			"SameIdentity":   {"/api/principals/xauth", xauth("subject", web), 409, "ALREADY_EXISTS", "issuer and subject"},
			"ByNoOtherRoute": {"/api/principals/certificate", rig.Object{}, 405, "METHOD_NOT_ALLOWED", ""},
		})
		// The same subject with another issuer is another principal.
		a := s.OK(t, admin, "POST", "/api/principals/xauth", rig.Object{
			"name": s.name("elsewhere"), "roleIds": []string{}, "issuer": "https://other.example", "subject": web,
		})
		if a.Text(t, "principal", "issuer") != "https://other.example" || a.Text(t, "principal", "subject") != web {
			t.Errorf("%s", a.Raw)
		}
		list := s.OK(t, admin, "GET", "/api/principals?type=xauth&name="+ann, nil).List(t, "principals")
		if fmt.Sprint(list[0]["audiences"]) != "[a b]" {
			t.Errorf("audiences are a set: %v", list[0])
		}
		// A group needs no roles.
		s.OK(t, admin, "POST", "/api/principals/groups", rig.Object{"name": s.name("without roles")})
		// No response contains a password.
		if a := s.OK(t, admin, "POST", "/api/principals/password", rig.Object{"name": s.name("bob"), "password": "hunter2 hunter2", "roleIds": []string{}}); strings.Contains(string(a.Raw), "hunter2") {
			t.Errorf("%s", a.Raw)
		}
		s.Refused(t, admin, "POST", "/api/principals/password", rig.Object{"name": s.name("eve"), "password": "1234567", "roleIds": []string{}}, 400, "BAD_REQUEST")
	})
}

// TestUpdatePrincipalFlags checks PUT /api/principals/{id}/flags: it reads the flags, changes the named ones
// and writes them.
func TestUpdatePrincipalFlags(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		id := s.principal(t, "ann", keyserver.RoleAuditor)
		path := "/api/principals/" + id + "/flags"
		off := rig.Object{"disabled": true}
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "PUT", path, off, http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, admin, "PUT", map[string]refusal{
			"RawFlags":       {path, rig.Object{"flags": 1}, 400, "BAD_REQUEST", "flags"},
			"RawFlagsBeside": {path, rig.Object{"flags": 1, "disabled": true}, 400, "BAD_REQUEST", "flags"},
			"NotBoolean":     {path, rig.Object{"disabled": "true"}, 400, "BAD_REQUEST", "disabled"},
			"ANumber":        {path, rig.Object{"delegation": 1}, 400, "BAD_REQUEST", "delegation"},
			"Null":           {path, rig.Object{"delegation": nil}, 400, "BAD_REQUEST", "delegation"},
			"NeitherFlag":    {path, rig.Object{}, 400, "BAD_REQUEST", "delegation"},
			"NotHex":         {"/api/principals/" + decimal(t, id) + "/flags", off, 400, "BAD_REQUEST", "id"},
			"SystemDefined":  {"/api/principals/" + s.systemDefined(t) + "/flags", off, 403, "BUILT_IN_PRINCIPAL", ""},
			"OwnAccount":     {"/api/principals/" + s.self(t, admin) + "/flags", rig.Object{"delegation": true}, 403, "OWN_ACCOUNT", ""},
			"Unknown":        {"/api/principals/" + nobody + "/flags", off, 404, "NOT_FOUND", nobody},
			"NoFlagWord":     {"/api/principals/" + s.group(t, "team") + "/flags", off, 409, "NO_FLAG_WORD", ""},
		})

		steps := []struct {
			body                 rig.Object
			asked                string
			delegation, disabled bool
			hex                  string
		}{
			{rig.Object{"delegation": true}, "[delegation]", true, false, "0x00000401"},
			{rig.Object{"disabled": true}, "[disabled]", true, true, "0x00000400"}, // no other bit changes
			{rig.Object{"delegation": false, "disabled": false}, "[delegation disabled]", false, false, "0x00000001"},
			{rig.Object{"disabled": false}, "[disabled]", false, false, "0x00000001"}, // a request without a change succeeds
		}
		before := "0x00000001"
		for _, step := range steps {
			a := s.OK(t, admin, "PUT", path, step.body)
			if a.Body["saved"] != true || a.Text(t, "id") != id || fmt.Sprint(a.Body["requested"]) != fmt.Sprint(step.body) ||
				fmt.Sprint(a.Body["asked"]) != step.asked || a.Text(t, "detail") == "" {
				t.Errorf("%v: %s", step.body, a.Raw)
			}
			if _, ok := a.Body["code"]; ok {
				t.Errorf("code is there on success: %s", a.Raw)
			}
			if a.Text(t, "before", "flagsHex") != before || a.Text(t, "after", "flagsHex") != step.hex ||
				a.At(t, "after", "disabled") != step.disabled || a.At(t, "after", "delegation") != step.delegation || a.At(t, "after", "systemDefined") != false {
				t.Errorf("%v: %s", step.body, a.Raw)
			}
			before = step.hex
			if p := s.OK(t, admin, "GET", "/api/principals/"+id, nil); p.Body["disabled"] != step.disabled {
				t.Errorf("%v: %s", step.body, p.Raw)
			}
		}
	})
}

// TestDisablingEndsSessions checks that the server refuses the open sessions of a disabled principal immediately, and
// that the principal can log in again after it is enabled.
func TestDisablingEndsSessions(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		id := s.principal(t, "ann", keyserver.RoleAuditor)
		for range 2 {
			ann, _ := s.opens(t, "ann")
			s.OK(t, ann, "GET", "/api/roles", nil)
			s.OK(t, admin, "PUT", "/api/principals/"+id+"/flags", rig.Object{"disabled": true})
			s.Refused(t, ann, "GET", "/api/roles", nil, http.StatusForbidden, "PRINCIPAL_DISABLED")
			s.Refused(t, "", "POST", "/api/sessions", s.byPassword("ann", somePassword),
				http.StatusUnauthorized, "INVALID_CREDENTIALS")
			s.OK(t, admin, "PUT", "/api/principals/"+id+"/flags", rig.Object{"disabled": false})
			s.Refused(t, ann, "GET", "/api/roles", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		}
		rows := s.OK(t, admin, "GET", s.trail("reason=principalDisabled"), nil).List(t, "entries")
		if len(rows) == 0 || rows[0]["principalId"] != decimal(t, id) {
			t.Errorf("the refusals are not in the trail: %v", rows)
		}
	})
}

// TestUpdatePrincipalRoles checks PUT /api/principals/{id}/roles: the request replaces all roles, and takes effect
// immediately.
func TestUpdatePrincipalRoles(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		id := s.principal(t, "ann", keyserver.RoleAuditor)
		path := "/api/principals/" + id + "/roles"
		none := rig.Object{"roleIds": []string{}}
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "PUT", path, none, http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, admin, "PUT", map[string]refusal{
			"Absent":        {path, rig.Object{}, 400, "BAD_REQUEST", "roleIds"},
			"Null":          {path, rig.Object{"roleIds": nil}, 400, "BAD_REQUEST", "roleIds"},
			"ByName":        {path, rig.Object{"roleIds": []string{"Auditor"}}, 400, "BAD_REQUEST", "roleIds"},
			"UnknownRole":   {path, rig.Object{"roleIds": []string{nobody}}, 400, "INVALID_ARGUMENT", nobody},
			"TooMany":       {path, rig.Object{"roleIds": slices.Repeat(hexes(keyserver.RoleAuditor), 257)}, 400, "BAD_REQUEST", "roleIds"},
			"SystemDefined": {"/api/principals/" + s.systemDefined(t) + "/roles", none, 403, "BUILT_IN_PRINCIPAL", ""},
			"OwnAccount":    {"/api/principals/" + s.self(t, admin) + "/roles", none, 403, "OWN_ACCOUNT", ""},
			"Unknown":       {"/api/principals/" + nobody + "/roles", none, 404, "NOT_FOUND", nobody},
		})
		ann := s.As(t, s.name("ann"), somePassword)
		s.OK(t, ann, "GET", "/api/roles", nil)

		a := s.OK(t, admin, "PUT", path, rig.Object{"roleIds": hexes(keyserver.RoleExchanger, keyserver.RoleEncryptor, keyserver.RoleExchanger)})
		want := fmt.Sprint(hexes(keyserver.RoleEncryptor, keyserver.RoleExchanger))
		if a.Body["saved"] != true || fmt.Sprint(a.At(t, "principal", "roleIds")) != want || fmt.Sprint(a.Body["requestedRoleIds"]) != want {
			t.Errorf("%s", a.Raw)
		}
		s.Refused(t, ann, "GET", "/api/roles", nil, http.StatusForbidden, "ACCESS_DENIED")
		s.OK(t, ann, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"})
		a = s.OK(t, admin, "PUT", path, none)
		if roles := a.At(t, "principal", "roleIds").([]any); a.Body["saved"] != true || len(roles) != 0 {
			t.Errorf("%s", a.Raw)
		}
		s.Refused(t, ann, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"}, http.StatusForbidden, "ACCESS_DENIED")
	})
}

// TestLookupPrincipals checks POST /api/principals/lookup: the response omits pairs that cannot be resolved.
func TestLookupPrincipals(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, path := s.AsAdmin(t), "/api/principals/lookup"
		ann, team := s.principal(t, "ann"), s.group(t, "team")
		pair := func(system any, id string) rig.Object { return rig.Object{"systemId": system, "principalId": id} }
		pairs := func(p ...rig.Object) rig.Object { return rig.Object{"principals": p} }
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, pairs(pair(1, "1")), http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, admin, "POST", map[string]refusal{
			"Absent":      {path, rig.Object{}, 400, "BAD_REQUEST", "principals"},
			"None":        {path, pairs([]rig.Object{}...), 400, "BAD_REQUEST", "principals"},
			"Many":        {path, pairs(slices.Repeat([]rig.Object{pair(1, "1")}, 501)...), 400, "BAD_REQUEST", "principals"},
			"NoSystem":    {path, pairs(rig.Object{"principalId": "1"}), 400, "BAD_REQUEST", "systemId"},
			"NoPrincipal": {path, pairs(rig.Object{"systemId": 1}), 400, "BAD_REQUEST", "principalId"},
			"TextSystem":  {path, pairs(pair("1", "1")), 400, "BAD_REQUEST", "systemId"},
			"HexID":       {path, pairs(pair(1, nobody)), 400, "BAD_REQUEST", "principalId"},
			"ZeroID":      {path, pairs(pair(1, "0")), 400, "BAD_REQUEST", "principalId"},
			"UnknownName": {path, pairs(rig.Object{"systemId": 1, "principalId": "1", "name": "x"}), 400, "BAD_REQUEST", "name"},
		})
		for _, role := range []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleSecurityOfficer} {
			s.OK(t, s.with(t, role), "POST", path, pairs(pair(1, "1")))
		}
		a := s.OK(t, admin, "POST", path, pairs(
			pair(1, decimal(t, team)), pair(77, decimal(t, ann)), pair(1, "99"), pair(1, decimal(t, ann))))
		found := a.List(t, "principals")
		if a.Body["requested"] != 4. || len(found) != 2 || found[0]["id"] != team || found[1]["id"] != ann || a.Text(t, "detail") == "" {
			t.Errorf("in the order asked, the others absent: %s", a.Raw)
		}
		if single := s.OK(t, admin, "GET", "/api/principals/"+ann, nil); fmt.Sprint(single.Body) != fmt.Sprint(found[1]) {
			t.Errorf("a lookup shows %v, a read %s", found[1], single.Raw)
		}
		// One statement looks up 64.
		var many []rig.Object
		for _, id := range s.groups(t, 0, 65) {
			many = append(many, pair(1, decimal(t, id)))
		}
		if found := s.OK(t, admin, "POST", path, pairs(many...)).List(t, "principals"); len(found) != 65 || found[64]["name"] != s.name("p-0064") {
			t.Errorf("65 principals are found as %d", len(found))
		}
	})
}

// TestGroupMembers checks /api/principals/groups/{gid}/members: membership, and the rights of members.
func TestGroupMembers(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		team, other := s.group(t, "team", keyserver.RoleAuditor), s.group(t, "other")
		id := s.principal(t, "ann")
		members := "/api/principals/groups/" + team + "/members"
		path := members + "/" + id
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "PUT", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", members, nil, http.StatusForbidden, "ACCESS_DENIED")
		for _, method := range []string{"PUT", "DELETE"} {
			s.refusals(t, admin, method, map[string]refusal{
				"GroupNotHex":   {"/api/principals/groups/team/members/" + id, nil, 400, "BAD_REQUEST", "gid"},
				"MemberNotHex":  {members + "/" + decimal(t, id), nil, 400, "BAD_REQUEST", "pid"},
				"Body":          {path, rig.Object{"name": "x"}, 400, "BAD_REQUEST", "body"},
				"UnknownGroup":  {"/api/principals/groups/" + nobody + "/members/" + id, nil, 404, "NOT_FOUND", nobody},
				"NoGroup":       {"/api/principals/groups/" + id + "/members/" + id, nil, 404, "NOT_FOUND", id},
				"UnknownMember": {members + "/" + nobody, nil, 404, "NOT_FOUND", nobody},
				"SystemDefined": {members + "/" + s.systemDefined(t), nil, 403, "BUILT_IN_PRINCIPAL", ""},
				"OwnAccount":    {members + "/" + s.self(t, admin), nil, 403, "OWN_ACCOUNT", ""},
			})
		}
		s.refusals(t, admin, "PUT", map[string]refusal{
			"GroupInGroup": {members + "/" + other, nil, 400, "BAD_REQUEST", "pid"},
			"GroupInSelf":  {members + "/" + team, nil, 400, "BAD_REQUEST", "pid"},
		})
		s.refusals(t, admin, "DELETE", map[string]refusal{"NoMember": {path, nil, 404, "NOT_FOUND", "member"}})
		s.refusals(t, admin, "GET", map[string]refusal{
			"NoGroup":     {"/api/principals/groups/" + id + "/members", nil, 404, "NOT_FOUND", id},
			"LimitAbove":  {members + "?limit=501", nil, 400, "BAD_REQUEST", "limit"},
			"OffsetAlone": {members + "?offset=1", nil, 400, "BAD_REQUEST", "offset"},
		})
		if a := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", members, nil); a.Body["count"] != 0. || len(a.List(t, "members")) != 0 {
			t.Errorf("%s", a.Raw)
		}

		ann := s.As(t, s.name("ann"), somePassword)
		s.Refused(t, ann, "GET", "/api/roles", nil, http.StatusForbidden, "ACCESS_DENIED")
		for range 2 { // adding a member again succeeds
			a := s.OK(t, admin, "PUT", path, nil)
			if a.Body["saved"] != true || a.Text(t, "groupId") != team || fmt.Sprint(a.At(t, "member", "groupIds")) != "["+team+"]" {
				t.Errorf("%s", a.Raw)
			}
		}
		s.OK(t, ann, "GET", "/api/roles", nil) // the group gives this role
		a := s.OK(t, admin, "GET", members+"?limit=1", nil)
		if list := a.List(t, "members"); len(list) != 1 || list[0]["id"] != id || a.At(t, "page", "applied") != true || a.Text(t, "page", "orderedBy") != "id" {
			t.Errorf("%s", a.Raw)
		}
		a = s.OK(t, admin, "DELETE", path, nil)
		if a.Body["gone"] != true || len(a.At(t, "member", "groupIds").([]any)) != 0 {
			t.Errorf("%s", a.Raw)
		}
		s.Refused(t, ann, "GET", "/api/roles", nil, http.StatusForbidden, "ACCESS_DENIED")
	})
}

// TestPrincipalDutiesOnASplitDeployment checks that in a split deployment only the Administrator manages
// principals, and the Security Officer can read them.
func TestPrincipalDutiesOnASplitDeployment(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		id := s.principal(t, "ann")
		s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+id+"/flags", rig.Object{"delegation": true})
		s.OK(t, officer, "GET", "/api/principals?type=password", nil)
		s.OK(t, officer, "POST", "/api/principals/lookup", rig.Object{"principals": []rig.Object{{"systemId": 1, "principalId": decimal(t, id)}}})
		s.Refused(t, officer, "PUT", "/api/principals/"+id+"/flags", rig.Object{"delegation": false}, http.StatusForbidden, "ACCESS_DENIED")
	}, split)
}
