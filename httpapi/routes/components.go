package routes

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/openapi"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Names of the components that operations share and refer to.
const (
	schemeSession = "bearerSession"
	schemeProof   = "boundSession"
	proofHeader   = "DPoP"

	headerRequestID = "RequestId"
	headerChallenge = "Challenge"
	headerWait      = "RetryAfter"
)

func newDocumenter(all []Route) *documenter {
	d := &documenter{schemas: wire.NewSchemas(), uses: map[string]int{}}
	text := func(description string) *openapi.Header {
		return &openapi.Header{Description: description, Schema: &wire.Schema{Type: "string"}}
	}
	d.components = openapi.Components{
		SecuritySchemes: map[string]openapi.SecurityScheme{
			schemeSession: {Type: "http", Scheme: "bearer", Description: "The session id that POST /api/sessions returns."},
			schemeProof: {Type: "http", Scheme: "DPoP", Description: "A session whose login had a DPoP proof (RFC 9449) is bound to the key of the proof. Each request sends Authorization: DPoP with the session id, " +
				"and a new proof in the header DPoP. The session id may also be sent as Bearer; the proof is still required."},
		},
		Parameters: map[string]*openapi.Parameter{proofHeader: {
			Name: proofHeader, In: "header", Schema: &wire.Schema{Type: "string"},
			Description: "A proof of possession (RFC 9449 section 4.2) for this method and URL, new for each request. " +
				"A login with a proof binds the session to the key of the proof. Then each request of the session needs a proof.",
		}},
		Headers: map[string]*openapi.Header{
			headerRequestID: text("Id of the request in the log and the audit log."),
			headerChallenge: text("Challenge of RFC 6750, or of RFC 9449 section 7.1 if a proof is required."),
			headerWait:      {Description: "Seconds to wait before a retry.", Schema: &wire.Schema{Type: "integer"}},
		},
		Responses: map[string]*openapi.Response{},
		Schemas:   d.schemas.Named,
	}
	for _, r := range all {
		table := wire.Of(r.Request)
		for _, f := range table.Path {
			d.uses[identity(d.inlined("path", f))]++
		}
		for _, f := range table.Query {
			d.uses[identity(d.inlined("query", f))]++
		}
	}
	return d
}

// parameter returns a parameter, or a reference to it if several routes have the same
// one. It is not shared if another parameter already has its name.
func (d *documenter) parameter(place string, f wire.Field) *openapi.Parameter {
	p := d.inlined(place, f)
	if d.uses[identity(p)] < 2 {
		return p
	}
	name := upperFirst(f.Name) + "Parameter"
	if other, taken := d.components.Parameters[name]; taken && identity(other) != identity(p) {
		return p
	}
	d.components.Parameters[name] = p
	return &openapi.Parameter{Ref: "#/components/parameters/" + name}
}

func (d *documenter) inlined(place string, f wire.Field) *openapi.Parameter {
	s := d.schemas.Field(f, wire.InRequest)
	s.Description = ""
	return &openapi.Parameter{Name: f.Name, In: place, Required: f.Required, Description: f.Doc, Schema: s}
}

// identity returns the same text for equal parameters.
func identity(p *openapi.Parameter) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // only a value that is not JSON fails
	}
	return string(text)
}

// failure contains the codes of a route that have the same status.
type failure struct {
	status int
	codes  []fault.Code
}

// failures returns the codes of a route, grouped by status.
func (r Route) failures() []failure {
	byStatus := map[int][]fault.Code{}
	for _, c := range r.Codes() {
		byStatus[faultResponses[c].Status] = append(byStatus[faultResponses[c].Status], c)
	}
	var out []failure
	for status, codes := range byStatus {
		out = append(out, failure{status, codes})
	}
	slices.SortFunc(out, func(a, b failure) int { return a.status - b.status })
	return out
}

// failure returns a reference to the response that all routes with the same codes share. If the route returns some of
// the codes in the response of a verified write, it has its own response.
func (d *documenter) failure(r Route, f failure) *openapi.Response {
	if verdicts := slices.DeleteFunc(slices.Clone(f.codes), func(c fault.Code) bool { return !r.judges(c) }); len(verdicts) > 0 {
		return d.verdict(r, f, verdicts)
	}
	if r.Executes { // no other route has the same codes, and a name made of all codes would be too long
		name := upperFirst(r.Name) + strings.ReplaceAll(http.StatusText(f.status), " ", "")
		return &openapi.Response{Description: meanings(f.codes), Headers: headers(f.status), Content: content(d.errorOf(name, f.codes))}
	}
	name := f.name()
	if _, ok := d.components.Responses[name]; !ok {
		d.components.Responses[name] = &openapi.Response{Description: meanings(f.codes), Headers: headers(f.status), Content: content(d.errorOf(name, f.codes))}
	}
	return &openapi.Response{Ref: "#/components/responses/" + name}
}

// verdict describes the response of a verified write whose second read did not show the written values, and a refusal
// with the same status.
func (d *documenter) verdict(r Route, f failure, verdicts []fault.Code) *openapi.Response {
	filled := d.schemas.Ref(r.Response, wire.InResponse)
	for _, member := range d.schemas.Named[r.Response.Name()].Properties {
		if member.Name == codeMember {
			admit(member.Value, verdicts)
		}
	}
	body := filled
	if refusals := slices.DeleteFunc(slices.Clone(f.codes), func(c fault.Code) bool { return slices.Contains(verdicts, c) }); len(refusals) > 0 {
		name := either(refusals)
		d.schemas.Named[name+"Error"] = d.errorOf(name, refusals)
		body = &wire.Schema{OneOf: []*wire.Schema{filled, wire.Reference(name + "Error")}}
	}
	return &openapi.Response{Description: meanings(f.codes), Headers: headers(f.status), Content: content(body)}
}

