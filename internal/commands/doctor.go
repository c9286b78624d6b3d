package commands

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// keyOptions are the flags of commands that open a database with its key-encryption key.
type keyOptions struct {
	databaseOptions
	kek string
}

func (o *keyOptions) bind(f *pflag.FlagSet) {
	o.databaseOptions.bind(f, ", and of the key-encryption key unless --kek is a URL")
	f.StringVar(&o.kek, "kek", "", "URL of the key-encryption key, as in serve --kek; default, or \"file\": the file kek in --data-dir")
}

// keyURL returns the URL of an existing key-encryption key. It never creates a key.
func (o *keyOptions) keyURL() (string, error) {
	if o.kek != "" && o.kek != "file" {
		return o.kek, nil
	}
	return keyring.FileKey(o.dataDir)
}

type doctorOptions struct {
	keyOptions
	forwarded
}

// newDoctor returns the command doctor. args are the arguments of the program.
func newDoctor(args []string) *cobra.Command {
	o := doctorOptions{forwarded: forwarded{args: args}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a database",
		Long: "Run checks of a database, and print one line for each check and one for each finding.\n\n" +
			"It opens the database as serve does, and checks that it has the schema of this version,\n" +
			"that the key-encryption key opens it, and that every row that gives rights agrees with\n" +
			"its MAC. The server refuses other rows (STORE_TAMPERED); docs/security.md says what to\n" +
			"do. It may run while a server runs.\n\n" +
			"It only reads. Exit code 1 means that there are findings. keyserverctl doctor checks a\n" +
			"key server or a cluster.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	o.bind(cmd.Flags())
	o.bindCluster(cmd.Flags())
	return cmd
}

func (o *doctorOptions) run(cmd *cobra.Command) error {
	if o.server == "" && !o.cluster {
		if err := program.ForbidFlags(cmd, "applies only with --server; add --server or leave it out", "ca-file", "username", "password-file"); err != nil {
			return err
		}
		return o.checkDatabase(cmd.Context(), cmd.OutOrStdout())
	}
	if err := program.ForbidFlags(cmd, "does not apply to --server and --cluster; leave one of them out", "data-dir", "database-url", "kek"); err != nil {
		return err
	}
	form := " --server"
	if o.cluster {
		form = " --cluster"
	}
	return forward(cmd, cmd.CommandPath()+form, clientProgram, o.args)
}

func (o *doctorOptions) checkDatabase(ctx context.Context, out io.Writer) (err error) {
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
