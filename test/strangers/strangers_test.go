package strangers

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

var built program.Program

func TestMain(m *testing.M) {
	if os.Getenv(senderVariable) != "" {
		if err := runSender(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(program.Main(m, &built, false))
}

const patience = 20 * time.Second

// site is the server under attack, with an honest client.
type site struct {
	*rig.Site
	process *program.Server
	address string
	roots   *x509.CertPool

	user rig.User
	link string
}

// start runs a server with one user that has a key.
func start(t testing.TB, args ...string) *site {
	t.Helper()
	s := serve(t, args...)
	password, err := s.process.Password()
	rig.Must(t, err)
	s.Administrator = rig.Credentials{Name: "admin", Password: password}
	s.user = s.User(t, "honest", keyserver.RoleEncryptor)
	s.link = s.user.Mint(t, nil)
	return s
}

func serve(t testing.TB, args ...string) *site {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	process, err := built.Serve(dir, args...)
	rig.Must(t, err)
	t.Cleanup(process.Kill)
	roots, err := program.Roots(dir)
	rig.Must(t, err)
	s := &site{process: process, address: process.Address, roots: roots}
	s.Site = &rig.Site{
		System: 1, Base: func() string { return program.BaseURL }, Log: func() string { return s.process.Log() },
		HTTP: &http.Client{Transport: program.Connect(t, dir, func() string { return s.process.Address })},
	}
	return s
}

// again starts another process. Its memory has not been used for password hashing: on a busy machine, Go releases such
// memory slowly.
func (s *site) again(t testing.TB) {
	t.Helper()
	rig.Must(t, s.process.Stop())
	process, err := built.Serve(s.process.DataDir)
	rig.Must(t, err)
	t.Cleanup(process.Kill)
	s.process, s.address = process, process.Address
}

func each(t *testing.T, test func(t *testing.T, s *site), args ...string) {
	t.Run("SQLite", func(t *testing.T) { test(t, start(t, args...)) })
	t.Run("PostgreSQL", func(t *testing.T) {
		test(t, start(t, append([]string{"--database-url", migrated.Database(t)}, args...)...))
	})
}

// works sends requests of the honest client. It fails the test unless all succeed.
func (s *site) works(t testing.TB, times int) {
	t.Helper()
	for i := range times {
		a := s.Send(t, s.user.Session, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": s.link, "data": "AAAA"})
		if a.Status != http.StatusOK {
			t.Fatalf("request %d of somebody honest: %s", i, a.Brief())
		}
	}
}

// memory returns the size of the process's anonymous memory in bytes.
func (s *site) memory(t testing.TB) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", s.process.PID()))
	rig.Must(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kib, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kib, "kB")), 10, 64)
			rig.Must(t, err)
			return n << 10
		}
	}
	t.Fatal("the kernel does not say how much memory the process holds")
	return 0
}

// mayGrow is the limit for memory of the process that clients without a session can cause, in bytes.
const mayGrow = 30 << 20

func TestAnswersThatNobodyReads(t *testing.T) {
	for _, path := range []string{"/api/openapi.json", "/api/health", "/api/ready", "/nothing", "/api/roles"} {
		t.Run(path, func(t *testing.T) {
			s := start(t)
			s.again(t)
			s.works(t, 100)
			before := s.memory(t)
			for range 48 {
				a := connect(t, s, 0)
				for range 250 {
					if _, err := a.ask("GET", path, nil, true); err != nil {
						break
					}
				}
				a.arrived()
			}
			most := int64(0)
			for range 20 {
				s.works(t, 10)
				most = max(most, s.memory(t)-before)
			}
			t.Logf("12,000 answers that nobody reads hold %d KiB", most>>10)
			if most > mayGrow {
				t.Errorf("more than %d KiB", mayGrow>>10)
			}
		})
	}
}

// TestBodiesThatDoNotArrive checks that a request whose body does not arrive takes no place of requests that work.
func TestBodiesThatDoNotArrive(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for range 6 {
			a := connect(t, s, 1<<16)
			for range 200 {
				if _, err := a.ask("POST", "/api/sessions", []byte("{"), false); err != nil {
					break
				}
			}
			a.arrived()
		}
		s.works(t, 200)
	})
}

