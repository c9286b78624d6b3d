package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/sink"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/monotonic"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
)

// Config contains the flags of serve (ADR 24). Its errors contain the names of flags, because users set flags.
type Config struct {
	Listen         string
	ExternalListen string // listener for peers; empty: none
	MetricsListen  string // listener for metrics; empty: none
	InsecureHTTP   bool
	TLSCert        string
	TLSKey         string
	TLSMinVersion  string // of the API: TLS12 or TLS13
	ExternalURL    string
	TrustedProxies []string // proxies whose X-Forwarded-For is used
	Console        bool     // serve the web console below /console/

	DataDir string
	// DataDirWait is how long a start waits while another process uses DataDir. With 0, the start fails immediately.
	DataDirWait time.Duration
	CAFile      string // a second file for the CA certificate; the first is in DataDir
	DatabaseURL string
	KEK         string // a URL; empty or "file": the key file in DataDir
	// KEKPrevious is the key-encryption key before KEK, or "file" for the key file in DataDir; empty: none.
	KEKPrevious string
	// MinFreeBytes is how much space of the volume of DataDir must stay free. 0: a tenth of the volume, at most 5 GiB.
	MinFreeBytes int64

	SystemID           uint32
	ServerName         string
	CheckpointInterval time.Duration
	AuditSinks         []string // URLs of receivers of the audit log
	Stdout             io.Writer
	AuditArchive       string        // a URL; empty: rows stay in the database
	AuditRetention     time.Duration // 0: rows are never removed
	Witnessing
	Backups
	Replication
	Deployment            string
	BootstrapPasswordFile string
	// BootstrapServiceAccount, NAMESPACE:NAME, is the first administrator. It needs no password. If it is set, the
	// principal admin is created only if there is a bootstrap password file.
	BootstrapServiceAccount string
	// BootstrapOfficerPasswordFile contains the password of the officer if duties are split.
	BootstrapOfficerPasswordFile string

	// BreakGlass: operations require no approvals.
	BreakGlass bool

	Admission       string // AdmissionOff or AdmissionRequired
	ReleaseKey      string
	ReleaseManifest string
	AdmissionRetry  time.Duration

	PeerTimeout time.Duration // timeout of one call to a peer

	SessionIdle     time.Duration
	SessionLifetime time.Duration
	ScopedLifetime  time.Duration // lifetime of a scoped credential if the request does not state one
	RequireProof    string        // a session.Demand; empty: none
	Limits

	Providers Providers

	// PasswordCost is the cost of password hashes. It has no flag: zero is the default cost, and tests use a lower cost.
	PasswordCost password.Cost

	Tracing tracing.Options

	Version keyserver.Version
	Logger  *slog.Logger
	Clock   func() time.Time
	// Steady is the monotonic clock that Clock reads; nil: steps of the machine's clock are not reported.
	Steady *monotonic.Clock

	proxies clientaddr.Proxies // the parsed TrustedProxies
	sinks   []sink.Target      // the parsed AuditSinks
}

// maxDataDirWait is the maximum of --data-dir-wait. It is longer than any orderly shutdown of another process.
const maxDataDirWait = 5 * time.Minute

