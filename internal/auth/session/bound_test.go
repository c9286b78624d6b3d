package session_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const target = "https://keys.example/api/roles"

// prover creates DPoP proofs with one P-256 key.
type prover struct {
	key    *ecdsa.PrivateKey
	header string
	made   int
}

func newProver(t testing.TB) *prover {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes() // 0x04, X, Y
	if err != nil {
		t.Fatal(err)
	}
	return &prover{key: key, header: fmt.Sprintf(`{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":%q,"y":%q}}`,
		b64(point[1:33]), b64(point[33:]))}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// proof returns a proof for a request with a session id, or for a login if token is "".
func (p *prover) proof(t testing.TB, at time.Time, token string) session.Proof {
	t.Helper()
	p.made++
	claims := fmt.Sprintf(`{"jti":"number %d","htm":"POST","htu":%q,"iat":%d`, p.made, target, at.Unix())
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		claims += fmt.Sprintf(`,"ath":%q`, b64(sum[:]))
	}
	signed := b64([]byte(p.header)) + "." + b64([]byte(claims+"}"))
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return session.Proof{Sent: []string{signed + "." + b64(sig)}, Method: "POST", Site: dpop.At(target), Path: "/api/roles"}
}

func openBound(t testing.TB, f *enginetest.Fixture, m *session.Manager, p *prover) session.Opened {
	t.Helper()
	l := adminLogin()
	l.Proof = p.proof(t, f.Clock.Now(), "")
	o, err := m.Login(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestABoundRequestNeedsNoDatabase checks that, on a single replica, a request of a bound session succeeds although the
// database does not exist any more.
func TestABoundRequestNeedsNoDatabase(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	m, p := manager(t, f, nil), newProver(t)
	o := openBound(t, f, m, p)
	request := func() error {
		_, release, err := m.Authenticate(ctx, o.Token, p.proof(t, f.Clock.Now(), o.Token), session.From{RequestID: "r"})
		if err == nil {
			release()
		}
		return err
	}
	if err := request(); err != nil {
		t.Fatal(err)
	}
	if err := f.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := request(); err != nil {
		t.Errorf("without a database: %v", err)
	}
	// To prove that the database is gone: a login needs it and fails.
	if _, err := m.Login(ctx, adminLogin()); err == nil || fault.CodeOf(err) == fault.InvalidCredentials {
		t.Errorf("a login without a database: %v", err)
	}
}

// BenchmarkAuthenticate compares requests of a bound session with requests of an unbound session, and with a bare
// verification of a signature. The metric "signatures" is the additional cost of a bound request, in verifications; it
// should be little more than 1.
func BenchmarkAuthenticate(b *testing.B) {
	f := enginetest.New(b, enginetest.Databases["SQLite"](b))
	m, p := manager(b, f, func(c *session.Config) { c.MaxProofs = 100_000_000 }), newProver(b)
	plain, bound := open(b, m), openBound(b, f, m, p)
	took := map[string]float64{}
	run := func(name string, one func(i int, proof session.Proof), token string) {
		b.Run(name, func(b *testing.B) {
			proofs := make([]session.Proof, b.N)
			for i := range proofs {
				if token != "" {
					proofs[i] = p.proof(b, f.Clock.Now(), token)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				one(i, proofs[i])
			}
			took[name] = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if name == "Bound" {
				b.ReportMetric((took["Bound"]-took["Unbound"])/took["Signature"], "signatures")
			}
		})
	}
	authenticate := func(token string) func(int, session.Proof) {
		return func(_ int, proof session.Proof) {
			_, release, err := m.Authenticate(ctx, token, proof, session.From{RequestID: "r"})
			if err != nil {
				b.Fatal(err)
			}
			release()
		}
	}
	digest := sha256.Sum256([]byte("signed"))
	sig, err := ecdsa.SignASN1(rand.Reader, p.key, digest[:])
	if err != nil {
		b.Fatal(err)
	}
	run("Signature", func(int, session.Proof) {
		if !ecdsa.VerifyASN1(&p.key.PublicKey, digest[:], sig) {
			b.Fatal("the signature does not verify")
		}
	}, "")
	run("Unbound", authenticate(plain.Token), "")
	run("Bound", authenticate(bound.Token), bound.Token)
}
