package auditlog

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
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
		Short: "Check by its receipt that a row is in the audit trail, asking nobody",
		Long: "Check by its receipt that a row is in the audit trail, asking nobody. The row is one\n" +
			"entry as GET /api/audit answers it, the receipt what GET /api/audit/{seq}/receipt\n" +
			"answered for it.",
		Args: program.NoArgs,
		RunE: program.Ran(o.run),
	}
	cmd.Flags().StringVar(&o.key, "key", "", "key that signs the checkpoints, as GET /api/audit/key answers it, or a file that holds it")
	cmd.Flags().StringVar(&o.row, "row", "", "file with the row")
	cmd.Flags().StringVar(&o.receipt, "receipt", "", "file with its receipt")
	return cmd
}

func (o *receiptOptions) run(cmd *cobra.Command) error {
	if err := program.Needed(cmd, "key", "row", "receipt"); err != nil {
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
		return fmt.Errorf("--row: %s is not one entry as GET /api/audit answers it: %w", o.row, err)
	}
	row, err := entry.Row()
	if err != nil {
		return fmt.Errorf("--row: %s is not one entry as GET /api/audit answers it: %w", o.row, err)
	}
	if sum, _ := audit.Sum(nil, &row); sum != row.Hash {
		return fmt.Errorf("--row: the row %d was changed: its hash is not that of its content", row.Seq)
	}
	receipt, err := auditverify.ReadLines("--receipt", o.receipt)
	if err != nil {
		return err
	}
	if err := tree.VerifyReceipt(receipt, &row, key); err != nil {
		return fmt.Errorf("--receipt: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "row %d is in the trail of %s\n", row.Seq, key.Name())
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
