package routes

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/openapi"
)

// documentVersion is the version of the API, which its paths do not contain. It increases when the table of routes
// changes.
const documentVersion = "0.1.0"

// OpenAPI returns the OpenAPI 3.1 document of the key server. Callers share the bytes and must not change them.
func OpenAPI() ([]byte, error) { return theDocument() }

// theDocument creates the document once, because the table of routes does not change.
var theDocument = sync.OnceValues(func() ([]byte, error) { return document(All()) })

func document(all []Route) ([]byte, error) {
	d := newDocumenter(all)
	doc := openapi.Document{
		OpenAPI: "3.1.0",
		Info: openapi.Info{
			Title: "Key server administration and key operations", Version: documentVersion,
			Description: "Log in with POST /api/sessions and send the returned session id as Authorization: Bearer. " +
				"Every failure is JSON with code and detail; compare the code. Operations marked x-extension are additional to the core of the interface.",
			Contact: openapi.Contact{Name: "keyserver-operator", URL: "https://github.com/keyserver-operator/keyserver-operator"},
			License: openapi.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"},
		},
		Servers: []openapi.Server{
			{URL: "/", Description: "The service that returns this document."},
			{URL: "https://{address}", Description: "Any other service.", Variables: map[string]openapi.Variable{
				"address": {Default: "keyserver.keyserver-system.svc", Description: "Host, and port if not 443. The default is for an installation with config/default."},
			}},
		},
	}
	for _, n := range Nouns() {
		doc.Tags = append(doc.Tags, openapi.Tag{Name: n.Tag, Description: n.About})
	}
	at := map[string]int{}
	for _, r := range all {
		if _, ok := at[r.Path]; !ok {
			at[r.Path] = len(doc.Paths)
			doc.Paths = append(doc.Paths, wire.Member[wire.Members[*openapi.Operation]]{Name: r.Path})
		}
		item := &doc.Paths[at[r.Path]].Value
		*item = append(*item, wire.Member[*openapi.Operation]{Name: strings.ToLower(r.Method), Value: d.operation(r)})
	}
	d.nameVerdictCodes()
	doc.Components = d.components
	return doc.Text()
}

// documenter creates the operations, and collects the components that several operations share.
type documenter struct {
	schemas    wire.Schemas
	components openapi.Components
	uses       map[string]int // number of uses of each parameter, by identity
}

func (d *documenter) operation(r Route) *openapi.Operation {
	o := &openapi.Operation{
		OperationID: r.Name, Summary: r.Summary, Description: conditions(r), Tags: []string{r.Tag},
		Extension: r.Extension, Operations: r.OperationNames(), Security: []map[string][]string{},
	}
	if r.takesProof() {
		if !r.Session {
			o.Security = append(o.Security, map[string][]string{}) // a session is optional
		}
		for _, scheme := range []string{schemeSession, schemeProof} {
			o.Security = append(o.Security, map[string][]string{scheme: {}})
		}
		o.Parameters = append(o.Parameters, &openapi.Parameter{Ref: "#/components/parameters/" + proofHeader})
	}
	table := wire.Of(r.Request)
	for _, f := range table.Path {
		o.Parameters = append(o.Parameters, d.parameter("path", f))
	}
	for _, f := range table.Query {
		o.Parameters = append(o.Parameters, d.parameter("query", f))
	}
	if len(table.Body) > 0 {
		o.RequestBody = &openapi.Request{Required: table.NeedsBody(), Content: openapi.Content{MediaJSON: {
			Schema: d.schemas.Ref(bodyType(r.Request), wire.InRequest), Example: jsontext.Value(table.Example()),
		}}}
	}
	o.Responses = d.responses(r)
	return o
}

// conditions describes what a request needs in addition to its fields.
func conditions(r Route) string {
	needs := "Needs no session."
	switch names := r.OperationNames(); {
	case len(names) == 1:
		needs = "Needs a role with the operation " + names[0] + "."
	case len(names) > 1:
		needs = "Needs roles with the operations " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + "."
	case r.Session:
		needs = "Needs a session, and no operation of a role."
	}
	return needs + " " + r.Bounds()
}

// OperationNames returns the names, for people, of the operations that the route needs.
func (r Route) OperationNames() []string {
	var names []string
	for _, op := range r.Operations {
		names = append(names, op.Name)
	}
	return names
}

// bodyType returns the type of the body: the request type itself, or the type that it embeds in addition to its path
// fields.
func bodyType(t reflect.Type) reflect.Type {
	for f := range t.Fields() {
		if f.Anonymous && len(wire.Of(f.Type).Body) > 0 && len(wire.Of(t).Path) > 0 {
			return f.Type
		}
	}
	return t
}

func (d *documenter) responses(r Route) wire.Members[*openapi.Response] {
	out := wire.Members[*openapi.Response]{{Name: "200", Value: &openapi.Response{Description: "Done.", Headers: headers(http.StatusOK), Content: d.success(r)}}}
	for _, f := range r.failures() {
		out = append(out, wire.Member[*openapi.Response]{Name: strconv.Itoa(f.status), Value: d.failure(r, f)})
	}
	return out
}

func (d *documenter) success(r Route) openapi.Content {
	media, _, _ := strings.Cut(r.MediaType(), ";")
	switch {
	case r.Response == nil:
		return content(&wire.Schema{Type: "object"})
	case strings.HasPrefix(media, "text/"):
		return openapi.Content{media: {Schema: &wire.Schema{Type: "string"}}}
	case media != MediaJSON:
		return openapi.Content{media: {Schema: &wire.Schema{}}} // bytes have no description
	default:
		return content(d.schemas.Ref(r.Response, wire.InResponse))
	}
}

func content(s *wire.Schema) openapi.Content { return openapi.Content{MediaJSON: {Schema: s}} }

// MediaJSON is the media type of most responses.
const MediaJSON = "application/json"

// takesProof reports whether the route uses a session, and therefore accepts a DPoP proof.
func (r Route) takesProof() bool { return r.Session || slices.Contains(r.Faults, ProofFaults[0]) }

// Bounds describes the size limit and the time limit of a request of the route.
func (r Route) Bounds() string {
	return fmt.Sprintf("Body: at most %d bytes. Time: at most %s.", r.BodyLimit, r.Timeout)
}
