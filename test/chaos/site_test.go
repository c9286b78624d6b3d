package chaos

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// site is one key server: a process on an embedded database, or replicas on one PostgreSQL.
type site struct {
	name     string
	system   schema.SystemID
	members  []*member
	state    []string        // flags of its database
	database *pgtest.Cluster // nil for an embedded database
	disk     *disk           // of an embedded database; nil if this process cannot mount one
	peers    *wire           // connection to its peer
	password string          // of admin
	requests *ledger.Requests
	objects  ledger.Objects
	macs     ledger.MACs
	log      ledger.AuditLog
	admin    *client.Client // for reading the state; retries
	user     schema.ACLRevokeRequest
	stranger schema.ACLRevokeRequest
	trusted  schema.SystemID // its peer
	forwards *forwards       // nil without a peer
}

// member is one process of a site. It keeps its addresses over restarts.
type member struct {
	site    *site
	name    string
	dir     string
	args    []string
	listen  string
	peers   string // its listener for peers
	metrics string
	wire    *wire // to the database; nil for an embedded one
	server  *program.Server
	life    atomic.Int64 // how often the process was started
	over    http.RoundTripper
}

// network is the prefix of all listening addresses. Outgoing connections use ports of another address.
const network = "127.77."

// assignedAddresses are the addresses that freeAddress has returned.
var assignedAddresses sync.Map

// freeAddress returns each address only once, because a returned address may have no listener yet.
func freeAddress(t testing.TB, host string) string {
	t.Helper()
	for {
		address := rig.FreeAddress(t, host)
		if _, taken := assignedAddresses.LoadOrStore(address, true); !taken {
			return address
		}
	}
}

func embedded(t testing.TB, system schema.SystemID) *site {
	t.Helper()
	s := newSite("embedded", system)
	s.disk = newDisk(t)
	dir := filepath.Join(s.disk.path(t), "data")
	s.state = []string{"--data-dir", dir}
	s.add(t, dir)
	s.open(t)
	return s
}

// replicated starts n replicas on one PostgreSQL database, each with a separate wire to it.
func replicated(t testing.TB, system schema.SystemID, n int) *site {
	t.Helper()
	s := newSite("replicated", system)
	s.database = pgtest.Start(t)
	url := s.database.Database(t)
	base, socket, _ := strings.Cut(url, "?host=")
	s.state = []string{"--database-url", url}
	for range n {
		w := unixWire(t, socket)
		m := s.add(t, filepath.Join(t.TempDir(), "data"), "--database-url", base+"?host="+w.dir, "--kek", program.KEK)
		m.wire = w
	}
	s.open(t)
	return s
}

func newSite(name string, system schema.SystemID) *site {
	return &site{name: name, system: system, requests: ledger.NewRequests(fmt.Sprintf("chaos-%s-%x", name, time.Now().UnixNano()))}
}

// add adds a process without starting it.
func (s *site) add(t testing.TB, dir string, args ...string) *member {
	t.Helper()
	host := network + fmt.Sprint("0.", s.system)
	m := &member{
		site: s, name: fmt.Sprintf("%s %d", s.name, len(s.members)), dir: dir,
		listen: freeAddress(t, network+"1."+fmt.Sprint(s.system)), peers: freeAddress(t, host), metrics: freeAddress(t, network+"2."+fmt.Sprint(s.system)),
	}
	m.args = slices.Concat(args, []string{"--listen", m.listen, "--system-id", fmt.Sprint(s.system), "--server-name", host,
		"--external-listen", m.peers, "--metrics-listen", m.metrics, "--session-idle", "24h", "--session-lifetime", "24h"})
	s.members = append(s.members, m)
	return m
}

// open starts all processes, and creates the principals of the site.
func (s *site) open(t testing.TB) {
	t.Helper()
	for _, m := range s.members {
		m.start(t)
		t.Cleanup(func() {
			m.server.Kill()
			if t.Failed() {
				text := m.server.Log()
				t.Logf("the log of %s ends with\n%s", m.name, text[max(0, len(text)-1500):])
			}
		})
	}
	var err error
	s.password, err = s.members[0].server.Password()
	rig.Must(t, err)
	for _, m := range s.members {
		m.over = s.requests.Transport(program.Connect(t, m.dir, func() string { return m.listen }))
	}
	s.admin = s.client(t, 0, 5)
	s.user = s.principal(t, "user", exchanger)
	s.stranger = s.principal(t, "stranger")
}

