package commands

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func newDiscardJournal() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "discard-journal",
		Short: "Discard the audit rows of an unusable journal",
		Long: "Discard the audit rows that are only in the journal of an embedded database, if serve\n" +
			"refuses the journal: it is damaged, missing, or belongs to another database. This loses\n" +
			"rows of acknowledged operations, and a row of the audit log records that. The journal\n" +
			"is kept as audit.journal.discarded. A usable journal is not discarded: its rows are\n" +
			"copied into the database.",
		Args: program.NoArgs,
		RunE: program.RunE(func(cmd *cobra.Command) error { return discardJournal(cmd.Context(), dataDir, cmd.OutOrStdout()) }),
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "keyserver-data", "directory of the embedded database")
	return cmd
}

func discardJournal(ctx context.Context, dataDir string, out io.Writer) error {
	if dataDir == "" {
		return program.Usagef("--data-dir must not be empty")
	}
	last, discarded, err := sqlstore.DiscardJournal(ctx, sqlstore.Config{Dir: dataDir})
	if err != nil {
		return err
	}
	if !discarded {
		_, err = fmt.Fprintf(out, "nothing was discarded: the audit log is complete up to row %d\n", last)
		return err
	}
	_, err = fmt.Fprintf(out, "the rows after row %d are discarded; the old journal is now audit.journal.discarded\n", last)
	return err
}
