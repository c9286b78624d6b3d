package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

func errorOf(t *testing.T, w *httptest.ResponseRecorder) schema.Error {
	t.Helper()
	var e schema.Error
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatalf("%d %q is not JSON: %v", w.Code, w.Body, err)
	}
	return e
}

func TestEveryRouteHasItsLimits(t *testing.T) {
	for _, r := range routes.All() {
		if r.BodyLimit <= 0 || r.Timeout <= 0 || r.Summary == "" || r.Request == nil {
			t.Errorf("%s %s lacks a limit, a summary or a request", r.Method, r.Path)
		}
		if !strings.HasPrefix(r.Path, "/api/") && !strings.HasPrefix(r.Path, "/access/v1/") || strings.HasSuffix(r.Path, "/") {
			t.Errorf("%s is not a path of the contract", r.Path)
		}
		if len(r.Operations) > 0 && !r.Session {
			t.Errorf("%s %s needs an operation and no session", r.Method, r.Path)
		}
		for _, op := range r.Operations {
			if !slices.Contains(keyserver.Operations, op) {
				t.Errorf("%s %s: %s is not in the catalogue", r.Method, r.Path, op.Key)
			}
		}
	}
}

// TestHandlersAndRoutesAgree checks that each kind of difference between the table of routes and the handlers is found.
func TestHandlersAndRoutesAgree(t *testing.T) {
	table := routes.All()
	if err := checkHandlers(table); err != nil {
		t.Fatal(err)
	}
	unknown, other := slices.Clone(table), slices.Clone(table)
	unknown[0].Name = "nobodyKnows"
	other[0].Request = reflect.TypeFor[int]()
	for name, table := range map[string][]routes.Route{"without a handler": unknown, "of other types": other, "missing": table[1:]} {
		if checkHandlers(table) == nil {
			t.Errorf("a route %s is accepted", name)
		}
	}
}

// Each code has a status, and each status is for a code that exists.
func TestStatusTableAndCatalogueAgree(t *testing.T) {
	known := map[fault.Code]bool{}
	for _, e := range fault.Catalogue {
		known[e.Code] = true
		if routes.Status(e.Code) == 0 {
			t.Errorf("%s has no status", e.Code)
		}
		if statuses[e.Code] == 0 {
			t.Errorf("%s has no expected status", e.Code)
		}
	}
	for code := range statuses {
		if !known[code] {
			t.Errorf("a status is expected of %s, which is not in the catalogue", code)
		}
	}
	for _, r := range routes.All() {
		for _, code := range r.Faults {
			if !known[code] {
				t.Errorf("%s %s names %s, which is not in the catalogue", r.Method, r.Path, code)
			}
		}
	}
}

// For every code that an operation returns, the response has the status of the code and the fields that contract 22.1
// requires for that status.
func TestFaultsAtTheEdge(t *testing.T) {
	for _, entry := range fault.Catalogue {
		t.Run(string(entry.Code), func(t *testing.T) {
			f := newFixture(t)
			f.ops.err = fault.Temporary(entry.Code, fault.ScopeProcess, 1500*time.Millisecond, "the detail").Because(errors.New("the cause"))
			w := f.do(http.MethodGet, "/api/roles", "")
			e := errorOf(t, w)
			if w.Code != statuses[entry.Code] || e.Code != string(entry.Code) || e.Detail != "the detail" {
				t.Fatalf("answered %d %+v", w.Code, e)
			}
			if strings.Contains(w.Body.String(), "the cause") {
				t.Error("the cause is told to the caller")
			}
			temporary := w.Code == http.StatusServiceUnavailable
			if (e.Retryable != nil) != temporary || (e.Scope != "") != temporary {
				t.Errorf("retryable and scope are %v, %q", e.Retryable, e.Scope)
			}
			after := w.Header().Get("Retry-After")
			if want := temporary || w.Code == http.StatusTooManyRequests; (after == "2") != want {
				t.Errorf("Retry-After is %q, wanted: %v", after, want)
			}
			if (w.Header().Get("WWW-Authenticate") != "") != (w.Code == http.StatusUnauthorized) {
				t.Errorf("WWW-Authenticate is %q", w.Header().Get("WWW-Authenticate"))
			}
			reauth := slices.Contains([]fault.Code{fault.SessionNotFound, fault.SessionExpired, fault.ScopedExpired, fault.CertificateMismatch}, entry.Code)
			if e.Reauth != reauth {
				t.Errorf("reauth is %v", e.Reauth)
			}
			if e.Unsupported {
				t.Error("marked as an unknown path")
			}
		})
	}
}

