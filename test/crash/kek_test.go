package crash

import (
	"encoding/base64"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var kekKills = flag.Int("kek-kills", 6, "how often the server is killed while its key-encryption key is replaced, per database")

// TestNoKeyIsLostWhenTheKEKIsReplaced kills starts that replace the key-encryption key: before, during and after
// rewrapping the data keys. At each time, one of the two keys opens each data key. After a completed start, the new key
// opens all. Rotations of data keys run at the same time, and are killed, too.
func TestNoKeyIsLostWhenTheKEKIsReplaced(t *testing.T) {
	for name, at := range map[string]func(*testing.T) site{"SQLite": onSQLite, "PostgreSQL": onPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			r, s := dice(t), at(t)
			if err := s.serve(t).Stop(); err != nil {
				t.Fatal(err)
			}
			s.fill(t, *rewrapKeys)
			args, kek := s.args, "file"
			for kill := range *kekKills {
				next := randomKEK(r)
				s.args = slices.Concat(args, []string{"--kek", next, "--kek-previous", kek})
				server, err := binary.Begin(s.dir, s.args...)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(50*time.Millisecond + upTo(r, time.Second))
				server.Kill()

				server = s.serve(t)
				admin := server.Admin(t, 5)
				if custodyOf(t, admin).KEK.PreviousNeeded == nil || *custodyOf(t, admin).KEK.PreviousNeeded {
					t.Errorf("round %d: the former key is needed after a start", kill)
				}
				if !retiring(t, admin) {
					rotate(t, admin)
				}
				useUntil(t, admin, r, kill, time.Now().Add(upTo(r, 200*time.Millisecond)))
				server.Kill()
				if out, err := binary.Run(slices.Concat([]string{"doctor", "--data-dir", s.dir, "--kek", next}, s.state)...); err != nil {
					t.Fatalf("round %d: the new key alone: %v\n%s", kill, err, out)
				}
				kek = next
			}
		})
	}
}

func randomKEK(r *rand.Rand) string {
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(r.UintN(256))
	}
	return "base64key://" + base64.URLEncoding.EncodeToString(key)
}
