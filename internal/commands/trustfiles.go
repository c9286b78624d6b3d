package commands

import (
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/trustfiles"
)

// trustFileOptions are the flags for files that the manager shares with a key server in the same Pod. A flag that serve
// also has means the same file, so that one environment variable sets both flags.
type trustFileOptions struct {
	jwksFile     string
	issuer       string
	jwksInterval time.Duration
	caFile       string
	caConfigMap  string
}

// caInterval is the interval at which --ca-file is read. The file changes when the key server starts with another
// database, and rarely at other times.
const caInterval = 10 * time.Second

func (o *trustFileOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.jwksFile, "oidc-jwks-file", "", "file to write with the keys that sign the cluster's service account tokens, for serve --oidc-jwks-file; default: off")
	f.DurationVar(&o.jwksInterval, "oidc-jwks-interval", time.Minute, "how often the keys for --oidc-jwks-file are fetched")
	f.StringVar(&o.issuer, "oidc-issuer", "", "value of serve --oidc-issuer; the log reports if the cluster has another issuer")
	f.StringVar(&o.caFile, "ca-file", "", "file with the CA certificate to publish, which serve --ca-file writes; default: off")
	f.StringVar(&o.caConfigMap, "ca-configmap", "", "NAMESPACE/NAME of the ConfigMap in which --ca-file is published, under the key "+trustfiles.AuthorityKey)
}

func (o *trustFileOptions) validate() error {
	switch {
	case o.jwksInterval < time.Second:
		return program.Usagef("--oidc-jwks-interval is %s; it must be at least 1s", o.jwksInterval)
	case (o.caFile == "") != (o.caConfigMap == ""):
		return program.Usagef("--ca-file and --ca-configmap belong together; give both or neither")
	}
	_, err := configMapOf("ca-configmap", o.caConfigMap)
	return err
}

// configMapOf returns the ConfigMap that a flag names as NAMESPACE/NAME. An empty value names none.
func configMapOf(flag, value string) (types.NamespacedName, error) {
	if value == "" {
		return types.NamespacedName{}, nil
	}
	namespace, name, found := strings.Cut(value, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, program.Usagef("--%s is %q; it must be NAMESPACE/NAME", flag, value)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// add adds the tasks that the flags select to the manager.
func (o *trustFileOptions) add(mgr ctrl.Manager, logger *slog.Logger) error {
	if o.jwksFile != "" {
		client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return err
		}
		err = mgr.Add(trustfiles.IssuerKeys{
			Fetch: trustfiles.FromCluster(client.RESTClient()), File: o.jwksFile, Issuer: o.issuer, Interval: o.jwksInterval, Logger: logger,
		})
		if err != nil {
			return err
		}
	}
	if o.caFile == "" {
		return nil
	}
	client, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	into, err := configMapOf("ca-configmap", o.caConfigMap)
	if err != nil {
		return err
	}
	return mgr.Add(trustfiles.Authority{
		ConfigMaps: client, ConfigMap: into, File: o.caFile, Interval: caInterval, Logger: logger,
	})
}
