package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// activeRequest is a request in progress.
type activeRequest struct {
	*httptest.ResponseRecorder
	x       *exchange
	from    int    // number of its principal or network
	kind    string // kind of its place; empty if it has no place
	evicted bool
}

// SetReadDeadline records an eviction (exchange.hangUp).
func (u *activeRequest) SetReadDeadline(time.Time) error { u.evicted = true; return nil }

// walk is a server in a random sequence of events: requests arrive, stall, get responses and end.
type walk struct {
	api  *API
	here []*activeRequest
}

// count returns the number of taken places of a kind, in total (all) and for one principal or network (own).
func (w *walk) count(kind string, from int) (all, own int) {
	for _, u := range w.here {
		if u.kind == kind {
			all++
			if u.from == from {
				own++
			}
		}
	}
	return all, own
}

// sessions are routes that need a session, by kind.
var sessions = map[string]routes.Route{
	"work":   {Session: true, Method: http.MethodGet, Tag: "Keys"},
	"admin":  {Session: true, Method: http.MethodDelete, Tag: "Sessions"},
	"poll":   {Session: true, Waits: true},
	"stream": {Session: true, Streams: true},
}

func (w *walk) arrive(route routes.Route, from int) *activeRequest {
	u := &activeRequest{ResponseRecorder: httptest.NewRecorder(), from: from}
	ctx, hangUp := context.WithCancel(context.Background())
	hangUp() // an ended context, so that a refusal is not delayed
	u.x = &exchange{api: w.api, w: u, r: httptest.NewRequest(http.MethodGet, "/", nil), ctx: ctx, route: &bound{Route: route}}
	return u
}

// asks sends a request of a principal. It fails the test if the server and the model do not agree on admitting it.
func (w *walk) asks(t *rapid.T, name string, from int) {
	u := w.arrive(sessions[name], from)
	u.x.call.by.Principal = principal(uint64(from))
	kind := name
	if name == "admin" {
		kind = "work"
	}
	all, own := w.count(kind, from)
	want := all < walkCeiling && own < quota.Share(walkCeiling)
	if !want && name == "admin" { // the place may be one of the reserve
		all, own = w.count("reserve", from)
		want, kind = all < quota.Share(walkCeiling) && own < 1, "reserve"
	}
	err := u.x.count()
	if err == nil {
		err = u.x.enter()
	}
	if (err == nil) != want {
		t.Fatalf("principal %d asks for %s beside %d places, %d of its own: %v", from, name, all, own, err)
	}
	if err != nil {
		u.x.leave()
		return
	}
	u.kind = kind
	w.here = append(w.here, u)
}

// comes sends a request without a session. It must get a place unless its network already uses its share.
func (w *walk) comes(t *rapid.T, from int) {
	u := w.arrive(routes.Route{}, from)
	u.x.from = netip.AddrFrom4([4]byte{192, 0, 2, byte(from)})
	all, own := w.count("stranger", from)
	switch err := u.x.TakePlace(); {
	case (err == nil) != (own < walkStrangersEach):
		t.Fatalf("network %d comes beside %d strangers, %d of its own: %v", from, all, own, err)
	case err != nil:
		u.x.leave()
		return
	}
	given := 0
	for _, other := range w.here {
		if other.evicted && other.kind != "" {
			other.kind = ""
			given++
		}
	}
	if (given == 1) != (all == walkStrangers) || given > 1 {
		t.Fatalf("%d give way to one that comes beside %d", given, all)
	}
	u.kind = "stranger"
	w.here = append(w.here, u)
}

const walkCeiling, walkStrangers, walkStrangersEach = 8, 6, 3

// TestNobodyKeepsOthersOut checks in random walks that no ceiling is exceeded, and that a principal or network gets its
// share unless other ones fill the ceiling within their own shares.
func TestNobodyKeepsOthersOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			MaxInFlight: walkCeiling, MaxWaiting: walkCeiling, MaxStreams: walkCeiling, MaxConnections: 1000,
			Clock: time.Now, MaxStrangers: walkStrangers, MaxStrangersPerAddress: walkStrangersEach,
		}
		w := &walk{api: &API{Config: c, places: newPlaces(c), draining: context.Background()}}
		p := w.api.places
		holds := map[string]func() int64{
			"work": p.inFlight.Held, "reserve": p.administration.Held, "poll": p.waiting.Held, "stream": p.streams.Held, "stranger": p.strangers.Held,
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			step := rapid.SampledFrom([]string{"work", "admin", "poll", "stream", "stranger", "answer", "end"}).Draw(t, "step")
			switch {
			case step == "stranger":
				w.comes(t, rapid.IntRange(0, 3).Draw(t, "network"))
			case step != "answer" && step != "end":
				w.asks(t, step, rapid.IntRange(0, 5).Draw(t, "principal"))
			case len(w.here) > 0:
				i := rapid.IntRange(0, len(w.here)-1).Draw(t, "which")
				u := w.here[i]
				if step == "answer" && u.kind != "stranger" {
					u.x.leavePlace()
					u.kind = ""
				} else {
					u.x.leave()
					w.here = append(w.here[:i], w.here[i+1:]...)
				}
			}
			for kind, held := range holds {
				if all, _ := w.count(kind, 0); held() != int64(all) {
					t.Fatalf("after %s, %d of %s are held, want %d", step, held(), kind, all)
				}
			}
		}
		for _, u := range w.here {
			u.x.leave()
		}
		for kind, held := range holds {
			if held() != 0 {
				t.Fatalf("%d of %s are held by nobody", held(), kind)
			}
		}
		if held := p.underWay.Held(); held != 0 {
			t.Fatalf("%d requests are under way", held)
		}
	})
}
