package agent

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Code is an error code of the agent. It means that a request was not forwarded, or that its result is unknown.
type Code struct {
	Code    string
	Status  int
	Meaning string
}

// Codes are the error codes that only the agent returns, in the order of the documentation.
var Codes []Code

func code(name string, status int, meaning string) Code {
	c := Code{name, status, meaning}
	Codes = append(Codes, c)
	return c
}

// The error codes of the agent.
var (
	credentialSent = code("AGENT_CREDENTIAL_SENT", http.StatusBadRequest, "The request has a credential (Authorization, Proxy-Authorization, DPoP, Cookie). Leave it out: the agent has one.")
	callerRefused  = code("AGENT_CALLER_REFUSED", http.StatusForbidden, "The request comes from a web page, or is for another host than loopback.")
	routeRefused   = code("AGENT_ROUTE_NOT_ALLOWED", http.StatusForbidden, "No rule of --allow names the route. Without any rule, routes that open or end sessions or change accounts are not allowed.")
	keyRefused     = code("AGENT_KEY_NOT_ALLOWED", http.StatusForbidden, "The request names no key, or a key that --allow does not allow.")
	overloaded     = code("AGENT_OVERLOADED", http.StatusServiceUnavailable, "As many requests as --max-requests allows are in progress.")
	loginFailed    = code("AGENT_LOGIN_FAILED", http.StatusServiceUnavailable, "The agent has no session, because it has no token or the key server rejects the token. The agent tries again by itself.")
	unavailable    = code("AGENT_SERVER_UNAVAILABLE", http.StatusServiceUnavailable, "The key server cannot be reached. Nothing was done.")
	noAnswer       = code("AGENT_NO_ANSWER", http.StatusBadGateway, "The connection or the time limit ended before the key server responded. The key server may have performed the request.")
)

// refusal is an error response of the agent.
type refusal struct {
	code, detail string
	status       int
	after        time.Duration // pause before a retry; 0: a retry does not help, or the pause is unknown
	missing      bool          // the path or method does not exist
}

func refuse(c Code, detail string) *refusal {
	return &refusal{code: c.Code, status: c.Status, detail: detail}
}

// Error implements error.
func (r *refusal) Error() string { return r.code + ": " + r.detail }

// later sets the pause before a retry, at least one second.
func (r *refusal) later(after time.Duration) *refusal {
	r.after = max(after, time.Second)
	return r
}

// refusalOf returns a refusal with the code and text of a key server's error, for requests that a key server would
// reject with the same code.
func refusalOf(f *fault.Error) *refusal {
	return &refusal{
		code: string(f.Code), detail: f.Detail, status: routes.Status(f.Code),
		missing: f.Code == fault.NotFound || f.Code == fault.MethodNotAllowed,
	}
}

// write sends the error in the format of a key server.
func (r *refusal) write(w http.ResponseWriter) {
	body := schema.Error{Code: r.code, Detail: r.detail, Unsupported: r.missing}
	if r.status == http.StatusServiceUnavailable {
		retryable := r.after > 0
		body.Retryable, body.Scope = &retryable, string(fault.ScopeProcess)
	}
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte(`{"code":"OP_FAILED","detail":""}`) // only invalid UTF-8 causes an error
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.after > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((r.after+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(append(text, '\n')) // the workload may be gone
}
