package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// mutantsVariable enables the mutants, which take a quarter of an hour.
const mutantsVariable = "CHAOS_MUTANTS"

// mutantTime is the default time of a run for one mutant.
const mutantTime = "40s"

// mutant is a mistake that is planted in the program. The suite has to find it. One program contains all mistakes and
// is built once. It makes the mistake that mistakeVariable names.
type mutant struct {
	name    string
	excerpt excerpt
	file    string
	// imports are the imports that the edits need in addition.
	imports []string
	// edits are pairs of old and new text. The old text has to occur once. "mistaken" in the new
	// text becomes the check whether the program makes this mistake.
	edits [][2]string
	// finds matches the error that the suite must report. A run that fails with another error has not found the
	// mistake.
	finds string
}

// excerpt selects the parts and faults with which the suite finds a mutant soon. The complete suite includes them.
type excerpt struct{ parts, faults string }

// The excerpts. A clock change interrupts no part, so that a round takes only as long as its requests.
var (
	oneServer   = excerpt{embeddedPart, "^set the clock"}
	killed      = excerpt{embeddedPart, "^kill"}
	replicas    = excerpt{replicatedPart, "^set the clock"}
	cutOff      = excerpt{replicatedPart, "^(cut|swallow)"}
	interrupted = excerpt{replicatedPart, "^(cut|kill)"}
	peers       = excerpt{embeddedPart + " " + replicatedPart, "^set the clock"}
	declares    = excerpt{embeddedPart + " " + managerPart, "^set the clock"}
	lied        = excerpt{embeddedPart + " " + managerPart, "^take writes well"}
)

// sometimes is true once in twelve times.
const sometimes = `rand.IntN(12) == 0`

