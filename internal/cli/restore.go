package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/custody"
)

// restoreBackupOptions are the flags of restore.
type restoreBackupOptions struct {
	databaseOptions
	from, name, identity string
	at                   string
	checkpoints          []string
	acceptLoss           bool
}

func newRestore() *cobra.Command {
	var o restoreBackupOptions
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Make a database of a backup, or of a replica as it was at some time",
		Long: "Make a database of a backup, or of what serve --replicate-to has written, in a new\n" +
			"directory or in an empty PostgreSQL database, whichever of them it was made of. Without\n" +
			"--at and --backup it is the newest in --from, be it a backup or a replica. A replica is\n" +
			"put together in the directory of temporary files (TMPDIR), which needs room for the\n" +
			"database. Restore replaces nothing, and what is not whole or not intact is not restored. With --checkpoint, which was noted of the key server\n" +
			"before it was lost (GET /api/audit/checkpoint), it names what is missing; without one\n" +
			"nobody knows. All sessions have ended. The trail says that it was restored.",
		Args: noArgs,
		RunE: ran(o.run),
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "backup: a file, or a directory or bucket (file:///DIRECTORY, s3://BUCKET, gs://BUCKET, azblob://CONTAINER) with backups")
	f.StringVar(&o.name, "backup", "", "name of the backup in --from, or of a replica without its number (replica-...); default: the newest there")
	f.StringVar(&o.at, "at", "", "time (RFC 3339) up to which a replica is restored: nothing that was acknowledged later is in it")
	f.StringVar(&o.identity, "identity", "", "file with the identity of age that opens the backup")
	f.StringVar(&o.dataDir, "data-dir", "", "directory of the embedded database to make, which must be empty or not there")
	f.StringVar(&o.databaseURL, "database-url", "", "URL of the PostgreSQL database to restore into, which must be empty; with --data-dir, only the key-encryption key goes there")
	f.StringArrayVar(&o.checkpoints, "checkpoint", nil, "file with a checkpoint that was noted; may be given several times")
	f.BoolVar(&o.acceptLoss, "accept-loss", false, "restore although something is missing that --checkpoint has")
	return cmd
}

func (o *restoreBackupOptions) run(cmd *cobra.Command) (err error) {
	if err := needed(cmd, "from", "identity"); err != nil {
		return err
	}
	if o.dataDir == "" && o.databaseURL == "" {
		return usagef("--data-dir or --database-url is missing; see %s --help", cmd.CommandPath())
	}
	target, err := o.config()
	if err != nil {
		return err
	}
	noted, err := readNoted(o.checkpoints)
	if err != nil {
		return err
	}
	identity, err := readCredential("--identity", o.identity)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	moment, err := o.moment(ctx)
	if err != nil {
		return err
	}
	options := backup.Options{
		Target: target, Noted: noted, AcceptLoss: o.acceptLoss, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	if moment == nil {
		return o.backup(ctx, cmd.OutOrStdout(), identity, options)
	}
	defer func() { err = errors.Join(err, moment.Close()) }()
	options.Name = moment.Name
	done, err := moment.Restore(ctx, identity, options)
	if err != nil {
		return err
	}
	return o.report(cmd.OutOrStdout(), moment.Name, done, false)
}

// moment looks for the replica that is to be restored, nil where it is a backup.
func (o *restoreBackupOptions) moment(ctx context.Context) (*backup.Moment, error) {
	var at time.Time
	if o.at != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, o.at); err != nil {
			return nil, usagef("--at must be a time as in RFC 3339, for instance 2026-01-31T15:04:05Z")
		}
		if o.name != "" && !backup.IsGeneration(o.name) {
			return nil, usagef("--at is for a replica (--backup replica-...), and --backup names a backup, which is of one time")
		}
	}
	if o.name != "" && !backup.IsGeneration(o.name) {
		return nil, nil //nolint:nilnil // there is nothing to look for
	}
	moment, err := backup.FindMoment(ctx, o.from, o.name, at)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	if moment == nil {
		if o.at != "" || o.name != "" {
			return nil, errors.New("--from: there is no replica, which serve --replicate-to writes; leave out --at to restore a backup")
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

// backup restores a backup.
func (o *restoreBackupOptions) backup(ctx context.Context, out io.Writer, identity string, options backup.Options) (err error) {
	found, err := backup.Find(ctx, o.from, o.name)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, found.From.Close()) }()
	kek, err := sealedKEK(ctx, found, identity)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	defer clear(kek)
	from, err := backup.Open(found.From, strings.NewReader(identity))
	if err != nil {
		return fmt.Errorf("%s: %w", found.Name, err)
	}
	defer from.Close()
	put := kekFileOf(o.dataDir, kek)
	options.Name, options.Before = found.Name, put.write
	done, err := backup.Restore(ctx, from, options)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", found.Name, err), put.remove())
	}
	return o.report(out, found.Name, done, put.written)
}

