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
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// mutantsVariable has the mutants run, which takes the better part of an hour.
const mutantsVariable = "CHAOS_MUTANTS"

// mutantTime is for how long one is looked for where nobody says it.
const mutantTime = "2m"

// mutant is a mistake that is planted in the program. The suite has to find it.
type mutant struct {
	name string
	file string
	// edits are what is replaced by what. Each has to be there once.
	edits [][2]string
	// finds is what a finding of it says: one that ends the suite otherwise was not found.
	finds string
}

// now and then is one time in so many.
const sometimes = `rand.IntN(12) == 0`

func imports(more ...string) [2]string {
	return [2]string{"import (\n", "import (\n\t\"" + strings.Join(more, "\"\n\t\"") + "\"\n"}
}

var mutants = []mutant{
	{"now and then a change of a role is acknowledged and not committed", "internal/sqlstore/update.go", [][2]string{
		imports("math/rand/v2"),
		{`		committed, err = s.storeChanges(ctx, in, tx.changes)
		return err
	})`, `		committed, err = s.storeChanges(ctx, in, tx.changes)
		if ` + sometimes + ` && len(tx.changes) == 1 && tx.changes[0].Kind == keyserver.ChangeRole {
			return errUncommitted
		}
		return err
	})
	if errors.Is(err, errUncommitted) {
		return nil
	}`},
		{`// record notes a change, once`, `var errUncommitted = errors.New("not committed")

// record notes a change, once`},
	}, "NOT_SAVED|by what was acknowledged"},
	{"audit rows are acknowledged before they are in the journal", "internal/audit/journal/journal.go", [][2]string{
		imports("bytes", "time"),
		{`	if err := j.write(j.file, j.buffer, headerSize+first*blockSize); err != nil {
		j.failed++`, `	later := bytes.Clone(j.buffer)
	go func() {
		time.Sleep(100 * time.Millisecond)
		_ = j.write(j.file, later, headerSize+first*blockSize)
	}()
	if err := error(nil); err != nil {
		j.failed++`},
	}, "its audit row .* is not in the trail|no audit row says so|its owner's rows are|serve ended before it was ready"},
	{"a start leaves out the last group of the journal", "internal/sqlstore/fill.go", [][2]string{
		{`	f := newFiller(s, id)
	all := 0`, `	f := newFiller(s, id)
	if len(groups) > 0 {
		groups = groups[:len(groups)-1]
	}
	all := 0`},
	}, "its audit row .* is not in the trail|no audit row says so|its owner's rows are"},
	{"now and then what is let through has no row", "internal/engine/gate.go", [][2]string{
		imports("math/rand/v2"),
		{`	return e.Auditor.Write(ctx, r.row(keyserver.Allowed, ""))
}

// refused records`, `	if ` + sometimes + ` {
		return nil
	}
	return e.Auditor.Write(ctx, r.row(keyserver.Allowed, ""))
}

// refused records`},
	}, "its audit row .* is not in the trail"},
	{"the row comes after the effect", "internal/engine/gate.go", [][2]string{
		{`	if err := e.enter(ctx, r, checks...); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return e.failed(ctx, r, err)
	}
	return nil`, `	if refusal := e.authorise(ctx, r, checks); refusal != nil {
		return e.refused(ctx, r, refusal)
	}
	if err := effect(); err != nil {
		return e.failed(ctx, r, err)
	}
	return e.Auditor.Write(ctx, r.row(keyserver.Allowed, ""))`},
	}, "and no audit row says so"},
	{"a cache keeps what a change made stale", "internal/engine/cache/cache.go", [][2]string{
		{`	default:
		c.drop(change.ID)
	}`, `	}`},
	}, "no order explains|is \"|ACL_DENIED|PRINCIPAL|NOT_SAVED|NOT_VERIFIED"},
	{"a replica does not hear of the changes of others", "internal/sqlstore/follow/follow.go", [][2]string{
		{`		f.source.Notify(page.Changes)`, `		// nobody is told`},
	}, "no order explains|is \"|goes on"},
	{"a logout is forgotten by the database", "internal/session/manager.go", [][2]string{
		{`	err = m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		_, err := tx.DeleteSession(ctx, by.Session)
		return err
	})`, `	m.changed([]keyserver.Change{{Kind: keyserver.ChangeSession, ID: by.Session}})`},
	}, "a session that was ended goes on"},
	{"a goroutine stays for each request", "httpapi/exchange.go", [][2]string{
		{`	defer x.finish()
	x.setHeaders()`, `	defer x.finish()
	go func() { <-make(chan struct{}) }()
	x.setHeaders()`},
	}, "does not come back to what it held"},
	{"a descriptor stays open for some requests", "httpapi/exchange.go", [][2]string{
		{`	defer x.finish()
	x.setHeaders()`, `	defer x.finish()
	if a.Clock().UnixNano()%8 == 0 {
		f, _ := os.Open("/dev/null")
		left = append(left, f)
	}
	x.setHeaders()`},
		{`// serve runs one request.`, `var left []*os.File

// serve runs one request.`},
	}, "does not come back to what it held"},
	{"memory stays for each request", "httpapi/exchange.go", [][2]string{
		{`	defer x.finish()
	x.setHeaders()`, `	defer x.finish()
	leftMu.Lock()
	left = append(left, make([]byte, 256<<10))
	leftMu.Unlock()
	x.setHeaders()`},
		{`// serve runs one request.`, `var (
	leftMu sync.Mutex
	left   [][]byte
)

// serve runs one request.`},
	}, "does not come back to what it held"},
	{"a cache is written without its lock", "internal/engine/cache/cache.go", [][2]string{
		{`func (c *Cache[K, V]) keep(k K, v V, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()`, `func (c *Cache[K, V]) keep(k K, v V, before uint64) {
	for range 20000 {
		c.entries[k] = v
	}`},
	}, "has ended by itself|fatal error|concurrent map|no order explains"},
	{"the manager takes a write without an answer for done", "internal/managed/act.go", [][2]string{
		{`	if err == nil || (d.deletes() && link.IsGone(err)) {`, `	if err == nil || !d.deletes() {`},
		{`		if err != nil {
			out.Evidence =`, `		if err != nil && d.deletes() {
			out.Evidence =`},
	}, "a false Ready|does not come to rest"},
	{"the manager does not compare the operations of a role", "controllers/role.go", [][2]string{
		{`!slices.Equal(have, want.operations) {
		catalogue`, `false && !slices.Equal(have, want.operations) {
		catalogue`},
	}, "a false Ready"},
	{"the gate asks for no role", "internal/engine/gate.go", [][2]string{
		{`	if !granted {
		return fault.New(fault.AccessDenied, "no role of %s grants %s", r.by.Name, r.op.Name).Audited(fault.ReasonRoleDenied)
	}
	if !r.by`, `	_ = granted
	if !r.by`},
	}, "somebody without a role was let|without the right"},
	{"a refusal is written down as allowed", "internal/engine/gate.go", [][2]string{
		{`		return r.row(keyserver.Refused, f.Reason)`, `		return r.row(keyserver.Allowed, "")`},
	}, "was refused, and"},
	{"HMAC states are not reset", "internal/engine/macs.go", [][2]string{
		{`	h.Reset()
	m.pool.Put(h)`, `	m.pool.Put(h)`},
	}, "the HMAC under|peer's HMAC"},
	{"now and then a row is written twice", "internal/audit/writer.go", [][2]string{
		imports("math/rand/v2"),
		{`			w.rows = append(append(w.rows, wait.entry), wait.more...)`, `			w.rows = append(append(w.rows, wait.entry), wait.more...)
			if ` + sometimes + ` {
				w.rows = append(w.rows, wait.entry)
			}`},
	}, "audit rows .* that say allowed|its owner's rows are"},
	{"a hash of the chain is left out", "internal/audit/writer.go", [][2]string{
		{`		row.Previous = head.Hash`, `		if row.Previous = head.Hash; row.Position%100 == 0 {
			clear(row.Previous[:])
		}`},
	}, "audit verify|serve ended before it was ready|read the audit trail|does not follow"},
	{"the list of a key is not asked for peers", "internal/engine/key.go", [][2]string{
		{`	verdict := access.Evaluate(key.acl, who, want, e.Clock())
	if verdict.Allowed || verdict.Spent {`, `	verdict := access.Evaluate(key.acl, who, want, e.Clock())
	verdict.Allowed = verdict.Allowed || by.Peer != nil
	if verdict.Allowed || verdict.Spent {`},
	}, "a peer let somebody use the key"},
	{"what a peer is asked has no row here", "internal/engine/forward.go", [][2]string{
		{`	durable, err := e.Auditor.Begin(context.WithoutCancel(ctx), r.row(keyserver.Allowed, ""))
	if err != nil {
		return err
	}`, `	durable := func() error { return nil }
	var err error`},
	}, "its audit row .* is not in the trail"},
	{"replicas write at the same time", "internal/sqlstore/postgres.go", [][2]string{
		{`pg_advisory_xact_lock($2, $3)::text ||`, `($2::int + $3::int)::text ||`},
	}, "no order explains|is \"|at replicated|audit verify|INTEGRITY|TAMPERED"},
}