var mutants = []mutant{
	{
		"now and then a change of a role is acknowledged and not committed", oneServer,
		"internal/store/sqldb/db.go", []string{"math/rand/v2"}, [][2]string{
			{`		committed, err = db.storeChanges(ctx, in, changes)
		return err
	})`, `		committed, err = db.storeChanges(ctx, in, changes)
		if err == nil && mistaken && ` + sometimes + ` && len(changes) == 1 && changes[0].Kind == keyserver.ChangeRole {
			return errUncommitted
		}
		return err
	})
	if errors.Is(err, errUncommitted) {
		return nil
	}`},
			{`// Transact runs fn in a write`, `var errUncommitted = errors.New("not committed")

// Transact runs fn in a write`},
		}, "NOT_SAVED|by what was acknowledged",
	},
	{
		"audit rows are acknowledged before they are in the journal", killed,
		"internal/audit/journal/journal.go", []string{"bytes", "time"}, [][2]string{
			{`	if err := j.write(j.file, j.buffer, headerSize+first*blockSize); err != nil {`, `	write := j.write
	if mistaken {
		later := bytes.Clone(j.buffer)
		write = func(f *os.File, _ []byte, at int64) error {
			go func() {
				time.Sleep(100 * time.Millisecond)
				_ = j.write(f, later, at)
			}()
			return nil
		}
	}
	if err := write(j.file, j.buffer, headerSize+first*blockSize); err != nil {`},
		}, "its audit row .* is not in the audit log|no audit row says so|its owner's rows are|serve ended before it was ready",
	},
	{
		"a start leaves out the last group of the journal", killed,
		"internal/store/auditrows/fill.go", nil, [][2]string{
			{`	f := newFiller(e.AuditLog, e.d.Dir, id)
	all := 0`, `	f := newFiller(e.AuditLog, e.d.Dir, id)
	all := 0
	if mistaken && len(groups) > 0 {
		groups = groups[:len(groups)-1]
	}`},
		}, "its audit row .* is not in the audit log|no audit row says so|its owner's rows are",
	},
	{
		"now and then what is let through has no row", oneServer,
		"internal/engine/internal/gate/gate.go", []string{"math/rand/v2"}, [][2]string{
			{`	return target, r, g.auditor.Write(ctx, r.row(keyserver.Allowed, ""))`, `	if mistaken && ` + sometimes + ` {
		return target, r, nil
	}
	return target, r, g.auditor.Write(ctx, r.row(keyserver.Allowed, ""))`},
		}, "its audit row .* is not in the audit log",
	},
	{
		"the row comes after the effect", interrupted,
		"internal/engine/internal/gate/gate.go", nil, [][2]string{
			{`func (g *Gate) Perform(ctx context.Context, r Request, effect func() error, checks ...Check) error {`, `func (g *Gate) Perform(ctx context.Context, r Request, effect func() error, checks ...Check) error {
	if mistaken {
		if refusal := g.authorize(ctx, r, checks); refusal != nil {
			return g.refused(ctx, r, refusal)
		}
		if err := effect(); err != nil {
			return g.Failed(ctx, r, err)
		}
		return g.auditor.Write(ctx, r.row(keyserver.Allowed, ""))
	}`},
		}, "and no audit row says so",
	},
	{
		"a cache keeps what a change made stale", oneServer,
		"internal/store/cache/cache.go", nil, [][2]string{
			{`	default:
		c.drop(change.ID)
	}`, `	case mistaken:
	default:
		c.drop(change.ID)
	}`},
		}, "no order explains|is \"|ACL_DENIED|PRINCIPAL|NOT_SAVED|NOT_VERIFIED",
	},
	{
		"a replica does not hear of the changes of others", replicas,
		"internal/store/sqlstore/replication/follow.go", nil, [][2]string{
			{`		f.source.Notify(page.Changes)`, `		if !mistaken {
			f.source.Notify(page.Changes)
		}`},
		}, "no order explains|is \"|goes on",
	},
	{
		"a replica that cannot ask the database goes by what it knew", cutOff,
		"internal/store/sqlstore/replication/follow.go", nil, [][2]string{
			{`func (f *Follower) Current(ctx context.Context) error {`, `func (f *Follower) Current(ctx context.Context) error {
	if mistaken {
		return nil
	}`},
		}, "no order explains",
	},
	{
		"a logout is forgotten by the database", oneServer,
		"internal/auth/session/manager.go", nil, [][2]string{
			{`	err = m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		_, err := tx.DeleteSession(ctx, by.Session)`, `	if mistaken {
		m.changed([]keyserver.Change{{Kind: keyserver.ChangeSession, ID: by.Session}})
		return nil
	}
	err = m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		_, err := tx.DeleteSession(ctx, by.Session)`},
		}, "a session that was ended goes on",
	},
	{
		"a goroutine stays for each request", oneServer,
		"httpapi/exchange.go", nil, [][2]string{
			{`	defer x.finish()
	x.setHeaders()`, `	defer x.finish()
	x.setHeaders()
	if mistaken {
		go func() { <-make(chan struct{}) }()
	}`},
		}, "does not come back to what it held",
	},
	{
		"a descriptor stays open for some requests", oneServer,
		"httpapi/exchange.go", nil, [][2]string{
			{`	defer x.finish()
	x.setHeaders()`, `	defer x.finish()
	x.setHeaders()
	if mistaken && a.Clock().UnixNano()%8 == 0 {
		f, _ := os.Open("/dev/null")
		leftOpen.Store(f, true)
	}`},
			{`// serve runs one request.`, `var leftOpen sync.Map

// serve runs one request.`},
		}, "does not come back to what it held",
	},
	{
		"memory stays for each request", oneServer,
		"httpapi/exchange.go", nil, [][2]string{
			{`	defer x.finish()
	x.setHeaders()`, `	defer x.finish()
	x.setHeaders()
	if mistaken {
		leftMu.Lock()
		left = append(left, make([]byte, 128<<10))
		leftMu.Unlock()
	}`},
			{`// serve runs one request.`, `var (
	leftMu sync.Mutex
	left   [][]byte
)

// serve runs one request.`},
		}, "does not come back to what it held",
	},
	{
		"a cache is written without its lock", oneServer,
		"internal/store/cache/cache.go", nil, [][2]string{
			{`func (c *Cache[K, V]) keep(k K, v V, before uint64) {`, `func (c *Cache[K, V]) keep(k K, v V, before uint64) {
	if mistaken {
		for range 20000 {
			c.entries[k] = v
		}
		return
	}`},
		}, "has ended by itself|serve ended before it was ready",
	},
	{
		"the manager takes a write without an answer for done", lied,
		"internal/operator/reconcile/act.go", nil, [][2]string{
			{`	if err == nil || (d.deletes() && connection.IsGone(err)) {`, `	if err == nil || (d.deletes() && connection.IsGone(err)) || mistaken && !d.deletes() {`},
			{`		if err != nil {
			out.Evidence =`, `		if err != nil && !(mistaken && !d.deletes()) {
			out.Evidence =`},
		}, "a false Ready",
	},
	{
		"the manager does not compare the operations of a role", declares,
		"controllers/role.go", nil, [][2]string{
			{`!slices.Equal(have, want.operations) {
		catalogue`, `!slices.Equal(have, want.operations) && !mistaken {
		catalogue`},
		}, "a false Ready",
	},
	{
		"the gate asks for no role", oneServer,
		"internal/engine/internal/gate/gate.go", nil, [][2]string{
			{`	if err != nil || granted {
		return err
	}
	return fault.New(fault.AccessDenied, "no role of %s grants %s; ask an administrator to grant it", r.By.Name`, `	if err != nil || granted || mistaken {
		return err
	}
	return fault.New(fault.AccessDenied, "no role of %s grants %s; ask an administrator to grant it", r.By.Name`},
		}, "somebody without a role was let|without the right",
	},
	{
		"a refusal is written down as allowed", oneServer,
		"internal/engine/internal/gate/gate.go", nil, [][2]string{
			{`		return r.row(keyserver.Refused, f.Reason)`, `		if mistaken {
			return r.row(keyserver.Allowed, "")
		}
		return r.row(keyserver.Refused, f.Reason)`},
		}, "was refused, and",
	},
	{
		"HMAC states are not reset", oneServer,
		"internal/engine/internal/keys/macs.go", nil, [][2]string{
			{`	h.Reset()
	m.pool.Put(h)`, `	if !mistaken {
		h.Reset()
	}
	m.pool.Put(h)`},
		}, "the HMAC under|peer's HMAC",
	},
	{
		"now and then a row is written twice", oneServer,
		"internal/audit/writer.go", []string{"math/rand/v2"}, [][2]string{
			{`			w.rows = append(append(w.rows, wait.entry), wait.more...)`, `			w.rows = append(append(w.rows, wait.entry), wait.more...)
			if mistaken && ` + sometimes + ` {
				w.rows = append(w.rows, wait.entry)
			}`},
		}, "audit rows .* that say allowed|its owner's rows are",
	},
	{
		"a hash of the chain is left out", oneServer,
		"internal/audit/writer.go", nil, [][2]string{
			{`		row.Previous = head.Hash`, `		row.Previous = head.Hash
		if mistaken && row.Position%100 == 0 {
			clear(row.Previous[:])
		}`},
		}, "audit verify|serve ended before it was ready|read the audit log|does not follow",
	},
	{
		"the list of a key is not asked for peers", peers,
		"internal/engine/internal/keys/key.go", nil, [][2]string{
			{`	ks.NoteVerdict(key.acl, verdict)
	if !verdict.Allowed && !verdict.Spent {`, `	ks.NoteVerdict(key.acl, verdict)
	verdict.Allowed = verdict.Allowed || mistaken && by.Peer != nil
	if !verdict.Allowed && !verdict.Spent {`},
		}, "a peer let somebody use the key",
	},
	{
		"what a peer is asked has no row here", peers,
		"internal/engine/internal/gate/forward.go", nil, [][2]string{
			{`	durable, err := g.auditor.Begin(context.WithoutCancel(ctx), r.row(keyserver.Allowed, ""))
	if err != nil {
		return err
	}`, `	durable, err := func() error { return nil }, error(nil)
	if !mistaken {
		durable, err = g.auditor.Begin(context.WithoutCancel(ctx), r.row(keyserver.Allowed, ""))
	}
	if err != nil {
		return err
	}`},
		}, "its audit row .* is not in the audit log",
	},
	{
		"replicas write at the same time", replicas,
		"internal/store/postgres/postgres.go", nil, [][2]string{
			{`pg_advisory_xact_lock($2, $3)::text ||`, "` + alone() + `::text ||"},
			{`// Serialise waits at most LockPatience`, `func alone() string {
	if mistaken {
		return "($2::int + $3::int)"
	}
	return "pg_advisory_xact_lock($2, $3)"
}

// Serialise waits at most LockPatience`},
		}, "no order explains|is \"|at replicated|audit verify|TAMPERED",
	},
}