// Validate returns an error if the process cannot start with the configuration. The only fields that it changes are
// proxies and sinks.
func (c *Config) Validate() error {
	for _, validate := range []func() error{
		c.validateListen, c.validateInstance, c.validateAddresses, c.validateTLS, c.parseLists, c.Tracing.Validate,
		c.validateArchive, c.validateBackups, c.validateReplication, c.validateWitnesses, c.validatePeers, c.validateSessions,
		c.validateAdmission, c.Providers.validate, c.validateServiceAccount, c.validateURLs, c.validateKEK,
	} {
		if err := validate(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) validateListen() error {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen %q must be host:port, for instance 127.0.0.1:8443", c.Listen)
	case c.InsecureHTTP && !isLoopback(host):
		return fmt.Errorf("--insecure-http requires a loopback address, and --listen is %q; use --listen 127.0.0.1:8080 or omit --insecure-http", c.Listen)
	case c.InsecureHTTP && c.TLSCert != "":
		return errors.New("--insecure-http and --tls-cert cannot be combined; omit one")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key require each other; give both or neither")
	}
	return nil
}

// validateInstance validates the data directory, the interval of checkpoints and the identity of the key server.
func (c *Config) validateInstance() error {
	switch {
	case c.DataDir == "":
		return errors.New("--data-dir must not be empty")
	case c.DataDirWait < 0 || c.DataDirWait > maxDataDirWait:
		return fmt.Errorf("--data-dir-wait is %s; it must be from 0 to %s", c.DataDirWait, maxDataDirWait)
	case c.MinFreeBytes < 0:
		return fmt.Errorf("--min-free-bytes is %d; it must not be negative; 0 means a tenth of the volume, at most 5 GiB", c.MinFreeBytes)
	case c.CheckpointInterval < 0 || c.CheckpointInterval > time.Hour:
		return fmt.Errorf("--checkpoint-interval is %s; it must be from 0 to 1h; 0 means the default, %s", c.CheckpointInterval, tree.DefaultInterval)
	case c.ServerName == "":
		return errors.New("--server-name must not be empty")
	case c.Deployment != string(keyserver.Unified) && c.Deployment != string(keyserver.Split):
		return fmt.Errorf("--deployment is %q; it must be %s or %s", c.Deployment, keyserver.Unified, keyserver.Split)
	}
	return nil
}

func (c *Config) validateAddresses() error {
	for flag, address := range map[string]string{"--listen": c.Listen, "--external-listen": c.ExternalListen, "--metrics-listen": c.MetricsListen} {
		if address != "" && !isHostPort(address) {
			return fmt.Errorf("%s %q must be host:port with a port from 0 to 65535", flag, address)
		}
	}
	return nil
}

func (c *Config) parseLists() (err error) {
	if c.proxies, err = clientaddr.ParseProxies(c.TrustedProxies); err != nil {
		return fmt.Errorf("--trusted-proxies: %w", err)
	}
	if c.sinks, err = sink.Parse(c.AuditSinks); err != nil {
		return fmt.Errorf("--audit-sink: %w", err)
	}
	return nil
}

// serviceAccountPrefix is the prefix of the subjects of service account tokens.
const serviceAccountPrefix = "system:serviceaccount:"

// validateServiceAccount rejects names that no service account can have. The namespace is a DNS label, the name is a
// DNS subdomain.
func (c *Config) validateServiceAccount() error {
	if c.BootstrapServiceAccount == "" {
		return nil
	}
	namespace, name, found := strings.Cut(c.BootstrapServiceAccount, ":")
	switch {
	case !found || !isDNSName(namespace) || !isDNSName(name) || strings.Contains(namespace, "."):
		return fmt.Errorf("--bootstrap-service-account is %q; it must be NAMESPACE:NAME, for instance keyserver-system:keyserver-manager", c.BootstrapServiceAccount)
	case c.Providers.OIDCIssuer == "":
		return errors.New("--bootstrap-service-account requires --oidc-issuer and --oidc-audience; give them, too")
	default:
		return nil
	}
}

func isDNSName(s string) bool {
	return s != "" && len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" &&
		!strings.ContainsAny(s[:1]+s[len(s)-1:], "-.")
}

// serviceAccount returns the identity of --bootstrap-service-account, or nil if the flag is not set.
func (c *Config) serviceAccount() *keyserver.Identity {
	if c.BootstrapServiceAccount == "" {
		return nil
	}
	return &keyserver.Identity{Issuer: c.Providers.OIDCIssuer, Subject: serviceAccountPrefix + c.BootstrapServiceAccount}
}

func isHostPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port) // a port may also be the name of a service, such as https
	return err == nil
}

func (c *Config) validateURLs() error {
	if c.ExternalURL != "" {
		u, err := url.Parse(c.ExternalURL)
		// The URL is printed, so it must not contain secrets such as a password.
		if err != nil || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http") ||
			strings.TrimSuffix(u.Path, "/") != "" || strings.ContainsAny(c.ExternalURL, "@?#") {
			return errors.New("--external-url must be a URL with only scheme, host and port, for instance https://keys.example.com")
		}
	}
	if c.DatabaseURL != "" {
		if err := postgres.CheckURL(c.DatabaseURL); err != nil {
			return err
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// hosts returns the names and addresses for which the server certificate must be valid.
func (c *Config) hosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && validHost(name) {
		hosts = append(hosts, name)
	}
	if validHost(c.ServerName) {
		hosts = append(hosts, c.ServerName)
	}
	if u, err := url.Parse(c.ExternalURL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
		hosts = append(hosts, host)
	}
	return hosts
}

// validHost reports whether a certificate can contain name as a DNS name or an address. A server name may also be a
// text that is invalid in a certificate.
func validHost(name string) bool {
	return name != "" && !strings.ContainsAny(name, " /:_\\") || net.ParseIP(name) != nil
}

// String returns a text without the configured URLs, because URLs may contain secrets.
func (c Config) String() string { return "configuration of serve on " + c.Listen }

// GoString returns the same text for %#v.
func (c Config) GoString() string { return c.String() }
