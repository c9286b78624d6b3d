package httpapi

import (
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

func notFound(*exchange) (any, error) { return nil, routes.ErrNoRoute }

func notAllowed(x *exchange) (any, error) { return nil, routes.ErrMethod(x.route.allow) }

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
