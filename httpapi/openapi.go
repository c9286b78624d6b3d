package httpapi

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/fault"
)

func openAPI(x *exchange) (any, error) {
	if err := x.decode(wire.Of(typeOf[nothing]()), &nothing{}); err != nil {
		return nil, err
	}
	return raw(x.api.openAPI), nil
}

type object = map[string]any

// documentVersion is of the interface, which has no version in its paths. It
// grows with the table of routes.
const documentVersion = "0.1.0"

// OpenAPI returns the OpenAPI 3.1 document that the service answers.
func OpenAPI() ([]byte, error) { return theDocument() }

// theDocument is made once: the table of routes does not change.
var theDocument = sync.OnceValues(func() ([]byte, error) { return document(Routes()) })

// document makes the document from the table of routes.
func document(all []Route) ([]byte, error) {
	d := documenter{schemas: wire.Schemas{}}
	paths := object{}
	for _, r := range all {
		item, ok := paths[r.Path].(object)
		if !ok {
			item = object{}
			paths[r.Path] = item
		}
		item[strings.ToLower(r.Method)] = d.operation(r)
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Key server administration and key operations", "version": documentVersion,
			"description": "Operations marked x-extension are beyond the shown contract. Every failure is JSON with code and detail; match on code.",
		},
		"paths": paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{"session": object{
				"type": "http", "scheme": "bearer", "description": "The session id that POST /api/sessions answers. A login with a proof in the header DPoP (RFC 9449) binds the session to its key, and then every request needs a proof.",
			}},
		},
	}, json.Deterministic(true), jsontext.Multiline(true))
}

type documenter struct{ schemas wire.Schemas }

func (d documenter) operation(r Route) object {
	o := object{
		"operationId": operationID(r), "summary": r.Summary, "tags": []any{strings.Split(r.Path, "/")[2]},
		"responses": d.responses(r), "security": []any{},
	}
	if r.Extension {
		o["x-extension"] = true
	}
	if r.Session {
		o["security"] = []any{object{"session": []any{}}}
	}
	if len(r.Operations) > 0 {
		names := make([]any, len(r.Operations))
		for i, op := range r.Operations {
			names[i] = op.Name
		}
		o["x-operations"] = names
	}
	table := wire.Of(r.Request)
	if params := d.parameters(table); len(params) > 0 {
		o["parameters"] = params
	}
	if len(table.Body) > 0 {
		o["requestBody"] = object{"required": true, "content": content(d.schemas.Ref(bodyType(r.Request)), table.Example())}
	}
	return o
}

// bodyType is the part of a request type that is the body: the type itself, or
// what it embeds next to its path.
func bodyType(t reflect.Type) reflect.Type {
	for f := range t.Fields() {
		if f.Anonymous && len(wire.Of(f.Type).Body) > 0 && len(wire.Of(t).Path) > 0 {
			return f.Type
		}
	}
	return t
}

func (d documenter) parameters(t *wire.Table) []any {
	var out []any
	for place, fields := range map[string][]wire.Field{"path": t.Path, "query": t.Query} {
		for _, f := range fields {
			p := object{"name": f.Name, "in": place, "required": f.Required, "schema": d.schemas.Field(f)}
			if f.Doc != "" {
				p["description"] = f.Doc
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b any) int { return strings.Compare(parameterName(a), parameterName(b)) })
	return out
}

func parameterName(p any) string { return p.(object)["name"].(string) } //nolint:errcheck // made just above

func (d documenter) responses(r Route) object {
	ok, example := object{"type": "object"}, "{}"
	if r.Response != nil {
		ok, example = d.schemas.Ref(r.Response), wire.Of(r.Response).Example()
	}
	out := object{"200": object{"description": "Done.", "headers": headers(http.StatusOK), "content": content(ok, example)}}
	byStatus := map[int][]fault.Code{}
	for _, c := range r.every() {
		status := edges[c].status
		byStatus[status] = append(byStatus[status], c)
	}
	for status, codes := range byStatus {
		body := d.schemas.Ref(typeOf[schema.Error]())
		if slices.ContainsFunc(codes, r.judges) {
			body = object{"anyOf": []any{d.schemas.Ref(r.Response), body}}
		}
		out[strconv.Itoa(status)] = object{
			"description": joined(codes), "headers": headers(status), "content": content(body, failureExample(codes[0])), "x-codes": codes,
		}
	}
	return out
}

// judges reports whether the code comes with the answer of the route.
func (r Route) judges(c fault.Code) bool {
	if r.Response == nil || !slices.Contains(r.judged, c) {
		return false
	}
	_, ok := reflect.PointerTo(r.Response).MethodByName("Judge")
	return ok
}

func joined(codes []fault.Code) string {
	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

// content is JSON of a schema, with an example of it.
func content(s object, example string) object {
	return object{"application/json": object{"schema": s, "example": jsontext.Value(example)}}
}

// failureExample is what every failure has at least.
func failureExample(code fault.Code) string {
	return `{"code":"` + string(code) + `","detail":"a sentence that names the field or object and what to do"}`
}

func headers(status int) object {
	text := func(description string) object {
		return object{"description": description, "schema": object{"type": "string"}}
	}
	h := object{"X-Request-Id": text("Finds the request in the log and the audit trail.")}
	switch status {
	case http.StatusUnauthorized:
		h["WWW-Authenticate"] = text("RFC 6750 challenge, or that of RFC 9449 section 7.1 where a key is asked for.")
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h["Retry-After"] = text("Seconds to wait.")
	}
	return h
}

// operationID is the method and the path in camelCase, for code generators.
func operationID(r Route) string {
	id := strings.ToLower(r.Method)
	for part := range strings.FieldsFuncSeq(strings.TrimPrefix(r.Path, "/api/"), func(c rune) bool { return strings.ContainsRune("/-{}.", c) }) {
		id += strings.ToUpper(part[:1]) + part[1:]
	}
	return id
}
