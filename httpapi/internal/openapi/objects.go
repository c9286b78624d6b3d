// Package openapi contains the objects of OpenAPI 3.1, and formats a document so that people can read it. Package
// routes creates the document from the table of routes.
package openapi

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
)

// Document is an OpenAPI document.
type Document struct {
	OpenAPI    string                                 `json:"openapi"`
	Info       Info                                   `json:"info"`
	Servers    []Server                               `json:"servers"`
	Tags       []Tag                                  `json:"tags"`
	Paths      wire.Members[wire.Members[*Operation]] `json:"paths"`
	Components Components                             `json:"components"`
}

// Info describes the interface.
type Info struct {
	Title       string  `json:"title"`
	Version     string  `json:"version"`
	Description string  `json:"description"`
	Contact     Contact `json:"contact"`
	License     License `json:"license"`
}

// Contact says where to ask for help.
type Contact struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// License names a license by its SPDX identifier.
type License struct {
	Name       string `json:"name"`
	Identifier string `json:"identifier"`
}

// Server is an address of the interface.
type Server struct {
	URL         string              `json:"url"`
	Description string              `json:"description"`
	Variables   map[string]Variable `json:"variables,omitzero"`
}

// Variable is a part of a server's URL.
type Variable struct {
	Default     string `json:"default"`
	Description string `json:"description"`
}

// Tag groups operations by their subject.
type Tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Operation is one method of one path.
type Operation struct {
	OperationID string                  `json:"operationId"`
	Summary     string                  `json:"summary"`
	Description string                  `json:"description"`
	Tags        []string                `json:"tags"`
	Extension   bool                    `json:"x-extension,omitzero"`
	Operations  []string                `json:"x-operations,omitzero"`
	Security    []map[string][]string   `json:"security"`
	Parameters  []*Parameter            `json:"parameters,omitzero"`
	RequestBody *Request                `json:"requestBody,omitzero"`
	Responses   wire.Members[*Response] `json:"responses"`
}

// Parameter is a parameter, or a reference to one of the components.
type Parameter struct {
	Ref         string       `json:"$ref,omitzero"`
	Name        string       `json:"name,omitzero"`
	In          string       `json:"in,omitzero"`
	Required    bool         `json:"required,omitzero"`
	Description string       `json:"description,omitzero"`
	Schema      *wire.Schema `json:"schema,omitzero"`
}

// Request is the body of a request.
type Request struct {
	Required bool    `json:"required"`
	Content  Content `json:"content"`
}

// Response is a response, or a reference to one of the components.
type Response struct {
	Ref         string                `json:"$ref,omitzero"`
	Description string                `json:"description,omitzero"`
	Headers     wire.Members[*Header] `json:"headers,omitzero"`
	Content     Content               `json:"content,omitzero"`
}

// Header is a header of a response, or a reference to one of the components.
type Header struct {
	Ref         string       `json:"$ref,omitzero"`
	Description string       `json:"description,omitzero"`
	Schema      *wire.Schema `json:"schema,omitzero"`
}

// Content maps media types to bodies.
type Content map[string]Media

// Media describes a body of one media type.
type Media struct {
	Schema  *wire.Schema   `json:"schema"`
	Example jsontext.Value `json:"example,omitzero"`
}

// Components are the parts that operations share.
type Components struct {
	SecuritySchemes map[string]SecurityScheme `json:"securitySchemes"`
	Parameters      map[string]*Parameter     `json:"parameters"`
	Headers         map[string]*Header        `json:"headers"`
	Responses       map[string]*Response      `json:"responses"`
	Schemas         map[string]*wire.Schema   `json:"schemas"`
}

// SecurityScheme is a way to authenticate.
type SecurityScheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme"`
	Description string `json:"description"`
}

// Text encodes the document as JSON. A value that fits into one line stays on one line.
func (d Document) Text() ([]byte, error) {
	compact, err := json.Marshal(d, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return layOut(compact)
}
