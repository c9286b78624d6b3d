package session

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password/passwordtest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestReadsTakeTurns: an address with many requests delays another address by at most one read.
func TestReadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newReadGate(1)
		leave, err := g.enter(t.Context(), "198.51.100.1")
		rig.Must(t, err)
		var got []string
		for _, address := range []string{
			"198.51.100.1", "198.51.100.1", "198.51.100.1",
			"2001:db8:1:1::1", "2001:db8:1:2::1", // one IPv6 site
			"198.51.100.2",
		} {
			go func() {
				leave, err := g.enter(t.Context(), address)
				rig.Must(t, err)
				got = append(got, address) // no lock, because there is only one place
				leave(true)
			}()
			synctest.Wait()
		}
		leave(true)
		synctest.Wait()
		want := []string{"198.51.100.1", "2001:db8:1:1::1", "198.51.100.2", "198.51.100.1", "2001:db8:1:2::1", "198.51.100.1"}
		if !slices.Equal(got, want) {
			t.Errorf("turns:\n%v, want\n%v", got, want)
		}
		if g.held() != 0 {
			t.Errorf("%d requests still wait", g.held())
		}
	})
}

// TestAMissKeepsItsPlace: the rate of invented tokens is limited even if reads are fast.
func TestAMissKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begun := newReadGate(1), time.Now()
		for range 3 {
			leave, err := g.enter(t.Context(), "198.51.100.1")
			rig.Must(t, err)
			leave(false)
		}
		if took := time.Since(begun); took != 2*missPause {
			t.Errorf("the third read begins after %s, want %s", took, 2*missPause)
		}
		time.Sleep(missPause)
	})
}

// TestAnAbandonedReadLeaves: a request whose context ends does not get a place.
func TestAnAbandonedReadLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newReadGate(1)
		leave, err := g.enter(t.Context(), "198.51.100.1")
		rig.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := g.enter(ctx, "198.51.100.2"); !errors.Is(err, context.Canceled) {
			t.Errorf("the request ends with %v", err)
		}
		leave(true)
		if g.free != 1 || g.held() != 0 {
			t.Errorf("%d places are free, %d requests wait", g.free, g.held())
		}
	})
}

// held returns the number of waiting requests.
func (g *readGate) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len()
}

// TestUnknownTokensWaitForATurn: blocked reads do not delay a session that is in memory, and many invented tokens do
// not exclude a session of another replica.
func TestUnknownTokensWaitForATurn(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		replica := func() *Manager {
			m := NewManager(Config{
				Store: f.Store, Audit: f.Rows, System: f.Prepared.System, Clock: f.Clock.Now, Random: rand.Reader,
				Logger: slog.New(slog.DiscardHandler), PasswordCost: passwordtest.Cost,
			})
			t.Cleanup(m.Close)
			return m
		}
		m, other := replica(), replica()
		open := func(m *Manager) string {
			o, err := m.Login(t.Context(), Login{Method: keyserver.PasswordSession, Name: "admin", Password: enginetest.AdminPassword})
			rig.Must(t, err)
			return o.Token
		}
		known, unknown := open(m), open(other)
		use := func(token, address string) error {
			_, release, err := m.Authenticate(t.Context(), token, Proof{}, From{Address: address})
			if err == nil {
				release()
			}
			return err
		}

		const attacker, flood = "198.51.100.1", 50
		var stuck []func(bool)
		for range quota.Share(f.Store.Readers()) {
			leave, err := m.reads.enter(t.Context(), attacker)
			rig.Must(t, err)
			stuck = append(stuck, leave)
		}
		var ended sync.WaitGroup
		for range flood {
			invented := make([]byte, tokenBytes)
			_, _ = rand.Read(invented)
			ended.Go(func() { _ = use(base64.RawURLEncoding.EncodeToString(invented), attacker) })
		}
		rig.Soon(t, "the flood waits", func() bool { return m.reads.held() == flood })
		rig.Must(t, use(known, attacker))

		entered := make(chan error, 1)
		go func() { entered <- use(unknown, "198.51.100.2") }()
		rig.Soon(t, "the session of another replica waits", func() bool { return m.reads.held() == flood+1 })
		stuck[0](true)
		rig.Must(t, <-entered)
		for _, leave := range stuck[1:] {
			leave(true)
		}
		ended.Wait()
	})
}
