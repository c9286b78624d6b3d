package session_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/oidc"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password/passwordtest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var ctx = context.Background()

const (
	idle     = 15 * time.Minute
	lifetime = time.Hour
)

func manager(t testing.TB, f *enginetest.Fixture, change func(*session.Config)) *session.Manager {
	t.Helper()
	c := session.Config{
		Store: f.Store, Audit: f.Rows, System: f.Prepared.System, Clock: f.Clock.Now, Random: rand.Reader,
		Logger: slog.New(slog.DiscardHandler), Idle: idle, Lifetime: lifetime, PasswordCost: passwordtest.Cost,
	}
	if change != nil {
		change(&c)
	}
	m := session.NewManager(c)
	t.Cleanup(m.Close)
	return m
}

func adminLogin() session.Login {
	return session.Login{
		Method: keyserver.PasswordSession, Name: "admin", Password: enginetest.AdminPassword, From: session.From{Address: "192.0.2.1", RequestID: "r"},
	}
}

func open(t testing.TB, m *session.Manager) session.Opened {
	t.Helper()
	o, err := m.Login(ctx, adminLogin())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func want(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("got %v, want %q", err, code)
	}
}

func TestFailedLoginsLookAlike(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := manager(t, f, nil)
		long := strings.Repeat("n", 100)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return tx.SetPrincipalFlags(ctx, f.Admin.Principal.ID, 0)
		}); err != nil {
			t.Fatal(err)
		}
		cases := map[string]struct {
			change func(*session.Login)
			reason fault.Reason
			object string
		}{
			"WrongPassword": {func(l *session.Login) { l.Password = "wrong password" }, fault.ReasonBadCredentials, "admin"},
			"EmptyPassword": {func(l *session.Login) { l.Password = "" }, fault.ReasonBadCredentials, "admin"},
			"LongPassword":  {func(l *session.Login) { l.Password = strings.Repeat("p", 4096) }, fault.ReasonBadCredentials, "admin"},
			"UnknownName":   {func(l *session.Login) { l.Name = long }, fault.ReasonBadCredentials, long[:64]},
			"Disabled":      {func(*session.Login) {}, fault.ReasonPrincipalDisabled, "admin"},
		}
		var detail string
		for name, tc := range cases {
			f.Clock.Advance(2 * time.Minute) // before that, an equal refusal is only counted and gets no row
			l := adminLogin()
			tc.change(&l)
			_, err := m.Login(ctx, l)
			want(t, err, fault.InvalidCredentials)
			if d := fault.As(err).Detail; detail == "" {
				detail = d
			} else if d != detail {
				t.Errorf("%s: the answer %q differs from %q", name, d, detail)
			}
			row := f.LastRow(t)
			if row.Operation != "login" || row.Outcome != keyserver.Refused || row.Reason != string(tc.reason) || row.Object != tc.object {
				t.Errorf("%s: the row is %+v", name, row)
			}
		}
		l := adminLogin()
		l.Method = "telepathy"
		_, err := m.Login(ctx, l)
		want(t, err, fault.BadRequest)
	})
}

