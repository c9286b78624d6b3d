package ledger

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Requests records every request of the clients of a key server, with its answer. The audit log of the server must
// agree with this record.
type Requests struct {
	prefix   string
	sent     atomic.Int64
	answered atomic.Int64
	mu       sync.Mutex
	known    map[string]*request // by request id
}

type request struct {
	operation string
	status    int // 0 without an answer
	compared  bool
}

// NewRequests returns an empty record. The ids of its requests begin with the prefix, which must be unique.
func NewRequests(prefix string) *Requests {
	return &Requests{prefix: prefix, known: map[string]*request{}}
}

// Answered returns the number of requests that succeeded.
func (r *Requests) Answered() int { return int(r.answered.Load()) }

// Transport returns a transport that gives each request an id and records the request.
func (r *Requests) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		id := fmt.Sprintf("%s-%d", r.prefix, r.sent.Add(1))
		one := &request{}
		login := req.Method+" "+req.URL.Path == loginRoute
		if login || req.Context().Value(unauditedKey{}) == nil {
			one.operation = operationOf(req)
		}
		if c, ok := req.Context().Value(callKey{}).(*Call); ok && !login {
			c.add(id)
		}
		r.mu.Lock()
		r.known[id] = one
		r.mu.Unlock()
		req = req.Clone(req.Context())
		req.Header.Set("X-Request-Id", id)
		resp, err := next.RoundTrip(req)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			one.status = resp.StatusCode
			if resp.StatusCode == http.StatusOK {
				r.answered.Add(1)
			}
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Call collects the ids of the requests that one call of a client sends, without the logins that the client needs.
type Call struct {
	mu  sync.Mutex
	ids []string
}

type callKey struct{}

// In returns a context for the call.
func (c *Call) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// IDs returns the ids in the order of the requests.
func (c *Call) IDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ids)
}

func (c *Call) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, id)
}

type unauditedKey struct{}

// Unaudited returns a context for requests that are not compared with the audit log, except for logins. Their routes
// may be unknown.
func Unaudited(ctx context.Context) context.Context {
	return context.WithValue(ctx, unauditedKey{}, true)
}

// loginRoute is the route that a client also uses without a call of the test.
const loginRoute = "POST /api/sessions"

// operations maps routes to operations of audit rows. "" means that the route writes no row.
var operations = map[string]string{
	loginRoute:                             "login",
	"GET /api/sessions/current":            "",
	"DELETE /api/sessions/current":         "logout",
	"GET /api/ready":                       "",
	"POST /api/keys":                       "createKey",
	"POST /api/keys/authorize":             "authorizeKey",
	"POST /api/crypto/hmac":                "hmacData",
	"POST /api/keys/acl/get":               "readACL",
	"POST /api/keys/acl/grant":             "amendACL",
	"POST /api/keys/acl/update":            "amendACL",
	"POST /api/keys/acl/revoke":            "amendACL",
	"GET /api/roles":                       "listRoles",
	"POST /api/roles":                      "createRole",
	"PUT /api/roles/{id}":                  "updateRole",
	"DELETE /api/roles/{id}":               "deleteRole",
	"POST /api/principals/password":        "createPrincipal",
	"GET /api/principals/{id}":             "readPrincipal",
	"PUT /api/principals/{id}/roles":       "updatePrincipalRoles",
	"DELETE /api/principals/{id}":          "deletePrincipal",
	"GET /api/acl-templates":               "listACLTemplates",
	"POST /api/acl-templates":              "createACLTemplate",
	"DELETE /api/acl-templates/{id}":       "deleteACLTemplate",
	"GET /api/acl-templates/{id}/members":  "readACLTemplateMembers",
	"POST /api/acl-templates/{id}/members": "changeACLTemplateMembers",
	"DELETE /api/acl-templates/{id}/members/{system}/{principal}": "changeACLTemplateMembers",
	"GET /api/trusted-cas":              "listTrustedCAs",
	"POST /api/trusted-cas":             "addTrustedCA",
	"POST /api/trusted-cas/remove":      "removeTrustedCA",
	"POST /api/trusted-servers":         "addTrustedServer",
	"GET /api/trust/local-info":         "readTrustInfo",
	"GET /api/principal-trusts":         "listPrincipalTrusts",
	"POST /api/principal-trusts":        "createPrincipalTrust",
	"PUT /api/principal-trusts/{id}":    "updatePrincipalTrust",
	"DELETE /api/principal-trusts/{id}": "deletePrincipalTrust",
	"GET /api/audit":                    "readAudit",
}

var routes = sync.OnceValue(func() *http.ServeMux {
	mux := http.NewServeMux()
	for route := range operations {
		mux.Handle(route, http.NotFoundHandler())
	}
	return mux
})

// operationOf returns the operation of a request. It panics for an unknown route, so that no request is silently
// ignored.
func operationOf(req *http.Request) string {
	_, route := routes().Handler(req)
	operation, ok := operations[route]
	if !ok {
		panic("package ledger does not know the operation of " + req.Method + " " + req.URL.Path)
	}
	return operation
}

// Compare compares each request once with the log. The log must have been read after the requests.
func (r *Requests) Compare(log *AuditLog) (findings []string) {
	findings = r.Missing(log)
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.known {
		if one.compared || one.operation == "" {
			continue
		}
		one.compared = true
		allowed, forbidden := log.Allowed(id, one.operation), one.status == http.StatusForbidden
		switch {
		case allowed > 1:
			findings = append(findings, fmt.Sprintf("request %s has %d audit rows %q that say allowed: %q", id, allowed, one.operation, log.Entries(id)))
		case forbidden && !log.refused(id):
			findings = append(findings, fmt.Sprintf("request %s (%s) was refused, and no audit row says so: %q", id, one.operation, log.Entries(id)))
		case forbidden && allowed > 0:
			findings = append(findings, fmt.Sprintf("request %s (%s) was refused, and an audit row says allowed: %q", id, one.operation, log.Entries(id)))
		}
	}
	for id := range log.entries {
		if strings.HasPrefix(id, r.prefix+"-") && r.known[id] == nil {
			findings = append(findings, fmt.Sprintf("the audit log has rows of request %s, which nobody sent: %q", id, log.Entries(id)))
		}
	}
	return findings
}

// Missing returns the successful requests without an audit row that were not compared before. only limits the result to
// some operations.
func (r *Requests) Missing(log *AuditLog, only ...string) (findings []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.known {
		interesting := !one.compared && one.status == http.StatusOK && one.operation != "" && (len(only) == 0 || slices.Contains(only, one.operation))
		if interesting && log.Allowed(id, one.operation) == 0 {
			findings = append(findings, fmt.Sprintf("request %s was answered, and its audit row %q is not in the audit log; its rows: %q", id, one.operation, log.Entries(id)))
		}
	}
	return findings
}

// Exclude ignores all requests up to now in later comparisons.
func (r *Requests) Exclude() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.known {
		one.compared = true
	}
}

// Effects checks that changes that took effect without an answer have audit rows.
func (r *Requests) Effects(log *AuditLog, effects []Change) (findings []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, effect := range effects {
		recorded := slices.ContainsFunc(effect.Requests, func(id string) bool { return log.Allowed(id, r.known[id].operation) > 0 })
		if !recorded {
			findings = append(findings, fmt.Sprintf("%s became %q by requests %v, and no audit row says so", effect.Name, effect.Value, effect.Requests))
		}
	}
	return findings
}
