package ca_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

func line(t *testing.T, f *enginetest.Fixture) ca.Authorities {
	t.Helper()
	l, err := f.CAManager.Authorities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// states returns the states of all CAs, in the order of generations.
func states(l ca.Authorities) (all []keyserver.AuthorityState) {
	for _, m := range l.Members {
		all = append(all, m.State)
	}
	return all
}

func verifies(leaf *x509.Certificate, root *x509.Certificate, path []*x509.Certificate, at time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	for _, c := range path {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at})
	return err
}

// TestThirtyYearsWithoutAWord checks that a key server without administration has an unexpired CA for thirty years. A
// client that trusts one of its CAs can verify certificates of the next CA.
func TestThirtyYearsWithoutAWord(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		held := line(t, f).Issuer.Certificate // the CA that a client trusts and updates every three years
		changes, retired := 0, 0
		for day := range 30 * 365 {
			f.Clock.Advance(24 * time.Hour)
			now := f.Clock.Now()
			step, err := f.CAManager.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if step.Action != "" {
				changes++
				if step.Action == ca.Retire {
					retired++
				}
				if err := f.CAManager.Execute(t.Context(), step); err != nil {
					t.Fatalf("day %d: %+v: %v", day, step, err)
				}
			}
			if day%30 != 0 {
				continue
			}
			l := line(t, f)
			if !now.Before(l.End()) {
				t.Fatalf("day %d: the authority has expired", day)
			}
			leaf, err := l.Issuer.IssueServer("test", []string{"localhost"}, nil, now, rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			for name, path := range map[string][]*x509.Certificate{"clients": l.Path(now), "peers": l.PathForPeers(now)} {
				if err := verifies(leaf.Certificate, held, path, now); err != nil {
					t.Fatalf("day %d: for %s who trust the authority until %s: %v", day, name, held.NotAfter, err)
				}
			}
			if day%(3*365) < 30 {
				held = l.Issuer.Certificate
			}
		}
		if changes < 9 || retired < 3 || len(line(t, f).Members) > 3 {
			t.Errorf("%d steps, %d of them retired one; now %v", changes, retired, states(line(t, f)))
		}
	})
}

// TestManagerUnderTwo checks that a retired CA has no key, and that only one of two replicas with the same request
// executes it.
func TestManagerUnderTwo(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		other := ca.New(f.CAManager.Config) // another replica
		first := line(t, f).Members[0].ID
		if _, err := f.CAManager.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Prepare(t.Context()); err == nil {
			t.Error("prepared twice")
		}
		if _, err := other.Activate(t.Context(), false); err == nil {
			t.Error("activated too soon")
		}
		f.Clock.Advance(ca.MinPreparedTime)
		id, err := other.Activate(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.CAManager.Activate(t.Context(), true); err == nil {
			t.Error("activated twice")
		}
		if l := line(t, f); l.Members[1].ID != id || l.Members[1].State != keyserver.AuthorityActive || !l.Issuer.Certificate.Equal(l.Members[1].Parsed) {
			t.Errorf("%v", states(l))
		}
		if _, err := f.CAManager.Retire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Store.Authority(t.Context(), first); !errors.Is(err, sqlstore.ErrNotFound) {
			t.Errorf("the one that was retired: %v", err)
		}
		if trusted := line(t, f).Trusted(); len(trusted) != 1 {
			t.Errorf("%d are trusted", len(trusted))
		}
	})
}

// TestNamesDifferWithinASecond checks that CAs created at the same time have different names. OpenSSL uses the first
// issuer with a matching name, and rejects certificates that another CA with that name signed.
func TestNamesDifferWithinASecond(t *testing.T) {
	f := enginetest.New(t, sqlstore.Config{Dir: t.TempDir()})
	const replaced = 4
	for range replaced {
		if _, err := f.CAManager.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.CAManager.Activate(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	names := map[string]bool{}
	for _, ca := range line(t, f).Trusted() {
		names[string(ca.RawSubject)] = true
	}
	if len(names) != 1+replaced {
		t.Errorf("%d authorities have %d names", 1+replaced, len(names))
	}
}

// TestAnotherKey checks that a wrapped key is refused if it does not belong to the certificate, although the keyring
// can unwrap it.
func TestAnotherKey(t *testing.T) {
	f := enginetest.New(t, sqlstore.Config{Dir: t.TempDir()})
	c := f.CAManager.Config
	other, err := pki.NewCA("other", f.Clock.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := other.MarshalKey()
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.Store.Authorities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if list[0].WrappedKey, err = c.Keyring.Wrap(list[0].ID, c.System, plain); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(t.Context(), fixed(list)); err == nil {
		t.Error("it was taken")
	}
	if _, err := c.Load(t.Context(), fixed(nil)); err == nil {
		t.Error("a key server without an authority")
	}
}

type fixed []trustrows.Authority

func (f fixed) Authorities(context.Context) ([]trustrows.Authority, error) { return f, nil }
