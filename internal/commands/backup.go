package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

type backupOptions struct {
	access.Options
	databaseOptions
	to, recipient string
	includeKEK    bool
}

func newBackup() *cobra.Command {
	var o backupOptions
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Back up a key server while it serves",
		Long: "Back up the complete database of a key server while it serves, encrypted for an age\n" +
			"recipient. A backup gets its name when it is complete. It does not contain the\n" +
			"key-encryption key: keep that elsewhere. With --include-kek, the key-encryption key in\n" +
			"--data-dir is written next to the backup, encrypted for the same recipient.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	o.BindOne(cmd.Flags())
	cmd.Flags().StringVar(&o.TokenFile, "token-file", "", "file with a service account token for the login, instead of --password-file")
	cmd.Flags().StringVar(&o.to, "to", "", "destination: a directory, which is created if it is missing, or file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER")
	cmd.Flags().StringVar(&o.recipient, "recipient", "", "age recipient (age1...) of the backup; its identity decrypts it")
	cmd.Flags().BoolVar(&o.includeKEK, "include-kek", false, "write the key-encryption key (the file kek in --data-dir) next to the backup, encrypted for the same recipient")
	o.bind(cmd.Flags(), ", and of the key-encryption key for --include-kek")
	return cmd
}

// checked validates the flags and returns the recipient of the encrypted backup.
func (o *backupOptions) checked(cmd *cobra.Command) (age.Recipient, error) {
	flags := []string{"server", "password-file", "to", "recipient"}
	if o.TokenFile != "" {
		flags = slices.Delete(flags, 1, 2)
	}
	if err := program.RequireFlags(cmd, flags...); err != nil {
		return nil, err
	}
	if o.databaseURL != "" { // an invalid URL is an error even if it is not needed
		if _, err := o.config(); err != nil {
			return nil, err
		}
	}
	recipient, err := backup.ParseRecipient(o.recipient)
	if err != nil {
		return nil, program.Usagef("--%w", err)
	}
	if err := backup.CheckPlace(o.to); err != nil {
		return nil, program.Usagef("--to: %w", err)
	}
	return recipient, nil
}

func (o *backupOptions) run(cmd *cobra.Command) (err error) {
	recipient, err := o.checked(cmd)
	if err != nil {
		return err
	}
	a, err := o.Read(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c, err := a.Client(ctx, a.Admin, "keyserver-operator-backup")
	if err != nil {
		return a.WithHint(err)
	}
	defer func() { _ = c.Logout(context.WithoutCancel(ctx)) }()
	session, err := c.GetCurrentSession(ctx)
	if err != nil {
		return a.WithHint(err)
	}
	key, err := c.GetAuditKey(ctx)
	if err != nil {
		return a.WithHint(err)
	}
	var kek []byte
	if o.includeKEK {
		if kek, err = o.fileKEK(ctx, c); err != nil {
			return fmt.Errorf("--include-kek: %w", err)
		}
		defer clear(kek)
	}
	place, err := backup.OpenPlace(ctx, o.to, true)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	system := keyserver.SystemID(session.Principal.SystemID)
	if err := place.Claim(ctx, system, key.Key); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	name := backup.Name(system, time.Now())
	if kek != nil { // copy the key before the backup, so that no backup exists without its key
		if _, err := place.Save(ctx, backup.KeyName(name), func(w io.Writer) error { return backup.Seal(w, recipient, kek) }); err != nil {
			return fmt.Errorf("write the key-encryption key: %w", err)
		}
	}
	size, err := place.Save(ctx, name, func(w io.Writer) error {
		return c.CreateBackup(ctx, schema.BackupRequest{Recipient: schema.Recipient(o.recipient)}, w)
	})
	if err != nil {
		if kek != nil {
			err = errors.Join(err, place.Delete(context.WithoutCancel(ctx), backup.KeyName(name)))
		}
		return a.WithHint(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes\n", name, size)
	return err
}

// fileKEK returns the content of the file with the key-encryption key. It fails if the key server uses another
// key-encryption key.
func (o *backupOptions) fileKEK(ctx context.Context, c *client.Client) (_ []byte, err error) {
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	url, err := keyring.FileKey(o.dataDir)
	if err != nil {
		return nil, fmt.Errorf("%w; only the file kek in --data-dir can be included", err)
	}
	provider, err := keyring.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ring, err := keyring.Existing(ctx, provider, store.Setting)
	if err != nil {
		return nil, err
	}
	used, err := c.GetCustody(ctx)
	if err != nil {
		return nil, err
	}
	if used.KEK.Fingerprint != ring.KEK(ctx).Fingerprint {
		return nil, fmt.Errorf("the file kek in %s is not the key-encryption key that the key server uses (scheme %s)", o.dataDir, used.KEK.Scheme)
	}
	return os.ReadFile(filepath.Join(o.dataDir, keyring.KeyFile))
}
