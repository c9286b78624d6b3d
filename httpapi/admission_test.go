package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// notAdmitted returns the error of a watch for a build that must not serve.
func notAdmitted() error {
	return fault.Temporary(fault.BuildNotAdmitted, fault.ScopeProcess, 12500*time.Millisecond, "the key server does not admit this build: the cause")
}

// If the build is not admitted, every route except health and readiness has the same response for every caller and in
// every other state.
func TestABuildThatIsNotAdmitted(t *testing.T) {
	free := map[string]bool{"GET /api/health": true, "GET /api/ready": true}
	for _, r := range routes.All() {
		if r.Unconditional != free[r.Method+" "+r.Path] {
			t.Errorf("%s %s: unconditional is %v", r.Method, r.Path, r.Unconditional)
		}
	}
	noSession := func(f *fixture, r *http.Request) { r.Header.Del("Authorization"); f.sessions.err = errNoToken }
	for name, c := range map[string]struct {
		reason string
		make   func(*fixture, *http.Request)
	}{
		"Plain":      {"a request that would succeed", func(*fixture, *http.Request) {}},
		"NoSession":  {"never a 401", noSession},
		"Denied":     {"never a 403", func(f *fixture, _ *http.Request) { f.ops.err = fault.New(fault.AccessDenied, "no") }},
		"NobodyHome": {"nothing is asked, so nothing is done", func(f *fixture, _ *http.Request) { f.api.Sessions, f.api.Operations = nil, nil }},
		"Full": {"no ceiling goes first", func(f *fixture, _ *http.Request) {
			for i := range quota.Shares {
				other := keyserver.PrincipalRef{ID: keyserver.ID{7: byte(i + 100)}}
				f.api.places.inFlight.Take(other, DefaultMaxInFlight/quota.Shares)
				f.api.places.waiting.Take(other, DefaultMaxWaiting/quota.Shares)
			}
		}},
		"SessionEnded": {"never a 401", func(f *fixture, _ *http.Request) { f.sessions.err = fault.New(fault.SessionExpired, "over") }},
	} {
		for _, r := range routes.All() {
			if r.Unconditional {
				continue
			}
			t.Run(name+" "+r.Method+" "+r.Path, func(t *testing.T) {
				f := newFixture(t, func(c *Config) { c.Admission = notAdmitted })
				good := sampleOf(r)
				req := request(r.Method, good.target(r), good.text())
				c.make(f, req)
				w := f.send(req)
				e := errorOf(t, w)
				if w.Code != http.StatusServiceUnavailable || e.Code != "BUILD_NOT_ADMITTED" || e.Scope != "process" || e.Retryable == nil || !*e.Retryable {
					t.Errorf("%s: answered %d %s", c.reason, w.Code, w.Body)
				}
				if got := w.Header().Get("Retry-After"); got != "13" || !strings.Contains(e.Detail, "the cause") || e.Reauth {
					t.Errorf("Retry-After is %q, the answer %s", got, w.Body)
				}
			})
		}
	}
}

// Readiness reports whether the release manifest admits the build, and the time of the next check. Health and unknown
// paths respond as usual.
func TestReadinessSpeaksOfAdmission(t *testing.T) {
	for name, c := range map[string]struct {
		admission func() error
		status    int
		want      *schema.Part
	}{
		"Off":         {nil, http.StatusOK, nil},
		"NotAdmitted": {notAdmitted, http.StatusServiceUnavailable, &schema.Part{Part: "admission", Detail: "the key server does not admit this build: the cause", RetryInSeconds: 13}},
		"Unexplained": {func() error { return errors.New("planted") }, http.StatusServiceUnavailable, &schema.Part{Part: "admission", Detail: "the release manifest cannot be checked", RetryInSeconds: 1}},
		"Admitted":    {func() error { return nil }, http.StatusOK, &schema.Part{Part: "admission", Ready: true, Detail: "the release manifest admits this build"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(cfg *Config) { cfg.Admission = c.admission })
			w := f.do(http.MethodGet, "/api/ready", "")
			var out schema.Ready
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
			var got *schema.Part
			for _, p := range out.Parts {
				if p.Part == "admission" {
					got = &p
				}
			}
			if w.Code != c.status || (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "planted") {
				t.Errorf("the cause is told: %s", w.Body)
			}
			if w := f.do(http.MethodGet, "/api/health", ""); w.Code != http.StatusOK {
				t.Errorf("health answered %d", w.Code)
			}
			if w := f.do(http.MethodGet, "/api/nope", ""); w.Code != http.StatusNotFound {
				t.Errorf("an unknown path answered %d", w.Code)
			}
		})
	}
}
