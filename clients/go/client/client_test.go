package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// stub is a key server that fails on purpose.
type stub struct {
	*httptest.Server
	logins atomic.Int64
	calls  atomic.Int64
	life   time.Duration
	mux    *http.ServeMux
}

func newStub(t *testing.T) *stub {
	s := &stub{mux: http.NewServeMux(), life: time.Hour}
	s.mux.HandleFunc("POST /api/sessions", func(w http.ResponseWriter, _ *http.Request) {
		n := s.logins.Add(1)
		now := time.Now().UTC()
		fmt.Fprintf(w, `{"sessionId":"session-%d","kind":"password","principal":{"id":"0000000000000001","principalId":"1","systemId":1,"name":"a","type":"password"},"roles":[],"boundKey":null,"expiresAt":%q,"idleExpiresAt":%q}`,
			n, now.Add(s.life).Format(time.RFC3339Nano), now.Add(s.life).Format(time.RFC3339Nano))
	})
	s.Server = httptest.NewServer(s.mux)
	t.Cleanup(s.Close)
	return s
}

func (s *stub) on(pattern string, h func(w http.ResponseWriter, r *http.Request, n int64)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h(w, r, s.calls.Add(1)) })
}

func (s *stub) client(t *testing.T, change ...func(*client.Options)) *client.Client {
	t.Helper()
	o := client.Options{BaseURL: s.URL, Credentials: client.PasswordCredentials("ann", func(context.Context) (string, error) { return "hunter2", nil })}
	for _, fn := range change {
		fn(&o)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func fail(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

const (
	noRoles   = `{"count":0,"roles":[],"detail":""}`
	retryable = `{"code":"OVERLOADED","detail":"d","retryable":true,"scope":"process"}`
)

func TestBaseURLs(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://keys.example": true, "https://keys.example:8443/prefix/": true, "http://127.0.0.1:1": true, "http://localhost:1": true, "http://[::1]:1": true,
		"": false, "keys.example": false, "http://keys.example": false, "ftp://keys.example": false, "https://user:hunter2@keys.example": false,
		"https://keys.example?x=1": false, "https://keys.example#x": false, "https://": false, "https://keys.example:port": false,
	} {
		_, err := client.New(client.Options{BaseURL: url})
		if (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestRetries(t *testing.T) {
	link := schema.HiddenLink("k")
	cases := map[string]struct {
		reason  string
		answer  func(w http.ResponseWriter)
		post    bool
		calls   int64
		isDown  bool
		success bool
	}{
		"Retryable":         {"the service says that a retry may help", func(w http.ResponseWriter) { fail(w, 503, retryable) }, true, 3, true, true},
		"NotRetryable":      {"a 503 without retryable is final", func(w http.ResponseWriter) { fail(w, 503, `{"code":"OVERLOADED","detail":"d","retryable":false}`) }, true, 1, true, false},
		"LongRetryAfter":    {"a wait of minutes is the caller's", func(w http.ResponseWriter) { w.Header().Set("Retry-After", "600"); fail(w, 503, retryable) }, true, 1, true, false},
		"Refused":           {"a refusal is final", func(w http.ResponseWriter) { fail(w, 403, `{"code":"ACCESS_DENIED","detail":"d"}`) }, false, 1, false, false},
		"InternalError":     {"the write may have happened", func(w http.ResponseWriter) { fail(w, 500, `{"code":"OP_FAILED","detail":"d"}`) }, true, 1, false, false},
		"NoJSON":            {"a proxy's page is final", func(w http.ResponseWriter) { fail(w, 502, "<html>") }, false, 1, true, false},
		"BrokenAnswerRead":  {"a read that was cut off can be repeated", abort, false, 3, true, true},
		"BrokenAnswerWrite": {"a write that was cut off may have happened", abort, true, 1, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			answer := func(w http.ResponseWriter, _ *http.Request, n int64) {
				if n <= 2 {
					tc.answer(w)
					return
				}
				_, _ = io.WriteString(w, `{"count":0,"roles":[],"detail":"","ttag":"aw==","algid":1,"algorithm":"a","keyBytes":1,"ivBytes":0}`)
			}
			s.on("GET /api/roles", answer)
			s.on("POST /api/keys/get", answer)
			c := s.client(t)
			var err error
			if tc.post {
				_, err = c.GetKey(t.Context(), schema.KeyRequest{TTag: link})
			} else {
				_, err = c.ListRoles(t.Context())
			}
			if (err == nil) != tc.success || s.calls.Load() != tc.calls {
				t.Fatalf("%s: %d calls, %v", tc.reason, s.calls.Load(), err)
			}
			if err != nil && client.IsUnavailable(err) != tc.isDown {
				t.Errorf("unavailable is %v: %v", !tc.isDown, err)
			}
		})
	}
}

func abort(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func TestRetriesAreBounded(t *testing.T) {
	s := newStub(t)
	s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) { fail(w, 503, retryable) })
	_, err := s.client(t).ListRoles(t.Context())
	if s.calls.Load() != 4 || !client.IsCode(err, "OVERLOADED") {
		t.Fatalf("%d calls, %v", s.calls.Load(), err)
	}
	s.calls.Store(0)
	if _, err := s.client(t, func(o *client.Options) { o.MaxRetries = -1 }).ListRoles(t.Context()); s.calls.Load() != 1 || err == nil {
		t.Fatalf("without retries: %d calls, %v", s.calls.Load(), err)
	}
}

func TestRetryAfterAndContext(t *testing.T) {
	s := newStub(t)
	s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, n int64) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			fail(w, 503, retryable)
			return
		}
		_, _ = io.WriteString(w, noRoles)
	})
	start := time.Now()
	if _, err := s.client(t).ListRoles(t.Context()); err != nil || time.Since(start) < time.Second {
		t.Fatalf("waited %s, %v", time.Since(start), err)
	}
	s.calls.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.client(t).ListRoles(ctx); !client.IsCode(err, "OVERLOADED") || s.calls.Load() != 1 {
		t.Fatalf("a context that ends while waiting: %d calls, %v", s.calls.Load(), err)
	}
}

