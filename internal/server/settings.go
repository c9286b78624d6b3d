package server

import (
	"crypto/fips140"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// listeners contains the listeners of this process. A listener that is switched off is nil.
type listeners struct{ api, external, metrics net.Listener }

// settings returns the configuration for POST /api/config/get, including secret settings. The response contains only
// settings on keyserver.ConfigAllowList.
func settings(c Config, system keyserver.SystemID, on listeners) keyserver.ConfigNode {
	return keyserver.ConfigNode{Tag: keyserver.ConfigRoot, Children: []keyserver.ConfigNode{
		node("KeyServer", "systemId", strconv.FormatUint(uint64(system), 10), "serverName", c.ServerName, "deployment", c.Deployment, "breakGlass", either(c.BreakGlass, "on", "off"),
			"externalUrl", urltext.Origin(c.ExternalURL), "trustedProxies", strings.Join(c.TrustedProxies, ","), "dataDir", c.DataDir, "bootstrapPasswordFile", c.BootstrapPasswordFile,
			"bootstrapOfficerPasswordFile", c.BootstrapOfficerPasswordFile, "bootstrapServiceAccount", c.BootstrapServiceAccount),
		{Tag: "Listeners", Children: on.nodes(c)},
		{Tag: "IdentityProviders", Children: c.Providers.nodes()},
		node("Certificate", "source", either(c.TLSCert == "", "internal CA", "file"), "certFile", c.TLSCert, "keyFile", c.TLSKey, "caFile", c.CAFile),
		node("Database", "kind", either(c.DatabaseURL == "", "sqlite", "postgresql"), "url", c.DatabaseURL,
			"maxConnections", either(c.DatabaseURL == "", "", strconv.Itoa(c.DatabaseMaxConnections))),
		node("KeyEncryptionKey", "scheme", scheme(c.KEK), "url", c.KEK, "previousUrl", c.KEKPrevious),
		node("Peers", "timeoutSeconds", seconds(c.PeerTimeout)),
		node("Cryptography", "fips140", either(fips140.Enabled(), "on", "off"), "module", fips140.Version()),
		node("Sessions", "idleSeconds", seconds(c.SessionIdle), "lifetimeSeconds", seconds(c.SessionLifetime),
			"scopedLifetimeSeconds", seconds(c.ScopedLifetime), "most", strconv.Itoa(c.MaxSessions), "mostPerPrincipal", strconv.Itoa(c.MaxSessionsPerPrincipal),
			"mostDerived", strconv.Itoa(c.MaxDerivedSessions), "mostRequests", strconv.Itoa(c.MaxInFlight),
			"requireProof", either(c.RequireProof == "", string(session.DemandNone), c.RequireProof)),
		node("Limits", "messageBytes", strconv.Itoa(keyserver.MaxMessage), "unwindowedListing", strconv.Itoa(keyserver.MaxUnwindowed),
			"aclTemplates", strconv.Itoa(keyserver.MaxACLTemplates), "templateMembers", strconv.Itoa(keyserver.MaxTemplateMembers),
			"templatedDirectories", strconv.Itoa(keyserver.MaxTemplatedDirectories), "trustedServers", strconv.Itoa(keyserver.MaxTrustedServers),
			"requests", strconv.Itoa(c.MaxRequests), "waiting", strconv.Itoa(c.MaxWaiting), "streams", strconv.Itoa(c.MaxStreams),
			"connections", strconv.Itoa(c.MaxConnections), "connectionsPerAddress", strconv.Itoa(c.MaxConnectionsPerAddress),
			"strangers", strconv.Itoa(c.MaxStrangers), "strangersPerAddress", strconv.Itoa(c.MaxStrangersPerAddress),
			"proofs", strconv.Itoa(c.MaxProofs), "logins", strconv.Itoa(c.MaxLogins),
			"spoolBytes", strconv.FormatInt(c.MaxSpoolBytes, 10), "spoolBytesPerSession", strconv.FormatInt(c.MaxSpoolBytesPerSession, 10)),
	}}
}

func (l listeners) nodes(c Config) []keyserver.ConfigNode {
	var list []keyserver.ConfigNode
	for _, one := range []struct {
		name       string
		on         net.Listener
		minVersion string // of TLS; empty for plain HTTP
		client     string // whether clients send a certificate
	}{
		{"api", l.api, either(c.InsecureHTTP, "", c.TLSMinVersion), either(c.InsecureHTTP, "none", "optional")},
		{"external", l.external, TLS13, "required"}, {"metrics", l.metrics, "", "none"},
	} {
		if one.on != nil {
			list = append(list, node("Listener", "name", one.name, "address", one.on.Addr().String(),
				"tls", strconv.FormatBool(one.minVersion != ""), "minVersion", one.minVersion, "clientCertificates", one.client))
		}
	}
	return list
}

// node returns a node with attributes; attrs are pairs of name and value. It omits attributes with an empty value.
func node(tag string, attrs ...string) keyserver.ConfigNode {
	n := keyserver.ConfigNode{Tag: tag, Attrs: map[string]string{}}
	for i := 0; i+1 < len(attrs); i += 2 {
		if attrs[i+1] != "" {
			n.Attrs[attrs[i]] = attrs[i+1]
		}
	}
	return n
}

// scheme returns the scheme of the URL of the key-encryption key. The other parts of the URL may be secret.
func scheme(kek string) string {
	kind, _, found := strings.Cut(kek, "://")
	if !found {
		return "file" // the default, in the data directory
	}
	return kind
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}
