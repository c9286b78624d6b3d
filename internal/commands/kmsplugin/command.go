package kmsplugin

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/unixsocket"
)

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
		Short: "Encrypt the storage of a kube-apiserver with a key lineage (KMS v2)",
		Long: "Serve the Kubernetes KMS v2 API at a Unix socket, with a lineage of AES-256 keys of a key\n" +
			"server. kube-apiserver then stores encrypted objects in etcd, and the keys never leave\n" +
			"the key server. The plugin logs in with a service account token, which it reads again at\n" +
			"each login, and binds its session to a key in memory. docs/kms.md describes the setup,\n" +
			"the rotation of keys, and the effects of an unavailable key server.",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AsService},
		RunE:        program.RunService(o.run),
	}
	f := cmd.Flags()
	f.StringVar(&o.Server, "server", "", "URL of the key server's API, for instance https://keys.example:8443")
	f.StringVar(&o.ExternalURL, "external-url", "", "the key server's own URL (serve --external-url), if it differs from --server; DPoP proofs are for it")
	f.StringVar(&o.CAFile, "ca-file", "", "PEM file with the CA certificates that verify the key server's certificate, read again when it changes; default: those of the system")
	f.StringVar(&o.TokenFile, "token-file", "", "absolute path of the service account token for logins; the file is read at each login")
	f.StringVar(&o.lineage, "lineage", "", "key lineage to encrypt with: the hidden link of its first key, in base64")
	f.StringVar(&o.listen, "listen", "", "unix:// and the absolute path of the socket, which only the user of this process can open")
	f.StringVar(&o.Metrics, "metrics-listen", "", "address of /metrics, /healthz and /readyz over plain HTTP; default: off")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func (o *flags) run(cmd *cobra.Command) error {
	if err := o.complete(cmd); err != nil {
		return err
	}
	return Run(cmd.Context(), o.Config, func() {
		fmt.Fprintf(cmd.OutOrStdout(), "ready: %s (lineage %s of %s)\n", o.listen, o.Lineage, o.Server)
	})
}

// complete checks the flags and sets the logger.
func (o *flags) complete(cmd *cobra.Command) (err error) {
	if err := program.RequireFlags(cmd, "server", "token-file", "lineage", "listen"); err != nil {
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