// The call of the readiness route returns immediately if the key server is not ready.
func TestNotReadyIsAnAnswer(t *testing.T) {
	s := newStub(t)
	s.on("GET /api/ready", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.Header().Set("Retry-After", "1")
		fail(w, 503, `{"code":"NOT_READY","detail":"d","retryable":true,"scope":"process","ready":false,"parts":[{"part":"writes","detail":"the disk is full"}]}`)
	})
	ready, err := s.client(t).GetReadiness(t.Context())
	if s.calls.Load() != 1 || !client.IsCode(err, "NOT_READY") || len(ready.Parts) != 1 {
		t.Fatalf("%d calls, %+v, %v", s.calls.Load(), ready, err)
	}
}

func TestSessionIsSharedAndRenewed(t *testing.T) {
	t.Run("one login for many callers", func(t *testing.T) {
		s := newStub(t)
		s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, noRoles) })
		c := s.client(t)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := c.ListRoles(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.logins.Load() != 1 {
			t.Errorf("%d logins", s.logins.Load())
		}
	})
	t.Run("again after reauth, once", func(t *testing.T) {
		s := newStub(t)
		s.on("POST /api/keys/get", func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.Header.Get("Authorization") == "Bearer session-1" {
				fail(w, 401, `{"code":"SESSION_EXPIRED","detail":"d","reauth":true}`)
				return
			}
			_, _ = io.WriteString(w, `{"ttag":"aw==","algid":null,"algorithm":null,"keyBytes":null,"ivBytes":null}`)
		})
		if _, err := s.client(t).GetKey(t.Context(), schema.KeyRequest{TTag: "k"}); err != nil || s.logins.Load() != 2 || s.calls.Load() != 2 {
			t.Errorf("%d logins, %d calls, %v", s.logins.Load(), s.calls.Load(), err)
		}
	})
	t.Run("not for ever", func(t *testing.T) {
		s := newStub(t)
		s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) {
			fail(w, 401, `{"code":"SESSION_NOT_FOUND","detail":"d","reauth":true}`)
		})
		_, err := s.client(t).ListRoles(t.Context())
		if !client.IsCode(err, "SESSION_NOT_FOUND") || s.calls.Load() != 2 {
			t.Errorf("%d calls, %v", s.calls.Load(), err)
		}
	})
	t.Run("before it ends", func(t *testing.T) {
		s := newStub(t)
		s.life = 20 * time.Second // the client assumes up to 21 s, because Date has whole seconds
		s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, noRoles) })
		var ahead atomic.Int64
		c := s.client(t, func(o *client.Options) {
			o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		for _, at := range []time.Duration{0, 14 * time.Second, 19500 * time.Millisecond} {
			ahead.Store(int64(at))
			if _, err := c.ListRoles(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s.logins.Load() != 2 {
			t.Errorf("%d logins", s.logins.Load())
		}
	})
	t.Run("a cancelled caller does not fail the others", func(t *testing.T) {
		s := newStub(t)
		s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, noRoles) })
		entered, leave := make(chan struct{}, 2), make(chan struct{})
		var asked atomic.Int64
		c := s.client(t, func(o *client.Options) {
			o.Credentials = client.PasswordCredentials("ann", func(ctx context.Context) (string, error) {
				entered <- struct{}{}
				if asked.Add(1) == 1 {
					<-ctx.Done()
					return "", ctx.Err()
				}
				<-leave
				return "x", nil
			})
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.ListRoles(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled: %v", err)
			}
		})
		<-entered
		wg.Go(func() {
			if _, err := c.ListRoles(t.Context()); err != nil {
				t.Errorf("the other: %v", err)
			}
		})
		cancel()
		close(leave)
		wg.Wait()
	})
	t.Run("no credentials", func(t *testing.T) {
		s := newStub(t)
		_, err := s.client(t, func(o *client.Options) { o.Credentials = nil }).ListRoles(t.Context())
		if !errors.Is(err, client.ErrNoCredentials) {
			t.Errorf("got %v", err)
		}
	})
}

