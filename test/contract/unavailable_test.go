package contract

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// fullDisk has every write to a file of this process fail, as on a disk that is
// full, until the test ends or the answer is called.
func fullDisk(t testing.TB) (room func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	limit := func(bytes uint64) {
		must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: math.MaxUint64}))
	}
	limit(1)
	room = func() { limit(math.MaxUint64) }
	t.Cleanup(room)
	return room
}

// fromTheFuture is a proof of a client whose clock is fast: such a one is
// written down before it counts as used.
func fromTheFuture(c object) { c["iat"] = time.Now().Add(30 * time.Second).Unix() }

// AUDIT_UNAVAILABLE and STORE_UNAVAILABLE where the disk is full: nothing is
// done that cannot be written down, and all is well once there is room.
func TestFullDisk(t *testing.T) {
	s := one(t)
	session, link, h := s.admin(t), s.mint(t, "key"), newHolder(t)
	s.bind(t, h)
	use := object{"hiddenLink": link, "data": ""}
	s.ok(t, session, "POST", mac, use)
	room := fullDisk(t)
	s.send(t, session, "POST", mac, use).ceiling(t, "AUDIT_UNAVAILABLE", "process", "audit")
	s.send(t, session, "POST", "/api/roles", object{"name": "r", "operations": []string{}}).ceiling(t, "AUDIT_UNAVAILABLE", "process", "audit")
	s.send(t, "", "POST", sessions, loginBody).ceiling(t, "AUDIT_UNAVAILABLE", "process", "audit")
	s.prove(t, "Bearer "+h.session, "GET", where, nil, h.proof(t, "GET", s.URL()+where, fromTheFuture)).
		ceiling(t, "STORE_UNAVAILABLE", "process", "database")
	room()
	s.ok(t, session, "POST", mac, use)
	s.login1(t)
}

// AUDIT_UNAVAILABLE where PostgreSQL takes everything but audit rows.
func TestNoAuditOnPostgreSQL(t *testing.T) {
	url := pgtest.Database(t)
	s := start(t, func(c *server.Config) { c.DatabaseURL = url })
	session, link := s.admin(t), s.mint(t, "key")
	use := object{"hiddenLink": link, "data": ""}
	db, err := pgx.Connect(t.Context(), url)
	must(t, err)
	rename := func(from, to string) {
		t.Helper()
		_, err := db.Exec(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
		must(t, err)
	}
	rename("audit", "audit_elsewhere")
	s.send(t, session, "POST", mac, use).ceiling(t, "AUDIT_UNAVAILABLE", "process", "audit")
	s.send(t, "", "POST", sessions, loginBody).ceiling(t, "AUDIT_UNAVAILABLE", "process", "audit")
	rename("audit_elsewhere", "audit")
	s.ok(t, session, "POST", mac, use)
	must(t, db.Close(t.Context()))
}

// STORE_UNAVAILABLE and NOT_CURRENT where PostgreSQL is gone: the service
// refuses rather than guess, says so to whoever asks for its readiness, and
// goes on by itself once the database is back.
func TestPostgreSQLIsGone(t *testing.T) {
	cluster := pgtest.Start(t)
	url := cluster.Database(t)
	s := start(t, func(c *server.Config) { c.DatabaseURL = url })
	session, link := s.admin(t), s.mint(t, "key")
	use := object{"hiddenLink": link, "data": ""}
	s.ok(t, session, "POST", mac, use)
	cluster.Kill(t)
	s.send(t, "", "POST", sessions, loginBody).ceiling(t, "STORE_UNAVAILABLE", "process", "database")
	s.until(t, session, "GET", where, http.StatusServiceUnavailable, "NOT_CURRENT")
	s.send(t, session, "POST", mac, use).ceiling(t, "NOT_CURRENT", "process", "current")
	if a := s.send(t, "", "GET", "/api/ready", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("ready without a database: %s", a.raw)
	}
	s.ok(t, "", "GET", "/api/health", nil)
	cluster.Restart(t)
	s.until(t, session, "GET", "/api/operations", http.StatusOK, "") // audited, so rows are written again
	s.ok(t, session, "POST", mac, use)
	s.until(t, "", "GET", "/api/ready", http.StatusOK, "")
}

// REQUEST_TIMEOUT: a body that does not arrive in the time of its route.
func TestRequestTimeout(t *testing.T) {
	s := one(t)
	conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13})
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, strings.Replace(half(s.admin(t)), mac, "/api/roles", 1))
	must(t, err)
	answers := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answers, nil)
	must(t, err)
	if resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(answers, nil)
		must(t, err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.raw, err = io.ReadAll(resp.Body)
	must(t, err)
	must(t, json.Unmarshal(a.raw, &a.body))
	seen.add(a.code())
	a.is(t, http.StatusGatewayTimeout, "REQUEST_TIMEOUT")
}
