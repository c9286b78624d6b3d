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

// namedServer is a key server that up runs, under the name of its KeyServer.
type namedServer struct {
	name string
	*server.Server
}

// place is where one of them runs. A host has it listen for peers, too.
type place struct {
	name, dir string
	system    uint32
	host      string
}

// peersPort is where key servers listen for each other, as serve does.
const peersPort = "9443"

// peersHost is where the only one listens for peers: another key server on this machine
// would take 127.0.0.1 for itself.
const peersHost = "127.0.0.5"

// places are of one key server, or of three that trust each other: each has an
// address of its own, because a key server refuses to be its own peer.
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

// samples is the directory of the samples that go with the key servers.
func (o *options) samples() string {
	if o.federation {
		return "samples/federation"
	}
	return "samples"
}

// startServers starts them in turn. Where one does not start, it answers those
// that did, for somebody to stop.
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

// serverConfig is serve's defaults at a place.
func (o *options) serverConfig(p place) (server.Config, error) {
	cfg := commands.ServerDefaults()
	cfg.Listen, cfg.ExternalListen, cfg.DataDir = o.listen, "", filepath.Join(o.dir, p.dir)
	cfg.Providers = o.tokens
	_, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return server.Config{}, program.Usagef("--listen %q is not host:port; for instance 127.0.0.1:8443", o.listen)
	}
	if p.host == "" {
		cfg.ExternalListen, cfg.ServerName = net.JoinHostPort(peersHost, besides(port)), peersHost
	} else {
		peers := peersPort
		if port == "0" { // any, for both
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

// workloadAudience is what a workload asks for when it projects a token, as the
// manifests have it, so that the same samples do here and there.
const workloadAudience = "https://keyserver.keyserver-system.svc"

// trustTokens has the key servers take the tokens of the cluster's service accounts.
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

// besides is the port for peers that goes with one for clients, as 9443 does with
// 8443: the same in each run, so that peers find the key server again.
func besides(port string) string {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || n > math.MaxUint16-1000 {
		return "0"
	}
	return strconv.FormatUint(n+1000, 10)
}

// stopServers stops them together, in the time that one has.
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

// anyFailed answers with the first failure of one of them.
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