func TestUnsupported(t *testing.T) {
	s := newStub(t)
	s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		fail(w, 404, `{"code":"NOT_FOUND","detail":"no such path"}`)
	})
	s.on("DELETE /api/roles/{id}", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		fail(w, 404, `{"code":"NOT_FOUND","detail":"no such role"}`)
	})
	s.on("PUT /api/roles/{id}", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		fail(w, 404, `{"code":"NOT_FOUND","detail":"no such path","unsupported":true}`)
	})
	c := s.client(t)
	ctx, id := t.Context(), schema.HexID{7: 1}
	check := func(what string, err error, want bool) {
		t.Helper()
		if client.IsUnsupported(err) != want {
			t.Errorf("%s: unsupported is %v: %v", what, !want, err)
		}
	}
	_, err := c.ListRoles(ctx)
	check("a listing cannot be missing an object", err, true)
	_, err = c.DeleteRole(ctx, schema.ByID{ID: id})
	check("an object that is not there", err, false)
	_, err = c.UpdateRole(ctx, schema.UpdateRoleRequest{ID: id})
	check("a marked path", err, true)
	_, err = c.ListChanges(ctx, schema.ChangesQuery{})
	check("another make's 404 page", err, true)
	_, err = c.GetVersion(ctx)
	check("a missing POST", err, true)
	_, err = c.GetRevocationPolicy(ctx, schema.ByDigest{})
	check("an empty id is refused here and not sent to another path", err, false)
	if !client.IsCode(err, "BAD_REQUEST") {
		t.Errorf("an empty id: %v", err)
	}
}

