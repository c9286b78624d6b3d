package agent

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

type flags struct {
	Config
	check    bool
	logLevel string
}

func (o *flags) bind(f *pflag.FlagSet) {
	f.StringVar(&o.Server, "server", "", "URL of the key server's API, for instance https://keyserver.keyserver-system.svc")
	f.StringVar(&o.CAFile, "ca-file", "", "PEM file with the CA certificates that verify the key server's certificate, read again for each connection; default: those of the system")
	f.StringVar(&o.ExternalURL, "external-url", "", "the key server's own URL (serve --external-url), if it differs from --server; DPoP proofs are for it")
	f.StringVar(&o.TokenFile, "token-file", "", "file with the projected token of the Pod's service account, read again at each login")
	f.StringVar(&o.Listen, "listen", DefaultListen, "address for the workload's requests: unix:///PATH, or host:port of loopback")
	f.StringVar(&o.SocketMode, "socket-mode", DefaultSocketMode, "permissions of the socket, in octal digits")
	f.StringArrayVar(&o.Allow, "allow", nil, "ROUTE[,ROUTE...][:KEY[,KEY...]]: allowed operationIds, and the only keys for them; may be given several times; default: all routes except those that open or end sessions, or change accounts")
	f.IntVar(&o.MaxRequests, "max-requests", DefaultMaxRequests, "maximum number of concurrent requests")
	f.StringVar(&o.Batch, "batch", BatchOn, "on: send concurrent requests to compute or verify MACs as one batch; off: send each alone")
	f.StringVar(&o.HealthListen, "health-listen", "", "address of /livez and /readyz over plain HTTP; default: only at --listen")
	f.StringVar(&o.MetricsListen, "metrics-listen", "", "address of /metrics over plain HTTP; default: off")
	f.BoolVar(&o.check, "check", false, "check whether the agent at --listen is ready, and exit; for exec probes of a container")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// Program returns the program keyserver-agent, with the command agent and the given commands.
func Program(others ...*cobra.Command) program.Program {
	const name = "keyserver-agent"
	return program.Program{Name: name, Root: func([]string) (*cobra.Command, error) {
		list := append([]*cobra.Command{Command(), program.NewVersion(name)}, others...)
		return program.Group(name, "Call a key server for a workload or a kube-apiserver", list...), nil
	}}
}

// Command returns the command "agent".
func Command() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Forward the requests of one Pod's workload, which needs no credential, to a key server",
		Long: "Accept requests to /api from the workload of the same Pod, on a unix socket or on\n" +
			"loopback, and forward them to a key server. The agent logs in with the projected token\n" +
			"of the Pod's service account and binds the session to a key that only this process has.\n" +
			"It logs in again when the session ends, and retries requests that are safe to retry.\n" +
			"Every process that can reach the socket acts as the Pod, so do not share it with other\n" +
			"Pods. See docs/workloads.md. An environment variable can set each flag: for example,\n" +
			"KEYSERVER_TOKEN_FILE sets --token-file. KEYSERVER_ALLOW can have several rules,\n" +
			"separated by spaces.",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AsService},
		RunE: program.RunService(func(cmd *cobra.Command) error {
			if o.check {
				return o.ask(cmd)
			}
			if err := program.RequireFlags(cmd, "server", "token-file"); err != nil {
				return err
			}
			return o.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	o.bind(cmd.Flags())
	return cmd
}

func (o *flags) ask(cmd *cobra.Command) error {
	if err := Check(cmd.Context(), o.Listen); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "ready")
	return nil
}

// serve runs the agent until ctx ends, and then waits for running requests.
func (o *flags) serve(ctx context.Context, out, errOut io.Writer) (err error) {
	if o.Logger, err = program.NewLogger(errOut, o.logLevel); err != nil {
		return err
	}
	o.Clock, o.UserAgent = time.Now, "keyserver-operator-agent"
	if err := o.Validate(); err != nil {
		return program.Usage(err)
	}
	a, err := Start(ctx, o.Config)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening: %s\n", a.Address())
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-a.Failed():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), program.DrainTime)
	defer cancel()
	if err := a.Shutdown(drain); err != nil && failure == nil {
		return fmt.Errorf("stop: %w", err)
	}
	return failure
}
