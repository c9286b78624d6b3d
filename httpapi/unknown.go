package httpapi

import (
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// noRoute stands for every path that is not in the table, in metrics and logs.
const noRoute = "none"

var errNoRoute = fault.New(fault.NotFound, "there is no such path; GET /api/openapi.json lists all")

func notFound(*exchange) (any, error) { return nil, errNoRoute }

func notAllowed(x *exchange) (any, error) {
	return nil, errMethod(x.route.allow)
}

func errMethod(allow string) error {
	return fault.New(fault.MethodNotAllowed, "the path does not take this method; it takes %s", allow)
}

// method is r's method where it is one that routes use, so that nobody can
// fill the log or the metrics with names.
func method(name string) string {
	switch name {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead, http.MethodOptions:
		return name
	default:
		return "other"
	}
}
