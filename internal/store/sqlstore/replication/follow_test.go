package replication_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
)

// database is a database that can be unavailable (away).
type database struct {
	away     atomic.Bool
	attempts atomic.Int64 // to connect
	at, most atomic.Int64 // current and maximum number of connections
	looked   atomic.Int64 // successful reads of the state
}

var errAway = errors.New("connection refused")

func (d *database) state(context.Context) (replication.State, error) {
	if d.away.Load() {
		return replication.State{}, errAway
	}
	d.looked.Add(1)
	return replication.State{Incarnation: "one"}, nil
}

func (d *database) listen(context.Context) (replication.Listener, error) {
	d.attempts.Add(1)
	d.most.Store(max(d.most.Load(), d.at.Add(1)))
	if d.away.Load() {
		d.at.Add(-1)
		return nil, errAway
	}
	return &connection{d}, nil
}

// connection fails while the database is away.
type connection struct{ database *database }

func (c *connection) Wait(ctx context.Context, atMost time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(atMost):
	}
	if c.database.away.Load() {
		return errAway
	}
	return nil
}

func (c *connection) Close() { c.database.at.Add(-1) }

// While a database is unavailable, the follower makes five to ten attempts to connect per second, one
// at a time. It notices the end of a long outage as fast as the end of a short one.
func TestADatabaseThatIsAway(t *testing.T) {
	for _, away := range []time.Duration{time.Second, time.Minute, time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &database{}
				f, err := replication.Start(t.Context(), replication.Source{
					State: d.state, Reset: func(_, _ replication.State) {}, Listen: d.listen, PageLimit: 1,
					Page:   func(context.Context, int64, int) (keyserver.ChangePage, error) { return keyserver.ChangePage{}, nil },
					Notify: func([]keyserver.Change) {}, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Stop()
				time.Sleep(2 * time.Second)
				d.away.Store(true)
				time.Sleep(time.Second) // the follower notices that the connection is lost
				before := d.attempts.Load()
				time.Sleep(away)
				if n := d.attempts.Load() - before; n < int64(away/(200*time.Millisecond))-1 || n > int64(away/(100*time.Millisecond))+1 {
					t.Errorf("it is looked for %d times in %s", n, away)
				}
				if err := f.Current(t.Context()); err == nil {
					t.Error("it is away, and this process says that it is current")
				}
				d.away.Store(false)
				looked := d.looked.Load()
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				if d.looked.Load() == looked {
					t.Error("it is back, and nobody has looked")
				}
				if err := f.Current(t.Context()); err != nil {
					t.Errorf("it is back: %v", err)
				}
				if most := d.most.Load(); most != 1 {
					t.Errorf("%d connections were open at once", most)
				}
			})
		})
	}
}