// exchanger is the id of the built-in role of that name.
var exchanger = schema.HexID{7: 4}

// userPassword is the password of every principal in this package.
const userPassword = "a password of a user"

func (s *site) principal(t testing.TB, name string, roles ...schema.HexID) schema.ACLRevokeRequest {
	t.Helper()
	p, err := s.admin.CreatePasswordPrincipal(t.Context(), schema.CreatePasswordPrincipalRequest{Name: name, Password: userPassword, RoleIDs: roles})
	rig.Must(t, err)
	return schema.ACLRevokeRequest{SystemID: p.Principal.SystemID, PrincipalID: p.Principal.PrincipalID}
}

// client returns a client of the administrator at the process with the index at.
func (s *site) client(t testing.TB, at, retries int) *client.Client {
	t.Helper()
	return program.Client(t, s.members[at].over, "admin", s.password, retries)
}

func (m *member) start(t testing.TB) {
	t.Helper()
	server, err := built.Serve(m.dir, m.args...)
	rig.Must(t, err)
	m.server = server
	m.life.Add(1)
}

// ready requests the readiness of this process.
func (m *member) ready(ctx context.Context) bool {
	c, err := client.New(client.Options{BaseURL: program.BaseURL, HTTPClient: &http.Client{Transport: m.over}, MaxRetries: program.NoRetries, Timeout: 5 * time.Second})
	if err != nil {
		return false
	}
	ready, err := c.GetReadiness(ctx)
	return err == nil && ready.Ready
}

// awaitReady waits until all processes are ready. No fault may be active.
func (s *site) awaitReady(t testing.TB) {
	t.Helper()
	for _, m := range s.members {
		rig.Soon(t, m.name+" is ready again", func() bool {
			s.failIfExited(t)
			return m.ready(t.Context())
		})
	}
}

// failIfExited ends the test if a process has ended without being killed.
func (s *site) failIfExited(t testing.TB) {
	t.Helper()
	for _, m := range s.members {
		select {
		case <-m.server.Exited():
			text := m.server.Log()
			t.Fatalf("%s has ended by itself\n%s", m.name, text[max(0, len(text)-4000):])
		default:
		}
	}
}

// federate makes two sites peers of each other, each reached through a wire.
func federate(t testing.TB, a, b *site) {
	t.Helper()
	for _, s := range []*site{a, b} {
		s.peers = tcpWire(t, network+fmt.Sprint("0.", s.system), func() []string {
			var at []string
			for _, m := range s.members {
				at = append(at, m.peers)
			}
			return at
		})
	}
	for _, pair := range [][2]*site{{a, b}, {b, a}} {
		at, peer := pair[0], pair[1]
		info, err := peer.admin.GetLocalTrustInfo(t.Context())
		rig.Must(t, err)
		chain, err := pki.ParseChain(info.Chain)
		rig.Must(t, err)
		_, err = at.admin.AddTrustedCA(t.Context(), schema.AddTrustedCARequest{Certificate: chain.Intermediates[0].Raw})
		rig.Must(t, err)
		blob := *info.TrustBlob
		blob.Port = peer.peers.port()
		_, err = at.admin.AddTrustedServer(t.Context(), schema.AddTrustedServerRequest{TrustBlob: blob, FriendlyName: "peer"})
		rig.Must(t, err)
		at.trusted = peer.system
	}
	a.forwards = newForwards(t, a, b)
	b.forwards = newForwards(t, b, a)
}

// verify stops all processes, and then verifies the audit log with the program itself.
func (s *site) verify(t testing.TB) {
	t.Helper()
	for _, m := range s.members {
		if err := m.server.Stop(); err != nil {
			t.Errorf("the end of %s: %v", m.name, err)
		}
		for _, sign := range []string{"panic: ", "fatal error: ", "http: panic"} {
			if strings.Contains(m.server.Log(), sign) {
				t.Errorf("%s says %q in its log", m.name, sign)
			}
		}
	}
	out, err := built.Run(append([]string{"audit", "verify"}, s.state...)...)
	if err != nil || !strings.HasPrefix(out, "audit log intact") {
		t.Errorf("audit verify of %s: %v\n%s", s.name, err, out)
	}
}

func hexOf(id schema.DecimalID) schema.HexID { return schema.HexID(id) }