// An error without a code is not described to the caller. It is logged completely, once.
func TestUncodedErrors(t *testing.T) {
	f := newFixture(t)
	f.ops.err = fmt.Errorf("open /secret/path: %w", io.ErrUnexpectedEOF)
	w := f.do(http.MethodGet, "/api/roles", "")
	e := errorOf(t, w)
	if w.Code != http.StatusInternalServerError || e.Code != "OP_FAILED" || strings.Contains(w.Body.String(), "secret") {
		t.Fatalf("answered %d %s", w.Code, w.Body)
	}
	id := w.Header().Get("X-Request-Id")
	if !strings.Contains(e.Detail, id) {
		t.Errorf("detail %q does not name the request %s", e.Detail, id)
	}
	if log := f.log.String(); strings.Count(log, "/secret/path") != 1 || !strings.Contains(log, id) {
		t.Errorf("the log is %s", log)
	}
}

func TestVerdictsKeepTheShape(t *testing.T) {
	cases := map[string]struct {
		method, path string
		code         fault.Code
		want         map[string]any
	}{
		"AddTrustedCA":            {http.MethodPost, "/api/trusted-cas", fault.NotSaved, map[string]any{"saved": false, "listCountAfter": 2.0, "trustedCA": nil}},
		"RemoveTrustedCA":         {http.MethodPost, "/api/trusted-cas/remove", fault.NotRemoved, map[string]any{"gone": false, "listCountBefore": 2.0}},
		"AddTrustedServer":        {http.MethodPost, "/api/trusted-servers", fault.NotPersisted, map[string]any{"saved": false, "systemId": 7.0, "trustedServers": []any{}}},
		"UpdateTrustedServer":     {http.MethodPut, "/api/trusted-servers/{systemId}", fault.NotPersisted, map[string]any{"saved": false}},
		"CreatePrincipalTrust":    {http.MethodPost, "/api/principal-trusts", fault.NotPersisted, map[string]any{"saved": false, "principalTrust": nil}},
		"UpdatePrincipalTrust":    {http.MethodPut, "/api/principal-trusts/{id}", fault.NotPersisted, map[string]any{"saved": false}},
		"DeletePrincipalTrust":    {http.MethodDelete, "/api/principal-trusts/{id}", fault.NotRemoved, map[string]any{"gone": false}},
		"RemoveTrustedServer":     {http.MethodDelete, "/api/trusted-servers/{systemId}", fault.NotRemoved, map[string]any{"removed": nil, "orphanedPrincipalTrusts": []any{}}},
		"PrepareAuthority":        {http.MethodPost, "/api/authority/prepare", fault.NotSaved, map[string]any{"saved": false}},
		"ActivateAuthority":       {http.MethodPost, "/api/authority/activate", fault.NotSaved, map[string]any{"saved": false}},
		"RetireAuthority":         {http.MethodPost, "/api/authority/retire", fault.NotRemoved, map[string]any{"gone": false}},
		"SetOwner":                {http.MethodPut, "/api/owners/{kind}/{id}", fault.NotSaved, map[string]any{"saved": false, "owner": "another"}},
		"ReleaseOwner":            {http.MethodDelete, "/api/owners/{kind}/{id}", fault.NotRemoved, map[string]any{"gone": false, "owner": "some text"}},
		"CreateRole":              {http.MethodPost, "/api/roles", fault.NotSaved, map[string]any{"saved": false, "requested": "some text"}},
		"UpdateRole":              {http.MethodPut, "/api/roles/{id}", fault.NotSaved, map[string]any{"saved": false}},
		"DeleteRole":              {http.MethodDelete, "/api/roles/{id}", fault.NotRemoved, map[string]any{"gone": false}},
		"GrantACL":                {http.MethodPost, "/api/keys/acl/grant", fault.NotVerified, map[string]any{"verified": false, "requestedRights": 3.0}},
		"AmendACL":                {http.MethodPost, "/api/keys/acl/update", fault.NotVerified, map[string]any{"verified": false}},
		"RevokeACL":               {http.MethodPost, "/api/keys/acl/revoke", fault.NotVerified, map[string]any{"verified": false}},
		"CreatePrincipal":         {http.MethodPost, "/api/principals/password", fault.NotSaved, map[string]any{"saved": false}},
		"DeletePrincipal":         {http.MethodDelete, "/api/principals/{id}", fault.NotRemoved, map[string]any{"gone": false, "sessionsEnded": 2.0}},
		"IssueCertificate":        {http.MethodPost, "/api/certificates", fault.NotSaved, map[string]any{"saved": false}},
		"RenewCertificate":        {http.MethodPost, "/api/certificates/renew", fault.NotSaved, map[string]any{"certificateIdBytes": 8.0}},
		"EnrollCertificates":      {http.MethodPost, "/api/certificates/enroll", fault.NotSaved, map[string]any{"saved": false, "count": 1.0}},
		"ResetTransportPrincipal": {http.MethodPost, "/api/transport-principals/reset", fault.NotRemoved, map[string]any{"reset": false}},
		"SetRevocationPolicy":     {http.MethodPut, "/api/revocation/issuers/{digest}/policy", fault.NotSaved, map[string]any{"saved": false, "mode": "required"}},
		"ImportCRL":               {http.MethodPost, "/api/revocation/crls", fault.NotSaved, map[string]any{"saved": false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all := routes.All()
			r := all[slices.IndexFunc(all, func(r routes.Route) bool { return r.Method == tc.method && r.Path == tc.path })]
			f := newFixture(t)
			f.ops.bad = true
			if name == "AddTrustedServer" {
				f.ops.servers = nil
			}
			good := sampleOf(r)
			w := f.do(r.Method, good.target(r), good.text())
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusConflict {
				t.Fatalf("answered %d %s", w.Code, w.Body)
			}
			if detail, _ := got["detail"].(string); detail == "" {
				t.Error("nothing says what disagrees")
			}
			tc.want["code"] = string(tc.code)
			for field, want := range tc.want {
				if v, there := got[field]; !there || !cmp.Equal(v, want) {
					t.Errorf("%s is %v (%v), want %v", field, v, there, want)
				}
			}
			// A write that was refused has no second read to show.
			f.ops.bad, f.ops.err = false, fault.New(fault.AlreadyExists, "taken")
			w = f.do(r.Method, good.target(r), good.text())
			if w.Code != http.StatusConflict || strings.Contains(w.Body.String(), "listCount") || strings.Contains(w.Body.String(), "verified") {
				t.Errorf("a plain refusal answers %d %s", w.Code, w.Body)
			}
		})
	}
}

