package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/auditverify"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
)

// restoreBackupOptions are the flags of restore.
type restoreBackupOptions struct {
	databaseOptions
	from, name, identity string
	at                   string
	noted                auditverify.Noted
	acceptLoss           bool
	includeKEK           bool
}

func newRestore() *cobra.Command {
	var o restoreBackupOptions
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Create a database from a backup, or from a replica at a restore point",
		Long: "Create a database from a backup, or from a replica of serve --replicate-to, in a new\n" +
			"directory or in an empty PostgreSQL database. Both accept backups of either kind.\n" +
			"Without --at and --backup, restore takes the newest backup or replica in --from. It\n" +
			"assembles a replica in --data-dir, which temporarily needs space for two copies of the\n" +
			"database; for PostgreSQL in the directory of temporary files (TMPDIR). Restore replaces\n" +
			"nothing, and rejects a backup that is incomplete or damaged. With --key, that key must\n" +
			"have signed the backup: a user that can write to --from can make one without it. With\n" +
			"--checkpoint, which was saved before the key server was lost (GET\n" +
			"/api/audit/checkpoint), restore names missing rows; without one, they are not noticed.\n" +
			"All sessions end. The audit log records the restore.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "backup: a file, or a directory or bucket (file:///DIRECTORY, s3://BUCKET, gs://BUCKET, azblob://CONTAINER) with backups")
	f.StringVar(&o.name, "backup", "", "name of the backup in --from, or of a replica without its number (replica-...); default: the newest there")
	f.StringVar(&o.at, "at", "", "restore a replica as of this time (RFC 3339), without changes that were acknowledged later")
	f.StringVar(&o.identity, "identity", "", "file with the age identity that decrypts the backup")
	f.StringVar(&o.dataDir, "data-dir", "", "directory of the new embedded database, which must be empty or missing")
	f.StringVar(&o.databaseURL, "database-url", "", "URL of the PostgreSQL database to restore into, which must be empty; --data-dir then gets only the key-encryption key")
	o.noted.Bind(f)
	f.BoolVar(&o.acceptLoss, "accept-loss", false, "restore even if rows of --checkpoint are missing; requires --key")
	f.BoolVar(&o.includeKEK, "include-kek", false, "copy the key-encryption key next to the backup into --data-dir; nothing proves its origin")
	return cmd
}

func (o *restoreBackupOptions) run(cmd *cobra.Command) (err error) {
	if err := program.RequireFlags(cmd, "from", "identity"); err != nil {
		return err
	}
	switch {
	case o.dataDir == "" && o.databaseURL == "":
		return program.Usagef("--data-dir or --database-url is missing; see %s --help", cmd.CommandPath())
	case o.dataDir == "" && o.includeKEK:
		return program.Usagef("--include-kek requires --data-dir; give --data-dir or leave out --include-kek")
	}
	target, err := o.config()
	if err != nil {
		return err
	}
	trusted, err := o.noted.Read()
	if err != nil {
		return err
	}
	identity, err := program.ReadFile("--identity", o.identity)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errors.New("the restore was interrupted, and nothing was restored; run it again")
		}
	}()
	moment, err := o.restorePoint(ctx)
	if err != nil {
		return err
	}
	options := backup.Options{
		Target: target, Key: trusted.Key, Checkpoints: trusted.Noted, AcceptLoss: o.acceptLoss, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	if moment == nil {
		return o.backup(cmd, identity, options)
	}
	defer func() { err = errors.Join(err, moment.Close()) }()
	if o.includeKEK {
		return fmt.Errorf("--include-kek: the replica %s has no key-encryption key next to it; leave out --include-kek", moment.Name)
	}
	passedOver(cmd, moment.Skipped)
	options.Name = moment.Name
	done, err := moment.Restore(ctx, identity, options)
	if err != nil {
		return err
	}
	return o.report(cmd.OutOrStdout(), moment.Name, done, beside{})
}

// passedOver prints at most 10 names of skipped empty objects, and the number of further ones.
func passedOver(cmd *cobra.Command, names []string) {
	const most = 10
	for _, name := range names[:min(len(names), most)] {
		cmd.PrintErrf("skipped %s, which is empty\n", name)
	}
	if len(names) > most {
		cmd.PrintErrf("skipped %d more, which are empty\n", len(names)-most)
	}
}

// restorePoint returns the restore point of a replica, or nil if a backup is to be restored.
func (o *restoreBackupOptions) restorePoint(ctx context.Context) (*backup.RestorePoint, error) {
	var at time.Time
	if o.at != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, o.at); err != nil {
			return nil, program.Usagef("--at must be an RFC 3339 time, for instance 2026-01-31T15:04:05Z")
		}
		if o.name != "" && !backup.IsGeneration(o.name) {
			return nil, program.Usagef("--at applies only to a replica (--backup replica-...), but --backup names a backup; leave out --at")
		}
	}
	if o.name != "" && !backup.IsGeneration(o.name) {
		return nil, nil //nolint:nilnil // --backup names a backup
	}
	moment, err := backup.FindRestorePoint(ctx, o.from, o.name, at)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	if moment == nil {
		if o.at != "" || o.name != "" {
			return nil, errors.New("--from: there is no such replica of serve --replicate-to; leave out --at and --backup replica-... to restore a backup")
		}
		return nil, nil //nolint:nilnil // there is no replica
	}
	if o.at == "" && o.name == "" {
		newer, err := backup.NewerThan(ctx, o.from, moment.Until)
		if err != nil || newer {
			return nil, errors.Join(err, moment.Close())
		}
	}
	return moment, nil
}