func TestFailedLoginsAreThrottled(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	m := manager(t, f, nil)
	bad := adminLogin()
	bad.Password = "wrong password"
	var err error
	for range 10 {
		_, err = m.Login(ctx, bad)
		want(t, err, fault.InvalidCredentials)
	}
	_, err = m.Login(ctx, adminLogin())
	want(t, err, fault.LoginThrottled) // even with the correct password
	if fault.As(err).RetryAfter <= 0 {
		t.Error("a throttled login must say how long to wait")
	}
	if row := f.LastRow(t); row.Reason != string(fault.ReasonThrottled) {
		t.Errorf("the row is %+v", row)
	}
	elsewhere := adminLogin()
	elsewhere.Address = "192.0.2.2"
	if _, err := m.Login(ctx, elsewhere); err != nil {
		t.Errorf("a stranger's failures must not lock the user out elsewhere: %v", err)
	}
	f.Clock.Advance(fault.As(err).RetryAfter)
	if _, err := m.Login(ctx, adminLogin()); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

type refusing struct{}

func (refusing) Verify(context.Context, string) (oidc.Token, error) {
	return oidc.Token{}, oidc.Refused("nobody signed it")
}

// TestAClaimedSubjectIsNotThrottled checks that a client which sends tokens with a subject cannot throttle the owner of
// that subject.
func TestAClaimedSubjectIsNotThrottled(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	m := manager(t, f, func(c *session.Config) { c.Tokens = refusing{} })
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://issuer.example","sub":"system:serviceaccount:a:b","aud":["a"],"exp":4102444800,"iat":1}`))
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"k"}`))
	login := session.Login{Method: keyserver.KubernetesSession, Token: header + "." + claims + "." + strings.Repeat("A", 86), From: session.From{RequestID: "r"}}
	for i := range 200 {
		login.Address = fmt.Sprintf("192.0.2.%d", i/10)
		_, err := m.Login(ctx, login)
		want(t, err, fault.InvalidCredentials)
	}
	_, err := m.Login(ctx, login)
	want(t, err, fault.LoginThrottled)
	login.Address = "192.0.2.99"
	_, err = m.Login(ctx, login)
	want(t, err, fault.InvalidCredentials)
}

func TestTokensThatNameNoSession(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	m := manager(t, f, nil)
	token := open(t, m).Token
	// The last character of 32 bytes in unpadded base64 has two unused bits.
	alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	stray := token[:len(token)-1] + string(alphabet[strings.IndexByte(alphabet, token[len(token)-1])|1])
	for name, bad := range map[string]string{
		"Empty": "", "Unknown": base64.RawURLEncoding.EncodeToString(make([]byte, 32)), "Short": token[:42], "Long": token + "A",
		"StrayBits": stray, "Padded": token + "=", "LineBreak": token[:20] + "\n" + token[21:],
	} {
		if _, _, err := m.Authenticate(ctx, bad, session.Proof{}, session.From{RequestID: "r"}); fault.CodeOf(err) != fault.SessionNotFound {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestSessionsExpire checks that a session ends after the idle time without use, and after its lifetime in any case.
// Both times are exact to the second and equal to the times in its description.
func TestSessionsExpire(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := manager(t, f, nil)
		use := func(o session.Opened) error {
			_, release, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
			if err == nil {
				release()
			}
			return err
		}
		lives := func(o session.Opened, step time.Duration) {
			t.Helper()
			f.Clock.Advance(step)
			if err := use(o); err != nil {
				t.Fatalf("a session that should be live: %v", err)
			}
		}
		o := open(t, m)
		for range 3 { // use extends the session beyond the idle time
			lives(o, idle-time.Second)
		}
		f.Clock.Advance(idle)
		want(t, use(o), fault.SessionExpired)

		o = open(t, m)
		opened := f.Clock.Now()
		if !o.Info.ExpiresAt.Equal(opened.Add(lifetime)) || !o.Info.IdleExpiresAt.Equal(opened.Add(idle)) {
			t.Errorf("a session of %s is said to end at %s, and unused at %s", opened, o.Info.ExpiresAt, o.Info.IdleExpiresAt)
		}
		for range 4 {
			lives(o, idle-time.Second)
		}
		lives(o, 3*time.Second)
		f.Clock.Advance(time.Second)
		want(t, use(o), fault.SessionExpired) // use does not extend the lifetime
	})
}

func TestEndedSessionsAreGoneEverywhere(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m, other := manager(t, f, nil), manager(t, f, nil)
		o := open(t, m)
		caller, release, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
		if err != nil {
			t.Fatal(err)
		}
		release()
		if _, release, err := other.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"}); err != nil {
			t.Fatal(err)
		} else {
			release()
		}
		if err := m.End(ctx, caller); err != nil {
			t.Fatal(err)
		}
		for _, each := range []*session.Manager{m, other} {
			_, _, err := each.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
			want(t, err, fault.SessionNotFound)
		}
		want(t, m.End(ctx, caller), fault.SessionNotFound)
	})
}

func TestSessionsSurviveARestart(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		first := session.NewManager(session.Config{
			Store: f.Store, Audit: f.Rows, System: f.Prepared.System, Clock: f.Clock.Now, Random: rand.Reader,
			Logger: slog.New(slog.DiscardHandler), Idle: idle, Lifetime: lifetime, PasswordCost: passwordtest.Cost,
		})
		o, err := first.Login(ctx, adminLogin())
		if err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(idle - time.Minute)
		if _, release, err := first.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"}); err != nil {
			t.Fatal(err)
		} else {
			release()
		}
		first.Close() // writes the last use
		f.Clock.Advance(idle - time.Minute)
		if _, _, err := manager(t, f, nil).Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"}); err != nil {
			t.Errorf("the last use was lost with the process: %v", err)
		}
	})
}

func TestCeilings(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := manager(t, f, func(c *session.Config) { c.MaxSessions, c.MaxInFlight = 8, 2 })
		o := open(t, m)
		var releases []func()
		for range 2 {
			_, release, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		_, _, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
		want(t, err, fault.RequestLimit)
		if got := fault.As(err); got.Scope != fault.ScopeSession || !got.Retryable || got.RetryAfter <= 0 {
			t.Errorf("got %+v", got)
		}
		releases[0]()
		if _, _, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"}); err != nil {
			t.Errorf("after a release: %v", err)
		}
		open(t, m)
		for i := range 6 { // other principals take the remaining places
			update := func(tx *sqlstore.Tx) error {
				now := f.Clock.Now()
				return tx.InsertSession(ctx, sessionrows.SessionRecord{
					ID: keyserver.ID{byte(i + 1)}, Hash: [32]byte{byte(i + 1)}, Principal: keyserver.PrincipalRef{System: f.Prepared.System, ID: keyserver.ID{9}},
					Kind: keyserver.PasswordSession, CreatedAt: now, ExpiresAt: now.Add(lifetime), LastUsedAt: now,
				})
			}
			if err := f.Store.Update(ctx, update); err != nil {
				t.Fatal(err)
			}
		}
		_, err = m.Login(ctx, adminLogin())
		want(t, err, fault.SessionLimit)
		if got := fault.As(err); got.Scope != fault.ScopeProcess || !got.Retryable || got.RetryAfter <= 0 {
			t.Errorf("got %+v", got)
		}
		f.Clock.Advance(idle)
		open(t, m) // expired sessions release their places
	})
}

func TestNoSecretIsPrinted(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	l := adminLogin()
	o := open(t, manager(t, f, nil))
	printed := fmt.Sprintf("%v %+v %#v %s %d %x %v %+v %#v %d %q", l, l, l, l, l, l, o, o, o, o, o)
	for _, secret := range []string{o.Token, enginetest.AdminPassword} {
		if strings.Contains(printed, secret) {
			t.Errorf("a secret is printed in %s", printed)
		}
	}
	info, err := f.Store.Setting(ctx, "dataKey")
	if err != nil || len(info) == 0 {
		t.Fatalf("the data key is not where it should be: %v", err)
	}
}