// admit adds codes to the allowed values of a member.
func admit(s *wire.Schema, codes []fault.Code) {
	for _, c := range codes {
		if !slices.Contains(s.Enum, any(c)) {
			s.Enum = append(s.Enum, c)
		}
	}
}

const codeMember = "code"

// errorOf describes the body of a failure with one of the codes. If there are several codes, the name of their
// enumeration begins with name.
func (d *documenter) errorOf(name string, codes []fault.Code) *wire.Schema {
	code := &wire.Schema{Type: "string"}
	admit(code, codes)
	only := &wire.Schema{Properties: wire.Members[*wire.Schema]{{Name: codeMember, Value: d.namedCodes(name, code)}}}
	return &wire.Schema{AllOf: []*wire.Schema{d.schemas.Ref(reflect.TypeFor[schema.Error](), wire.InResponse), only}}
}

// namedCodes returns the schema of a code, or a reference to a component if it allows several codes. Generators of
// clients need the name.
func (d *documenter) namedCodes(name string, code *wire.Schema) *wire.Schema {
	if len(code.Enum) < 2 {
		return code
	}
	ref := wire.Reference(name + "Code")
	ref.Description, code.Description = code.Description, ""
	d.schemas.Named[name+"Code"] = code
	return ref
}

// nameVerdictCodes creates a component for the codes of each response type that has several. It runs after all routes,
// because only then the codes are complete.
func (d *documenter) nameVerdictCodes() {
	for name, s := range maps.Clone(d.schemas.Named) {
		for i, member := range s.Properties {
			if member.Name == codeMember {
				s.Properties[i].Value = d.namedCodes(name, member.Value)
			}
		}
	}
}

// judges reports whether the route returns the code in its response type and not in an error body.
func (r Route) judges(c fault.Code) bool {
	if r.Response == nil || !slices.Contains(r.VerdictCodes, c) {
		return false
	}
	_, ok := reflect.PointerTo(r.Response).MethodByName("Judge")
	return ok
}

// name returns a name that depends only on the codes, so that a new route does not rename other responses. The name is
// the code itself, or a word for the codes that every route with an operation has, followed by the additional or
// missing codes.
func (f failure) name() string {
	usual := usualCodes[f.status]
	if len(f.codes) == 1 {
		return camel(f.codes[0])
	}
	if len(usual) < 2 {
		return either(f.codes)
	}
	name := statusWords[f.status]
	if name == "" {
		panic(fmt.Sprintf("routes: there is no word for status %d", f.status))
	}
	if more := without(f.codes, usual); len(more) > 0 {
		name += "Or" + either(more)
	}
	if less := without(usual, f.codes); len(less) > 0 {
		name += "Without" + either(less)
	}
	return name
}

// statusWords names the statuses for which every route with an operation has several codes.
var statusWords = map[int]string{
	http.StatusBadRequest: "InvalidRequest", http.StatusUnauthorized: "Unauthenticated",
	http.StatusForbidden: "Forbidden", http.StatusServiceUnavailable: "Unavailable",
}

// usualCodes contains, by status, the error codes of every route that needs a session and an operation.
var usualCodes = func() map[int][]fault.Code {
	usual := map[int][]fault.Code{}
	for _, f := range (Route{Session: true, Operations: grants(keyserver.OpListRoles)}).failures() {
		usual[f.status] = f.codes
	}
	return usual
}()

func without(codes, others []fault.Code) []fault.Code {
	return slices.DeleteFunc(slices.Clone(codes), func(c fault.Code) bool { return slices.Contains(others, c) })
}

func either(codes []fault.Code) string {
	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = camel(c)
	}
	return strings.Join(words, "Or")
}

// camel turns a code into a name: NOT_FOUND becomes NotFound.
func camel(c fault.Code) string {
	var name strings.Builder
	for word := range strings.SplitSeq(strings.ToLower(string(c)), "_") {
		name.WriteString(upperFirst(word))
	}
	return name.String()
}

func upperFirst(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// meanings returns the catalogue's text of each code.
func meanings(codes []fault.Code) string {
	lines := make([]string, 0, len(codes))
	for _, entry := range fault.Catalogue {
		if slices.Contains(codes, entry.Code) {
			lines = append(lines, fmt.Sprintf("`%s`: %s", entry.Code, entry.Meaning))
		}
	}
	return strings.Join(lines, "\n\n")
}

func headers(status int) wire.Members[*openapi.Header] {
	refer := func(header, name string) wire.Member[*openapi.Header] {
		return wire.Member[*openapi.Header]{Name: header, Value: &openapi.Header{Ref: "#/components/headers/" + name}}
	}
	h := wire.Members[*openapi.Header]{refer("X-Request-Id", headerRequestID)}
	switch status {
	case http.StatusUnauthorized:
		h = append(h, refer("WWW-Authenticate", headerChallenge))
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h = append(h, refer("Retry-After", headerWait))
	}
	return h
}
