package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/custody"
	"github.com/keyserver-operator/keyserver-operator/internal/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	databaseOptions
	kek string
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.bind(cmd.Flags(), ", and of the key-encryption key where --kek names none")
	cmd.Flags().StringVar(&o.kek, "kek", "", "URL of the key-encryption key, as serve has it; default: the file kek in --data-dir")
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
	return doctor.Run(ctx, out, doctor.Database(store, func() (string, error) {
		if o.kek != "" {
			return o.kek, nil
		}
		return custody.FileKey(o.dataDir)
	}))
}
