package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

func newAudit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Work on the audit trail",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; audit has verify", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAuditVerify())
	return cmd
}

func newAuditVerify() *cobra.Command {
	var dataDir, databaseURL string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every row of the audit trail against its hash chain",
		Long: "Check every row of the audit trail against its hash chain and report what was\n" +
			"changed, removed or inserted. It reads only, and may run beside a server.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			cfg := sqlstore.Config{Dir: dataDir}
			if databaseURL != "" {
				cfg = sqlstore.Config{URL: databaseURL}
			}
			return auditVerify(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "keyserver-data", "directory of the embedded database")
	cmd.Flags().StringVar(&databaseURL, "database-url", "", "PostgreSQL URL; default: the embedded database in --data-dir")
	return cmd
}

func auditVerify(ctx context.Context, cfg sqlstore.Config, out io.Writer) (err error) {
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	report, err := audit.Verify(ctx, store)
	if err != nil {
		return fmt.Errorf("read the audit trail: %w", err)
	}
	var b strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "chain %d, position %d, seq %d: %s\n", f.Chain, f.Position, f.Seq, f.Problem)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if !report.Intact() {
		return fmt.Errorf("the audit trail is not intact: %d findings in %d rows", report.Total, report.Rows)
	}
	_, err = fmt.Fprintf(out, "audit trail intact: %d rows in %d chains\n", report.Rows, report.Chains)
	return err
}
