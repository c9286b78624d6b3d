package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	keyOptions
	access.Options
	clusterOptions
}

// keyOptions are the flags of what looks at a database with its key-encryption key.
type keyOptions struct {
	databaseOptions
	kek string
}

func (o *keyOptions) bind(f *pflag.FlagSet) {
	o.databaseOptions.bind(f, ", and of the key-encryption key where --kek names none")
	f.StringVar(&o.kek, "kek", "", "URL of the key-encryption key, as serve has it; default, or file: the file kek in --data-dir")
}

// keyURL is the key-encryption key that is there; none is made.
func (o *keyOptions) keyURL() (string, error) {
	if o.kek != "" && o.kek != "file" {
		return o.kek, nil
	}
	return keyring.FileKey(o.dataDir)
}

// clusterOptions are the flags of what looks at a cluster.
type clusterOptions struct {
	cluster    bool
	kubeconfig string
	namespace  string
}

func (o *clusterOptions) bind(f *pflag.FlagSet) {
	f.BoolVar(&o.cluster, "cluster", false, "look at the cluster that the operator runs in")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "with --cluster: kubeconfig file; default: the Pod's service account, or $KUBECONFIG")
	f.StringVarP(&o.namespace, "namespace", "n", "keyserver-system", "with --cluster: namespace of the operator")
}

// Bounds of each answer of a cluster that is looked at.
const (
	answerTime = 10 * time.Second
	maxAnswer  = 32 << 20 // bytes, as of ctl
	maxValues  = 500_000  // of JSON: an object of two bytes takes a kilobyte when it is read
)

// bounded refuses an answer that is too long, after it was decompressed. What the client of
// Kubernetes reads it keeps, and an answer need not end.
type bounded struct {
	http.RoundTripper
	streams bool // what succeeds is one, and whoever asked bounds it
}

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil || b.streams && resp.StatusCode == http.StatusOK {
		return resp, err
	}
	resp.Body = &boundedBody{resp.Body, maxAnswer, maxValues}
	// The client reads what it did not ask for, too, and there values are not counted.
	if is := resp.Header.Get("Content-Type"); is != "" && !strings.HasPrefix(is, runtime.ContentTypeJSON) {
		resp.Header.Set("Content-Type", "text/plain")
	}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	bytes  int64
	values int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.bytes+1)])
	b.bytes -= int64(n)
	b.values -= bytes.Count(p[:n], []byte(",")) // which divide them
	switch {
	case b.bytes < 0:
		return 0, fmt.Errorf("the cluster answers with more than %d MiB", maxAnswer>>20)
	case b.values < 0:
		return 0, fmt.Errorf("the cluster answers with more than %d values", maxValues)
	}
	return n, err
}

// connect refuses a cluster that does not answer, which need not be asked for everything in
// turn. By streams logs are read, in time and room that their reader bounds.
func (o *clusterOptions) connect(ctx context.Context) (answers, streams *rest.Config, _ error) {
	config, err := clusterConfig(o.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // each error is said once, by whoever asked
	config.QPS = -1                                   // the API server has its own fairness
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	answers, streams = rest.CopyConfig(config), config
	answers.Timeout = answerTime
	answers.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next, false} })
	streams.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next, true} })
	d, err := discovery.NewDiscoveryClientForConfig(answers)
	if err != nil {
		return nil, nil, err
	}
	_, err = d.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	var refused apierrors.APIStatus
	if err != nil && !errors.As(err, &refused) { // who is refused is answered
		return nil, nil, fmt.Errorf("the cluster at %s does not answer: %w", config.Host, err)
	}
	return answers, streams, nil
}

func newDoctor() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that what should hold of a database, a key server or a cluster does",
		Long: "Print one line for each thing that should hold, and one for each that does not.\n\n" +
			"Without --server and --cluster, look at the database as serve would open it: it is of\n" +
			"this version, the key-encryption key opens it, and every row that rights follow from\n" +
			"agrees with its MAC. Rows that do not are refused by the server (STORE_TAMPERED), and\n" +
			"docs/security.md says what to do. It may run beside a server.\n\n" +
			"With --server, ask a key server: its parts work, and with --password-file, it is of this\n" +
			"release, keys are wrapped as they should be, no certificate ends within 30 days, and\n" +
			"the newest checkpoint of the audit trail is signed. With --cluster: the\n" +
			"definitions are there, a manager is active, and every object is Ready; an answer of the\n" +
			"cluster may take 10 seconds, 32 MiB and 500,000 values, and of each kind 500,000 objects\n" +
			"are looked at, until 1000 of them are not Ready.\n\n" +
			"It reads only. Exit code 1 says that something does not hold.",
		Args: program.NoArgs,
		RunE: program.Ran(o.run),
	}
	o.keyOptions.bind(cmd.Flags())
	o.BindOne(cmd.Flags())
	o.clusterOptions.bind(cmd.Flags())
	return cmd
}

func (o *doctorOptions) run(cmd *cobra.Command) error {
	if o.cluster && o.Server != "" {
		return program.Usagef("--cluster and --server are looked at one after the other; give one of them")
	}
	if o.Server == "" {
		if err := program.Without(cmd, "is for --server, which is missing", "ca-file", "username", "password-file"); err != nil {
			return err
		}
	}
	if !o.cluster && o.Server == "" {
		return o.lookAtDatabase(cmd.Context(), cmd.OutOrStdout())
	}
	if err := program.Without(cmd, "is for a database, and something else is looked at; give one of them", "data-dir", "database-url", "kek"); err != nil {
		return err
	}
	if o.cluster {
		return o.lookAtCluster(cmd.Context(), cmd.OutOrStdout())
	}
	return o.lookAtServer(cmd)
}

func (o *doctorOptions) lookAtDatabase(ctx context.Context, out io.Writer) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return sqlstore.Explain(err, cfg)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	checks := storecheck.Database(store, o.keyURL)
	if cfg.Dir != "" {
		checks = append(checks, storecheck.Volume(cfg.Dir))
	}
	return doctor.Run(ctx, out, checks)
}

func (o *doctorOptions) lookAtServer(cmd *cobra.Command) error {
	a, err := o.Read(cmd)
	if err != nil {
		return err
	}
	asked, err := ask(cmd.Context(), a, "keyserver-operator-doctor")
	if err != nil {
		return err
	}
	return doctor.Run(cmd.Context(), cmd.OutOrStdout(), doctor.Service(asked))
}

// ask is a key server, asked as a stranger where no password is given, or where a login
// fails: that a service cannot do that much is what is to be found out.
func ask(ctx context.Context, a access.Access, userAgent string) (doctor.Asked, error) {
	asked := doctor.Asked{Build: version.String(), Now: time.Now()}
	var err error
	if asked.LoggedIn = a.Admin != nil; asked.LoggedIn {
		if asked.Client, err = a.Client(ctx, a.Admin, userAgent); err == nil || ctx.Err() != nil {
			return asked, err
		}
		asked.LoggedIn, asked.Refused = false, a.Explained(err)
	}
	asked.Client, err = a.Connect(&access.Login{}, userAgent, nil)
	return asked, err
}

func (o *clusterOptions) lookAtCluster(ctx context.Context, out io.Writer) error {
	if err := checkNamespace(o.namespace); err != nil {
		return err
	}
	config, _, err := o.connect(ctx)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: NewScheme()})
	if err != nil {
		return err
	}
	return doctor.Run(ctx, out, doctor.Cluster{
		Reader: c, Namespace: o.namespace, Lease: leaseName, Now: time.Now(),
	}.Checks())
}
