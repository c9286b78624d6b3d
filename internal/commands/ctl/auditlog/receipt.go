package auditlog

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/auditverify"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// receiptOptions are the flags of audit receipt verify.
type receiptOptions struct{ key, row, receipt string }

func newVerifyReceipt() *cobra.Command {
	var o receiptOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check offline, by its receipt, that a row is in the audit log",
		Long: "Check offline, by its receipt, that a row is in the audit log. The row is one entry of\n" +
			"GET /api/audit, and the receipt is the response of GET /api/audit/{seq}/receipt.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	auditverify.BindKey(cmd.Flags(), &o.key)
	cmd.Flags().StringVar(&o.row, "row", "", "file with the row")
	cmd.Flags().StringVar(&o.receipt, "receipt", "", "file with its receipt")
	return cmd
}

func (o *receiptOptions) run(cmd *cobra.Command) error {
	if err := program.RequireFlags(cmd, "key", "row", "receipt"); err != nil {
		return err
	}
	key, err := auditverify.ReadVerifier(o.key)
	if err != nil {
		return err
	}
	text, err := program.ReadFile("--row", o.row)
	if err != nil {
		return err
	}
	var entry schema.AuditEntry
	if err := json.Unmarshal([]byte(text), &entry, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("--row: %s is not one entry of GET /api/audit: %w", o.row, err)
	}
	row, err := auditverify.Row(&entry)
	if err != nil {
		return fmt.Errorf("--row: %s is not one entry of GET /api/audit: %w", o.row, err)
	}
	if sum, _ := audit.Sum(nil, &row); sum != row.Hash {
		return fmt.Errorf("--row: row %d was changed: its hash does not match its content", row.Seq)
	}
	receipt, err := auditverify.ReadLines("--receipt", o.receipt)
	if err != nil {
		return err
	}
	if err := tree.VerifyReceipt(receipt, &row, key); err != nil {
		return fmt.Errorf("--receipt: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "row %d is in the audit log of %s\n", row.Seq, key.Name())
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