func TestBodiesThatAreAnnouncedAndNotSent(t *testing.T) {
	s := start(t)
	var wait sync.WaitGroup
	for range 100 {
		conn := slowly(t, s, announced("/api/sessions", 60_000))
		if conn == nil {
			t.Fatal("refused before there were too many")
		}
		wait.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			head, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.Contains(head, " 504 ") {
				t.Errorf("answered %q, %v; want REQUEST_TIMEOUT", head, err)
			}
		})
	}
	s.works(t, 100)
	wait.Wait()
	s.works(t, 10)
}

func TestHeadersThatDoNotArrive(t *testing.T) {
	metrics := rig.FreeAddress(t, "127.0.0.1")
	s := start(t, "--metrics-listen", metrics, "--max-connections-per-address", "64")
	// The server refuses connections beyond its limit. Without MaxConnsPerHost, a transport opens another connection if
	// the first one is not idle yet when the next request begins.
	one := program.Connect(t, s.process.DataDir, func() string { return s.process.Address })
	one.MaxConnsPerHost = 1
	s.Site = s.WithHTTPClient(&http.Client{Transport: one})
	s.works(t, 1)
	for range 200 {
		slowly(t, s, "GET /api/health HTTP/1.1\r\nHost: ")
	}
	s.works(t, 100)
	if open := rig.Metric(t, metrics, "keyserver_connections"); open > 64 {
		t.Errorf("%v connections from one address are open", open)
	}
	if closed := rig.Metric(t, metrics, "keyserver_connections_closed_total"); closed < 100 {
		t.Errorf("%v connections were closed", closed)
	}
}

func TestStreamsThatAreResetAtOnce(t *testing.T) {
	s := start(t)
	before := s.memory(t)
	for range 4 {
		a := connect(t, s, 1<<16)
		for range 2000 {
			stream, err := a.ask("POST", "/api/sessions", []byte("{"), false)
			if err != nil || a.reset(stream) != nil {
				break // expected: the server closed the connection
			}
		}
		s.works(t, 20)
	}
	if grown := s.memory(t) - before; grown > mayGrow {
		t.Errorf("streams that were reset hold %d MiB", grown>>20)
	}
}

// TestStreamsThatTheServerMustReset checks clients that make the server reset streams (MadeYouReset, CVE-2025-8671).
// The server closes their connection.
func TestStreamsThatTheServerMustReset(t *testing.T) {
	metrics := rig.FreeAddress(t, "127.0.0.1")
	s := start(t, "--metrics-listen", metrics)
	s.works(t, 100)
	before := s.memory(t)
	const connections = 4
	for range connections {
		a := connect(t, s, 1<<16)
		a.frames.AllowIllegalWrites = true
		for range 5000 {
			stream, err := a.ask("GET", "/api/openapi.json", nil, true)
			if err != nil || a.breakRules(stream) != nil {
				break
			}
		}
		a.arrived()
		s.works(t, 20)
	}
	if closed := rig.Metric(t, metrics, "keyserver_connections_closed_total"); closed != connections {
		t.Errorf("%v connections were closed, want %d", closed, connections)
	}
	if grown := s.memory(t) - before; grown > mayGrow {
		t.Errorf("streams that the server reset hold %d MiB", grown>>20)
	}
}

// TestSessionsThatAreNone checks that the server does not execute requests with invalid session ids.
func TestSessionsThatAreNone(t *testing.T) {
	s := start(t)
	for range 6 {
		a := connect(t, s, 1<<16)
		for i := range 200 {
			token := fmt.Sprintf("%043d", i)
			if _, err := a.ask("POST", "/api/crypto/hmac", bytes.Repeat([]byte("A"), 1000), false, "authorization", "Bearer "+token); err != nil {
				break
			}
		}
		a.arrived()
	}
	s.works(t, 200)
}