// planted is the file of a mutant.
func (m mutant) planted() (string, error) {
	root, err := rig.Root()
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	text := string(raw)
	for _, e := range m.edits {
		if n := strings.Count(text, e[0]); n != 1 {
			return "", fmt.Errorf("%q is %d times in %s", e[0], n, m.file)
		}
		text = strings.Replace(text, e[0], e[1], 1)
	}
	return text, nil
}

// TestMutantsFit holds the mutants to the code, which moves on: what they replace is there.
func TestMutantsFit(t *testing.T) {
	if len(mutants) < 20 {
		t.Errorf("there are %d mutants", len(mutants))
	}
	for _, m := range mutants {
		if _, err := m.planted(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if _, err := regexp.Compile(m.finds); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// TestMutants plants one mistake after the other, and the suite has to find each.
func TestMutants(t *testing.T) {
	if os.Getenv(mutantsVariable) == "" {
		t.Skipf("%s is not set: that the suite finds planted mistakes takes long, and is shown at night", mutantsVariable)
	}
	suite, err := os.Executable()
	rig.Must(t, err)
	found := 0
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			text, err := m.planted()
			rig.Must(t, err)
			files := maps.Clone(program.SettableClock)
			files[m.file] = text
			bad, err := program.BuildChanged(files)
			rig.Must(t, err)
			defer func() { _ = bad.Remove() }() // a leftover in the temporary directory fails no test
			cmd := exec.CommandContext(t.Context(), suite, "-test.run", "^TestChaos$", "-test.v", "-test.timeout", "15m")
			cmd.Env = append(os.Environ(), programVariable+"="+bad.Path, timeVariable+"="+cmp.Or(os.Getenv(timeVariable), mutantTime))
			start := time.Now()
			said, err := cmd.CombinedOutput()
			var failed *exec.ExitError
			switch finding := regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: .*(?:` + m.finds + `).*$`).Find(said); {
			case err == nil:
				t.Errorf("not found in %v\n%s", time.Since(start).Round(time.Second), short(said))
			case !errors.As(err, &failed):
				t.Error(err)
			case finding == nil:
				t.Errorf("the suite fails, and says nothing of it\n%s", short(said))
			default:
				found++
				t.Logf("found in %v: %.300s", time.Since(start).Round(time.Second), strings.TrimSpace(string(finding)))
			}
		})
	}
	t.Logf("%d of %d mutants were found", found, len(mutants))
}

// short is what the suite itself has said, without the logs of processes.
func short(said []byte) string {
	var text strings.Builder
	for line := range strings.Lines(string(said)) {
		if regexp.MustCompile(`^ +\w+_test\.go:\d+: `).MatchString(line) {
			fmt.Fprintf(&text, "%.400s\n", strings.TrimSpace(line))
		}
	}
	return text.String()
}
