package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

func newAudit() *cobra.Command {
	return commands("audit", "Work on the audit trail", newAuditVerify(), newDiscardJournal())
}

// databaseOptions say where a database is that is read beside a server.
type databaseOptions struct{ dataDir, databaseURL string }

// bind makes the flags; also says what besides is in the directory.
func (o *databaseOptions) bind(f *pflag.FlagSet, also string) {
	f.StringVar(&o.dataDir, "data-dir", "keyserver-data", "directory of the embedded database"+also)
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL URL; default: the embedded database in --data-dir")
}

// auditOptions are the flags of audit verify.
type auditOptions struct {
	databaseOptions
	heads []string
}

func newAuditVerify() *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every row of the audit trail against its hash chain",
		Long: "Check every row of the audit trail against its hash chain and report what was\n" +
			"changed, removed or inserted. It reads only, and may run beside a server. Of an\n" +
			"intact trail it prints the heads. Note them elsewhere and give them to a later\n" +
			"run as --expect-head: whoever rewrites the whole database cannot bring them back.",
		Args: noArgs,
		RunE: ran(func(cmd *cobra.Command) error { return o.run(cmd.Context(), cmd.OutOrStdout()) }),
	}
	o.bind(cmd.Flags(), "")
	cmd.Flags().StringSliceVar(&o.heads, "expect-head", nil, "CHAIN:POSITION:HASH, as an earlier run printed it, that the trail must still lead through; may be given several times")
	return cmd
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

func (o *auditOptions) run(ctx context.Context, out io.Writer) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	expected, err := readHeads(o.heads)
	if err != nil {
		return err
	}
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	report, err := audit.Verify(ctx, store, expected...)
	if err != nil {
		return fmt.Errorf("read the audit trail: %w", err)
	}
	return show(report, len(expected) > 0, out)
}

// show prints what was found of a trail.
func show(report audit.Report, expected bool, out io.Writer) error {
	if report.Chains == 0 && report.Intact() {
		return errors.New("the database has no audit trail: no key server has written to it; a copy of an embedded database " +
			"needs keyserver.db-wal, too, or must be made while no server runs")
	}
	var b strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "chain %d, position %d, seq %d: %s\n", f.Chain, f.Position, f.Seq, f.Problem)
	}
	if report.Intact() {
		fmt.Fprintf(&b, "audit trail intact: %d rows in %d chains\n", report.Rows, report.Chains)
		for _, h := range report.Heads {
			fmt.Fprintf(&b, "head %s\n", headText(h))
		}
		if !expected {
			b.WriteString("No head that was noted before was given. So this does not show whether rows were removed from the end,\n" +
				"or everything was written anew, by somebody who could write to the database: note the heads elsewhere,\n" +
				"and give them to the next run as --expect-head.\n")
		}
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if !report.Intact() {
		return fmt.Errorf("the audit trail is not intact: %d findings in %d rows", report.Total, report.Rows)
	}
	return nil
}