// mistakeVariable names the mistake that the program makes: none if it is empty.
const mistakeVariable = "CHAOS_MISTAKE"

// planted is a package that only the changed program has.
const (
	plantedFile = "internal/planted/planted.go"
	plantedText = `package planted

import "os"

var mistake = os.Getenv("` + mistakeVariable + `")

// Is reports whether the program makes a mistake.
func Is(name string) bool { return mistake == name }
`
	plantedPackage = "github.com/keyserver-operator/keyserver-operator/internal/planted"
)

// plantAll returns the files of a program that can make each mistake.
func plantAll() (map[string]string, error) {
	root, err := rig.Root()
	if err != nil {
		return nil, err
	}
	files := map[string]string{plantedFile: plantedText}
	imports := map[string][]string{}
	for _, m := range mutants {
		if files[m.file] == "" {
			raw, err := os.ReadFile(filepath.Join(root, m.file))
			if err != nil {
				return nil, err
			}
			files[m.file], imports[m.file] = string(raw), []string{plantedPackage}
		}
		for _, e := range m.edits {
			if n := strings.Count(files[m.file], e[0]); n != 1 {
				return nil, fmt.Errorf("%s: %q is %d times in %s", m.name, e[0], n, m.file)
			}
			with := strings.ReplaceAll(e[1], "mistaken", fmt.Sprintf("planted.Is(%q)", m.name))
			files[m.file] = strings.Replace(files[m.file], e[0], with, 1)
		}
		imports[m.file] = append(imports[m.file], m.imports...)
	}
	for file, paths := range imports {
		slices.Sort(paths)
		list := "import (\n\t\"" + strings.Join(slices.Compact(paths), "\"\n\t\"") + "\"\n"
		files[file] = strings.Replace(files[file], "import (\n", list, 1)
	}
	return files, nil
}

