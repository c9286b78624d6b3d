package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	valerrors "github.com/pb33f/libopenapi-validator/errors"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// byDocument returns a validator of the document. It is created once, because it
// compiles every schema.
var byDocument = sync.OnceValues(func() (validator.Validator, error) {
	text, err := routes.OpenAPI()
	if err != nil {
		return nil, err
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(doc)
	return v, errors.Join(errs...)
})

func documentValidator(t *testing.T) validator.Validator {
	t.Helper()
	v, err := byDocument()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDocumentIsValid(t *testing.T) {
	if ok, errs := documentValidator(t).ValidateDocument(); !ok {
		t.Error(words(errs))
	}
}

func TestDocumentListsEveryRoute(t *testing.T) {
	text, err := routes.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, r := range routes.All() {
		item, ok := model.Model.Paths.PathItems.Get(r.Path)
		if !ok {
			t.Errorf("%s is missing", r.Path)
			continue
		}
		op, ok := item.GetOperations().Get(strings.ToLower(r.Method))
		if !ok {
			t.Errorf("%s %s is missing", r.Method, r.Path)
			continue
		}
		if op.OperationId == "" || ids[op.OperationId] {
			t.Errorf("%s %s: operation id %q is empty or taken", r.Method, r.Path, op.OperationId)
		}
		ids[op.OperationId] = true
	}
}

// The OpenAPI document allows each response of the routes, success or failure: its status, headers and body.
func TestAnswersMatchTheDocument(t *testing.T) {
	v := documentValidator(t)
	for _, r := range routes.All() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			good := sampleOf(r)
			check := func(t *testing.T, f *fixture, target, body string, status int) {
				t.Helper()
				req := request(r.Method, target, body)
				w := f.send(req)
				if w.Code != status {
					t.Fatalf("answered %d %s, want %d", w.Code, w.Body, status)
				}
				again := request(r.Method, target, body)
				validate(t, v, again, w, status == http.StatusOK)
			}
			t.Run("200", func(t *testing.T) { check(t, newFixture(t), good.target(r), good.text(), http.StatusOK) })
			t.Run("400", func(t *testing.T) { check(t, newFixture(t), good.target(r), "{", http.StatusBadRequest) })
			if !r.Session {
				return
			}
			for _, code := range r.Codes() {
				t.Run(string(code), func(t *testing.T) {
					f := newFixture(t)
					err := fault.Temporary(code, fault.ScopeProcess, 1, "the detail")
					if slices.Contains([]fault.Code{fault.SessionNotFound, fault.SessionExpired, fault.ScopedExpired, fault.RequestLimit}, code) {
						f.sessions.err = err
					} else if f.ops.bad = slices.Contains(routes.Verdicts, code) && !r.Executes; !f.ops.bad { // a fake executes no write
						f.ops.err = err
					}
					if len(r.Operations) == 0 && f.ops.err != nil {
						return // the session routes call no operation
					}
					check(t, f, good.target(r), good.text(), statuses[code])
				})
			}
		})
	}
}

func validate(t *testing.T, v validator.Validator, r *http.Request, w *httptest.ResponseRecorder, request bool) {
	t.Helper()
	if ok, errs := v.ValidateHttpResponse(r, answered(w.Code, w.Header(), w.Body.Bytes())); !ok {
		t.Errorf("the answer %s is not in the document:%s", w.Body, words(errs))
	}
	if !request {
		return
	}
	if ok, errs := v.ValidateHttpRequest(r); !ok {
		t.Errorf("the request is not in the document:%s", words(errs))
	}
}

func answered(status int, header http.Header, body []byte) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body))}
}

func words(errs []*valerrors.ValidationError) string {
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintf(&b, "\n  %v", e)
		for _, s := range e.SchemaValidationErrors {
			fmt.Fprintf(&b, "\n    %s: %s", s.FieldPath, s.Reason)
		}
	}
	return b.String()
}

// A wrong response fails the checks above.
func TestWrongAnswersDoNotMatch(t *testing.T) {
	v := documentValidator(t)
	for reason, tc := range map[string]struct {
		method, path string
		status       int
		body         string
	}{
		"a wrong type":          {http.MethodGet, "/api/roles", 200, `{"count":"1","roles":[],"detail":""}`},
		"a missing field":       {http.MethodGet, "/api/roles", 200, `{"count":1,"roles":[]}`},
		"a wrong spelling":      {http.MethodGet, "/api/roles", 200, `{"count":1,"detail":"","roles":[{"id":"1","name":"a","builtIn":null,"operations":[]}]}`},
		"stray bits":            {http.MethodPost, "/api/crypto/hmac", 200, `{"algorithm":"HMAC-SHA384","mac":"QR==","macBytes":48}`},
		"an error without code": {http.MethodGet, "/api/roles", 403, `{"detail":""}`},
		"an unknown status":     {http.MethodGet, "/api/roles", 418, `{"code":"X","detail":""}`},
	} {
		r := request(tc.method, tc.path, "")
		h := http.Header{"Content-Type": {"application/json"}}
		if ok, _ := v.ValidateHttpResponse(r, answered(tc.status, h, []byte(tc.body))); ok {
			t.Errorf("%s passes", reason)
		}
	}
}

// GET /api/ready has its own body if it fails.
func TestNotReadyMatchesTheDocument(t *testing.T) {
	f := newFixture(t)
	f.ops.ready = []keyserver.Readiness{{Part: "database", Detail: "does not answer", RetryIn: 5}}
	r := request(http.MethodGet, "/api/ready", "")
	w := f.send(r)
	if w.Code != http.StatusServiceUnavailable {
		t.Fatalf("answered %d", w.Code)
	}
	validate(t, documentValidator(t), request(http.MethodGet, "/api/ready", ""), w, false)
}
