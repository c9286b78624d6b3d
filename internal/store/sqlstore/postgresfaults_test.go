package sqlstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// sleeper runs statements that take a lock in a pipeline that never ends. The server itself does
// not end such a session.
func sleeper(t *testing.T, url string, statements ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	p := conn.PgConn().StartPipeline(t.Context())
	for _, text := range statements {
		p.SendQueryParams(text, nil, nil, nil, nil)
	}
	p.SendFlushRequest()
	rig.Must(t, p.Flush())
	for range statements {
		results, err := p.GetResults()
		rig.Must(t, err)
		if r, ok := results.(interface{ Close() }); ok {
			r.Close()
		}
	}
	return conn
}

// TestASleeperLosesWhatOthersWaitFor checks that a process that stops in a pipeline of
// statements loses its locks: other replicas end its session.
func TestASleeperLosesWhatOthersWaitFor(t *testing.T) {
	d := onServer(t)
	s := d.open(t)
	defer closeStore(t, s)
	w := openWriter(t, s, audit.Options{})
	defer closeWriter(t, w)
	for name, what := range map[string]struct {
		holds string
		try   func() error
	}{
		"TheTrail": {`UPDATE sequences SET value = value WHERE name = 'audit'`, func() error { return w.Write(t.Context(), row("hmacData", "", 1)) }},
		"Updates":  {`SELECT pg_advisory_xact_lock(1263751760, -2)`, func() error { return tryUpdate(t, s, insertRole(role(1, "one"))) }},
	} {
		t.Run(name, func(t *testing.T) {
			conn := sleeper(t, d.source, what.holds)
			if err := what.try(); err != nil {
				t.Errorf("who waited: %v", err)
			}
			if _, err := conn.Exec(t.Context(), `SELECT 1`); err == nil {
				t.Error("it still has its transaction")
			}
		})
	}
}

// TestAnIdleTransactionIsLost checks that the server itself ends a transaction that is idle
// between two statements. Its process gets an error, and can continue.
func TestAnIdleTransactionIsLost(t *testing.T) {
	d := onServer(t)
	one, two := d.open(t), d.open(t)
	defer closeStore(t, one)
	defer closeStore(t, two)
	began, others := make(chan struct{}), make(chan error, 1)
	go func() {
		<-began
		others <- tryUpdate(t, two, insertRole(role(2, "two")))
	}()
	err := tryUpdate(t, one, func(ctx context.Context, tx *sqlstore.Tx) error {
		close(began)
		if err := <-others; err != nil {
			t.Errorf("who waited: %v", err)
		}
		return insertRole(role(1, "one"))(ctx, tx)
	})
	if fault.CodeOf(err) != fault.StoreUnavailable {
		t.Errorf("who slept: %v", err)
	}
	if _, err := two.Role(t.Context(), id(1)); err == nil {
		t.Error("what was not acknowledged is there")
	}
	update(t, one, insertRole(role(1, "one")))
}