// report says what there is now, and what is still to do.
func (o *restoreBackupOptions) report(out io.Writer, name string, done backup.Restored, kek bool) error {
	var b strings.Builder
	h := done.Head
	fmt.Fprintf(&b, "restored %s, made at %s of %s (system id %d): %d rows in %d tables\n", name, h.MadeAt.Format(time.RFC3339), h.ServerName, h.System, done.Rows, done.Tables)
	fmt.Fprintf(&b, "audit trail intact up to row %d", h.Last)
	if h.First > 1 {
		fmt.Fprintf(&b, "; it begins at row %d, and the rows before it are in the audit archive", h.First)
	}
	b.WriteString("\n")
	switch {
	case done.Lost.First > 0:
		fmt.Fprintf(&b, "missing: the %s of the audit trail, and what they let through\n", done.Lost)
	case len(o.checkpoints) > 0:
		b.WriteString("missing: nothing that the checkpoint has\n")
	default:
		fmt.Fprintf(&b, "missing: whatever was written after row %d. No --checkpoint was given that was noted later, so that nobody can say how much that is.\n", h.Last)
	}
	b.WriteString("All sessions have ended.\n")
	if !kek {
		fmt.Fprintf(&b, "It opens with the key-encryption key of before (%s, fingerprint %s), which is in no backup: name it by --kek, or put the file kek into --data-dir.\n", h.KEK.Scheme, h.KEK.Fingerprint)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// readNoted reads checkpoints.
func readNoted(files []string) ([]tree.Noted, error) {
	var all []tree.Noted
	for _, file := range files {
		text, err := readLines("--checkpoint", file)
		if err != nil {
			return nil, err
		}
		head, _, err := tree.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("--checkpoint %s: %w", file, err)
		}
		all = append(all, tree.Noted{Name: file, Head: head})
	}
	return all, nil
}

// sealedKEK opens the key-encryption key beside a backup, nil where there is none.
func sealedKEK(ctx context.Context, found backup.Found, identity string) (_ []byte, err error) {
	r, err := found.Key(ctx)
	if err != nil || r == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return backup.Unseal(r, strings.NewReader(identity))
}

// kekPlace is where a key-encryption key goes that comes with a backup.
type kekPlace struct {
	path    string
	kek     []byte
	written bool
}

func kekFileOf(dir string, kek []byte) *kekPlace {
	if dir == "" {
		return &kekPlace{}
	}
	return &kekPlace{path: filepath.Join(dir, custody.KeyFile), kek: kek}
}

// write writes it where nothing has the name yet.
func (p *kekPlace) write() error {
	if p.path == "" || p.kek == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	p.written = true
	_, err = io.Copy(f, bytes.NewReader(p.kek))
	return errors.Join(err, f.Sync(), f.Close())
}

// remove takes away what was written for nothing.
func (p *kekPlace) remove() error {
	if !p.written {
		return nil
	}
	return os.Remove(p.path)
}
