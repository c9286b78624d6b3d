package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keyserver-operator/keyserver-operator/cmd/keyserver-dev/localcluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// options are the flags of up.
type options struct {
	dir        string
	kubeconfig string
	listen     string
	assets     string
	timeout    time.Duration
	federation bool
	given      *rest.Config // configuration of --kubeconfig, set by complete
	tokens     server.Providers
}

func newUp() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start everything on this machine and apply the samples, for a first look",
		Long: "Start a local control plane (etcd and kube-apiserver) unless --kubeconfig names a\n" +
			"cluster, install the CRDs, run serve and manager in this process, apply the\n" +
			"samples, wait until each is Ready, and run until Ctrl-C. The next run continues with\n" +
			"the state in --dir. With --federation, there are three key servers, at 127.0.0.2,\n" +
			"127.0.0.3 and 127.0.0.4, and the operator lets them trust each other.",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AtTerminal},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.assets == "" {
				o.assets = os.Getenv("KUBEBUILDER_ASSETS")
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.dir, "dir", ".keyserver", "directory for all state and logs")
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "use this cluster instead of starting one")
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8443", "address of the HTTPS API")
	cmd.Flags().StringVar(&o.assets, "assets", "", "directory with etcd, kube-apiserver and kubectl; default: $KUBEBUILDER_ASSETS")
	cmd.Flags().BoolVar(&o.federation, "federation", false, "run three key servers that trust each other, on the port of --listen, with state in DIR/federation")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long to wait for the samples to be Ready")
	return cmd
}

// complete checks the flags before the command creates anything.
func (o *options) complete() (err error) {
	switch {
	case o.dir == "":
		return program.Usagef("--dir must not be empty")
	case o.timeout <= 0:
		return program.Usagef("--timeout is %s; it must be greater than 0", o.timeout)
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if o.federation {
		o.dir = filepath.Join(o.dir, "federation")
	}
	for _, p := range o.places() {
		if _, err := o.serverConfig(p); err != nil {
			return err
		}
	}
	if o.kubeconfig == "" {
		return nil
	}
	if o.given, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig); err != nil {
		return program.Usagef("--kubeconfig cannot be used: %w", err)
	}
	return nil
}

// run starts the parts in order, prints the result and waits for the end. It stops the started parts in reverse
// order.
func (o *options) run(ctx context.Context, out io.Writer) (err error) {
	out = screen{out}
	steps := &progress{out: out}
	if err := o.complete(); err != nil {
		return err
	}
	lock, err := lockDir(o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	// endLeftovers recognizes programs of an earlier run by the canonical path of the directory.
	if o.dir, err = filepath.EvalSymlinks(o.dir); err != nil {
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(o.dir, "up.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logFile.Close()) }()
	logger := slog.New(slog.NewJSONHandler(logFile, &slog.HandlerOptions{ReplaceAttr: urltext.Attr}))

	cluster, stop, err := o.startCluster(ctx, logFile, steps)
	if err != nil {
		return fmt.Errorf("%w; see the log %s", err, logFile.Name())
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := o.trustTokens(ctx, cluster.config, logger); err != nil {
		return err
	}

	servers, err := o.startServers(ctx, logger, steps)
	defer func() { err = errors.Join(err, stopServers(ctx, servers)) }()
	if err != nil {
		return err
	}

	kube, err := prepared(ctx, cluster, steps)
	if err != nil {
		return err
	}
	managerDone := o.startManager(ctx, cluster.config, logger)
	if err := o.declare(ctx, kube, servers, steps, logFile.Name()); err != nil {
		return err
	}
	if err := o.printSteps(ctx, out, servers, cluster, kube); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "\nstopping; the state stays in", o.dir)
		return <-managerDone
	case err := <-managerDone:
		return fmt.Errorf("the manager stopped: %w", err)
	case err := <-cluster.ended:
		return fmt.Errorf("the control plane stopped: %w; see the log %s", err, logFile.Name())
	case err := <-anyFailed(ctx, servers):
		return err
	}
}

// prepared installs the custom resource definitions and returns a client for the cluster.
func prepared(ctx context.Context, cluster target, steps *progress) (*kube, error) {
	k, err := newKube(cluster.config)
	if err != nil {
		return nil, err
	}
	return k, steps.run("custom resource definitions", func() error { return k.installCRDs(ctx) })
}

// printSteps prints commands to try next.
func (o *options) printSteps(ctx context.Context, out io.Writer, servers []namedServer, cluster target, kube *kube) error {
	if o.federation {
		return o.printFederationSteps(ctx, out, servers, cluster)
	}
	return o.printNextSteps(ctx, out, servers[0].Server, cluster, kube)
}

// declare applies the KeyServers and the samples, waits until every object is Ready, and prints
// them.
func (o *options) declare(ctx context.Context, kube *kube, servers []namedServer, steps *progress, log string) error {
	err := steps.run("KeyServer and samples (server-side apply)", func() error {
		for _, s := range servers {
			if err := kube.applyKeyServer(ctx, s.name, s.Server); err != nil {
				return err
			}
		}
		return kube.applySamples(ctx, o.samples(), steps.out)
	})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	err = steps.run("waiting until every object is Ready", func() error { return kube.waitReady(waiting) })
	cancel()
	if tableErr := kube.printTable(ctx, steps.out); tableErr != nil {
		return errors.Join(err, tableErr)
	}
	if err != nil {
		return fmt.Errorf("not every object is Ready: %w; see the log %s", err, log)
	}
	return nil
}

// screen writes to the terminal. It ignores write errors, so that up continues after its output is closed.
type screen struct{ io.Writer }

// Write implements io.Writer.
func (s screen) Write(p []byte) (int, error) {
	_, _ = s.Writer.Write(p)
	return len(p), nil
}

// target is the cluster to which up connects the key servers.
type target struct {
	config     *rest.Config
	kubeconfig string
	ended      <-chan error // nil for the cluster of --kubeconfig
}

func (o *options) startCluster(ctx context.Context, log io.Writer, steps *progress) (target, func() error, error) {
	if o.given != nil {
		return target{config: o.given, kubeconfig: o.kubeconfig}, func() error { return nil }, nil
	}
	var cluster *localcluster.Cluster
	err := steps.run("control plane (etcd and kube-apiserver)", func() (err error) {
		cluster, err = localcluster.Start(ctx, localcluster.Options{Assets: o.assets, Dir: o.dir, Log: log})
		return err
	})
	if err != nil {
		return target{}, nil, err
	}
	return target{cluster.Config, cluster.Kubeconfig, cluster.Ended()}, cluster.Stop, nil
}

func (o *options) startManager(ctx context.Context, cfg *rest.Config, logger *slog.Logger) <-chan error {
	done := make(chan error, 1)
	go func() { done <- commands.RunManager(ctx, cfg, logger, "local") }()
	return done
}

// progress prints the name, result and duration of each step.
type progress struct{ out io.Writer }

func (p *progress) run(what string, step func() error) error {
	fmt.Fprintf(p.out, "%-48s ", what)
	start := time.Now()
	err := step()
	if err != nil {
		fmt.Fprintln(p.out, "failed")
		return err
	}
	fmt.Fprintf(p.out, "ready in %.1f s\n", time.Since(start).Seconds())
	return nil
}

// lockDir creates the directory and locks it for this process, so that two runs never share the directory. The kernel
// releases the lock when the process ends.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--dir: %s cannot be created: %w", dir, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("--dir: %s cannot be opened: %w", dir, err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("--dir: another \"up\" uses %s; stop it, or choose another directory", dir), d.Close())
	}
	return d, nil
}
