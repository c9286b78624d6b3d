package engine_test

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// limited returns an engine that limits refused operations, on the database of f.
func limited(f *enginetest.Fixture) *engine.Engine {
	cfg := f.Config
	cfg.LimitRefusals = true
	return engine.New(cfg)
}

// TestRefusalsAreBounded checks that a principal gets OVERLOADED, without an audit row, after two batches of refused
// items. Retry-After is the time until a full batch is possible again. Other principals are not affected.
func TestRefusalsAreBounded(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e := limited(f)
		line := f.Mint(t, f.Admin, nil)
		greedy := f.Add(t, keyserver.PasswordPrincipal, "greedy", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		batch := make([]keyserver.MACItem, 1000)
		for i := range batch {
			batch[i] = keyserver.MACItem{Lineage: line}
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

// TestQuestionsAboutOneselfAreBounded checks that questions of a principal about its own access count as refused
// operations: they need no role, but write audit rows.
func TestQuestionsAboutOneselfAreBounded(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e := limited(f)
		greedy := f.Add(t, keyserver.PasswordPrincipal, "greedy", nil, nil)
		ask := func() error {
			_, err := e.Explain(ctx, greedy, keyserver.Question{Operation: keyserver.OpHMAC})
			return err
		}
		answered := 0
		for answered < 3000 && ask() == nil {
			answered++
		}
		if err := ask(); answered < 2000 || answered > 2010 || fault.CodeOf(err) != fault.Overloaded {
			t.Errorf("%d questions were answered, then %v", answered, err)
		}
	})
}

// TestScopedCredentialsAreRefusedApart checks that refusals of a scoped credential do not count for its principal.
func TestScopedCredentialsAreRefusedApart(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		e := limited(f)
		line := f.Mint(t, f.Admin, nil)
		scoped := f.Admin
		scoped.Scope, scoped.ScopeOperations = []keyserver.HiddenLink{line}, []keyserver.ID{keyserver.OpMACData.ID}
		for range 2100 {
			_, _ = e.Roles(ctx, scoped)
		}
		if _, err := e.Roles(ctx, scoped); fault.CodeOf(err) != fault.Overloaded {
			t.Errorf("the credential: %v", err)
		}
		if _, err := e.Roles(ctx, f.Admin); err != nil {
			t.Errorf("its principal: %v", err)
		}
	})
}