// If the second read of a verified write shows other values, the response has the type of a success, with every
// required member.
func TestEveryVerdictKeepsTheShape(t *testing.T) {
	judging := 0
	for _, r := range routes.All() {
		whole, err := json.Marshal(reflect.New(orEmpty(r.Response)).Interface())
		if err != nil {
			t.Fatal(err)
		}
		members := map[string]any{}
		if err := json.Unmarshal(whole, &members); err != nil {
			t.Fatal(err)
		}
		for _, code := range r.Faults {
			if r.Executes { // its responses are those of other routes
				break
			}
			if !slices.Contains([]fault.Code{fault.NotSaved, fault.NotRemoved, fault.NotPersisted, fault.NotVerified}, code) {
				continue
			}
			judging++
			f := newFixture(t)
			f.ops.bad = true
			good := sampleOf(r)
			w := f.do(r.Method, good.target(r), good.text())
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusConflict || got["code"] != string(code) || got["detail"] == "" {
				t.Errorf("%s %s: %s answered %d %s", r.Method, r.Path, code, w.Code, w.Body)
			}
			filled := false
			for member, zero := range members {
				v, there := got[member]
				if !there {
					t.Errorf("%s %s: %s lacks %q: %s", r.Method, r.Path, code, member, w.Body)
				}
				empty := cmp.Equal(v, zero) || zero == nil && cmp.Equal(v, []any{}) // a list is never null in JSON
				filled = filled || member != "detail" && !empty
			}
			if !filled && r.Method+" "+r.Path != "POST /api/principal-trusts" { // a missing row cannot be shown
				t.Errorf("%s %s: %s says nothing of what was read back: %s", r.Method, r.Path, code, w.Body)
			}
		}
	}
	if judging < 30 {
		t.Errorf("only %d routes.Verdicts were asked for", judging)
	}
}

// orEmpty returns response, or an empty struct for the route whose response has no fixed type.
func orEmpty(response reflect.Type) reflect.Type {
	if response == nil {
		return reflect.TypeFor[struct{}]()
	}
	return response
}

