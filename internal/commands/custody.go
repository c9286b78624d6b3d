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
		Short: "Write a recovery file: the data keys, encrypted for an age recipient",
		Long: "Write the data keys of the database to a recovery file, encrypted for an age recipient.\n" +
			"The recipient's identity opens the database without the key-encryption key (custody\n" +
			"restore): keep the identity away from the servers. This command only reads the\n" +
			"database, and may run while a server runs. Write a new file after each new data key,\n" +
			"because older files do not contain it.",
		Args: program.NoArgs,
		RunE: program.RunE(func(cmd *cobra.Command) error { return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()) }),
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&o.recipient, "recipient", "", "age recipient (age1...)")
	cmd.Flags().StringVar(&o.out, "out", "", "file to write, which must not exist; - is standard output")
	return cmd
}

func (o *recoveryOptions) run(ctx context.Context, out, notes io.Writer) (err error) {
	cfg, err := o.config()
	switch {
	case err != nil:
		return err
	case o.recipient == "" || o.out == "":
		return program.Usagef("--recipient or --out is missing; give both")
	}
	url, err := o.keyURL()
	if err != nil {
		return err
	}
	provider, err := keyring.Open(ctx, url)
	if err != nil {
		return fmt.Errorf("--kek: %w", err)
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ids, err := o.write(ctx, provider, store, out)
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

// write writes the recovery file, and returns the ids of its data keys.
func (o *recoveryOptions) write(ctx context.Context, provider *keyring.Provider, store *sqlstore.Store, out io.Writer) ([]keyserver.ID, error) {
	if o.out == program.StandardOutput {
		return keyring.WriteRecovery(ctx, provider, store.Setting, o.recipient, out)
	}
	file, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	ids, err := keyring.WriteRecovery(ctx, provider, store.Setting, o.recipient, file)
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
		Short: "Replace a lost key-encryption key, with a recovery file",
		Long: "Encrypt the data keys of a database under another key-encryption key, with a file that\n" +
			"custody recovery wrote. No server may run. A file that lacks a data key, or belongs to\n" +
			"another database, is refused, and nothing is changed.",
		Args: program.NoArgs,
		RunE: program.RunE(func(cmd *cobra.Command) error { return o.run(cmd.Context(), cmd.OutOrStdout()) }),
	}
	o.bind(cmd.Flags(), "")
	cmd.Flags().StringVar(&o.kek, "kek", "", "URL of the new key-encryption key")
	cmd.Flags().StringVar(&o.recovery, "recovery", "", "file that custody recovery wrote")
	cmd.Flags().StringVar(&o.identity, "identity", "", "file with the age identity that decrypts --recovery")
	return cmd
}

func (o *restoreOptions) run(ctx context.Context, out io.Writer) (err error) {
	cfg, err := o.config()
	switch {
	case err != nil:
		return err
	case o.kek == "" || o.recovery == "" || o.identity == "":
		return program.Usagef("--recovery, --identity or --kek is missing; give all three")
	}
	provider, err := keyring.Open(ctx, o.kek)
	if err != nil {
		return fmt.Errorf("--kek: %w", err)
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
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
	if err := keyring.Recover(ctx, recovery, identity, provider, store); err != nil {
		return err
	}
	fmt.Fprintln(out, "the key-encryption key of --kek opens the database from now on")
	return nil
}