// TestADatabaseThatWentBack promotes a standby that lacks the newest changes. Before replicas
// write again, they must discard these changes.
func TestADatabaseThatWentBack(t *testing.T) {
	primary := pgtest.Start(t)
	url := primary.Database(t)
	standby := primary.Standby(t, "second")
	var log rig.Output
	d := database{config: sqlstore.Config{URL: pgtest.On(url, primary, standby), Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	one, two := d.open(t), d.open(t)
	defer closeStore(t, one)
	defer closeStore(t, two)
	w := openWriter(t, one, audit.Options{})
	defer closeWriter(t, w)
	update(t, one, insertRole(role(1, "before")))
	rig.Must(t, w.Write(t.Context(), row("hmacData", "", 1)))
	rig.Soon(t, "the standby has the first change", func() bool {
		conn, err := pgx.Connect(t.Context(), strings.Replace(pgtest.On(url, standby), "read-write", "any", 1))
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close(t.Context()) }()
		var changes, rows int64
		err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM roles WHERE name = 'before'), (SELECT count(*) FROM audit)`).Scan(&changes, &rows)
		return err == nil && changes == 1 && rows == 1
	})
	standby.Kill(t)
	for n := range uint64(5) {
		update(t, one, insertRole(role(n+2, fmt.Sprint("lost ", n))))
		rig.Must(t, w.Write(t.Context(), row("hmacData", "", 1)))
	}
	rig.Must(t, two.Current(t.Context()))
	var forgot [2]atomic.Bool
	for i, s := range []*sqlstore.Store{one, two} {
		s.OnChange(func(changes []keyserver.Change) {
			if changes == nil {
				forgot[i].Store(true)
			}
		})
	}
	primary.Kill(t)
	standby.Restart(t)
	standby.Promote(t)
	n := uint64(100)
	for i, s := range []*sqlstore.Store{one, two} {
		rig.Soon(t, "the replica writes again", func() bool {
			n++
			err := tryUpdate(t, s, insertRole(role(n, fmt.Sprint("after ", n))))
			if err == nil && !forgot[i].Load() {
				t.Fatal("a replica wrote before it dropped the changes that the database lost")
			}
			return err == nil
		})
		for range 20 { // other changes get the numbers of the lost ones
			n++
			update(t, s, insertRole(role(n, fmt.Sprint("after ", n))))
		}
	}
	rig.Soon(t, "rows are written", func() bool { return w.Write(t.Context(), row("hmacData", "", 1)) == nil })
	if report := verify(t, one); !report.Intact() {
		t.Errorf("the trail: %+v", report)
	}
	if one.Lost()+two.Lost() < 1 || !bytes.Contains([]byte(log.String()), []byte("gone back")) {
		t.Errorf("%d and %d losses are counted, and logged was\n%s", one.Lost(), two.Lost(), log.String())
	}
}

// TestAStandbyByMistake checks the error for URLs that name only a standby.
func TestAStandbyByMistake(t *testing.T) {
	primary := pgtest.Start(t)
	url := primary.Database(t)
	standby := primary.Standby(t, "second")
	readWrite := pgtest.On(url, standby)
	for _, url := range []string{readWrite, strings.Replace(readWrite, "read-write", "any", 1)} {
		_, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: url})
		if !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), "is a standby") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", url, err)
		}
	}
	closeStore(t, database{config: sqlstore.Config{URL: pgtest.On(url, standby, primary)}}.open(t)) // the second host accepts writes
}

// TestConnectionsAreBounded checks that a process opens at most MaxConnections, and rejects
// a value that is too small.
func TestConnectionsAreBounded(t *testing.T) {
	d := onServer(t)
	d.config.MaxConnections = postgres.MinConnections - 1
	if _, err := sqlstore.Open(t.Context(), d.config); err == nil {
		t.Fatal("too few are taken")
	}
	d.config.MaxConnections++
	s := d.open(t)
	defer closeStore(t, s)
	w := openWriter(t, s, audit.Options{})
	defer closeWriter(t, w)
	var wg sync.WaitGroup
	for n := range uint64(16) {
		wg.Go(func() {
			for range 10 {
				if _, err := s.Roles(t.Context()); err != nil {
					t.Error(err)
				}
			}
			update(t, s, insertRole(role(n+1, fmt.Sprint("role ", n))))
			rig.Must(t, w.Write(t.Context(), row("hmacData", "", 1)))
		})
	}
	wg.Wait()
	n := d.query(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if len(n) != 1 || n[0] == "0" || len(n[0]) > 1 || n[0] > fmt.Sprint(postgres.MinConnections) {
		t.Errorf("%v connections, and %d are allowed", n, postgres.MinConnections)
	}
	waits := int64(0)
	for _, c := range s.Connections() {
		waits += c.Waits
	}
	if waits == 0 {
		t.Error("nobody has waited for a connection")
	}
}

// TestAHostThatFallsSilentBetweenTwoLooks checks that a statement that waits for a host without
// responses fails when another host is the primary, even if every query of the follower got a
// response.
func TestAHostThatFallsSilentBetweenTwoLooks(t *testing.T) {
	primary := pgtest.Start(t)
	url := primary.Database(t)
	standby := primary.Standby(t, "second")
	s := database{config: sqlstore.Config{URL: pgtest.On(url, primary, standby)}}.open(t)
	defer closeStore(t, s)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), url)
		rig.Must(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	exec := func(conn *pgx.Conn, statement string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), statement)
		rig.Must(t, err)
	}
	update(t, s, insertRole(role(1, "before"))) // opens a connection
	other, witness := connect(), connect()
	waiting := func() bool {
		var n int
		rig.Must(t, witness.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`).Scan(&n))
		return n > 0
	}
	// The follower gets the state, but its read of the changes must wait until the host no longer
	// responds.
	exec(other, `BEGIN`)
	exec(other, `LOCK TABLE changes IN ACCESS EXCLUSIVE MODE`)
	exec(witness, `UPDATE sequences SET value = value + 1 WHERE name = 'changes'`)
	rig.Soon(t, "the change is asked for", waiting)
	primary.Freeze(t)
	done := make(chan error, 1)
	go func() { done <- tryUpdate(t, s, insertRole(role(2, "into the silence"))) }()
	standby.Promote(t)
	if err := <-done; errors.Is(err, context.DeadlineExceeded) {
		t.Error("who waited on the silent host was let go by nothing but the end of his own time")
	}
	rig.Soon(t, "writes go on", func() bool { return tryUpdate(t, s, insertRole(role(3, "after"))) == nil })
}