func TestUnknownPathsAndMethods(t *testing.T) {
	f := newFixture(t)
	for _, target := range []string{
		"/", "/api", "/api/", "/api/nothing", "/api/roles/", "/api//roles", "/api/./roles", "/api/x/../roles", "/api/roles/..",
		"/API/roles", "/api/roles/0000000000000001/more", "/api/roles%2f", "/api/keys/acl", "//example.com/api/roles",
	} {
		w := f.do(http.MethodGet, target, "")
		if e := errorOf(t, w); w.Code != http.StatusNotFound || e.Code != "NOT_FOUND" || !e.Unsupported {
			t.Errorf("GET %s answered %d %s", target, w.Code, w.Body)
		}
	}
	for _, tc := range []struct{ method, target, allow string }{
		{http.MethodDelete, "/api/roles", "GET, HEAD, POST"}, {http.MethodPost, "/api/roles/0000000000000001", "DELETE, PUT"},
		{http.MethodGet, "/api/crypto/hmac", "POST"}, {http.MethodHead, "/api/crypto/hmac", "POST"}, {"INVENTED", "/api/health", "GET, HEAD"},
		{http.MethodOptions, "/api/sessions", "GET, HEAD, POST"},
	} {
		w := f.do(tc.method, tc.target, "")
		if e := errorOf(t, w); w.Code != http.StatusMethodNotAllowed || e.Code != "METHOD_NOT_ALLOWED" || w.Header().Get("Allow") != tc.allow || !e.Unsupported {
			t.Errorf("%s %s answered %d %s, Allow %q", tc.method, tc.target, w.Code, w.Body, w.Header().Get("Allow"))
		}
	}
	if calls := f.ops.seen(); len(calls) > 0 {
		t.Errorf("reached %v", calls)
	}
}

// HEAD gets the same response as GET, and reaches the same operations, but its response has no body.
func TestHeadIsGetWithoutABody(t *testing.T) {
	get, head := newFixture(t), newFixture(t)
	ask := func(f *fixture, method, target, authorization string) *http.Response {
		t.Helper()
		server := httptest.NewServer(f.api)
		defer server.Close()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", authorization)
		r.Header.Set("X-Request-Id", "one")
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || (len(body) > 0) != (method == http.MethodGet) {
			t.Errorf("%s %s: %d bytes, %v", method, target, len(body), err)
		}
		resp.Header.Del("Date")
		return resp
	}
	for _, r := range routes.All() {
		if r.Method != http.MethodGet || r.Waits {
			continue
		}
		for _, authorization := range []string{"Bearer " + testToken, "Bearer nobody"} {
			target := sampleOf(r).target(r)
			want, got := ask(get, http.MethodGet, target, authorization), ask(head, http.MethodHead, target, authorization)
			if got.StatusCode != want.StatusCode || !reflect.DeepEqual(got.Header, want.Header) {
				t.Errorf("HEAD %s: %d %v, want %d %v", target, got.StatusCode, got.Header, want.StatusCode, want.Header)
			}
		}
	}
	if want, got := fmt.Sprint(get.ops.seen()), fmt.Sprint(head.ops.seen()); got != want || got == "[]" {
		t.Errorf("HEAD reaches %s, GET %s", got, want)
	}
}

// A compressed body is refused because of its encoding. It is not read, and not taken for invalid JSON.
func TestEncodedBodies(t *testing.T) {
	for _, r := range routes.All() {
		if len(wire.Of(r.Request).Body) == 0 {
			continue
		}
		good := sampleOf(r)
		for encoding, refused := range map[string]bool{"gzip": true, "zstd": true, "gzip, identity": true, "Identity": false, "": false} {
			f := newFixture(t)
			req := request(r.Method, good.target(r), good.text())
			req.Header.Set("Content-Encoding", encoding)
			w := f.send(req)
			if !refused {
				if w.Code != http.StatusOK {
					t.Errorf("%s %s with %q: %d %s", r.Method, r.Path, encoding, w.Code, w.Body)
				}
				continue
			}
			e := errorOf(t, w)
			if w.Code != http.StatusUnsupportedMediaType || e.Code != "UNSUPPORTED_ENCODING" || !strings.Contains(e.Detail, encoding) || w.Header().Get("Accept-Encoding") != "identity" {
				t.Errorf("%s %s with %q: %d %s", r.Method, r.Path, encoding, w.Code, w.Body)
			}
		}
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	f := newFixture(t)
	for _, target := range []string{"/api/health", "/api/roles", "/api/nothing", "/api/roles?x=1"} {
		h := f.do(http.MethodGet, target, "").Header()
		if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Type") != "application/json" || h.Get("X-Request-Id") == "" || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", target, h)
		}
	}
}

func TestRequestID(t *testing.T) {
	f := newFixture(t)
	for sent, kept := range map[string]bool{
		"a": true, "A-1.b_2": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "a b": false, "a\nb": false, "ä": false, "a/b": false, `"`: false,
	} {
		r := request(http.MethodGet, "/api/health", "")
		r.Header["X-Request-Id"] = []string{sent}
		got := f.send(r).Header().Get("X-Request-Id")
		if (got == sent) != kept || len(got) == 0 || len(got) > 64 {
			t.Errorf("sent %q, answered %q", sent, got)
		}
	}
}

