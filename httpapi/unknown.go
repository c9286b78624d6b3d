package httpapi

import (
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

func notFound(*exchange) (any, error) { return nil, routes.ErrNoRoute }

func notAllowed(x *exchange) (any, error) { return nil, routes.ErrMethod(x.route.allow) }

// method returns the name of a usual HTTP method, and "other" for any other name. So clients cannot fill the log or the
// metrics with names.
func method(name string) string {
	switch name {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodHead, http.MethodOptions:
		return name
	default:
		return "other"
	}
}
