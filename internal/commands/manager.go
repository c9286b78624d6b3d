package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/controllers"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/firstkeyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
)

type managerOptions struct {
	kubeconfig    string
	leader        leaderOptions
	trustFiles    trustFileOptions
	clusterName   string
	tokenFiles    map[string]string
	firstFlag     string
	first         types.NamespacedName // the value of firstFlag
	metricsListen string
	healthListen  string
	logLevel      string
	tracing       tracing.Options
	logger        *slog.Logger
	restConfig    *rest.Config
}

// leaderOptions are the flags of leader election, which keeps only one of several managers active. The zero value
// disables leader election.
type leaderOptions struct {
	elect     bool
	namespace string
	lease     time.Duration
	renew     time.Duration
	retry     time.Duration
}

func (o *managerOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the Pod's service account, or $KUBECONFIG")
	o.leader.bind(f)
	o.trustFiles.bind(f)
	f.StringToStringVar(&o.tokenFiles, "token-file", nil, "AUDIENCE=FILE of a projected token of the manager's service account, for KeyServers that name the audience; may be given several times, or with commas")
	f.StringVar(&o.firstFlag, "first-keyserver-configmap", "", "NAMESPACE/NAME of a ConfigMap with the manifest of a KeyServer under the key "+firstkeyserver.ManifestKey+"; the manager creates it once, if the cluster has no KeyServer")
	f.StringVar(&o.clusterName, "cluster-name", "kubernetes", "name of this cluster in the audit logs of key servers")
	f.StringVar(&o.metricsListen, "metrics-listen", "", "address of /metrics over plain HTTP; default: off")
	f.StringVar(&o.healthListen, "health-listen", "", "address of /healthz and /readyz over plain HTTP; default: off")
	bindTracing(f, &o.tracing)
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

func (l *leaderOptions) bind(f *pflag.FlagSet) {
	f.BoolVar(&l.elect, "leader-elect", false, "elect one active manager of several")
	f.StringVar(&l.namespace, "leader-elect-namespace", "", "namespace of the lease; default: the Pod's")
	f.DurationVar(&l.lease, "leader-elect-lease-duration", 15*time.Second, "another manager takes over if the active one has not renewed its lease for this long")
	f.DurationVar(&l.renew, "leader-elect-renew-deadline", 10*time.Second, "the active manager exits if it cannot renew its lease for this long")
	f.DurationVar(&l.retry, "leader-elect-retry-period", 2*time.Second, "interval of attempts to renew or acquire the lease")
}

// validate returns a usage error for durations with which two managers, or none, could be active.
func (l *leaderOptions) validate() error {
	switch {
	case l.retry < 10*time.Millisecond:
		return program.Usagef("--leader-elect-retry-period is %s; it must be at least 10ms", l.retry)
	case l.renew <= 2*l.retry:
		return program.Usagef("--leader-elect-renew-deadline is %s; it must be longer than twice --leader-elect-retry-period (%s)", l.renew, l.retry)
	case l.lease <= l.renew || l.lease < time.Second:
		return program.Usagef("--leader-elect-lease-duration is %s; it must be at least 1s, and longer than --leader-elect-renew-deadline (%s)", l.lease, l.renew)
	}
	return nil
}

func newManager() *cobra.Command {
	var o managerOptions
	cmd := &cobra.Command{
		Use:         "manager",
		Short:       "Run the operator: the controllers that reconcile trust.keyserver.dev objects",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AsService},
		RunE: program.RunService(func(cmd *cobra.Command) error {
			if err := o.complete(cmd.ErrOrStderr()); err != nil {
				return err
			}
			return o.run(cmd.Context())
		}),
	}
	o.bind(cmd.Flags())
	return cmd
}

func (o *managerOptions) complete(errOut io.Writer) (err error) {
	if o.logger, err = program.NewLogger(errOut, o.logLevel); err != nil {
		return err
	}
	if len(validation.IsDNS1123Subdomain(o.clusterName)) > 0 || len(o.clusterName) > validation.DNS1123LabelMaxLength {
		return program.Usagef("--cluster-name is %q; it must be at most 63 lower-case letters, digits, dots and dashes, for instance production.eu", o.clusterName)
	}
	given := o.tokenFiles
	o.tokenFiles = make(map[string]string, len(given))
	for audience, file := range given {
		audience, file = strings.TrimSpace(audience), strings.TrimSpace(file)
		o.tokenFiles[audience] = file
		if audience == "" || !filepath.IsAbs(file) {
			return program.Usagef("--token-file is %q; it must be AUDIENCE=FILE, with an absolute path", audience+"="+file)
		}
	}
	if o.first, err = configMapOf("first-keyserver-configmap", o.firstFlag); err != nil {
		return err
	}
	for _, validate := range []func() error{o.leader.validate, o.trustFiles.validate, func() error { return asUsage(o.tracing.Validate()) }} {
		if err := validate(); err != nil {
			return err
		}
	}
	o.restConfig, err = cluster.Config(o.kubeconfig)
	return err
}

