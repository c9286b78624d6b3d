package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

func newAudit() *cobra.Command {
	return commands("audit", "Work on the audit trail", newAuditVerify(), newDiscardJournal(),
		commands("receipt", "Work on receipts of audit rows", newReceiptVerify()))
}

// databaseOptions say where a database is that is read beside a server.
type databaseOptions struct{ dataDir, databaseURL string }

// bind makes the flags; also says what besides is in the directory.
func (o *databaseOptions) bind(f *pflag.FlagSet, also string) {
	f.StringVar(&o.dataDir, "data-dir", "keyserver-data", "directory of the embedded database"+also)
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL URL; default: the embedded database in --data-dir")
}

// config is where the store is.
func (o *databaseOptions) config() (sqlstore.Config, error) {
	switch {
	case o.databaseURL == "" && o.dataDir == "":
		return sqlstore.Config{}, usagef("--data-dir must not be empty")
	case o.databaseURL == "":
		return sqlstore.Config{Dir: o.dataDir}, nil
	case !strings.HasPrefix(o.databaseURL, "postgres://") && !strings.HasPrefix(o.databaseURL, "postgresql://"):
		// The URL holds a password, so that it is not repeated.
		return sqlstore.Config{}, usagef("--database-url must start with postgres:// or postgresql://; leave it out for the embedded database")
	}
	return sqlstore.Config{URL: o.databaseURL}, nil
}

// auditOptions are the flags of audit verify.
type auditOptions struct {
	databaseOptions
	accessOptions
	heads       []string
	key         string
	checkpoints []string
}

func newAuditVerify() *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every row of the audit trail against its hash chain and the audit tree",
		Long: "Check every row of the audit trail against its hash chain and the audit tree, and\n" +
			"report what was changed, removed or inserted. It reads only, and may run beside a\n" +
			"server, or read one by --server. With --key, which GET /api/audit/key answers, the\n" +
			"newest checkpoint has to be signed by it; with --checkpoint, which was noted\n" +
			"earlier, the trail has to lead through it. Both together find whatever was done to\n" +
			"the database since, rows cut from the end included.",
		Args: noArgs,
		RunE: ran(o.run),
	}
	o.databaseOptions.bind(cmd.Flags(), "")
	o.bindOne(cmd.Flags())
	cmd.Flags().StringVar(&o.key, "key", "", "key that signs the checkpoints, as GET /api/audit/key answers it, or a file that holds it")
	cmd.Flags().StringArrayVar(&o.checkpoints, "checkpoint", nil, "file with a checkpoint that was noted earlier; may be given several times")
	cmd.Flags().StringSliceVar(&o.heads, "expect-head", nil, "CHAIN:POSITION:HASH, as an earlier run printed it, that the trail must still lead through; may be given several times")
	return cmd
}

func (o *auditOptions) run(cmd *cobra.Command) error {
	expected, err := readHeads(o.heads)
	if err != nil {
		return err
	}
	options, err := o.treeOptions()
	if err != nil {
		return err
	}
	found := verification{expected: len(expected) > 0, options: options}
	if o.server == "" {
		err = o.verifyDatabase(cmd, &found, expected)
	} else {
		err = o.verifyServer(cmd, &found)
	}
	if err != nil {
		return err
	}
	return found.show(cmd.OutOrStdout())
}

// verifyDatabase reads each row once, for its chain and for the tree.
func (o *auditOptions) verifyDatabase(cmd *cobra.Command, found *verification, expected []audit.Head) (err error) {
	for _, flag := range []string{"ca-file", "username", "password-file"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s says how to reach a key server; give --server, too, or leave it out", flag)
		}
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
	v, err := tree.NewVerifier(ctx, store, found.options)
	if err != nil {
		return err
	}
	if found.chains, err = audit.Verify(ctx, v.Along(store), expected...); err != nil {
		return fmt.Errorf("read the audit trail: %w", err)
	}
	found.tree, err = v.End(ctx)
	return err
}

// verifyServer reads what a key server answers, which shows no heads of chains.
func (o *auditOptions) verifyServer(cmd *cobra.Command, found *verification) error {
	for _, flag := range []string{"data-dir", "database-url", "expect-head"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s says something about a database, and --server reads none; leave one of them out", flag)
		}
	}
	if err := needed(cmd, "server", "password-file"); err != nil {
		return err
	}
	a, err := o.read(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c, err := a.client(a.admin, "keyserver-operator-audit")
	if err != nil {
		return err
	}
	defer func() { _ = c.Logout(context.WithoutCancel(ctx)) }()
	found.remote = true
	v, err := tree.NewVerifier(ctx, &remoteTrail{client: c}, found.options)
	if err == nil {
		err = v.Read(ctx)
	}
	if err == nil {
		found.tree, err = v.End(ctx)
	}
	if client.IsCode(err, "ACCESS_DENIED") {
		return fmt.Errorf("%w; give --username and --password-file of somebody who may read the audit trail", err)
	}
	return a.explained(err)
}
