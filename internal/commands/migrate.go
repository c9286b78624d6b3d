package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/migrate"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Values of --from and --to of migrate.
const (
	fromSQLite = "sqlite"
	toPostgres = "postgres"
)

type migrateOptions struct {
	keyOptions
	from, to    string
	kekPrevious string
}

func newMigrate() *cobra.Command {
	var o migrateOptions
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move an embedded database to PostgreSQL, and compare each row there",
		Long: "Move the embedded database in --data-dir to the PostgreSQL database --database-url,\n" +
			"which must be empty, and compare each row there with the original. No server may run\n" +
			"on either. The move is complete when all rows are there and equal, and the\n" +
			"key-encryption key opens them. Until then no server accepts the new database, and the\n" +
			"old one is unchanged: run a move that fails or is killed again. Afterwards no server\n" +
			"starts on the old database, which is kept. Sessions, the audit log and its tree\n" +
			"continue. With --kek-previous, the move also replaces the key-encryption key.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "kind of the source database: sqlite (the embedded database in --data-dir)")
	f.StringVar(&o.to, "to", "", "kind of the target database: postgres (--database-url)")
	f.StringVar(&o.dataDir, "data-dir", "keyserver-data", "directory of the embedded database, and of the key-encryption key in the file kek")
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL URL of an empty database")
	f.StringVar(&o.kek, "kek", "", "URL of the key-encryption key, as for serve --kek later; default, or \"file\": the file kek in --data-dir")
	f.StringVar(&o.kekPrevious, "kek-previous", "", "URL of the key-encryption key that --kek replaces, or \"file\": the file kek in --data-dir")
	return cmd
}

func (o *migrateOptions) run(cmd *cobra.Command) (err error) {
	if err := o.check(cmd); err != nil {
		return err
	}
	from, to, err := o.databases()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	provider, err := o.openProvider(ctx, "--kek", o.kek)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	m := migrate.Options{From: from, To: to, Provider: provider, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)}
	if o.kekPrevious != "" {
		if m.Previous, err = o.openProvider(ctx, "--kek-previous", o.kekPrevious); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Previous.Close()) }()
	}
	done, err := migrate.Run(ctx, m)
	var unsure migrate.UnsureError
	switch {
	case err != nil && ctx.Err() != nil && !errors.As(err, &unsure):
		return errors.New("the move was interrupted, and nothing was moved: run it again")
	case err != nil:
		return err
	}
	return o.report(cmd.OutOrStdout(), from, to, done)
}

// check returns a usage error if flags are missing or a migration is not supported.
func (o *migrateOptions) check(cmd *cobra.Command) error {
	if err := program.RequireFlags(cmd, "from", "to", "database-url"); err != nil {
		return err
	}
	switch {
	case o.from == toPostgres && o.to == fromSQLite:
		return program.Usagef("--from postgres is not supported; make a backup of the key server, and restore it into --data-dir (keyserver-operator backup, restore)")
	case o.from != fromSQLite:
		return program.Usagef("--from is %q; it must be %s", o.from, fromSQLite)
	case o.to != toPostgres:
		return program.Usagef("--to is %q; it must be %s", o.to, toPostgres)
	case o.dataDir == "":
		return program.Usagef("--data-dir must not be empty")
	case o.kekPrevious != "" && o.kek == "":
		return program.Usagef("--kek-previous is given but --kek is missing; give the URL of the new key-encryption key as --kek")
	}
	return nil
}

func (o *migrateOptions) databases() (from, to sqlstore.Config, err error) {
	to, err = o.config()
	return sqlstore.Config{Dir: o.dataDir}, to, err
}

// openProvider opens an existing key-encryption key. flag is the flag that errors name.
func (o *migrateOptions) openProvider(ctx context.Context, flag, kek string) (*keyring.Provider, error) {
	named := o.keyOptions
	named.kek = kek
	url, err := named.keyURL()
	if err == nil {
		var provider *keyring.Provider
		if provider, err = keyring.Open(ctx, url); err == nil {
			return provider, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", flag, err)
}

// report prints the result and the next steps.
func (o *migrateOptions) report(out io.Writer, from, to sqlstore.Config, done migrate.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "moved %s to %s: %d rows in %d tables, each compared with the original\n", sqlstore.PlaceOf(from), sqlstore.PlaceOf(to), done.Rows, done.Tables)
	fmt.Fprintf(&b, "audit log intact up to row %d, of which the tree has %d; the next row records the move\n", done.Last, done.Tree)
	fmt.Fprintf(&b, "The new database opens with the key-encryption key of scheme %s, fingerprint %s: give its URL to every replica as --kek.\n", done.KEK.Scheme, done.KEK.Fingerprint)
	fmt.Fprintf(&b, "No server starts on %s any more; the file %s says why. Keep both until there is a backup of the new database.\n",
		filepath.Join(from.Dir, sqlite.DatabaseFile), sqlite.MovedFile)
	_, err := io.WriteString(out, b.String())
	return err
}
