package commands

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/controllers"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/plan"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// exitChanges is the exit code if a key server does not agree with the files. Other commands exit with 2 for a wrong
// command line. plan exits with 1 for it, so that scripts do not interpret it as changes.
const exitChanges program.Exit = 2

type planOptions struct {
	access.Options
	files      []string
	namespace  string
	keyServer  string
	kubeconfig string
	output     string
	logLevel   string
}

func (o *planOptions) bind(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.files, "filename", "f", nil, "file or directory with manifests, - for standard input; may be given several times")
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of manifests without a namespace")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster that the manifests are for; default: $KUBECONFIG, else no cluster is read")
	f.StringVar(&o.keyServer, "key-server-ref", "default", "KeyServer that --server, --ca-file and the password flags create or override")
	o.Bind(f)
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "error", "debug, info, warn or error")
}

func newPlan() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what the operator would change for manifests that are not applied yet",
		Long: "Show what the operator would change for manifests that are not applied yet. The\n" +
			"operator's own reconcilers decide; nothing is written, neither to the key server\n" +
			"nor to the cluster. Exit code 0: the key server agrees with the files; 2: it does\n" +
			"not, or an object is blocked; 1: there is no plan, and standard error says why.",
		Args: func(cmd *cobra.Command, args []string) error { return notUsage(program.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error { return notUsage(program.RunE(o.run)(cmd, args)) },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	o.bind(cmd.Flags())
	return cmd
}

// notUsage turns a usage error into an ordinary error.
func notUsage(err error) error {
	var usage program.UsageError
	if errors.As(err, &usage) {
		return usage.Err
	}
	return err
}

func (o *planOptions) run(cmd *cobra.Command) error {
	print, ok := map[string]func(*plan.Report, io.Writer) error{
		"text": (*plan.Report).Text, "json": (*plan.Report).JSON,
	}[o.output]
	switch {
	case len(o.files) == 0:
		return program.Usagef("--filename is missing; see %s --help", cmd.CommandPath())
	case !ok:
		return program.Usagef("--output is %q; it must be text or json", o.output)
	}
	if err := cluster.CheckNamespace(o.namespace); err != nil {
		return err
	}
	a, err := o.Read(cmd)
	if err != nil {
		return err
	}
	made, err := o.options(cmd, a)
	if err != nil {
		return err
	}
	report, err := plan.Make(cmd.Context(), made)
	if err != nil {
		return a.WithHint(err)
	}
	if err := print(report, cmd.OutOrStdout()); err != nil {
		return err
	}
	if report.Summary.Ignored > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d manifests of other kinds were ignored\n", report.Summary.Ignored)
	}
	if !report.Summary.Agrees {
		return exitChanges
	}
	return nil
}

func (o *planOptions) options(cmd *cobra.Command, a access.Access) (plan.Options, error) {
	out := plan.Options{Files: o.files, Stdin: cmd.InOrStdin(), Namespace: o.namespace}
	logger, err := program.NewLogger(cmd.ErrOrStderr(), o.logLevel)
	if err != nil {
		return out, err
	}
	out.Log = logr.FromSlogHandler(logger.Handler())
	if !a.Given() && cmd.Flags().Changed("key-server-ref") {
		return out, program.Usagef("--key-server-ref applies only with --server, --ca-file or a password flag; add one of them or leave it out")
	}
	if a.Given() {
		out.Access = &plan.Access{KeyServer: o.keyServer, URL: a.URL, CA: a.CA, Administrator: planLogin(a.Admin), Officer: planLogin(a.Officer)}
	}
	out.Cluster, out.Issuer, err = o.cluster()
	return out, err
}

func planLogin(l *access.Login) *plan.Login {
	if l == nil {
		return nil
	}
	return &plan.Login{Name: l.Name, Password: l.Password}
}

// cluster returns a client of the cluster that flags or variables name, or nil. It never uses a default cluster, so
// that no plan uses a cluster by mistake.
func (o *planOptions) cluster() (client.Reader, *sources.Issuer, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	if o.kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		return nil, nil, nil // a plan without a cluster is valid
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, nil, errors.New("the kubeconfig file of --kubeconfig or $KUBECONFIG does not exist or contains no cluster")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--kubeconfig cannot be used: %w", err)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: NewScheme(), HTTPClient: http})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	issuer, err := controllers.IssuerOf(config, http)
	return c, issuer, err
}
