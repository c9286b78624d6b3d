package kmsplugin

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/unixsocket"
)

// flags are the flags of the command.
type flags struct {
	Config
	lineage  string
	listen   string
	logLevel string
}

// Command returns the command "kms".
func Command() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "kms",
		Short: "Let a kube-apiserver encrypt what it stores by a line of keys (KMS v2)",
		Long: "Serve the Kubernetes KMS v2 API at a Unix socket, in front of a line of AES-256 keys of a\n" +
			"key server: what kube-apiserver stores is then encrypted in etcd, and the keys never\n" +
			"leave the key server. It logs in by a service account token, which is read anew at each\n" +
			"login, and binds its session to a key in memory. docs/kms.md says how it is set up, how\n" +
			"keys are rotated, and what happens while the key server is away.",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AsService},
		RunE:        program.Runs(o.run),
	}
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", "", "URL of the key server's API, for instance https://keys.example:8443")
	f.StringVar(&o.ExternalURL, "external-url", "", "URL by which the key server knows itself (serve --external-url), if not by --server; DPoP proofs are for it")
	f.StringVar(&o.CAFile, "ca-file", "", "PEM certificates that the API's own is checked against, read again when they change; default: the system's")
	f.StringVar(&o.TokenFile, "token-file", "", "absolute path of the service account token to log in with; it is read at each login")
	f.StringVar(&o.lineage, "lineage", "", "hidden link of the first key of the line, in base64")
	f.StringVar(&o.listen, "listen", "", "unix:// and the absolute path of the socket, which is for the user of this process alone")
	f.StringVar(&o.Metrics, "metrics-listen", "", "address of /metrics, /healthz and /readyz over plain HTTP; default: off")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func (o *flags) run(cmd *cobra.Command) error {
	if err := o.complete(cmd); err != nil {
		return err
	}
	return Run(cmd.Context(), o.Config, func() {
		fmt.Fprintf(cmd.OutOrStdout(), "ready: %s (line %s of %s)\n", o.listen, o.Lineage, o.Server)
	})
}

// complete checks the flags and sets the logger.
func (o *flags) complete(cmd *cobra.Command) (err error) {
	if err := program.Needed(cmd, "server", "token-file", "lineage", "listen"); err != nil {
		return err
	}
	if err := program.CheckServer(o.Server); err != nil {
		return err
	}
	if o.ExternalURL != "" {
		if _, err := client.New(client.Options{BaseURL: o.ExternalURL}); err != nil {
			return program.Usagef("--external-url: %w", err)
		}
	}
	if !filepath.IsAbs(o.TokenFile) {
		return program.Usagef("--token-file is %q; it must be an absolute path", o.TokenFile)
	}
	if err := o.Lineage.UnmarshalText([]byte(o.lineage)); err != nil {
		return program.Usagef("--lineage %w", err)
	}
	if o.Socket, err = unixsocket.Path(o.listen); err != nil {
		return program.Usagef("--listen: %w", err)
	}
	if o.Logger, err = program.NewLogger(cmd.ErrOrStderr(), o.logLevel); err != nil {
		return err
	}
	o.UserAgent, o.Clock = "keyserver-operator-kms", time.Now
	return nil
}
