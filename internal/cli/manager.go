package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/controllers"
)

// managerOptions are the flags of manager.
type managerOptions struct {
	kubeconfig    string
	leaderElect   bool
	leaderElectNS string
	metricsListen string
	healthListen  string
	logLevel      string
	logger        *slog.Logger
	restConfig    *rest.Config // set by up instead of kubeconfig
}

func (o *managerOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; default: the Pod's service account, or $KUBECONFIG")
	f.BoolVar(&o.leaderElect, "leader-elect", false, "let one of several managers be active at a time")
	f.StringVar(&o.leaderElectNS, "leader-elect-namespace", "", "namespace of the lease; default: the Pod's")
	f.StringVar(&o.metricsListen, "metrics-listen", "", "address of /metrics over plain HTTP; default: off")
	f.StringVar(&o.healthListen, "health-listen", "", "address of /healthz and /readyz over plain HTTP; default: off")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

func newManager() *cobra.Command {
	var o managerOptions
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the operator: the controllers that reconcile trust.keyserver.dev objects",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := o.complete(cmd.ErrOrStderr()); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

func (o *managerOptions) complete(errOut io.Writer) (err error) {
	if o.logger, err = newLogger(errOut, o.logLevel); err != nil {
		return err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	o.restConfig, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("no cluster to talk to: give --kubeconfig, set KUBECONFIG, or run in a Pod with a service account")
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig cannot be used: %w", err)
	}
	return nil
}

// run runs the controllers until ctx ends.
func (o *managerOptions) run(ctx context.Context) error {
	ctrl.SetLogger(logr.FromSlogHandler(o.logger.Handler()))
	// The API server has its own fairness; the client's default of a few
	// requests a second would only add a queue that nobody sees.
	o.restConfig.QPS = -1
	mgr, err := ctrl.NewManager(o.restConfig, ctrl.Options{
		Scheme:                        newScheme(),
		Metrics:                       metricsserver.Options{BindAddress: orOff(o.metricsListen)},
		HealthProbeBindAddress:        orOff(o.healthListen),
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "manager.trust.keyserver.dev",
		LeaderElectionNamespace:       o.leaderElectNS,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("start the manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	if err := controllers.Setup(mgr, controllers.Options{}); err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	return mgr.Start(ctx)
}

// newScheme knows every type that the controllers read or write.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a conflict between compiled-in types
		}
	}
	return scheme
}

// orOff turns an empty address into controller-runtime's word for none.
func orOff(address string) string {
	if address == "" {
		return "0"
	}
	return address
}
