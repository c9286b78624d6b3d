package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// errUnsettled says that an object waits for the end of the round.
var errUnsettled = errors.New("nobody knows yet what became of the last change")

// call is what a client asks for: the operation whose audit row must be there, and
// under which names it was sent.
type call struct {
	operation string
	mu        sync.Mutex
	requests  []string
}

type callKey struct{}

func (c *call) in(ctx context.Context) context.Context { return context.WithValue(ctx, callKey{}, c) }

func (c *call) ids() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// as says what a request is to the audit trail.
func as(ctx context.Context, operation string) context.Context {
	return (&call{operation: operation}).in(ctx)
}

// unaudited is the operation of what has no row.
const unaudited = "-"

// witness names every request of a site's clients, and remembers what each was and how
// it was answered: the audit trail has to say the same.
type witness struct {
	prefix string
	sent   atomic.Int64
	mu     sync.Mutex
	asked  map[string]*asked // by request id
	done   atomic.Int64      // answered with success
}

// asked is one request.
type asked struct {
	operation string
	status    int // 0 while there is no answer
	checked   bool
}

func newWitness(prefix string) *witness { return &witness{prefix: prefix, asked: map[string]*asked{}} }

// over is a transport whose requests it sees.
func (w *witness) over(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		c, _ := req.Context().Value(callKey{}).(*call)
		one := &asked{operation: unaudited}
		id := fmt.Sprintf("%s-%d", w.prefix, w.sent.Add(1))
		switch {
		case req.Method == http.MethodPost && req.URL.Path == "/api/sessions":
			one.operation = "login" // which a client does by itself, too
		case c != nil:
			one.operation = c.operation
			c.mu.Lock()
			c.requests = append(c.requests, id)
			c.mu.Unlock()
		}
		w.mu.Lock()
		w.asked[id] = one
		w.mu.Unlock()
		req = req.Clone(req.Context())
		req.Header.Set("X-Request-Id", id)
		resp, err := next.RoundTrip(req)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			one.status = resp.StatusCode
			if resp.StatusCode == http.StatusOK {
				w.done.Add(1)
			}
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// trail is the audit trail as far as it was read.
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

// count is how many rows of a request say that an operation had an outcome.
func (tr *trail) count(request, operation, outcome string) (n int) {
	for _, e := range tr.rows[request] {
		if (operation == "" || e.Operation == operation) && e.Outcome == outcome {
			n++
		}
	}
	return n
}

// compare holds the trail against what was asked and answered since the last time, and
// answers what does not agree.
func (w *witness) compare(tr *trail) (wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, one := range w.asked {
		if one.checked || one.operation == unaudited {
			continue
		}
		one.checked = true
		allowed := tr.count(id, one.operation, "allowed")
		switch {
		case one.status == http.StatusOK && allowed == 0:
			wrong = append(wrong, fmt.Sprintf("request %s was answered, and its audit row %q is not in the trail; its rows: %v", id, one.operation, brief(tr.rows[id])))
		case allowed > 1:
			wrong = append(wrong, fmt.Sprintf("request %s has %d audit rows %q that say allowed: %v", id, allowed, one.operation, brief(tr.rows[id])))
		case one.status == http.StatusForbidden && tr.count(id, "", "refused") == 0:
			wrong = append(wrong, fmt.Sprintf("request %s (%s) was refused, and no audit row says so: %v", id, one.operation, brief(tr.rows[id])))
		case one.status == http.StatusForbidden && allowed > 0:
			wrong = append(wrong, fmt.Sprintf("request %s (%s) was refused, and an audit row says allowed: %v", id, one.operation, brief(tr.rows[id])))
		}
	}
	for id, rows := range tr.rows {
		if strings.HasPrefix(id, w.prefix+"-") && w.asked[id] == nil {
			wrong = append(wrong, fmt.Sprintf("audit rows of a request %s that nobody has sent: %v", id, brief(rows)))
		}
	}
	clear(tr.rows)
	return wrong
}

func brief(rows []schema.AuditEntry) (said []string) {
	for _, e := range rows {
		said = append(said, fmt.Sprintf("%d %s %s %s", e.Seq, e.Operation, e.Outcome, e.Reason))
	}
	return said
}
