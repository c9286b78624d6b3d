package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/custody"
	"github.com/keyserver-operator/keyserver-operator/internal/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// doctorOptions are the flags of doctor.
type doctorOptions struct{ keyOptions }

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
	return custody.FileKey(o.dataDir)
}

func newDoctor() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that what the database holds was written by the key server",
		Long: "Look at the database as serve would open it and print one line for each thing that\n" +
			"should hold: it is of this version, the key-encryption key opens it, and every row\n" +
			"that rights follow from agrees with its MAC. Each row that does not has a line of\n" +
			"its own: such rows are refused by the server (STORE_TAMPERED), and\n" +
			"docs/security.md says what to do. It reads only, and may run beside a server.\n" +
			"Exit code 1 says that something does not hold.",
		Args: noArgs,
		RunE: ran(func(cmd *cobra.Command) error { return o.run(cmd.Context(), cmd.OutOrStdout()) }),
	}
	o.bind(cmd.Flags())
	return cmd
}

func (o *doctorOptions) run(ctx context.Context, out io.Writer) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return doctor.Run(ctx, out, doctor.Database(store, o.keyURL))
}
