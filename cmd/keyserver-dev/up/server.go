package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/trustfiles"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// namedServer is a running key server with the name of its KeyServer object.
type namedServer struct {
	name string
	*server.Server
}

// place describes one key server to start. If host is set, the key server also listens for peers on that address.
type place struct {
	name, dir string
	system    uint32
	host      string
}

// peersPort is the port of the listener for peers, the same as for serve.
const peersPort = "9443"

// peersHost is the address on which a single key server listens for peers. Another key server on this machine would
// treat 127.0.0.1 as its own address.
const peersHost = "127.0.0.5"

// places returns one key server, or three that trust each other. Each of the three has another address, because a key
// server rejects itself as a peer.
func (o *options) places() []place {
	if !o.federation {
		return []place{{name: keyServerName, dir: "server"}}
	}
	return []place{
		{name: "east", dir: "east", system: 1, host: "127.0.0.2"},
		{name: "west", dir: "west", system: 2, host: "127.0.0.3"},
		{name: "north", dir: "north", system: 3, host: "127.0.0.4"},
	}
}

// samples returns the directory of the samples for these key servers.
func (o *options) samples() string {
	if o.federation {
		return "samples/federation"
	}
	return "samples"
}

// startServers starts the key servers one after the other. If a start fails, it returns the error and the servers that
// run already, which the caller must stop.
func (o *options) startServers(ctx context.Context, logger *slog.Logger, steps *progress) (servers []namedServer, err error) {
	for _, p := range o.places() {
		cfg, err := o.serverConfig(p)
		if err != nil {
			return servers, err
		}
		cfg.Logger = logger.With("keyServer", p.name)
		what := "key server and /api"
		if o.federation {
			what = fmt.Sprintf("key server %q at %s", p.name, p.host)
		}
		err = steps.run(what, func() error {
			srv, err := server.Start(ctx, cfg)
			if err == nil {
				servers = append(servers, namedServer{p.name, srv})
			}
			return err
		})
		if err != nil {
			return servers, err
		}
	}
	return servers, nil
}

// serverConfig returns the configuration of one key server.
func (o *options) serverConfig(p place) (server.Config, error) {
	cfg := commands.ServerDefaults()
	cfg.Listen, cfg.ExternalListen, cfg.DataDir = o.listen, "", filepath.Join(o.dir, p.dir)
	cfg.Providers = o.tokens
	_, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return server.Config{}, program.Usagef("--listen is %q; it must be host:port, for instance 127.0.0.1:8443", o.listen)
	}
	if p.host == "" {
		cfg.ExternalListen, cfg.ServerName = net.JoinHostPort(peersHost, peersPortFor(port)), peersHost
	} else {
		peers := peersPort
		if port == "0" { // the system chooses both ports
			peers = port
		}
		cfg.Listen, cfg.ExternalListen = net.JoinHostPort(p.host, port), net.JoinHostPort(p.host, peers)
		cfg.ServerName, cfg.SystemID = p.host, p.system
	}
	if err := cfg.Validate(); err != nil {
		return server.Config{}, program.Usage(err)
	}
	return cfg, nil
}

// workloadAudience is the audience of a workload's projected token. It is that of the manifests, so that the
// same samples work here and in a cluster.
const workloadAudience = "https://keyserver.keyserver-system.svc"

// trustTokens configures the key servers to accept the service account tokens of the cluster.
func (o *options) trustTokens(ctx context.Context, cluster *rest.Config, logger *slog.Logger) error {
	c, err := discovery.NewDiscoveryClientForConfig(cluster)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	from := trustfiles.FromCluster(c.RESTClient())
	file := filepath.Join(o.dir, "issuer-keys.json")
	if err := (trustfiles.IssuerKeys{Fetch: from, File: file, Logger: logger}).Refresh(ctx); err != nil {
		return err
	}
	issuer, err := from.Issuer(ctx)
	o.tokens = server.Providers{OIDCIssuer: issuer, OIDCAudiences: []string{workloadAudience}, OIDCKeysFile: file}
	return err
}

// peersPortFor returns the port for peers of a key server with the given port for clients: 9443 for 8443. It is the same in
// each run, so that peers find the key server again.
func peersPortFor(port string) string {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || n > math.MaxUint16-1000 {
		return "0"
	}
	return strconv.FormatUint(n+1000, 10)
}

// stopServers stops all servers concurrently. It waits at most DrainTime.
func stopServers(ctx context.Context, servers []namedServer) error {
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), program.DrainTime)
	defer cancel()
	ended := make(chan error)
	for _, s := range servers {
		go func() { ended <- s.Shutdown(drain) }()
	}
	var errs []error
	for range servers {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// anyFailed returns a channel that receives the error of each server that fails.
func anyFailed(ctx context.Context, servers []namedServer) <-chan error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		go func() {
			select {
			case err := <-s.Failed():
				failed <- fmt.Errorf("the key server %q: %w", s.name, err)
			case <-ctx.Done():
			}
		}()
	}
	return failed
}