func TestSessionIsRequired(t *testing.T) {
	for _, r := range routes.All() {
		good := sampleOf(r)
		for name, header := range map[string][]string{
			"none": nil, "empty": {""}, "other scheme": {"Basic dXNlcjpwdw=="}, "no id": {"Bearer "}, "unknown": {"Bearer nobody"},
			"two": {"Bearer " + testToken, "Bearer " + testToken}, "too long": {"Bearer " + strings.Repeat("a", 600)},
		} {
			f := newFixture(t)
			req := request(r.Method, good.target(r), good.text())
			req.Header["Authorization"] = header
			if header == nil {
				req.Header.Del("Authorization")
			}
			w := f.send(req)
			if !r.Session {
				if w.Code != http.StatusOK {
					t.Errorf("%s %s asks for a session: %d", r.Method, r.Path, w.Code)
				}
				continue
			}
			e, challenge := errorOf(t, w), w.Header().Get("WWW-Authenticate")
			if w.Code != http.StatusUnauthorized || e.Code != "SESSION_NOT_FOUND" || !e.Reauth || !strings.HasPrefix(challenge, "Bearer ") {
				t.Errorf("%s %s with %s: %d %s, %q", r.Method, r.Path, name, w.Code, w.Body, challenge)
			}
			if strings.Contains(challenge, "error=") != (header != nil) {
				t.Errorf("with %s the challenge is %q", name, challenge)
			}
			if calls := f.ops.seen(); len(calls) > 0 {
				t.Errorf("%s %s with %s reached %v", r.Method, r.Path, name, calls)
			}
		}
	}
}

func TestSpellingsOfCredentials(t *testing.T) {
	for _, before := range []string{"bEARER ", "Bearer  ", "Bearer      ", "DPoP ", "dpop   "} {
		f := newFixture(t)
		r := request(http.MethodGet, "/api/roles", "")
		r.Header.Set("Authorization", before+testToken)
		if w := f.send(r); w.Code != http.StatusOK {
			t.Errorf("%q: %d %s", before, w.Code, w.Body)
		}
	}
	for _, wrong := range []string{"Bearer", "Bearer\t" + testToken, "Bearer   ", "Bearer" + testToken, "Bearer " + testToken + " x"} {
		f := newFixture(t)
		r := request(http.MethodGet, "/api/roles", "")
		r.Header.Set("Authorization", wrong)
		if w := f.send(r); w.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d %s", wrong, w.Code, w.Body)
		}
	}
}

func TestSessionIsReleased(t *testing.T) {
	f := newFixture(t)
	f.do(http.MethodGet, "/api/roles", "")
	f.do(http.MethodGet, "/api/roles?x=1", "")
	f.ops.during = func(context.Context) { panic("lost") }
	f.do(http.MethodGet, "/api/roles", "")
	if f.sessions.released != 3 {
		t.Fatalf("released %d of 3", f.sessions.released)
	}
}

func TestBodyLimits(t *testing.T) {
	for _, r := range routes.All() {
		if r.Streams {
			continue // TestHMACStreams checks the limit of the message
		}
		if r.BodyLimit > routes.HMACBodyLimit {
			t.Errorf("%s %s takes more than the largest message", r.Method, r.Path)
			continue
		}
		f := newFixture(t)
		good := sampleOf(r)
		body := good.text()
		if body == "" {
			body = "{}"
		}
		body += strings.Repeat(" ", int(r.BodyLimit)+1-len(body))
		w := f.do(r.Method, good.target(r), body)
		if e := errorOf(t, w); w.Code != http.StatusRequestEntityTooLarge || e.Code != "PAYLOAD_TOO_LARGE" {
			t.Errorf("%s %s: one byte over answered %d %s", r.Method, r.Path, w.Code, w.Body)
		}
		if w := f.do(r.Method, good.target(r), body[:r.BodyLimit]); w.Code != http.StatusOK {
			t.Errorf("%s %s: the limit itself answered %d %s", r.Method, r.Path, w.Code, w.Body)
		}
	}
}