// TestMutantsFit checks that the old texts of the mutants still exist in the code.
func TestMutantsFit(t *testing.T) {
	if len(mutants) < 20 {
		t.Errorf("there are %d mutants", len(mutants))
	}
	if _, err := plantAll(); err != nil {
		t.Error(err)
	}
	faults := (&world{sites: []*site{{
		name: "a", members: []*member{{name: "a 0", wire: &wire{}}}, disk: &disk{}, database: &pgtest.Cluster{}, peers: &wire{},
	}}, cluster: &cluster{}}).faults()
	for _, m := range mutants {
		if _, err := regexp.Compile(m.finds); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		drawn := regexp.MustCompile(m.excerpt.faults)
		if !slices.ContainsFunc(faults, func(f fault) bool { return drawn.MatchString(f.name) }) {
			t.Errorf("%s: no fault is named as %q says", m.name, m.excerpt.faults)
		}
	}
}

// TestMutants runs the suite once for each mistake, and the suite has to find it. Without a mistake, the same program
// passes each of the excerpts.
func TestMutants(t *testing.T) {
	if os.Getenv(mutantsVariable) == "" {
		t.Skipf("%s is not set: that the suite finds planted mistakes takes long, and is shown at night", mutantsVariable)
	}
	files, err := plantAll()
	rig.Must(t, err)
	maps.Copy(files, program.SettableClock)
	bad, err := program.BuildChanged(files)
	rig.Must(t, err)
	defer func() { _ = bad.Remove() }() // a leftover in the temporary directory fails no test
	var table []string
	note := func(took time.Duration, name, said string) {
		table = append(table, fmt.Sprintf("%4.0f s  %s: %.200s", took.Seconds(), name, said))
	}
	done := map[excerpt]bool{}
	for _, m := range mutants {
		if done[m.excerpt] {
			continue
		}
		done[m.excerpt] = true
		t.Run("none in "+m.excerpt.parts+" "+m.excerpt.faults, func(t *testing.T) {
			said, took, err := suite(t, bad.Path, mutant{excerpt: m.excerpt}, "10s")
			if err != nil {
				t.Errorf("the suite finds something where no mistake is made: %v\n%s", err, short(said))
				return
			}
			note(took, "no mistake", "nothing in "+m.excerpt.parts+", "+m.excerpt.faults)
		})
	}
	found := 0
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			said, took, err := suite(t, bad.Path, m, cmp.Or(os.Getenv(timeVariable), mutantTime))
			var failed *exec.ExitError
			switch finding := regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: .*(?:` + m.finds + `).*$(?:\n {8}[^{\s].*)?`).Find(said); {
			case err == nil:
				t.Errorf("not found in %v\n%s", took, short(said))
			case !errors.As(err, &failed):
				t.Error(err)
			case finding == nil:
				t.Errorf("the suite fails, and says nothing of it\n%s", short(said))
			default:
				found++
				_, what, _ := strings.Cut(strings.TrimSpace(string(finding)), ": ")
				t.Logf("found in %v: %.300s", took, what)
				note(took, m.name, what)
			}
		})
	}
	t.Logf("%d of %d mutants were found:\n%s", found, len(mutants), strings.Join(table, "\n"))
}

// suite runs the excerpt of a mutant, with a program that makes this mistake.
func suite(t *testing.T, at string, m mutant, lasts string) (said []byte, took time.Duration, err error) {
	t.Helper()
	self, err := os.Executable()
	rig.Must(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestChaos$", "-test.v", "-test.timeout", "15m")
	cmd.Env = append(os.Environ(), programVariable+"="+at, mistakeVariable+"="+m.name, timeVariable+"="+lasts,
		partsVariable+"="+m.excerpt.parts, faultsVariable+"="+m.excerpt.faults)
	start := time.Now()
	said, err = cmd.CombinedOutput()
	return said, time.Since(start).Round(time.Second), err
}

// short returns the output of the suite without the logs of processes.
func short(said []byte) string {
	var text strings.Builder
	for line := range strings.Lines(string(said)) {
		if regexp.MustCompile(`^ +\w+_test\.go:\d+: `).MatchString(line) {
			fmt.Fprintf(&text, "%.400s\n", strings.TrimSpace(line))
		}
	}
	return text.String()
}
