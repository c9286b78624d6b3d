package crash

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// witness names every request and remembers which were answered with success:
// the audit row of each of them must be there for good.
type witness struct {
	next     http.RoundTripper
	prefix   string
	sent     atomic.Int64
	mu       sync.Mutex
	answered map[string]string // request id to the operation whose row must be there
	total    int
}

func newWitness(next http.RoundTripper, prefix string) *witness {
	return &witness{next: next, prefix: prefix, answered: map[string]string{}}
}

func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	id := fmt.Sprintf("%s-%d", w.prefix, w.sent.Add(1))
	req = req.Clone(req.Context())
	req.Header.Set("X-Request-Id", id)
	resp, err := w.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusOK {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answered[id] = operationOf(req)
		w.total++
	}
	return resp, err
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// unaudited operations read nothing of the key server's.
const unaudited = "-"

// operationOf is the operation that an audit row of the request must name.
func operationOf(req *http.Request) string {
	switch what := req.Method + " " + req.URL.Path; what {
	case "POST /api/sessions":
		return "login"
	case "DELETE /api/sessions/current":
		return "logout"
	case "GET /api/sessions/current", "GET /api/ready":
		return unaudited
	case "POST /api/keys":
		return "createKey"
	case "POST /api/keys/authorize":
		return "authorizeKey"
	case "POST /api/crypto/hmac":
		return "hmacData"
	case "POST /api/keys/acl/grant", "POST /api/keys/acl/update", "POST /api/keys/acl/revoke":
		return "amendACL"
	case "POST /api/keys/acl/get":
		return "readACL"
	case "GET /api/roles":
		return "listRoles"
	case "POST /api/roles":
		return "createRole"
	case "GET /api/trusted-cas":
		return "listTrustedCAs"
	case "POST /api/trusted-cas":
		return "addTrustedCA"
	case "POST /api/trusted-cas/remove":
		return "removeTrustedCA"
	case "POST /api/principals/password":
		return "createPrincipal"
	case "GET /api/audit":
		return "readAudit"
	default:
		switch method, path, _ := strings.Cut(what, " "); {
		case strings.HasPrefix(path, "/api/roles/") && method == http.MethodPut:
			return "updateRole"
		case strings.HasPrefix(path, "/api/roles/") && method == http.MethodDelete:
			return "deleteRole"
		case strings.HasPrefix(path, "/api/principals/"):
			return "readPrincipal"
		}
		panic("no operation is known for " + what)
	}
}

// trail follows the audit trail as it grows.
type trail struct {
	last int64
	rows map[string][]schema.AuditEntry // by request id
}

func (tr *trail) follow(ctx context.Context, c *client.Client) error {
	limit := 1000
	for {
		page, err := c.ListAuditEntries(ctx, schema.AuditQuery{Cursor: tr.last, Limit: &limit})
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			if e.Seq <= tr.last {
				return fmt.Errorf("row %d comes after row %d", e.Seq, tr.last)
			}
			tr.last = e.Seq
			tr.rows[e.RequestID] = append(tr.rows[e.RequestID], e)
		}
		if page.Next == nil {
			return nil
		}
		tr.last = max(tr.last, *page.Next)
	}
}

// check holds the trail against what the witness saw, and forgets both.
func (w *witness) check(t *testing.T, tr *trail) {
	t.Helper()
	w.compare(t, "the trail", tr, func(operation string) bool { return operation != unaudited })
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.answered)
}

// compare looks in a trail for the row of every answer that an operation of
// interest has got.
func (w *witness) compare(t *testing.T, where string, tr *trail, interesting func(operation string) bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := 0
	for id, operation := range w.answered {
		if !interesting(operation) {
			continue
		}
		rows := 0
		for _, e := range tr.rows[id] {
			if e.Operation == operation && e.Outcome == "allowed" {
				rows++
			}
		}
		if rows == 0 {
			if missing++; missing <= 5 {
				t.Errorf("request %s was answered, and its audit row %q is not in %s; its rows: %v", id, operation, where, tr.rows[id])
			}
		}
	}
	if missing > 5 {
		t.Errorf("%d audit rows of answered requests are not in %s", missing, where)
	}
}
