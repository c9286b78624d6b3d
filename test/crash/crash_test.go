// Package crash kills a real server with SIGKILL while several clients use it, starts it again, and
// checks everything that it had acknowledged.
//
// A kill ends the process, not the machine: data that the process had passed to the operating
// system survives. SQLite and PostgreSQL guarantee that a commit reaches the disk if the program
// asks for it (synchronous=FULL). internal/audit/journal tests which parts of the audit journal
// survive if the machine stops.
package crash

import (
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

var (
	kills = flag.Int("kills", 6, "how often the server is killed, per database")
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of when it is killed and of what the clients do")
)

// binary is the tested program. It is built once.
var binary program.Program

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(program.Main(m, &binary, false))
}

// site is a server's directory and database.
type site struct {
	dir   string
	args  []string // arguments of serve
	state []string // flags that select its database; none for the embedded database
}

func onSQLite(t *testing.T) site {
	return site{dir: t.TempDir() + "/data"}
}

func onPostgreSQL(t *testing.T) site {
	return atURL(t, pgtest.DurableDatabase(t))
}

func atURL(t *testing.T, url string) site {
	flags := []string{"--database-url", url}
	return site{dir: t.TempDir() + "/data", args: flags, state: flags}
}

// begin starts the server without waiting for it.
func (s site) begin(t *testing.T) *program.Server {
	t.Helper()
	server, err := binary.Begin(s.dir, s.args...)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func (s site) serve(t *testing.T) *program.Server {
	t.Helper()
	server, err := binary.Serve(s.dir, s.args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	return server
}

// verifyTrail verifies the audit log with the command audit verify.
func (s site) verifyTrail(t *testing.T) {
	t.Helper()
	out, err := binary.Run(append([]string{"audit", "verify", "--data-dir", s.dir}, s.state...)...)
	if err != nil || !strings.HasPrefix(out, "audit log intact") {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

// dice returns the random source of a test. The same seed gives the same sequence.
func dice(t *testing.T) *rand.Rand {
	t.Logf("seed %d; repeat with -seed", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func TestNothingAcknowledgedIsLostWhenTheServerIsKilled(t *testing.T) {
	for name, place := range map[string]func(*testing.T) site{"SQLite": onSQLite, "PostgreSQL": onPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			r := dice(t)
			at := place(t)
			server := at.serve(t)
			w := newWorld(t, r, server)
			for round := range *kills {
				if early := w.load(t, round, server.Kill); early > 0 {
					t.Errorf("%d clients were left without an answer before the kill\n%s", early, server.Log())
				}
				at.verifyTrail(t)
				for r.IntN(3) == 0 { // the recovery may be killed, too
					again := at.begin(t)
					time.Sleep(upTo(r, 200*time.Millisecond))
					again.Kill()
				}
				server = at.serve(t)
				w.moved(server)
				w.check(t, round, round == *kills-1)
			}
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
			at.verifyTrail(t)
			w.summary(t)
		})
	}
}

func TestNothingAcknowledgedIsLostWhenTheDatabaseIsKilled(t *testing.T) {
	r := dice(t)
	cluster := pgtest.Start(t)
	at := atURL(t, cluster.Database(t))
	server := at.serve(t)
	w := newWorld(t, r, server)
	rounds := (*kills + 1) / 2
	for round := range rounds {
		// A connection from before the last kill may be used again, so that a request of a client fails before the
		// kill.
		w.load(t, round, func() {
			cluster.Kill(t)
			cluster.Restart(t)
		})
		w.awaitReady(t)
		at.verifyTrail(t)
		w.check(t, round, round == rounds-1)
	}
	if n := w.requests.Answered(); n < minAnswers {
		t.Errorf("in %d rounds %d requests were answered, which shows nothing", rounds, n)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	w.summary(t)
}

func TestFirstStartIsWholeOrNotThere(t *testing.T) {
	for name, place := range map[string]func(*testing.T) site{"SQLite": onSQLite, "PostgreSQL": onPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			r := dice(t)
			for range (*kills + 1) / 2 {
				at := place(t)
				for range 1 + r.IntN(3) {
					server := at.begin(t)
					time.Sleep(upTo(r, 250*time.Millisecond))
					server.Kill()
				}
				server := at.serve(t)
				w := newWorld(t, r, server)
				w.check(t, 0, true)
				server.Kill()
				at.verifyTrail(t)
			}
		})
	}
}