func TestVerdictComesWithTheError(t *testing.T) {
	s := newStub(t)
	s.on("POST /api/trusted-cas", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.Header().Set("X-Request-Id", "abc")
		fail(w, 409, `{"saved":false,"wasAlreadyPresent":false,"listCountBefore":3,"listCountAfter":3,"appearedCount":0,"trustedCA":null,"echoedCount":1,"code":"NOT_SAVED","detail":"d"}`)
	})
	out, err := s.client(t).AddTrustedCA(t.Context(), schema.AddTrustedCARequest{Certificate: []byte{1}})
	if !client.IsCode(err, "NOT_SAVED") || out.ListCountBefore != 3 || out.EchoedCount != 1 || out.Code != "NOT_SAVED" {
		t.Fatalf("%+v, %v", out, err)
	}
	if !strings.Contains(err.Error(), "abc") {
		t.Errorf("%v does not name the request", err)
	}
}

func TestMessageIsSentAgainOnlyWhereItCanBe(t *testing.T) {
	s := newStub(t)
	s.on("POST /api/crypto/hmac", func(w http.ResponseWriter, r *http.Request, n int64) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"data":"bWVzc2FnZQ=="`)) {
			fail(w, 400, `{"code":"BAD_REQUEST","detail":"`+fmt.Sprint(len(body))+` bytes"}`)
			return
		}
		if n%2 == 1 {
			fail(w, 503, retryable)
			return
		}
		_, _ = io.WriteString(w, `{"algorithm":"HMAC-SHA384","mac":"AA==","macBytes":48}`)
	})
	c := s.client(t)
	if _, err := c.HMAC(t.Context(), "k", strings.NewReader("message")); err != nil || s.calls.Load() != 2 {
		t.Errorf("a reader that seeks: %d calls, %v", s.calls.Load(), err)
	}
	s.calls.Store(0)
	if _, err := c.HMAC(t.Context(), "k", io.MultiReader(strings.NewReader("message"))); !client.IsCode(err, "OVERLOADED") || s.calls.Load() != 1 {
		t.Errorf("a reader that does not: %d calls, %v", s.calls.Load(), err)
	}
}

func TestHostileAnswers(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"endless":         func(w http.ResponseWriter) { endlessAnswer(w, 200) },
		"endless failure": func(w http.ResponseWriter) { endlessAnswer(w, 500) },
		"long detail":     func(w http.ResponseWriter) { fail(w, 400, `{"code":"BAD_REQUEST","detail":"`+long[:100000]+`"}`) },
		"wrong type":      func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"count":"hunter2"}`) },
		"not JSON":        func(w http.ResponseWriter) { _, _ = io.WriteString(w, `hunter2`) },
		"empty":           func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		"an empty object": func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{}`) },
		"null":            func(w http.ResponseWriter) { _, _ = io.WriteString(w, `null`) },
		"no list":         func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"count":0,"detail":"hunter2"}`) },
		"null for a list": func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"count":0,"roles":null,"detail":""}`) },
		"redirect": func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"another 2xx":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"a long request id": func(w http.ResponseWriter) { w.Header().Set("X-Request-Id", long[:1000]); fail(w, 400, `{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) { answer(w) })
			_, err := s.client(t, func(o *client.Options) { o.MaxRetries = -1 }).ListRoles(t.Context())
			if err == nil || len(err.Error()) > 5000 || strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("%.200v", err)
			}
		})
	}
}

// TestAnswersOfOthers checks that a response may lack members that other releases omit, but not every required member.
func TestAnswersOfOthers(t *testing.T) {
	s := newStub(t)
	answer := ""
	s.on("/", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, answer) })
	c := s.client(t)
	for _, answer = range []string{`{}`, `null`, `{"detail":"yes"}`, `{"granted":true}`} {
		if got, err := c.AuthorizeKey(t.Context(), schema.AuthorizeKeyRequest{}); err == nil {
			t.Errorf("%s is taken for %+v", answer, got)
		}
	}
	answer = `{"authorized":true}`
	if got, err := c.AuthorizeKey(t.Context(), schema.AuthorizeKeyRequest{}); err != nil || !got.Authorized {
		t.Errorf("%s: %+v, %v", answer, got, err)
	}
	answer = `{"roles":[],"since":"a later release"}`
	if got, err := c.ListRoles(t.Context()); err != nil || len(got.Roles) != 0 {
		t.Errorf("%s: %+v, %v", answer, got, err)
	}
	answer = `{"decision":false}`
	if got, err := c.GetDecision(t.Context(), schema.AccessRequest{}); err != nil || got.Decision {
		t.Errorf("%s: %+v, %v", answer, got, err)
	}
}

