// Package upgrade upgrades running key servers to the next release and downgrades them again, while clients use them
// (ADR 56). The next release is this program with one more migration. The migration adds a table, and a column to every
// existing table.
package upgrade

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	"github.com/keyserver-operator/keyserver-operator/test/rig/shell"
)

// present is this release, and next is the next release.
var present, next program.Program

// nextRelease is the version of next, and nextSchema the version of its schema.
const (
	nextRelease = "0.99.0"
	nextSchema  = 9999
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	files, err := changed()
	if err == nil {
		next, err = program.BuildChanged(files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = next.Remove() }() // a leftover in the temporary directory fails no test
	return program.Main(m, &present, false)
}

// table matches the statements of a migration that create and drop tables.
var table = regexp.MustCompile(`(?m)^(CREATE|DROP) TABLE (\w+)`)

// changed returns the files of the next release that differ from this one.
func changed() (map[string]string, error) {
	root, err := rig.Root()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, dialect := range []string{"sqlite", "postgres"} {
		const dir = "internal/store/sqlstore/migrations/"
		names, err := filepath.Glob(filepath.Join(root, dir, dialect, "*.sql"))
		if err != nil {
			return nil, err
		}
		there := map[string]bool{}
		for _, name := range names { // sorted by number
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			for _, m := range table.FindAllStringSubmatch(string(text), -1) {
				there[m[2]] = m[1] == "CREATE"
			}
		}
		migration := "-- +goose Up\n\n"
		if dialect == "sqlite" {
			migration += fmt.Sprintf("PRAGMA user_version = %d;\n", nextSchema)
		}
		migration += "CREATE TABLE of_the_next (what TEXT NOT NULL);\n"
		const lists = "internal/store/sqlstore/schema/"
		list, err := os.ReadFile(filepath.Join(root, lists, dialect+".txt"))
		if err != nil {
			return nil, err
		}
		listed, alters := string(list)+"table\tof_the_next\t\trp\ncolumn\tof_the_next\twhat\ttext NOT NULL\n", ""
		for name, is := range there {
			if is {
				alters += "ALTER TABLE " + name + " ADD COLUMN of_the_next TEXT;\n"
				listed += "column\t" + name + "\tof_the_next\ttext\n"
			}
		}
		migration += alters
		files[fmt.Sprintf("%s%s/%05d_next.sql", dir, dialect, nextSchema)] = migration
		if dialect == "sqlite" {
			if listed, err = sqliteSchema(string(list), "CREATE TABLE of_the_next (what TEXT NOT NULL);\n"+alters); err != nil {
				return nil, err
			}
		}
		files[lists+dialect+".txt"] = listed
	}
	const release = "internal/platform/version/version.go"
	text, err := os.ReadFile(filepath.Join(root, release))
	files[release] = strings.Replace(string(text), fmt.Sprintf("Minor   = %d", version.Minor), "Minor   = 99", 1)
	return files, err
}

// sqliteSchema returns the schema list after a migration. SQLite runs the migration, so that the definitions are its
// own.
func sqliteSchema(list, migration string) (string, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a separate database in memory
	var tables, indexes []string
	for line := range strings.Lines(list) {
		part := strings.SplitN(line, "\t", 4)
		if part[0] == "table" {
			tables = append(tables, part[3])
		} else {
			indexes = append(indexes, part[3])
		}
	}
	for _, statement := range append(append(tables, indexes...), migration) {
		if _, err := db.Exec(statement); err != nil {
			return "", fmt.Errorf("%s: %w", statement, err)
		}
	}
	rows, err := db.Query(`SELECT type, tbl_name, CASE type WHEN 'table' THEN '' ELSE name END, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var next strings.Builder
	for rows.Next() {
		var kind, table, name, definition string
		if err := rows.Scan(&kind, &table, &name, &definition); err != nil {
			return "", err
		}
		fmt.Fprintf(&next, "%s\t%s\t%s\t%s\n", kind, table, name, strings.Join(strings.Fields(definition), " "))
	}
	return next.String(), rows.Err()
}

// password is the first password of admin.
const password = "correct horse battery staple"

// replica is a process of some release, with its clients.
type replica struct {
	args    []string
	dir     string
	server  *program.Server
	address atomic.Pointer[string]
	admin   *client.Client
	done    atomic.Int64 // acknowledged writes and uses
}

// run starts the replica with a release. Before that, it stops the previous process gracefully.
func (r *replica) run(t *testing.T, on program.Program) {
	t.Helper()
	if r.server != nil {
		if err := r.server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.server, err = on.Serve(r.dir, r.args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.server.Kill)
	r.address.Store(&r.server.Address)
}

// said reports whether the warnings of readiness contain the words.
func (r *replica) said(t *testing.T, words string) bool {
	t.Helper()
	ready, err := r.admin.GetReadiness(t.Context())
	return err == nil && strings.Contains(strings.Join(ready.Warnings, "; "), words)
}

// ledger has the created keys, with a MAC of each.
type ledger struct {
	mu   sync.Mutex
	made []made
}

type made struct {
	link schema.HiddenLink
	mac  string
}

const message = "the message"

// work creates keys, and uses the new key and sometimes an earlier key, until ctx ends. A missing response is ignored;
// a wrong response is an error.
func (l *ledger) work(ctx context.Context, r *replica) error {
	for n := 0; ctx.Err() == nil; n++ {
		key, err := r.admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the process is just replaced
			continue
		}
		answer, err := r.admin.HMAC(ctx, key.TTag, strings.NewReader(message))
		if err != nil {
			continue
		}
		l.mu.Lock()
		l.made = append(l.made, made{key.TTag, string(answer.MAC)})
		before := l.made[n%len(l.made)]
		l.mu.Unlock()
		if again, err := r.admin.HMAC(ctx, before.link, strings.NewReader(message)); err == nil && string(again.MAC) != before.mac {
			return fmt.Errorf("the key %s makes another MAC than before", before.link)
		}
		r.done.Add(1)
	}
	return nil
}

// site is a key server with one or two replicas and load.
type site struct {
	replicas []*replica
	ledger   ledger
	state    []string // flags that select its database
}

func newSite(t *testing.T, replicas int, state ...string) *site {
	t.Helper()
	s := &site{state: state}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	kek := "base64key://" + base64.URLEncoding.EncodeToString(make([]byte, 32))
	for range replicas {
		r := &replica{dir: filepath.Join(t.TempDir(), "data"), args: append([]string{"--kek", kek, "--bootstrap-password-file", file}, state...)}
		r.run(t, present)
		r.admin = program.Client(t, program.Connect(t, r.dir, func() string { return *r.address.Load() }), "admin", password, 5)
		s.replicas = append(s.replicas, r)
	}
	if len(state) == 0 {
		s.state = []string{"--data-dir", s.replicas[0].dir}
	}
	s.state = append(s.state, "--kek", kek)
	return s
}

// loaded calls change while clients use each replica.
func (s *site) loaded(t *testing.T, change func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	failures := make(chan error, 2*len(s.replicas))
	var group sync.WaitGroup
	for _, r := range s.replicas {
		for range 2 {
			group.Go(func() { failures <- s.ledger.work(ctx, r) })
		}
	}
	defer func() {
		cancel()
		group.Wait()
		close(failures)
		for err := range failures {
			if err != nil {
				t.Error(err)
			}
		}
	}()
	change()
}

// awaitProgress waits until clients of each replica get new acknowledgements.
func (s *site) awaitProgress(t *testing.T) {
	t.Helper()
	for i, r := range s.replicas {
		before := r.done.Load()
		rig.Soon(t, fmt.Sprintf("replica %d goes on\n%s", i, r.server.Log()), func() bool { return r.done.Load() >= before+3 })
	}
}

// whole checks that the key server has all acknowledged data.
func (s *site) whole(t *testing.T, by program.Program) {
	t.Helper()
	if len(s.ledger.made) == 0 {
		t.Fatal("nothing was acknowledged")
	}
	for _, m := range s.ledger.made {
		answer, err := s.replicas[0].admin.HMAC(t.Context(), m.link, strings.NewReader(message))
		if err != nil || string(answer.MAC) != m.mac {
			t.Errorf("the key %s: %v", m.link, err)
		}
	}
	for _, command := range [][]string{{"doctor"}, {"audit", "verify"}} {
		args := slices.Concat(command, s.state)
		if command[0] == "audit" {
			args = slices.Concat(command, s.state[:len(s.state)-2])
		}
		if out, err := by.Run(args...); err != nil {
			t.Errorf("%v: %v\n%s", command, err, out)
		}
	}
	t.Logf("%d keys were made and used", len(s.ledger.made))
}

// The commands of docs/upgrade.md work unchanged: the checks succeed before and after, and the
// warning about a newer database fails the readiness check.
func TestTheCommandsOfTheDocument(t *testing.T) {
	shell.Need(t)
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, 1, "--database-url", pgtest.Database(t))
	r := s.replicas[0]
	commands := t.TempDir()
	use := func(p program.Program) {
		t.Helper()
		name := filepath.Join(commands, "keyserver-operator")
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink(p.Path, name); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	run := func(heading string) error {
		for _, block := range markdown.Blocks(string(document)) {
			if block.Heading != heading {
				continue
			}
			ran++
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block.Text)
			cmd.Env = append(program.Environment(), "PATH="+commands+":"+os.Getenv("PATH"), "SERVER=https://"+r.server.Address, "CA="+filepath.Join(r.dir, "ca.crt"),
				"WHERE="+strings.Join(s.state[:2], " "), "KEK="+s.state[len(s.state)-1])
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", block.Text, err, out)
			}
		}
		return nil
	}
	use(present)
	if err := errors.Join(run("Prepare the upgrade"), run("Check the result")); err != nil {
		t.Error(err)
	}
	r.run(t, next)
	use(next)
	if err := run("Check the result"); err != nil {
		t.Error(err)
	}
	r.run(t, present)
	use(present)
	if err := run("Check the result"); err == nil || !strings.Contains(err.Error(), "jq") {
		t.Errorf("back on the release before, the check says %v", err)
	}
	if ran != 4 {
		t.Errorf("%d blocks were run", ran)
	}
}

const newer = "of release " + nextRelease

// The replicas are upgraded to the next release and downgraded again, one at a time, under load. No acknowledged write
// is lost.
func TestThereAndBack(t *testing.T) {
	for name, on := range map[string]func(t *testing.T) *site{
		"SQLite":     func(t *testing.T) *site { return newSite(t, 1) },
		"PostgreSQL": func(t *testing.T) *site { return newSite(t, 2, "--database-url", pgtest.Database(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := on(t)
			last := s.replicas[len(s.replicas)-1]
			s.loaded(t, func() {
				s.awaitProgress(t)
				for i, r := range s.replicas {
					r.run(t, next)
					if migrated := strings.Contains(r.server.Log(), "database migrated"); migrated != (i == 0) {
						t.Errorf("replica %d says of a migration: %t\n%s", i, migrated, r.server.Log())
					}
					s.awaitProgress(t)
					if r != last {
						rig.Soon(t, "the replica that was not replaced yet says that the database is newer", func() bool { return last.said(t, newer) })
					}
				}
				if last.said(t, newer) {
					t.Error("the next release takes its own database for a newer one")
				}
				for _, r := range s.replicas {
					r.run(t, present)
					if !strings.Contains(r.server.Log(), newer) || !r.said(t, newer) {
						t.Errorf("the release before does not say that the database is newer\n%s", r.server.Log())
					}
					s.awaitProgress(t)
				}
			})
			s.whole(t, present)
			s.loaded(t, func() {
				for _, r := range s.replicas {
					r.run(t, next)
					s.awaitProgress(t)
				}
			})
			s.whole(t, next)
		})
	}
}

// A release below the schema floor of the database stops serving, and does not start again. Its error is one sentence
// with both releases.
func TestBelowTheFloor(t *testing.T) {
	url := pgtest.Database(t)
	s := newSite(t, 2, "--database-url", url)
	s.replicas[0].run(t, next)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `UPDATE schema_floor SET floor = $1, floor_release = $2`, nextSchema, nextRelease)
	if err != nil {
		t.Fatal(err)
	}
	left := s.replicas[1]
	rig.Soon(t, "the replica of the release before is not ready", func() bool {
		_, err := left.admin.GetReadiness(t.Context())
		return client.IsCode(err, "NOT_READY")
	})
	if err := left.server.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, start := range []func() error{
		func() error { _, err := present.Serve(left.dir, left.args...); return err },
		func() error { _, err := present.Run(append([]string{"doctor"}, s.state...)...); return err },
	} {
		err := start()
		if err == nil || !strings.Contains(err.Error(), newer+", but this program, release "+version.String()) || !strings.Contains(err.Error(), "use release "+nextRelease+" or later") {
			t.Errorf("got %v", err)
		}
	}
	if out, err := next.Run(append([]string{"doctor"}, s.state...)...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
