package strangers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// longRequest takes a core for milliseconds.
type longRequest struct {
	name         string
	role         keyserver.ID
	method, path string
	body         func(t testing.TB, u rig.User) string
	status       int
	least        float64 // of its rate an honest client keeps
}

var longRequests = []longRequest{
	{"pages of the audit log", keyserver.RoleAuditor, "GET", "/api/audit?limit=1000", func(testing.TB, rig.User) string { return "" }, http.StatusOK, 0.3},
	{"decisions", keyserver.RoleAuditor, "POST", "/access/v1/evaluations", func(_ testing.TB, u rig.User) string {
		return fmt.Sprintf(`{"subject":{"type":"principal","id":%q},"resource":{"type":"keyserver","id":"self"},"evaluations":[%s]}`,
			u.ID, repeated(`{"action":{"name":"hmacData"}}`, 64))
	}, http.StatusOK, 0.3},
	{"batches", keyserver.RoleEncryptor, "POST", "/api/crypto/mac/batch", func(t testing.TB, u rig.User) string {
		return `{"items":[` + repeated(fmt.Sprintf(`{"lineage":%q,"data":"AAAA"}`, u.Mint(t, nil)), 1000) + `]}`
	}, http.StatusOK, 0.3},
	{"batches without an end", keyserver.RoleEncryptor, "POST", "/api/crypto/mac/batch", func(testing.TB, rig.User) string {
		return `{"items":[` + repeated(`{"lineage":"AAAAAQECAwQFBgcI","data":"AAAA"}`, 20_000)
	}, http.StatusBadRequest, 0.35},
}

func repeated(item string, times int) string {
	return strings.TrimSuffix(strings.Repeat(item+",", times), ",")
}

// begin sends the request on 16 connections, on each again as soon as it is answered, until the
// returned function is called.
func (l longRequest) begin(t testing.TB, s *site, u rig.User) (stop func()) {
	t.Helper()
	body := l.body(t, u)
	ctx, cancel := context.WithCancel(t.Context())
	var going sync.WaitGroup
	for range 16 {
		going.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, l.method, program.BaseURL+l.path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+u.Session)
				r.Header.Set("Content-Type", "application/json")
				a, err := s.HTTP.Do(r)
				if err != nil {
					continue // stopped
				}
				_, _ = io.Copy(io.Discard, a.Body)
				_ = a.Body.Close()
				if a.StatusCode != l.status {
					t.Errorf("%s: %s", l.name, a.Status)
					return
				}
			}
		})
	}
	return func() { cancel(); going.Wait() }
}

// TestLongRequests checks that an honest client keeps its rate next to a principal that has 16 long
// requests under way.
func TestLongRequests(t *testing.T) {
	for _, one := range longRequests {
		t.Run(one.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				u := s.User(t, "greedy", one.role)
				s.works(t, 1000) // rows for the pages
				if kept := s.keeps(t, one.least, func() (stop func()) { return one.begin(t, s, u) }); kept < one.least {
					t.Errorf("an honest client keeps %.2f of its rate", kept)
				}
			})
		})
	}
}
