package password_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
)

// hashing enters the gate, hashes for a second, and leaves, as often as times. It sends name to began at each start.
func hashing(t *testing.T, g *password.Gate, name string, stranger bool, times int, began chan<- string) {
	t.Helper()
	for range times {
		leave, err := g.Enter(t.Context(), name, stranger)
		if err != nil {
			t.Error(err)
			return
		}
		began <- name
		time.Sleep(time.Second)
		leave()
	}
}

func TestGateBoundsAllHashesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := password.NewGate(2)
		began := make(chan string, 100)
		for range 5 {
			go hashing(t, g, "stranger", true, 1, began)
			go hashing(t, g, "other", false, 1, began)
		}
		for second := 1; second <= 5; second++ {
			synctest.Wait()
			if len(began) != 2*second || g.Held() != 2 {
				t.Errorf("%d hashes have begun and %d are being made in second %d, want %d and 2", len(began), g.Held(), second, 2*second)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if g.Held() != 0 {
			t.Errorf("%d hashes are being made after all have ended", g.Held())
		}
	})
}

// TestGateHasAnOrder checks the order of logins. Each letter is a login; o and p are known callers, all others
// strangers.
func TestGateHasAnOrder(t *testing.T) {
	for arrivals, want := range map[string]string{
		"ssooooo": "sooosoo", // the second stranger waits for at most three known callers
		"aaaabb":  "aababa",  // a stranger does not wait for all logins of another network
		"oooopp":  "oopopo",  // a name does not wait for all logins of another name
	} {
		synctest.Test(t, func(t *testing.T) {
			g := password.NewGate(1)
			began := make(chan string, 100)
			for _, holder := range arrivals {
				go hashing(t, g, string(holder), holder < 'o' || holder == 's', 1, began)
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			close(began)
			order := ""
			for name := range began {
				order += name
			}
			if order != want {
				t.Errorf("%s enter in the order %s, want %s", arrivals, order, want)
			}
		})
	}
}

func TestGateYieldsToSessions(t *testing.T) {
	for name, c := range map[string]struct {
		work bool
		want time.Duration
	}{
		"sessions at work": {true, 7 * time.Second}, // four hashes, and the pauses between them
		"no session":       {false, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := password.NewGate(1)
				ctx, stop := context.WithCancel(t.Context())
				go func() {
					for c.work && ctx.Err() == nil {
						g.Worked()
						time.Sleep(10 * time.Millisecond)
					}
				}()
				begun := time.Now()
				hashing(t, g, "stranger", true, 4, make(chan string, 4))
				if took := time.Since(begun); took != c.want {
					t.Errorf("four hashes of strangers took %s, want %s", took, c.want)
				}
				stop()
				time.Sleep(time.Second) // until the goroutine has ended, because the clock stops after this function
			})
		})
	}
}

func TestGateLetsOthersInDuringThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := password.NewGate(1)
		leave, err := g.Enter(t.Context(), "", true)
		if err != nil {
			t.Fatal(err)
		}
		g.Worked()
		time.Sleep(time.Second)
		leave()
		begun := time.Now()
		began := make(chan string, 2)
		go hashing(t, g, "stranger", true, 1, began)
		go hashing(t, g, "other", false, 1, began)
		synctest.Wait()
		if first := <-began; first != "other" || time.Since(begun) != 0 {
			t.Errorf("%s began after %s, want the other at once", first, time.Since(begun))
		}
		if second := <-began; second != "stranger" || time.Since(begun) != time.Second {
			t.Errorf("%s began after %s, want the stranger after the pause", second, time.Since(begun))
		}
		time.Sleep(time.Second)
	})
}

func TestGateForgetsThoseWhoseTimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := password.NewGate(1)
		leave, err := g.Enter(t.Context(), "", false)
		if err != nil {
			t.Fatal(err)
		}
		for _, stranger := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := g.Enter(ctx, "", stranger); err == nil {
				t.Errorf("stranger %v: entered a full gate", stranger)
			}
			cancel()
		}
		leave()
		for _, stranger := range []bool{true, false} {
			leave, err := g.Enter(t.Context(), "", stranger)
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
	})
}
