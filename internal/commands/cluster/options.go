package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// ManagerLease is the name of the Lease for leader election. The released manifests grant access to this name.
const ManagerLease = "manager.trust.keyserver.dev"

// Options are the flags of commands that read from a cluster.
type Options struct {
	Cluster    bool
	Namespace  string
	kubeconfig string
}

// Bind adds the flags.
func (o *Options) Bind(f *pflag.FlagSet) {
	f.BoolVar(&o.Cluster, "cluster", false, "read the cluster that the operator runs in")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "with --cluster: kubeconfig file; default: the Pod's service account, or $KUBECONFIG")
	f.StringVarP(&o.Namespace, "namespace", "n", "keyserver-system", "with --cluster: namespace of the operator")
}

// CheckNamespace returns a usage error if name is not valid for a namespace.
func CheckNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return program.Usagef("--namespace is %q; it must be a name of lower-case letters, digits and dashes", name)
	}
	return nil
}

// Config returns the configuration in the kubeconfig file, in $KUBECONFIG, or of the Pod, in this order.
func Config(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	switch {
	case clientcmd.IsEmptyConfig(err) && kubeconfig == "" && named != "":
		return nil, fmt.Errorf("$%s: the file %s contains no cluster", clientcmd.RecommendedConfigPathEnvVar, named)
	case clientcmd.IsEmptyConfig(err) && kubeconfig == "":
		return nil, errors.New("no cluster is configured; give --kubeconfig, set KUBECONFIG, or run in a Pod with a service account")
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("--kubeconfig: the file %s contains no cluster", kubeconfig)
	case err != nil && kubeconfig == "":
		return nil, fmt.Errorf("$%s cannot be used: %w", clientcmd.RecommendedConfigPathEnvVar, err)
	case err != nil:
		return nil, fmt.Errorf("--kubeconfig cannot be used: %w", err)
	}
	return config, nil
}

// Secrets returns the tokens and the password in the kubeconfig, so that a support bundle can remove them.
func (o *Options) Secrets() []string {
	config, err := Config(o.kubeconfig)
	if err != nil {
		return nil // Connect returns the error
	}
	secrets := []string{config.BearerToken, config.Password}
	if config.BearerTokenFile != "" {
		if token, err := program.ReadFile("the token of the cluster", config.BearerTokenFile); err == nil {
			secrets = append(secrets, strings.TrimSpace(token))
		}
	}
	return secrets
}
