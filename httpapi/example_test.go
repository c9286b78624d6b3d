package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// sample is a valid request of a route, made from its table. Tests make one
// field invalid at a time.
type sample struct {
	path  map[string]string
	query map[string]string
	body  map[string]string // JSON texts
	order []string
}

func sampleOf(r routes.Route) sample {
	t := wire.Of(r.Request)
	s := sample{path: map[string]string{}, query: map[string]string{}, body: map[string]string{}}
	for _, f := range t.Path {
		if s.path[f.Name] = strings.Trim(f.Value.Example(), `"`); f.Rest {
			s.path[f.Name] = url.PathEscape(s.path[f.Name]) // the document describes no other slashes
		}
	}
	for _, f := range t.Query {
		s.query[f.Name] = parameterExample(&f.Value)
	}
	for _, f := range t.Body {
		s.body[f.Name] = f.Value.Example()
		if !f.Exclusive {
			s.order = append(s.order, f.Name)
		}
	}
	if r.Path == "/api/changes" {
		s.query["wait"] = "0" // otherwise the request would wait for a change
	}
	if r.Path == "/api/templated-directories" {
		delete(s.query, "aclTemplateId") // it excludes path
	}
	s.meaningful(r)
	switch r.Path {
	case "/api/keys/restore":
		s.body["ttag"] = strconv.Quote(doomedLink.Base64())
	case "/api/keys/enable":
		s.body["ttag"] = strconv.Quote(withdrawnLink.Base64())
	case "/api/keys/rotation":
		s.body["everyDays"] = "90" // 0 is also shown without a rotation
	}
	return s
}

// meaningful replaces values that have the right form, but that the key server would refuse, by valid values.
func (s sample) meaningful(r routes.Route) {
	a := authority()
	encoded := func(der []byte) string { return strconv.Quote(base64.StdEncoding.EncodeToString(der)) }
	body := func(name, value string) {
		if _, there := s.body[name]; there {
			s.body[name] = value
		}
	}
	body("xpath", strconv.Quote(keyserver.ConfigRoot))
	body("operations", `["`+keyserver.OpHMAC.ID.Hex()+`"]`)
	body("endTime", `"AAABl7DtSAE="`) // later than startTime
	body("request", encoded(a.request))
	body("certificates", "["+encoded(a.leaf.Raw)+"]")
	body("certificate", encoded(a.leaf.Raw))
	body("trustBlob", strconv.Quote(keyserver.TrustBlob{System: 7, ServerName: "peer.example.com", Port: 9443, Chain: a.chain}.String()))
	switch r.Method + " " + r.Path {
	case "POST /api/trusted-cas":
		body("certificate", encoded(a.ca.Certificate.Raw))
	case "POST /api/transport-principals/reset":
		body("principalId", strconv.Quote(aTransport.ID.Hex()))
	case "GET /api/templated-directories":
		s.query["path"] = "/a"
	case "GET /api/trusted-servers":
		s.query["name"] = aPeer.Name
	case "DELETE /api/principals/{id}":
		s.query["heir"] = aGroup.ID.Hex() // not the deleted principal
	case "GET /api/principal-trusts":
		s.query["trustedServerSystemId"] = "7"
	}
	if strings.Contains(r.Path, "/groups/{gid}") {
		s.path["gid"] = aGroup.ID.Hex()
	}
}

// having returns a sample that has the field. For a login, it uses a method that needs the field. For a key, lineage
// replaces ttag. Any other field is added to the sample.
func (s sample) having(field string) sample {
	if slices.Contains(s.order, field) {
		return s
	}
	if i := slices.Index(s.order, "ttag"); field == "lineage" && i >= 0 { // ttag and lineage exclude each other
		s.order = slices.Clone(s.order)
		s.order[i] = field
		return s
	}
	for method, fields := range loginFields {
		if known := append(slices.Clone(fields.needs), fields.takes...); slices.Contains(known, field) {
			s.order = append([]string{"method"}, known...)
			return s.with("method", strconv.Quote(method))
		}
	}
	s.order = append(slices.Clone(s.order), field)
	return s
}

// parameterExample returns the text of a query parameter. For an array, it is the text of one element.
func parameterExample(v *wire.Value) string {
	if v.Kind == wire.Array {
		v = v.Elem
	}
	return strings.Trim(v.Example(), `"`)
}

func (s sample) target(r routes.Route) string {
	target := r.Path
	for name, value := range s.path {
		target = strings.ReplaceAll(target, "{"+name+"}", value)
	}
	sep := "?"
	for name, value := range s.query {
		target += sep + name + "=" + strings.NewReplacer("+", "%2B", " ", "%20").Replace(value)
		sep = "&"
	}
	return target
}

func (s sample) text() string {
	if len(s.order) == 0 {
		return ""
	}
	var members []string
	for _, name := range s.order {
		members = append(members, fmt.Sprintf("%q:%s", name, s.body[name]))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// with returns a copy in which one member has another value.
func (s sample) with(name, value string) sample {
	body := map[string]string{}
	for n, v := range s.body {
		body[n] = v
	}
	body[name] = value
	s.body = body
	return s
}

func (s sample) without(name string) sample {
	var order []string
	for _, n := range s.order {
		if n != name {
			order = append(order, n)
		}
	}
	if order == nil {
		order = []string{}
	}
	s.order = order
	return s
}
