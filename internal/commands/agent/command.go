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

// flags are the flags of the command.
type flags struct {
	Config
	check    bool
	logLevel string
}

func (o *flags) bind(f *pflag.FlagSet) {
	f.StringVar(&o.Server, "server", "", "URL of the key server's API, for instance https://keyserver.keyserver-system.svc")
	f.StringVar(&o.CAFile, "ca-file", "", "PEM certificates that the API's own is checked against, read again for each connection; default: the system's")
	f.StringVar(&o.ExternalURL, "external-url", "", "URL by which the key server knows itself (serve --external-url), where that is not --server; DPoP proofs are for it")
	f.StringVar(&o.TokenFile, "token-file", "", "file with the projected token of the Pod's service account, read again at each login")
	f.StringVar(&o.Listen, "listen", DefaultListen, "where the workload calls: unix:///PATH, or host:port of loopback; anything else is refused")
	f.StringVar(&o.SocketMode, "socket-mode", DefaultSocketMode, "permissions of the socket, in octal digits")
	f.StringArrayVar(&o.Allow, "allow", nil, "ROUTE[,ROUTE...][:KEY[,KEY...]] that passes, by its operationId, where there are keys only for those; may be given often; default: all but what opens or ends sessions or changes accounts")
	f.IntVar(&o.MaxRequests, "max-requests", DefaultMaxRequests, "requests that may be under way at once")
	f.StringVar(&o.HealthListen, "health-listen", "", "address of /livez and /readyz over plain HTTP; default: only at --listen")
	f.StringVar(&o.MetricsListen, "metrics-listen", "", "address of /metrics over plain HTTP; default: off")
	f.BoolVar(&o.check, "check", false, "ask the agent at --listen whether it is ready, and end; for the probes of a container")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// Program returns keyserver-agent, which has the command agent and others.
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
		Short: "Call a key server for the workload of one Pod, which needs no credential",
		Long: "Take calls of /api from the workload of the same Pod, on a unix socket or on loopback,\n" +
			"and make them at a key server: log in by the projected token of the Pod's service\n" +
			"account, bind the session to a key that only this process has, log in again when it\n" +
			"ends, and try again what may be tried again. Whoever reaches the socket acts as the\n" +
			"Pod, so that it is for that Pod alone. See docs/workloads.md. Each flag can also be\n" +
			"given as an environment variable: --token-file as KEYSERVER_TOKEN_FILE; several\n" +
			"rules of --allow stand in one, separated by spaces.",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AsService},
		RunE: program.Runs(func(cmd *cobra.Command) error {
			if o.check {
				return o.ask(cmd)
			}
			if err := program.Needed(cmd, "server", "token-file"); err != nil {
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

// serve runs the agent until ctx ends, then drains it.
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
