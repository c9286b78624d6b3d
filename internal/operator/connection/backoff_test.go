package connection

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	testclock "k8s.io/utils/clock/testing"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// refusing returns one error code for every probe. If the code is empty, the probe succeeds.
type refusing struct {
	API
	mu    sync.Mutex
	code  string
	tries atomic.Int64
}

func (r *refusing) refuse(code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code = code
}

// ListChanges reports that the change feed is not allowed.
func (r *refusing) ListChanges(context.Context, schema.ChangesQuery) (schema.ChangePage, error) {
	return schema.ChangePage{}, &client.Error{Code: "ACCESS_DENIED"}
}

func (r *refusing) GetReadiness(context.Context) (schema.Ready, error) { return schema.Ready{}, nil }

func (r *refusing) GetVersion(context.Context) (schema.Version, error) {
	r.tries.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.code == "" {
		return schema.Version{}, nil
	}
	return schema.Version{}, &client.Error{Code: r.code, Detail: "no"}
}

// TestWrongCredentialsAreTriedRarely checks that rejected logins are retried rarely, because each is a failed login in
// an audit log.
func TestWrongCredentialsAreTriedRarely(t *testing.T) {
	for code, c := range map[string]struct{ least, most int64 }{
		"INVALID_CREDENTIALS": {5, 25},
		"LOGIN_THROTTLED":     {5, 25},
		"STORE_UNAVAILABLE":   {60, 200},
	} {
		t.Run(code, func(t *testing.T) {
			clock := testclock.NewFakeClock(time.Unix(0, 0))
			api := &refusing{code: code}
			all := NewConnections(func(Endpoint) (API, error) { return api, nil }, clock, DefaultTiming, logr.Discard())
			defer all.Close()
			conn, err := all.Ensure("one", Login{Version: "1"})
			rig.Must(t, err)
			const step = 5 * time.Second
			for range 20 * time.Minute / step {
				rig.Soon(t, "the connection rests", clock.HasWaiters)
				clock.Step(step)
			}
			rig.Soon(t, "the connection rests", clock.HasWaiters)
			if n := api.tries.Load(); n < c.least || n > c.most {
				t.Errorf("%d tries in 20 minutes", n)
			}
			before := api.tries.Load()
			conn.Refresh()
			rig.Soon(t, "it is tried at once when somebody asks", func() bool { return api.tries.Load() > before })
		})
	}
}

// TestRefusedCredentialsAreNamed checks that the condition names the rejected credentials.
func TestRefusedCredentialsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		admin, officer string // error code of each identity's login; empty: the login succeeds
		want           string
	}{
		"the administrator": {admin: "INVALID_CREDENTIALS", want: "the key server rejects Secret a/b: INVALID_CREDENTIALS: no"},
		"throttled":         {admin: "LOGIN_THROTTLED", want: "the key server rejects Secret a/b: LOGIN_THROTTLED: no"},
		"the officer":       {officer: "INVALID_CREDENTIALS", want: "the key server rejects Secret c/d: INVALID_CREDENTIALS: no"},
		"another refusal":   {admin: "PRINCIPAL_DISABLED", want: "PRINCIPAL_DISABLED: no"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testclock.NewFakeClock(time.Unix(0, 0))
			all := NewConnections(func(e Endpoint) (API, error) {
				if e.Username == "officer" {
					return &refusing{code: c.officer}, nil
				}
				return &refusing{code: c.admin}, nil
			}, clock, DefaultTiming, logr.Discard())
			defer all.Close()
			conn, err := all.Ensure("one", Login{
				Version: "1", Administrator: Endpoint{Credential: "Secret a/b"},
				SecurityOfficer: &Endpoint{Username: "officer", Credential: "Secret c/d"},
			})
			rig.Must(t, err)
			rig.Soon(t, "the connection rests", clock.HasWaiters)
			if p := conn.Status().Problem; p == nil || p.Reason != v1beta1.ReasonAccessDenied || p.Message != c.want {
				t.Errorf("the problem is %+v, want %q", p, c.want)
			}
		})
	}
}

// TestRefusedLoginOfACallShutsTheGate checks that a rejected login closes the connection, so that objects cause no
// more.
func TestRefusedLoginOfACallShutsTheGate(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	api := &refusing{}
	var observe func(string, error)
	all := NewConnections(func(e Endpoint) (API, error) { observe = e.Observe; return api, nil }, clock, DefaultTiming, logr.Discard())
	defer all.Close()
	conn, err := all.Ensure("one", Login{Version: "1", Administrator: Endpoint{Credential: "Secret a/b"}})
	rig.Must(t, err)
	open := func() bool { return conn.Status().Open }
	rig.Soon(t, "the gate opens", open)

	observe("listRoles", &client.Error{Code: "ACCESS_DENIED", Detail: "no"})
	if !open() {
		t.Error("a call that somebody may not make shuts the gate for everybody")
	}
	api.refuse("INVALID_CREDENTIALS")
	observe("listRoles", &client.Error{Code: "INVALID_CREDENTIALS", Detail: "no"})
	if s := conn.Status(); s.Open || s.Problem.Message != "the key server rejects Secret a/b: INVALID_CREDENTIALS: no" {
		t.Errorf("the gate is %+v", s)
	}
	if _, why := all.Get("one"); why == nil || why.Reason != v1beta1.ReasonDependencyNotReady {
		t.Errorf("objects are told %+v", why)
	}
	api.refuse("")
	rig.Soon(t, "it opens when the login is taken again", func() bool {
		if clock.HasWaiters() {
			clock.Step(time.Second)
		}
		return open()
	})
}
