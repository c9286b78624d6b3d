package singleflight

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// one calls Do n times concurrently and returns the errors.
func one(ctx context.Context, n int, g *Group[int], work func() (int, error)) (errs []error) {
	results := make(chan error, n)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			v, err := g.Do(ctx, "k", work)
			if err == nil && v != 42 {
				err = errors.New("another answer")
			}
			results <- err
		})
	}
	all.Wait()
	close(results)
	for err := range results {
		errs = append(errs, err)
	}
	return errs
}

func TestWorkIsShared(t *testing.T) {
	failure := errors.New("no")
	for name, fails := range map[string]error{"Answer": nil, "Failure": failure} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Group[int]
				var works atomic.Int64
				leave := make(chan struct{})
				go func() {
					synctest.Wait() // all callers wait for one run
					close(leave)
				}()
				for _, err := range one(t.Context(), 100, &g, func() (int, error) {
					works.Add(1)
					<-leave
					return 42, fails
				}) {
					if !errors.Is(err, fails) {
						t.Errorf("got %v", err)
					}
				}
				if works.Load() != 1 {
					t.Errorf("%d pieces of work", works.Load())
				}
			})
		})
	}
}

// Group does not keep results: a later call runs the work again. Calls with other keys run their own work.
func TestNothingIsKept(t *testing.T) {
	var g Group[string]
	works := 0
	for i, key := range []string{"a", "a", "b"} {
		v, err := g.Do(t.Context(), key, func() (string, error) { works++; return key, nil })
		if v != key || err != nil || works != i+1 {
			t.Errorf("%s: got %q, %v after %d pieces of work", key, v, err, works)
		}
	}
}

// If the context of the first caller ends before the work, only that caller fails.
func TestWhoBeganIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		var works, ended atomic.Int64
		first, cancel := context.WithCancel(t.Context())
		var both sync.WaitGroup
		both.Go(func() {
			_, err := g.Do(first, "k", func() (int, error) {
				works.Add(1)
				<-first.Done()
				runtime.Gosched()
				ended.Add(1)
				return 0, errors.New("interrupted") // an error of a driver, for example
			})
			if err == nil || ended.Load() != 1 {
				t.Errorf("the cancelled left with %v before its work ended", err)
			}
		})
		synctest.Wait()
		both.Go(func() {
			v, err := g.Do(t.Context(), "k", func() (int, error) { works.Add(1); return 42, nil })
			if v != 42 || err != nil {
				t.Errorf("the other: %d, %v", v, err)
			}
		})
		synctest.Wait()
		cancel()
		both.Wait()
		if works.Load() != 2 {
			t.Errorf("%d pieces of work", works.Load())
		}
	})
}

// A waiting caller waits at most until its own context ends.
func TestWhoWaitsIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		leave := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			if v, err := g.Do(t.Context(), "k", func() (int, error) { <-leave; return 42, nil }); v != 42 || err != nil {
				t.Errorf("who began: %d, %v", v, err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := g.Do(ctx, "k", func() (int, error) { return 0, nil })
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(leave)
		all.Wait()
	})
}

// A caller whose context has ended starts no work.
func TestNothingIsBegunForNobody(t *testing.T) {
	var g Group[int]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if _, err := g.Do(ctx, "k", func() (int, error) { t.Error("begun"); return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
}

// A panic reaches every waiting caller, which can recover it. It does not end the
// process.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		leave := make(chan struct{})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				defer func() {
					var at runtime.Error
					err, _ := recover().(error)
					if !errors.As(err, &at) {
						t.Errorf("recovered %v", err)
					}
				}()
				_, _ = g.Do(t.Context(), "k", func() (int, error) {
					<-leave
					var none map[string][]int
					return none["k"][0], nil
				})
			})
		}
		synctest.Wait()
		close(leave)
		all.Wait()
		if v, err := g.Do(t.Context(), "k", func() (int, error) { return 42, nil }); v != 42 || err != nil {
			t.Errorf("afterwards: %d, %v", v, err)
		}
	})
}

// If work ends its goroutine, the goroutines of all waiting callers end, too. No caller blocks.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		leave := make(chan struct{})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := g.Do(t.Context(), "k", func() (int, error) {
					<-leave
					runtime.Goexit()
					return 42, nil
				})
				t.Errorf("went on, with %v", err)
			})
		}
		synctest.Wait()
		close(leave)
		all.Wait()
		if v, err := g.Do(t.Context(), "k", func() (int, error) { return 42, nil }); v != 42 || err != nil {
			t.Errorf("afterwards: %d, %v", v, err)
		}
	})
}
