package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/auditverify"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// newAudit returns the command audit. args are the arguments of the program.
func newAudit(args []string) *cobra.Command {
	return program.Group("audit", "Work with the audit log", newAuditVerify(args), newAuditShow(), newDiscardJournal(),
		program.Group("receipt", "Work with receipts of audit rows", forwards("verify", clientProgram, args)))
}

// databaseOptions are the flags that locate a database.
type databaseOptions struct{ dataDir, databaseURL string }

// bind adds the flags. also is added to the help of --data-dir.
func (o *databaseOptions) bind(f *pflag.FlagSet, also string) {
	f.StringVar(&o.dataDir, "data-dir", "keyserver-data", "directory of the embedded database"+also)
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL URL; default: the embedded database in --data-dir")
}

// config returns the location of the store. It returns a usage error if the flags are invalid.
func (o *databaseOptions) config() (sqlstore.Config, error) {
	switch {
	case o.databaseURL == "" && o.dataDir == "":
		return sqlstore.Config{}, program.Usagef("--data-dir must not be empty")
	case o.databaseURL == "":
		return sqlstore.Config{Dir: o.dataDir}, nil
	}
	if err := postgres.CheckURL(o.databaseURL); err != nil {
		return sqlstore.Config{}, program.Usage(err)
	}
	return sqlstore.Config{URL: o.databaseURL}, nil
}

// auditOptions are the flags of audit verify.
type auditOptions struct {
	databaseOptions
	forwarded
	noted   auditverify.Noted
	heads   []string
	archive string
}

func newAuditVerify(args []string) *cobra.Command {
	o := auditOptions{forwarded: forwarded{args: args}}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every row of the audit log in a database or an archive",
		Long: "Check every row of the audit log against its hash chain and the audit tree, and\n" +
			"report rows that were changed, removed or inserted. It reads only, and may run while\n" +
			"a server runs. With --archive it reads an archive instead of a database. With --key,\n" +
			"which GET /api/audit/key returns, that key must have signed the newest checkpoint.\n" +
			"With --checkpoint, which was saved earlier, the log must continue that checkpoint.\n" +
			"Both together find every change of the database since then, also rows that were\n" +
			"removed from the end. For a database, it also checks that the filters of\n" +
			"GET /api/audit find every row.\n\n" +
			"keyserverctl audit verify checks the audit log of a key server.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	o.bind(cmd.Flags(), "")
	o.bindServer(cmd.Flags())
	cmd.Flags().StringVar(&o.archive, "archive", "", "URL of an audit archive, as in serve --audit-archive; it is verified instead of a database")
	o.noted.Bind(cmd.Flags())
	cmd.Flags().StringSliceVar(&o.heads, "expect-head", nil, "head that an earlier run printed (CHAIN:POSITION:HASH); the audit log must still contain it; may be given several times")
	return cmd
}

func (o *auditOptions) run(cmd *cobra.Command) error {
	if o.server != "" && !cmd.Flags().Changed("archive") {
		if err := program.ForbidFlags(cmd, "applies to a database, but --server reads none; leave one of them out", "data-dir", "database-url", "expect-head"); err != nil {
			return err
		}
		return forward(cmd, cmd.CommandPath()+" --server", clientProgram, o.args)
	}
	expected, err := readHeads(o.heads)
	if err != nil {
		return err
	}
	options, err := o.noted.Read()
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("archive") {
		return o.verifyArchive(cmd, options)
	}
	found := auditverify.Report{Expected: len(expected) > 0, Options: options}
	if err := o.verifyDatabase(cmd, &found, expected); err != nil {
		return err
	}
	return found.Show(cmd.OutOrStdout())
}

// verifyDatabase reads each audit row once, and checks it against the hash chain and the audit tree.
func (o *auditOptions) verifyDatabase(cmd *cobra.Command, found *auditverify.Report, expected []audit.Head) (err error) {
	if err := program.ForbidFlags(cmd, "applies only with --server; add --server or leave it out", "ca-file", "username", "password-file"); err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	extent, err := store.AuditExtent(ctx)
	if err != nil {
		return fmt.Errorf("read the first row of the audit log: %w", err)
	}
	found.Options.First = extent.First
	v, err := tree.NewVerifier(ctx, store, found.Options)
	if err != nil {
		return err
	}
	if found.Chains, err = audit.Verify(ctx, v.Tee(store), expected...); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	if found.Tree, err = v.End(ctx); err == nil {
		found.Begin(extent)
		found.Filters = checkBlocks(ctx, store)
	}
	return err
}

// maxBlocksNamed is the maximum number of blocks in the error. A block is a range of rows that the index summarizes.
const maxBlocksNamed = 10

// checkBlocks returns an error if the filter index is wrong, so that filters may miss rows of the audit log.
func checkBlocks(ctx context.Context, store *sqlstore.Store) error {
	wrong, err := store.DisagreeingAuditBlocks(ctx, maxBlocksNamed)
	if err != nil {
		return fmt.Errorf("read the filter index of the audit log: %w", err)
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("filters may hide rows of the audit log: the tables audit_blocks and audit_block_keys contradict the rows of blocks %d; "+
		"empty both tables, and the server fills them again", wrong)
}
