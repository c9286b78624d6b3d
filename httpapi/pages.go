package httpapi

import (
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Pages contains files for browsers, which are served below /console/. A request for a page counts as a request without
// a session.
type Pages interface {
	// Page returns the file with the name; "" is the first page. All callers share the result.
	Page(name string) (Page, bool)
}

// Page is a file and the response header to send with it.
type Page struct {
	Header http.Header
	Body   []byte
}

// Paths of the pages. They are not in the table of routes, because their content is not
// JSON.
const (
	pagesPath = "/console/"
	// ReportsPath receives reports that browsers send about a page (Reporting API).
	ReportsPath = pagesPath + "reports"
)

var (
	pageRoute = routes.Route{
		Name: "getPage", Method: http.MethodGet, Path: pagesPath, Extension: true,
		BodyLimit: routes.SmallBody, Timeout: routes.ShortTimeout, Unconditional: true,
	}
	reportRoute = routes.Route{
		Name: "report", Method: http.MethodPost, Path: ReportsPath, Extension: true,
		BodyLimit: routes.SmallBody, Timeout: routes.ShortTimeout, Unconditional: true,
	}
)

// mountPages adds the routes of the pages, if there are any.
func (a *API) mountPages() {
	if a.Pages == nil {
		return
	}
	a.mux.Add(strings.TrimSuffix(pagesPath, "/"), pageRoute)
	a.mux.Add(pagesPath, pageRoute)
	a.mux.Add(ReportsPath, reportRoute)
}

func page(x *exchange) (any, error) {
	name, below := strings.CutPrefix(x.r.URL.Path, pagesPath)
	if !below {
		x.w.Header().Set("Location", pagesPath)
		return plainText{http.StatusPermanentRedirect, "text/plain; charset=utf-8", nil}, nil
	}
	p, found := x.api.Pages.Page(name)
	if !found {
		return nil, fault.New(fault.NotFound, "the console has no such page; it starts at %s", pagesPath)
	}
	maps.Copy(x.w.Header(), p.Header)
	return plainText{http.StatusOK, p.Header.Get("Content-Type"), p.Body}, nil
}

// report discards the body, because any client can send one; only the metrics count the request.
func report(x *exchange) (any, error) {
	if _, err := io.Copy(io.Discard, x.body()); err != nil {
		return nil, err
	}
	x.bodyArrived()
	return plainText{http.StatusOK, "text/plain; charset=utf-8", nil}, nil
}