func endlessAnswer(w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	chunk := bytes.Repeat([]byte(" "), 1<<20)
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func TestNothingPrintsASecret(t *testing.T) {
	s := newStub(t)
	s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, noRoles) })
	credentials := client.PasswordCredentials("ann", func(context.Context) (string, error) { return "hunter2", nil })
	c := s.client(t)
	if _, err := c.ListRoles(t.Context()); err != nil {
		t.Fatal(err)
	}
	login, err := credentials.Login(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	material := schema.Base64("hunter2")
	for _, v := range []any{c, *c, credentials, login, &login, schema.MintKeyRequest{Material: &material}, material, schema.LoginResponse{SessionID: "hunter2"}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			out := fmt.Sprintf(verb, v)
			for _, secret := range []string{"hunter2", "68756e74657232", "104 117 110", "session-1", "73657373696f6e2d31"} {
				if strings.Contains(out, secret) {
					t.Errorf("%s of %T prints %s", verb, v, out)
				}
			}
		}
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c, err := client.New(client.Options{BaseURL: "http://" + address, MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.GetHealth(t.Context())
	var n *client.NetworkError
	if !client.IsUnavailable(err) || !errors.As(err, &n) || n.Sent || client.CodeOf(err) != "" || client.IsUnsupported(err) {
		t.Fatalf("got %v", err)
	}
	if client.IsUnavailable(nil) || client.IsCode(nil, "") || client.IsUnsupported(nil) {
		t.Error("no error is something")
	}
}

// Options.Observe is called once for each call, independent of its attempts, with the operationId of the route. This
// includes calls that are refused before they are sent. The login of a call is not a separate call.
func TestCallsAreObserved(t *testing.T) {
	s := newStub(t)
	s.on("GET /api/roles", func(w http.ResponseWriter, _ *http.Request, n int64) {
		if n == 1 {
			fail(w, 503, retryable)
			return
		}
		_, _ = io.WriteString(w, noRoles)
	})
	s.on("POST /api/crypto/hmac", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		fail(w, 403, `{"code":"ACL_DENIED","detail":"d"}`)
	})
	s.on("DELETE /api/sessions/current", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		_, _ = io.WriteString(w, `{"ended":true,"detail":""}`)
	})
	var seen []string
	c := s.client(t, func(o *client.Options) {
		o.Observe = func(route string, err error) { seen = append(seen, route+" "+client.CodeOf(err)) }
	})
	ctx := t.Context()
	if _, err := c.ListRoles(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.HMAC(ctx, "k", strings.NewReader("message")); !client.IsCode(err, "ACL_DENIED") {
		t.Errorf("HMAC: %v", err)
	}
	if _, err := c.GetRevocationPolicy(ctx, schema.ByDigest{Digest: ".."}); !client.IsCode(err, "BAD_REQUEST") {
		t.Errorf("a path that cannot be: %v", err)
	}
	if _, err := c.NewScopedCredential(ctx, client.ScopedCredential{Objects: []schema.HiddenLink{"k"}}); err != nil {
		t.Error(err)
	}
	if err := c.Logout(ctx); err != nil {
		t.Error(err)
	}
	want := []string{"listRoles ", "computeHmac ACL_DENIED", "getRevocationPolicy BAD_REQUEST", "login ", "endCurrentSession "}
	if !slices.Equal(seen, want) {
		t.Errorf("observed were %q, want %q", seen, want)
	}
}