func TestOverload(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := newFixture(t, func(c *Config) { c.MaxInFlight = quota.Shares })
	take(t, f.api.places.inFlight, quota.Shares-1, 1)
	f.ops.during = func(context.Context) { entered <- struct{}{}; <-leave }
	var wg sync.WaitGroup
	wg.Go(func() { f.do(http.MethodPost, "/api/server/version", "") })
	<-entered
	f.sessions.as = principal(100)
	w := f.do(http.MethodPost, "/api/server/version", "")
	e := errorOf(t, w)
	if w.Code != http.StatusServiceUnavailable || e.Code != "OVERLOADED" || e.Scope != "process" || e.Retryable == nil || !*e.Retryable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	// Health and unknown paths still respond.
	if w := f.do(http.MethodGet, "/api/health", ""); w.Code != http.StatusOK {
		t.Errorf("health answered %d", w.Code)
	}
	if w := f.do(http.MethodGet, "/api/nothing", ""); w.Code != http.StatusNotFound {
		t.Errorf("an unknown path answered %d", w.Code)
	}
	close(leave)
	wg.Wait()
	f.ops.during = nil
	if w := f.do(http.MethodGet, "/api/roles", ""); w.Code != http.StatusOK {
		t.Errorf("afterwards: %d", w.Code)
	}
}

func TestPanic(t *testing.T) {
	f := newFixture(t)
	f.ops.during = func(context.Context) { panic("the password is hunter2") }
	w := f.do(http.MethodGet, "/api/roles", "")
	if e := errorOf(t, w); w.Code != http.StatusInternalServerError || e.Code != "OP_FAILED" {
		t.Fatalf("answered %d %s", w.Code, w.Body)
	}
	log := f.log.String()
	if strings.Contains(log+w.Body.String(), "hunter2") || !strings.Contains(log, w.Header().Get("X-Request-Id")) || !strings.Contains(log, "stack") {
		t.Errorf("the log is %s", log)
	}
}

func TestMetricsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := newFixture(t, func(c *Config) { c.Registerer = registry })
	f.do(http.MethodGet, "/api/roles", "")
	for i := range 50 {
		f.do(fmt.Sprintf("M%d", i), fmt.Sprintf("/api/nothing/%d", i), "")
		f.do(http.MethodDelete, fmt.Sprintf("/api/roles/%016x", i+1<<16), "")
		f.do(fmt.Sprintf("M%d", i), "/api/roles", "")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, family := range families {
		seen[family.GetName()] = len(family.GetMetric())
	}
	want := map[string]int{"keyserver_http_requests_total": 4, "keyserver_http_request_duration_seconds": 4, "keyserver_http_requests_in_flight": 1, "keyserver_http_requests_at_work": 1, "keyserver_http_waiting": 1, "keyserver_http_paced": 1, "keyserver_http_streams": 1, "keyserver_http_strangers": 1, "keyserver_http_body_bytes": 1, "keyserver_http_unread_bytes": 1, "keyserver_http_spooled_bytes": 1,
		"keyserver_ceiling_largest_share_ratio": 11, "keyserver_ceiling_refusals_total": 24}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}

func TestChangesEndWithTheClientAndWithTheServer(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		f := newFixture(t)
		started := make(chan struct{})
		f.ops.during = func(context.Context) { close(started) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.send(request(http.MethodGet, "/api/changes?wait=60", "").WithContext(ctx))
		}()
		<-started
		cancel()
		<-done
	})
	t.Run("server", func(t *testing.T) {
		f := newFixture(t)
		started := make(chan struct{})
		f.ops.during = func(context.Context) { close(started) }
		go func() { <-started; f.api.Drain() }()
		w := f.do(http.MethodGet, "/api/changes?after=41&wait=60", "")
		var page schema.ChangePage
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK || page.Cursor != 41 || len(page.Changes) != 0 {
			t.Fatalf("answered %d %s", w.Code, w.Body)
		}
		if w.Header().Get("Connection") != "close" {
			t.Error("the connection stays, and brings the next poll")
		}
		if w := f.do(http.MethodGet, "/api/ready", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "shutting down") {
			t.Errorf("ready answers %d %s", w.Code, w.Body)
		}
	})
}

// A body that arrives slowly does not occupy a handler longer than the route's timeout.
func TestSlowBody(t *testing.T) {
	f := newFixture(t)
	table := routes.All()
	for i := range table {
		table[i].Timeout = 100 * time.Millisecond
	}
	var err error
	if f.api.mux, err = routes.NewMux(table, f.api.bind); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(f.api)
	defer server.Close()
	for _, target := range []string{"/api/keys/get", "/api/crypto/hmac"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", target, testToken)
		answer := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(conn)
			answer <- all
		}()
		select {
		case all := <-answer:
			if !bytes.Contains(all, []byte("504 Gateway Timeout")) || !bytes.Contains(all, []byte("REQUEST_TIMEOUT")) {
				t.Errorf("%s answered %s", target, all)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the handler is still held", target)
		}
	}
}

