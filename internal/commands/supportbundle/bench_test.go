package supportbundle

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// ordinary is a line of serve.
const ordinary = `{"time":"2026-11-25T21:57:38.072421156Z","level":"WARN","msg":"request failed","requestId":"91684573c450aade2428855c","method":"POST","route":"/api/sessions","code":"REQUEST_TIMEOUT","detail":"body: did not arrive in the time that this route allows","cause":"read tcp 127.0.0.1:18443->127.0.0.1:54786: i/o timeout"}` + "\n"

// hostile are texts that have to be looked through more than once, by whoever is careless: as
// many begin what looks like a secret as can.
var hostile = []string{
	"tokentoken_", "token ", "<token ", "token:", "token=[", `"token":"\`, `{"token":{`, "key=", `key="`, "x-", "-u a", "@tcp(", "://", "a@", `\u0077`, `"\u0077"`,
	"eyJ", "eyJeyJeyJe.\n", "dpop", "basic ", "-----BEGIN ", "-----END PRIVATE KEY-----", `"kty":"d":`, "kty", "token:|\f", "token:\n", "password is x", "--password ",
	`token","`, `token','\"`, "name: token\n", "2026-01-01", "$6$", "AKIA", "password%25", "token\\", "[{", "'\"`", "\n",
}

func BenchmarkCrossOut(b *testing.B) {
	texts := map[string]string{"ordinary": ordinary, "tokentoken_": hostile[0], "password=": "level=INFO password=x token:\n", "x-": "-x-"}
	for name, line := range texts {
		text := bytes.Repeat([]byte(line), maxFile/len(line))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, _, err := CrossOut(b.Context(), text)
				rig.Must(b, err)
			}
		})
	}
}

// TestNoTextTakesLong: a quarter of what a file may have takes some tenths of a second, whatever
// is in it. What grew with the square of its size would take minutes.
func TestNoTextTakesLong(t *testing.T) {
	const much = 10 * time.Second // with the race detector, on a machine that does something else
	for _, piece := range append(hostile, ordinary) {
		text := bytes.Repeat([]byte(piece), maxFile/4/len(piece))
		ctx, cancel := context.WithTimeout(t.Context(), much)
		begun := time.Now()
		_, _, err := CrossOut(ctx, text)
		cancel()
		if took := time.Since(begun); err != nil || took > much {
			t.Errorf("%q takes %s: %v", piece, took, err)
		}
	}
}

// TestCrossingOutEnds when it is told to, and what is not crossed out goes nowhere.
func TestCrossingOutEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out, _, err := CrossOut(ctx, []byte("password=S3cret")); !errors.Is(err, context.Canceled) || out != nil {
		t.Errorf("it answers %q, %v", out, err)
	}
}
