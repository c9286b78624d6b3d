// Package budget measures the costs of the requests that workloads send most: allocations, system calls and audit rows.
// TestBudget compares them with the table budget.txt. The server runs in the test's process with TLS, a session, the
// embedded database and its audit journal.
package budget

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

const (
	// firstRows are the audit rows before the first round. Rows with a number below 256 cost less, because Go allocates
	// nothing to store such an integer in an interface value.
	firstRows = 512
	// warmUp requests fill caches and pools before a round.
	warmUp = 32
	// rounds is the maximum number of rounds of a request. Background work can only raise the costs of a round, so the
	// lowest costs of all rounds count.
	rounds = 24
)

// TestBudget compares the costs of each request with the table. It measures no time. One processor runs all goroutines
// and no garbage is collected, so that rounds are equal.
func TestBudget(t *testing.T) {
	if runtime.GOOS != "linux" || slices.Contains(buildSettings(), debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("only Linux counts system calls, and the race detector changes the number of allocations")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	budget := readTable(t)
	s := start(t)
	requests := s.requests(t)
	for range firstRows {
		s.do(t, requests[0])
	}
	if *writeTable {
		for _, r := range requests {
			budget.rows[r.name] = s.lowest(t, r, func(costs) bool { return false })
		}
		budget.write(t, requests)
		return
	}
	for _, r := range requests {
		want, known := budget.rows[r.name]
		if !known {
			t.Errorf("%s has no row for %s; %s", tableFile, r.name, remedy)
			continue
		}
		got := s.lowest(t, r, func(c costs) bool { return c.misses(want) == nil })
		for _, miss := range got.misses(want) {
			t.Errorf("%s: %s", r.name, miss)
		}
	}
	if len(budget.rows) > len(requests) {
		t.Errorf("%s has %d rows, and %d requests are measured; %s", tableFile, len(budget.rows), len(requests), remedy)
	}
}

// lowest returns the lowest costs of several rounds. It stops when enough returns true for them.
func (s *served) lowest(t *testing.T, r request, enough func(costs) bool) costs {
	t.Helper()
	got := s.measure(t, r)
	for n := 1; n < rounds && !enough(got); n++ {
		got = got.least(s.measure(t, r))
	}
	t.Logf("%s: %.2f", r.name, got)
	return got
}

// buildSettings returns the settings of the build of this test.
func buildSettings() []debug.BuildSetting {
	info, _ := debug.ReadBuildInfo()
	return info.Settings
}

// served is a server with a client on one persistent connection.
type served struct {
	admin    *client.Client
	workload schema.ByID
	conn     *rawhttp.Conn
	counted  *countedConn
	journal  *journalReader
}

func start(t *testing.T) *served {
	t.Helper()
	server := testserver.Start(t)
	raw, err := net.Dial("tcp", server.Address())
	rig.Must(t, err)
	s := &served{admin: server.Admin(t), counted: &countedConn{Conn: raw}, journal: openJournal(t, server.Config().DataDir)}
	s.conn = rawhttp.New(tls.Client(s.counted, &tls.Config{RootCAs: server.Pool(t), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}))
	t.Cleanup(func() { _ = s.conn.Close() }) // the server may have closed it
	return s
}

// request is one row of the table. A round has count requests.
type request struct {
	name     string
	count    int
	exchange rawhttp.Exchange
}

// The principal that logs in.
const (
	workloadName     = "workload"
	workloadPassword = "the password of a workload"
)

// requests returns the requests of the table in its order, after each has succeeded once.
func (s *served) requests(t *testing.T) []request {
	t.Helper()
	role, err := s.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: workloadName, Operations: []schema.HexID{schema.HexID(keyserver.OpHMAC.ID)}})
	rig.Must(t, err)
	made, err := s.admin.CreatePasswordPrincipal(t.Context(), schema.CreatePasswordPrincipalRequest{Name: workloadName, Password: workloadPassword, RoleIDs: []schema.HexID{role.ID}})
	rig.Must(t, err)
	s.workload = schema.ByID{ID: made.Principal.ID}
	key, err := s.admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	var session schema.LoginResponse
	logIn := func(name, password string) rawhttp.Exchange {
		return s.send(t, "", "/api/sessions", map[string]any{"method": "password", "name": name, "password": password}, &session)
	}
	logIn(testserver.AdminName, testserver.AdminPassword)
	token := session.SessionID.Reveal()
	message := schema.Base64(bytes.Repeat([]byte("0123456789abcde\n"), 4))
	var computed schema.MACResponse
	var verified schema.VerifyMACResponse
	var grant schema.KeyGrant
	all := []request{
		{"hmac", 256, s.send(t, token, "/api/crypto/hmac", map[string]any{"hiddenLink": key.TTag, "data": message}, &schema.HMACResponse{})},
		{"mac", 256, s.send(t, token, "/api/crypto/mac", map[string]any{"lineage": key.TTag, "data": message}, &computed)},
		{"verify", 256, s.send(t, token, "/api/crypto/mac/verify", map[string]any{"ttag": key.TTag, "mac": computed.MAC, "data": message}, &verified)},
		{"authorize", 256, s.send(t, token, "/api/keys/authorize", map[string]any{"ttag": key.TTag}, &grant)},
		{"login", 32, logIn(workloadName, workloadPassword)},
	}
	if !verified.Valid || !grant.Authorized {
		t.Fatalf("the MAC is valid: %t, the caller is authorized: %t", verified.Valid, grant.Authorized)
	}
	return all
}

// send makes an exchange and reads its response. It returns the exchange.
func (s *served) send(t *testing.T, token, path string, body, response any) rawhttp.Exchange {
	t.Helper()
	text, err := json.Marshal(body)
	rig.Must(t, err)
	x := rawhttp.Exchange{Request: rawhttp.Post(path, token, text)}
	answer, err := s.conn.Do(x)
	rig.Must(t, err)
	rig.Must(t, json.Unmarshal(answer, response))
	return x
}

// measure returns the costs of one request of a round. When a round begins, the workload has no sessions. When it ends,
// its audit rows are in the tables.
func (s *served) measure(t *testing.T, r request) costs {
	t.Helper()
	_, err := s.admin.EndSessionsOfPrincipal(t.Context(), s.workload)
	rig.Must(t, err)
	runtime.GC()
	for range warmUp {
		s.do(t, r)
	}
	s.fill(t)
	s.journal.advance(t)
	before := s.count(t)
	for range r.count {
		s.do(t, r)
	}
	s.fill(t)
	total, rows := s.count(t), s.journal.advance(t)
	for i := range total {
		total[i] = (total[i] - before[i] + rows[i]) / float64(r.count)
	}
	return total
}

func (s *served) do(t *testing.T, r request) {
	t.Helper()
	if _, err := s.conn.Do(r.exchange); err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
}

// fill waits until all audit rows are in the tables, as each query of the audit log does.
func (s *served) fill(t *testing.T) {
	t.Helper()
	_, err := s.admin.ListAuditEntries(t.Context(), schema.AuditQuery{Limit: new(1)})
	rig.Must(t, err)
}