// RunManager runs the controllers until ctx ends. It has no leader election, metrics or health probes.
func RunManager(ctx context.Context, cluster *rest.Config, logger *slog.Logger, clusterName string) error {
	o := managerOptions{restConfig: cluster, logger: logger, clusterName: clusterName}
	return o.run(ctx)
}

// run runs the controllers until ctx ends.
func (o *managerOptions) run(ctx context.Context) error {
	ctrl.SetLogger(logr.FromSlogHandler(o.logger.Handler()))
	klog.SetSlogLogger(o.logger) // leader election and caches also log JSON
	// The API server limits requests fairly. The client's default limit would only delay requests without notice.
	o.restConfig.QPS = -1
	options := ctrl.Options{
		Scheme: NewScheme(),
		// serveProbes serves the metrics and health probes instead, with limits for connections.
		Metrics:                metricsserver.Options{BindAddress: off},
		HealthProbeBindAddress: off,
	}
	if o.leader.elect {
		options.LeaderElection, options.LeaderElectionID = true, cluster.ManagerLease
		options.LeaderElectionNamespace = o.leader.namespace
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &o.leader.lease, &o.leader.renew, &o.leader.retry
		// A manager that stops normally releases the lease immediately.
		options.LeaderElectionReleaseOnCancel = true
	}
	registerBuild()
	mgr, err := ctrl.NewManager(o.restConfig, options)
	if err != nil {
		return fmt.Errorf("start the manager: %w", err)
	}
	if err := o.serveProbes(ctx, mgr); err != nil {
		return err
	}
	tracer, flush, err := tracing.Start(o.tracing, "keyserver-manager", version.String(), o.logger)
	if err != nil {
		return err
	}
	defer flush(context.WithoutCancel(ctx))
	if err := controllers.Setup(mgr, controllers.Options{ClusterName: o.clusterName, TokenFiles: o.tokenFiles, Tracer: tracer}); err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	if err := o.trustFiles.add(mgr, o.logger); err != nil {
		return err
	}
	if o.first.Name != "" {
		if err := mgr.Add(firstkeyserver.Creator{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), ConfigMap: o.first, Logger: o.logger}); err != nil {
			return err
		}
	}
	o.logger.InfoContext(ctx, "started", "version", version.String(), "cluster", o.clusterName)
	err = mgr.Start(ctx)
	o.logger.InfoContext(ctx, "stopped")
	return err
}

// Limits of the servers of metrics and probes.
const (
	probeHeaderTime = 10 * time.Second
	probeIdleTime   = 2 * time.Minute
	probeHeaderSize = 16 << 10
)

// serveProbes adds the servers of metrics and health probes to the manager. The probes show only that the process runs.
// If they also checked Kubernetes, an outage of Kubernetes would remove a key server in the same Pod from its Service.
func (o *managerOptions) serveProbes(ctx context.Context, mgr ctrl.Manager) error {
	accepts := listener.NewAccepts("keyserver_manager_accept_failures_total", o.logger)
	// The registry is global, and tests run several managers in one process.
	if err := metrics.Registry.Register(accepts); err != nil && !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return err
	}
	shown, health := http.NewServeMux(), http.NewServeMux()
	shown.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	for _, path := range []string{"/healthz", "/readyz"} {
		check := http.StripPrefix(path, &healthz.Handler{Checks: map[string]healthz.Checker{"ping": healthz.Ping}})
		health.Handle(path, check)
		health.Handle(path+"/", check)
	}
	for _, one := range []struct {
		flag, address, name string
		handler             http.Handler
	}{
		{"--metrics-listen", o.metricsListen, "metrics", shown},
		{"--health-listen", o.healthListen, "health probe", health},
	} {
		if one.address == "" || one.address == off {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", one.address)
		if err != nil {
			return fmt.Errorf("%s: %w", one.flag, err)
		}
		err = mgr.Add(&manager.Server{Name: one.name, Listener: accepts.Probes(l), Server: &http.Server{
			Handler: one.handler, ReadHeaderTimeout: probeHeaderTime, IdleTimeout: probeIdleTime, MaxHeaderBytes: probeHeaderSize,
			ErrorLog: slog.NewLogLogger(o.logger.Handler(), slog.LevelDebug),
		}})
		if err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return nil
}

// registerBuild registers the metric of the build once. The registry is global, and tests run several managers in one
// process.
var registerBuild = sync.OnceFunc(func() { metrics.Registry.MustRegister(server.BuildInfo()) })

// NewScheme returns a scheme of all types that the controllers read or write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a conflict between compiled-in types
		}
	}
	return scheme
}

// off disables an address in controller-runtime.
const off = "0"
