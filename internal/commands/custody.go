package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func newCustody() *cobra.Command {
	return program.Group("custody", "Recover a database whose key-encryption key is lost", newCustodyRecovery(), newCustodyRestore())
}

// recoveryOptions are the flags of custody recovery.
type recoveryOptions struct {
	keyOptions
	recipient, out string
}

func newCustodyRecovery() *cobra.Command {
	var o recoveryOptions
	cmd := &cobra.Command{
		Use:   "recovery",
		Short: "Write the data keys for an identity of age that is kept elsewhere",
		Long: "Write the data keys of the database, encrypted for a recipient of age. Whoever has\n" +
			"its identity opens the database without the key-encryption key (custody restore):\n" +
			"keep it where no server is. It reads only, and may run beside a server. Write a new\n" +
			"file after each new data key: an older one does not open what is under it.",
		Args: program.NoArgs,
		RunE: program.Ran(func(cmd *cobra.Command) error { return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()) }),
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&o.recipient, "recipient", "", "recipient of age, age1...")
	cmd.Flags().StringVar(&o.out, "out", "", "file to write, which must not exist; - is standard output")
	return cmd
}

func (o *recoveryOptions) run(ctx context.Context, out, notes io.Writer) (err error) {
	cfg, err := o.config()
	switch {
	case err != nil:
		return err
	case o.recipient == "" || o.out == "":
		return program.Usagef("--recipient and --out are needed")
	}
	url, err := o.keyURL()
	if err != nil {
		return err
	}
	keeper, err := keyring.Open(ctx, url)
	if err != nil {
		return fmt.Errorf("--kek: %w", err)
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ids, err := o.write(ctx, keeper, store, out)
	if err != nil {
		return err
	}
	if o.out == program.StandardOutput {
		out = notes
	}
	for _, id := range ids {
		fmt.Fprintf(out, "data key %s\n", id)
	}
	return nil
}

// write writes the recovery file, and returns the ids of the data keys in it.
func (o *recoveryOptions) write(ctx context.Context, keeper *keyring.Keeper, store *sqlstore.Store, out io.Writer) ([]keyserver.ID, error) {
	if o.out == program.StandardOutput {
		return keyring.WriteRecovery(ctx, keeper, store.Setting, o.recipient, out)
	}
	file, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	ids, err := keyring.WriteRecovery(ctx, keeper, store.Setting, o.recipient, file)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(o.out)) // an incomplete file is useless
	}
	return ids, nil
}

// restoreOptions are the flags of custody restore.
type restoreOptions struct {
	databaseOptions
	kek, recovery, identity string
}

func newCustodyRestore() *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Open a database whose key-encryption key is lost, by a recovery file",
		Long: "Have another key-encryption key wrap the data keys of a database, as a file of custody\n" +
			"recovery has them. No server may run. A file that lacks a data key, or is of another\n" +
			"database, is refused, and nothing is changed.",
		Args: program.NoArgs,
		RunE: program.Ran(func(cmd *cobra.Command) error { return o.run(cmd.Context(), cmd.OutOrStdout()) }),
	}
	o.bind(cmd.Flags(), "")
	cmd.Flags().StringVar(&o.kek, "kek", "", "URL of the key-encryption key from now on")
	cmd.Flags().StringVar(&o.recovery, "recovery", "", "file that custody recovery wrote")
	cmd.Flags().StringVar(&o.identity, "identity", "", "file with the identity of age that it was written for")
	return cmd
}

func (o *restoreOptions) run(ctx context.Context, out io.Writer) (err error) {
	cfg, err := o.config()
	switch {
	case err != nil:
		return err
	case o.kek == "" || o.recovery == "" || o.identity == "":
		return program.Usagef("--recovery, --identity and --kek are needed")
	}
	keeper, err := keyring.Open(ctx, o.kek)
	if err != nil {
		return fmt.Errorf("--kek: %w", err)
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	recovery, err := os.Open(o.recovery)
	if err != nil {
		return fmt.Errorf("--recovery: %w", err)
	}
	defer recovery.Close() //nolint:errcheck // only read
	identity, err := os.Open(o.identity)
	if err != nil {
		return fmt.Errorf("--identity: %w", err)
	}
	defer identity.Close() //nolint:errcheck // only read
	if o.databaseURL == "" {
		if _, err := os.Stat(filepath.Join(o.dataDir, sqlite.DatabaseFile)); err != nil {
			return fmt.Errorf("--data-dir: %w", err) // Open would create the database
		}
	}
	store, err := sqlstore.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := keyring.Recover(ctx, recovery, identity, keeper, store); err != nil {
		return err
	}
	fmt.Fprintln(out, "--kek opens the database from now on")
	return nil
}
