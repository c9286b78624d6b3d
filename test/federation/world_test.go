// Package federation tests forwarded operations of key servers, over real TLS between real servers in one process, each
// at its own loopback address, on both databases.
package federation

import (
	"crypto/tls"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	_ "github.com/keyserver-operator/keyserver-operator/test/rig/system"
)

// databases are the databases that every test runs on.
var databases = map[string]func(testing.TB) testserver.Option{
	"SQLite": func(testing.TB) testserver.Option { return func(*server.Config) {} },
	"PostgreSQL": func(t testing.TB) testserver.Option {
		url := migrated.Database(t)
		return func(c *server.Config) { c.DatabaseURL = url }
	},
}

// prompt is shorter than the minute after which a key server checks everything again. If a change takes effect within
// prompt, the peer was notified.
const prompt = 30 * time.Second

// between runs a test on two key servers that are registered with each other, once for each database.
func between(t *testing.T, test func(t *testing.T, a, b *site), options ...testserver.Option) {
	t.Helper()
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			a := open(t, 2, append(options, database(t))...)
			b := open(t, 3, append(options, database(t))...)
			a.register(t, b)
			b.register(t, a)
			test(t, a, b)
		})
	}
}

// site is a key server in this process. If its system id is n, its address is 127.0.0.n.
type site struct {
	*testserver.Server
	*rig.Site
	external string
	clock    func() time.Time
}

func open(t testing.TB, system int, options ...testserver.Option) *site {
	t.Helper()
	host := "127.0.0." + strconv.Itoa(system)
	s := &site{external: rig.FreeAddress(t, host)}
	s.Server = testserver.Start(t, append([]testserver.Option{func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = uint32(system), host, s.external
	}}, append(options, func(c *server.Config) { s.clock = c.Clock })...)...)
	running := s.Server
	s.Site = &rig.Site{
		System: system, Base: func() string { return running.URL() }, HTTP: s.client(t),
		Administrator: rig.Credentials{Name: testserver.AdminName, Password: testserver.AdminPassword},
	}
	return s
}

// client returns a client that trusts the key server, uses the key server's clock, and presents the certificates.
func (s *site) client(t testing.TB, certificates ...tls.Certificate) *http.Client {
	t.Helper()
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, Time: s.clock, Certificates: certificates},
	}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// register registers another key server as a peer: it trusts the CA of the other, then registers its trust blob.
func (s *site) register(t testing.TB, other *site) {
	t.Helper()
	s.Trust(t, other.Site)
	s.Register(t, other.Site, "")
}