// backup restores a backup, with its key-encryption key if --include-kek is set.
func (o *restoreBackupOptions) backup(cmd *cobra.Command, identity string, options backup.Options) (err error) {
	ctx := cmd.Context()
	found, err := backup.Find(ctx, o.from, o.name)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, found.From.Close()) }()
	passedOver(cmd, found.Skipped)
	kek, err := o.besides(ctx, found, identity)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer clear(kek.plain)
	from, err := backup.Open(found.From, strings.NewReader(identity))
	if err != nil {
		if o.name == "" {
			err = fmt.Errorf("%w; choose another backup with --backup", err)
		}
		return fmt.Errorf("%s: %w", found.Name, err)
	}
	defer from.Close()
	options.Name = found.Name
	if kek.plain != nil {
		options.Before, options.Target.Beside = kek.write, keyring.KeyFile
	}
	done, err := backup.Restore(ctx, from, options)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", found.Name, err), kek.remove())
	}
	return o.report(cmd.OutOrStdout(), found.Name, done, kek)
}

// report prints the result and the next steps.
func (o *restoreBackupOptions) report(out io.Writer, name string, done backup.Restored, kek beside) error {
	var b strings.Builder
	h := done.Head
	fmt.Fprintf(&b, "restored %s, made at %s by %s (system id %d): %d rows in %d tables\n", name, h.MadeAt.Format(time.RFC3339), h.ServerName, h.System, done.Rows, done.Tables)
	fmt.Fprintf(&b, "audit log intact up to row %d", h.Last)
	if h.First > 1 {
		fmt.Fprintf(&b, "; it begins at row %d, and the rows before it are in the audit archive", h.First)
	}
	b.WriteString("\n")
	switch {
	case done.Lost.First > 0:
		fmt.Fprintf(&b, "missing: %s of the audit log, and the effects of their operations\n", done.Lost)
	case len(o.noted.Checkpoints) > 0:
		b.WriteString("missing: none of the rows of --checkpoint\n")
	default:
		fmt.Fprintf(&b, "missing: all rows that were written after row %d. No later --checkpoint was given, so their number is unknown.\n", h.Last)
	}
	switch {
	case o.noted.Key != "":
		fmt.Fprintf(&b, "signed by %s, verified with --key\n", h.Tree.Signer())
	default:
		fmt.Fprintf(&b, "signed by %s, according to the backup itself. The signature was not verified, because --key is missing: any user that can write to --from and knows the age recipient can make such a backup.\n", h.Tree.Signer())
	}
	b.WriteString("All sessions have ended.\n")
	switch {
	case kek.written:
		fmt.Fprintf(&b, "The database opens with the key-encryption key that was next to the backup. Nothing proves the origin of this key: its maker may have forged the backup, too.\n")
	default:
		fmt.Fprintf(&b, "The database opens with the original key-encryption key (%s, fingerprint %s), which is in no backup: give its URL as --kek, or put the file kek into --data-dir.\n", h.KEK.Scheme, h.KEK.Fingerprint)
	}
	if kek.there && !kek.written {
		fmt.Fprintf(&b, "The key-encryption key next to the backup, %s, was not used; --include-kek uses it.\n", backup.KeyName(name))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// beside is the key-encryption key that is stored next to a backup.
type beside struct {
	there   bool
	plain   []byte // nil without --include-kek
	path    string
	written bool
}

// besides looks for a key-encryption key next to a backup. It decrypts this key only with --include-kek, because any
// user with write access to --from may have put it there.
func (o *restoreBackupOptions) besides(ctx context.Context, found backup.Found, identity string) (k beside, err error) {
	r, err := found.Key(ctx)
	if err != nil {
		if o.includeKEK {
			return k, err
		}
		return k, nil // the key was not requested
	}
	if r == nil {
		if o.includeKEK {
			return k, fmt.Errorf("there is no %s for --include-kek; leave out --include-kek, and put the file kek into --data-dir afterwards", backup.KeyName(found.Name))
		}
		return k, nil
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	k.there = true
	if o.includeKEK {
		k.path = filepath.Join(o.dataDir, keyring.KeyFile)
		k.plain, err = backup.Unseal(r, strings.NewReader(identity))
	}
	return k, err
}

// write writes the key to path atomically. It fails if the file has another key. The file may have the same key, from a
// killed restore.
func (k *beside) write() error {
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	is, err := os.ReadFile(k.path)
	switch {
	case err == nil && bytes.Equal(is, k.plain):
		k.written = true
		return nil
	case err == nil:
		return fmt.Errorf("--data-dir: %s exists and differs from the key next to the backup; move it away, or leave out --include-kek", k.path)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--data-dir: %w", err)
	}
	whole := filepath.Join(filepath.Dir(k.path), sqlite.RestoringFile+"-"+keyring.KeyFile)
	if err := os.Remove(whole); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a killed restore
		return fmt.Errorf("--data-dir: %w", err)
	}
	f, err := os.OpenFile(whole, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	_, err = f.Write(k.plain)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("--data-dir: %w", errors.Join(err, os.Remove(whole)))
	}
	if err := errors.Join(os.Link(whole, k.path), os.Remove(whole)); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	k.written = true
	return nil
}

// remove deletes the key after a failed restore, even if an earlier, killed restore wrote it.
func (k *beside) remove() error {
	if k.plain == nil {
		return nil
	}
	if is, err := os.ReadFile(k.path); err != nil || !bytes.Equal(is, k.plain) {
		return nil //nolint:nilerr // the file is missing or not ours
	}
	return os.Remove(k.path)
}
