package keyservertest

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// TestStart runs several key servers at the same time. Only granted principals can use a key. Nothing runs after the
// test.
func TestStart(t *testing.T) {
	before := runtime.NumGoroutine()
	urls := make(chan string, 3)
	t.Run("at the same time", func(t *testing.T) {
		for range cap(urls) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				s := Start(t)
				urls <- s.URL()
				useKey(t, s)
			})
		}
	})
	close(urls)
	for url := range urls {
		if resp, err := http.Get(url); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s responds after the test", url)
		}
	}
	checkGoroutines(t, before)
}

// useKey computes a MAC as the owner of a key, verifies it as a user, and checks that a third principal is denied.
func useKey(t *testing.T, s *Server) {
	owner, user, other := s.CreatePrincipal(t, "owner", "Encryptor"), s.CreatePrincipal(t, "user", "Exchanger"), s.CreatePrincipal(t, "other", "Encryptor")
	key := owner.CreateKey(t, user)
	made, err := owner.Client.MAC(t.Context(), *key.Lineage, strings.NewReader("a message"))
	if err != nil {
		t.Fatal(err)
	}
	checked, err := user.Client.VerifyMAC(t.Context(), schema.VerifyMACRequest{Lineage: key.Lineage, MAC: made.MAC}, strings.NewReader("a message"))
	if err != nil || !checked.Valid {
		t.Errorf("the user verifies the MAC: %+v, %v", checked, err)
	}
	if _, err := other.Client.MAC(t.Context(), *key.Lineage, strings.NewReader("a message")); !client.IsCode(err, "ACL_DENIED") {
		t.Errorf("a principal without an ACL entry got %v, want ACL_DENIED", err)
	}
}

// checkGoroutines fails the test if more than one goroutine runs in addition to the number before.
func checkGoroutines(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before+1; time.Sleep(pollInterval) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines run, %d did before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestHelpersFailTheTest checks that a wrong argument ends the test, with the cause in its message.
func TestHelpersFailTheTest(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.CreatePrincipal(t, "taken")
	for name, c := range map[string]struct {
		do   func(t testing.TB)
		want string
	}{
		"an unknown role": {
			func(t testing.TB) { s.CreatePrincipal(t, "new", "Encryptor", "Encrypter") },
			`roles: the key server has no role "Encrypter"; it has Administrator, Security Officer, Encryptor, Exchanger, Auditor`,
		},
		"a name in use": {func(t testing.TB) { s.CreatePrincipal(t, "taken") }, `create the principal "taken": `},
		"an owner that may not create keys": {
			func(t testing.TB) { s.CreatePrincipal(t, "reader", "Exchanger").CreateKey(t) },
			`create a key as "reader": `,
		},
		"a user of another key server": {
			func(t testing.TB) {
				s.CreatePrincipal(t, "owner", "Encryptor").CreateKey(t, Start(t).CreatePrincipal(t, "foreign", "Encryptor"))
			},
			`grant READ to "foreign": `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := failure(t, c.do)
			if !strings.HasPrefix(said, c.want) {
				t.Errorf("the test fails with %q, want %q", said, c.want)
			}
		})
	}
}

// failure runs do and its cleanups, and returns the message of Fatalf.
func failure(t *testing.T, do func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // Fatalf ends the goroutine of its test
		defer close(done)
		do(r)
	}()
	<-done
	for _, clean := range slices.Backward(r.cleanups) {
		clean()
	}
	return r.message
}

// recorder records the message of Fatalf.
type recorder struct {
	testing.TB
	message  string
	cleanups []func()
}

func (r *recorder) Cleanup(clean func()) { r.cleanups = append(r.cleanups, clean) }

func (r *recorder) Errorf(string, ...any) {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// BenchmarkStart measures the start and the end of a key server with its first login.
func BenchmarkStart(b *testing.B) {
	for range b.N {
		s := Start(b)
		if _, err := s.Admin().ListRoles(b.Context()); err != nil {
			b.Fatal(err)
		}
		s.server.Stop(b)
	}
}

func TestMain(m *testing.M) { os.Exit(run(m)) }