// TestABackupThatNobodyReads checks that a client that reads nothing delays neither the work
// nor its transaction.
func TestABackupThatNobodyReads(t *testing.T) {
	t.Parallel() // it waits
	f := newFixture(t)
	f.ops.endless = true
	server, ended := httptest.NewUnstartedServer(f.api), make(chan struct{})
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			close(ended)
		}
	}
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"recipient":"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}`
	fmt.Fprintf(conn, "POST /api/backups HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", testToken, len(body), body)
	select {
	case <-ended:
		if !strings.Contains(f.log.String(), "read nothing of the response") || !strings.Contains(f.log.String(), "REQUEST_TIMEOUT") {
			t.Errorf("the log does not say why: %s", f.log.String())
		}
	case <-time.After(4 * takeTime):
		t.Fatal("the work is still held")
	}
}

// TestRefusedBeforeTheBody checks that a refusal is sent without waiting for the rest of the request body, which may
// never arrive.
func TestRefusedBeforeTheBody(t *testing.T) {
	f := newFixture(t)
	server := httptest.NewServer(f.api)
	defer server.Close()
	for _, target := range []string{"/api/keys/get", "/api/crypto/hmac"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetReadDeadline(time.Now().Add(bodyTime / 2)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer none\r\nContent-Length: 1000\r\n\r\n{", target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s answered %s", target, resp.Status)
		}
		resp.Body.Close()
	}
}

func TestTimeout(t *testing.T) {
	f := newFixture(t)
	f.ops.err = context.DeadlineExceeded
	w := f.do(http.MethodPost, "/api/keys/get", `{"ttag":"`+aLink.Base64()+`"}`)
	if e := errorOf(t, w); w.Code != http.StatusGatewayTimeout || e.Code != "REQUEST_TIMEOUT" {
		t.Fatalf("answered %d %s", w.Code, w.Body)
	}
}

