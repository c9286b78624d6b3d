package engine_test

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// A principal that is refused without end writes few rows: beyond two batches it is put off, with
// the time after which a whole batch is decided again. Others do not notice.
func TestRefusalsAreBounded(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		cfg := f.Config
		cfg.Refusals = engine.NewRefusals(f.Clock.Now)
		e := engine.New(cfg)
		line := mint(t, f, f.Admin, nil)
		greedy := f.Add(t, keyserver.PasswordPrincipal, "greedy", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		batch := make([]keyserver.MACItem, 1000)
		for i := range batch {
			batch[i] = keyserver.MACItem{Line: line}
		}
		ask := func() (rows int, err error) {
			before := len(f.AllRows(t))
			_, err = e.MACBatch(ctx, greedy, batch)
			return len(f.AllRows(t)) - before, err
		}
		for range 2 {
			if rows, err := ask(); rows != len(batch) || err != nil {
				t.Fatalf("%d rows, %v", rows, err)
			}
		}
		rows, err := ask()
		off := fault.As(err)
		if rows != 1 || off == nil || off.Code != fault.Overloaded || off.Scope != fault.ScopeSession || off.RetryAfter < 10*time.Second || off.RetryAfter > 11*time.Second {
			t.Fatalf("a third batch: %d rows, %+v", rows, err)
		}
		for range 3 {
			if rows, err := ask(); rows != 0 || fault.CodeOf(err) != fault.Overloaded {
				t.Fatalf("a further batch: %d rows, %v", rows, err)
			}
		}
		if _, err := e.TrustedCAs(ctx, greedy); fault.CodeOf(err) != fault.Overloaded {
			t.Errorf("another operation: %v", err)
		}
		if _, err := e.MACBatch(ctx, f.Admin, batch[:1]); err != nil {
			t.Errorf("another principal: %v", err)
		}
		f.Clock.Advance(off.RetryAfter)
		if rows, err := ask(); rows != len(batch) || err != nil {
			t.Fatalf("after the wait: %d rows, %v", rows, err)
		}
	})
}
