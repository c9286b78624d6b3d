package contract

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// fullDisk makes every file write of this process fail, as on a full disk, until the test ends or the returned
// function is called.
func fullDisk(t testing.TB) (room func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	rig.Must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := func(bytes uint64) {
		rig.Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: before.Max}))
	}
	limit(1)
	room = func() { limit(before.Cur) }
	t.Cleanup(room)
	return room
}

// fromTheFuture makes a proof of a client whose clock is ahead. The server stores it before it accepts the request.
func fromTheFuture(c rig.Object) { c["iat"] = time.Now().Add(30 * time.Second).Unix() }

// TestFullDisk checks AUDIT_UNAVAILABLE and STORE_UNAVAILABLE on a full disk: the server executes nothing that it
// cannot store, and recovers when there is space.
func TestFullDisk(t *testing.T) {
	s := start(t) // not parallel, because no test can write a file
	session, link, h := s.AsAdmin(t), s.mint(t, "key"), newHolder(t)
	s.bind(t, h)
	use := rig.Object{"hiddenLink": link, "data": ""}
	s.OK(t, session, "POST", mac, use)
	room := fullDisk(t)
	ceiling(t, s.Send(t, session, "POST", mac, use), "AUDIT_UNAVAILABLE", "process", "audit")
	ceiling(t, s.Send(t, session, "POST", "/api/roles", rig.Object{"name": "r", "operations": []string{}}), "AUDIT_UNAVAILABLE", "process", "audit")
	ceiling(t, s.Send(t, "", "POST", sessions, s.loginBody()), "AUDIT_UNAVAILABLE", "process", "audit")
	ceiling(t, s.prove(t, "Bearer "+h.session, "GET", where, nil, h.proof(t, "GET", s.URL()+where, fromTheFuture)), "STORE_UNAVAILABLE", "process", "database")
	room()
	s.OK(t, session, "POST", mac, use)
	s.login1(t)
}

// TestNoAuditOnPostgreSQL checks AUDIT_UNAVAILABLE if PostgreSQL rejects only audit rows.
func TestNoAuditOnPostgreSQL(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	s := start(t, func(c *server.Config) { c.DatabaseURL = url })
	session, link := s.AsAdmin(t), s.mint(t, "key")
	use := rig.Object{"hiddenLink": link, "data": ""}
	db, err := pgx.Connect(t.Context(), url)
	rig.Must(t, err)
	rename := func(from, to string) {
		t.Helper()
		_, err := db.Exec(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
		rig.Must(t, err)
	}
	rename("audit", "audit_elsewhere")
	ceiling(t, s.Send(t, session, "POST", mac, use), "AUDIT_UNAVAILABLE", "process", "audit")
	ceiling(t, s.Send(t, "", "POST", sessions, s.loginBody()), "AUDIT_UNAVAILABLE", "process", "audit")
	rename("audit_elsewhere", "audit")
	s.OK(t, session, "POST", mac, use)
	rig.Must(t, db.Close(t.Context()))
}

// TestPostgreSQLIsGone checks STORE_UNAVAILABLE and NOT_CURRENT while PostgreSQL is down. The server refuses requests
// instead of using old data, readiness shows the cause, and the server recovers when the database is available.
func TestPostgreSQLIsGone(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t)
	url := cluster.Database(t)
	s := start(t, func(c *server.Config) { c.DatabaseURL = url })
	session, link := s.AsAdmin(t), s.mint(t, "key")
	use := rig.Object{"hiddenLink": link, "data": ""}
	s.OK(t, session, "POST", mac, use)
	cluster.Kill(t)
	ceiling(t, s.Send(t, "", "POST", sessions, s.loginBody()), "STORE_UNAVAILABLE", "process", "database")
	s.until(t, session, "GET", where, http.StatusServiceUnavailable, "NOT_CURRENT")
	ceiling(t, s.Send(t, session, "POST", mac, use), "NOT_CURRENT", "process", "current")
	if a := s.Send(t, "", "GET", "/api/ready", nil); a.Status != http.StatusServiceUnavailable {
		t.Errorf("ready without a database: %s", a.Raw)
	}
	s.OK(t, "", "GET", "/api/health", nil)
	cluster.Restart(t)
	s.until(t, session, "GET", "/api/operations", http.StatusOK, "") // this request needs an audit row
	s.OK(t, session, "POST", mac, use)
	s.until(t, "", "GET", "/api/ready", http.StatusOK, "")
}

// REQUEST_TIMEOUT: a body that does not arrive in the time of its route.
func TestRequestTimeout(t *testing.T) {
	s := one(t)
	conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13})
	rig.Must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, strings.Replace(half(s.AsAdmin(t)), mac, "/api/roles", 1))
	rig.Must(t, err)
	answers := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answers, nil)
	rig.Must(t, err)
	if resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(answers, nil)
		rig.Must(t, err)
	}
	a, err := rig.Read(resp)
	rig.Must(t, err)
	seen.add(a.Code())
	is(t, a, http.StatusGatewayTimeout, "REQUEST_TIMEOUT")
}