// The operations get the values that were sent.
func TestDecodedValues(t *testing.T) {
	link := aLink.Base64()
	cases := map[string]struct {
		method, target, body string
		want                 any
	}{
		"Rights by name, limits given": {
			http.MethodPost, "/api/keys/acl/grant",
			`{"ttag":"` + link + `","systemId":4294967295,"principalId":"18446744073709551615","rights":["WRITE","OWNER"],"maxUsage":0,"startTime":"AAAAAAAAAAE=","endTime":"AAAAAAAAAAI="}`,
			keyserver.ACLChange{
				Link:      aLink,
				Principal: keyserver.PrincipalRef{System: 1<<32 - 1, ID: keyserver.ID{255, 255, 255, 255, 255, 255, 255, 255}},
				Rights:    keyserver.Write | keyserver.Owner, MaxUsage: 0, Start: keyserver.Stamp{7: 1}, End: keyserver.Stamp{7: 2},
			},
		},
		"Rights by mask, no limits": {
			http.MethodPost, "/api/keys/acl/update",
			`{"ttag":"` + link + `","systemId":0,"principalId":9007199254740992,"rights":31}`,
			keyserver.ACLChange{
				Link:      aLink,
				Principal: keyserver.PrincipalRef{ID: values.IDFromUint64(1 << 53)}, Rights: keyserver.AllRights, MaxUsage: keyserver.NoUsageLimit,
			},
		},
		"Operations left out stay": {http.MethodPut, "/api/roles/00000000000000FF", `{"name":"x"}`, keyserver.RoleChange{ID: values.IDFromUint64(255), Name: ptr("x")}},
		"Operations empty remove":  {http.MethodPut, "/api/roles/00000000000000FF", `{"operations":[]}`, keyserver.RoleChange{ID: values.IDFromUint64(255), Operations: []keyserver.ID{}}},
		"Material imports":         {http.MethodPost, "/api/keys", `{"algorithm":"HMAC-SHA384","material":"AQI="}`, keyserver.NewKey{Algorithm: keyserver.HMACSHA384, Material: []byte{1, 2}}},
		"No material mints":        {http.MethodPost, "/api/keys", `{"algorithm":"AES-256"}`, keyserver.NewKey{Algorithm: keyserver.AES256}},
		"Audit defaults":           {http.MethodGet, "/api/audit", "", keyserver.AuditFilter{Limit: 100}},
		"Audit filters": {
			http.MethodGet, "/api/audit?reason=aclDenied&principalId=1001&operation=hmacData&address=2001:db8::7&since=2026-01-31T09:00:00%2B01:00&until=2026-01-31T08:00:01.5Z&cursor=5&limit=1000", "",
			keyserver.AuditFilter{Reason: "aclDenied", Operation: "hmacData", Address: "2001:db8::7", Principal: &someID, Since: epoch, Until: epoch.Add(1500 * time.Millisecond), After: 5, Limit: 1000},
		},
		"A receipt by its row": {http.MethodGet, "/api/audit/9007199254740992/receipt", "", int64(1 << 53)},
		"A tile that is full":  {http.MethodGet, "/api/audit/tile/0/x001/067", "", keyserver.AuditTile{Index: 1067, Width: 256}},
		"A tile that is not":   {http.MethodGet, "/api/audit/tile/63/x001/x234/067.p/255", "", keyserver.AuditTile{Level: 63, Index: 1234067, Width: 255}},
		"The rows of a tile":   {http.MethodGet, "/api/audit/tile/entries/x001/067.p/1", "", keyserver.AuditTile{Entries: true, Index: 1067, Width: 1}},
		"Audit newest first": {
			http.MethodGet, "/api/audit?order=desc&outcome=refused&object=AAAAAQAAAAAAAAAB&session=00000000000003e9&cursor=5", "",
			keyserver.AuditFilter{Outcome: keyserver.Refused, Object: "AAAAAQAAAAAAAAAB", Session: ptr(values.IDFromUint64(1001)), Newest: true, After: 5, Limit: 100},
		},
		"Audit oldest first":              {http.MethodGet, "/api/audit?order=asc", "", keyserver.AuditFilter{Limit: 100}},
		"Changes wait nothing by default": {http.MethodGet, "/api/changes", "", keyserver.ChangeFilter{}},
		"A name with escapes":             {http.MethodPost, "/api/keys/authorize", `{"ttag":"` + link + `","filename":"a\u00e4\ud83d\ude00"}`, keyserver.Use{Link: aLink, Filename: "aä😀"}},
		"A body where none is needed":     {http.MethodPost, "/api/server/version", " { } ", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if w := f.do(tc.method, tc.target, tc.body); w.Code != http.StatusOK {
				t.Fatalf("answered %d %s", w.Code, w.Body)
			}
			if k, ok := f.ops.got.(keyserver.NewKey); ok && tc.want.(keyserver.NewKey).Material == nil && len(k.Material) == 0 {
				return
			}
			if diff := cmp.Diff(tc.want, f.ops.got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

// Null and absent values of contract 5.3, 5.4 and 8.2.
func TestEncodedValues(t *testing.T) {
	f := newFixture(t)
	var list struct{ TrustedCAs []map[string]any }
	if err := json.Unmarshal(f.do(http.MethodGet, "/api/trusted-cas", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"subject", "issuer", "publicKeyType", "serialNumber", "certHash", "effectiveDate", "expirationDate", "statusLabel", "revocationDigest"} {
		if v, there := list.TrustedCAs[1][field]; !there || v != nil {
			t.Errorf("%s of an unknown certificate is %v (present: %v), want null", field, v, there)
		}
	}
	if _, there := list.TrustedCAs[0]["certificate"]; there {
		t.Error("a body that nobody asked for")
	}
	var acl map[string]any
	if err := json.Unmarshal(f.do(http.MethodPost, "/api/keys/acl/get", `{"ttag":"`+aLink.Base64()+`"}`).Body.Bytes(), &acl); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"requestedRights", "requestedRightNames", "entry"} {
		if v, there := acl[field]; !there || v != nil {
			t.Errorf("%s is %v (present: %v), want null", field, v, there)
		}
	}
	if _, there := acl["code"]; there {
		t.Error("code on success")
	}
	body := f.do(http.MethodPost, "/api/sessions", `{"method":"password","name":"ann","password":"hunter22"}`).Body.String()
	if !strings.Contains(body, testToken) || !strings.Contains(body, `"boundKey":null`) || !strings.Contains(body, `"id":"00000000000003e9","principalId":"1001"`) {
		t.Errorf("the login answers %s", body)
	}
}

// A malformed message is refused even if it is longer than the buffer and the operation has begun. A message that is
// too long is a 400, not a 413.
func TestHMACStreams(t *testing.T) {
	long := strings.Repeat("QUJD", 40000)
	f := newFixture(t)
	for body, status := range map[string]int{
		`{"hiddenLink":"` + aLink.Base64() + `","data":"` + long + `"}`:                                              200,
		`{"hiddenLink":"` + aLink.Base64() + `","data":"` + long + `QR=="}`:                                          400,
		`{"hiddenLink":"` + aLink.Base64() + `","data":"` + strings.Repeat("A", (keyserver.MaxMessage/3+1)*4) + `"}`: 400,
	} {
		w := f.do(http.MethodPost, "/api/crypto/hmac", body)
		if w.Code != status {
			t.Errorf("%d characters: %d %s", len(body), w.Code, w.Body)
		}
		if status == 400 && !strings.HasPrefix(errorOf(t, w).Detail, "data: ") {
			t.Errorf("detail is %s", w.Body)
		}
	}
}
