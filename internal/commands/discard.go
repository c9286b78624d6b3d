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
		Short: "Give up the audit rows of a journal that cannot be used",
		Long: "Give up the audit rows that are only in the journal of an embedded database, where\n" +
			"serve refuses it: damaged, missing, or not of the database beside it. Rows whose\n" +
			"operations were acknowledged are lost by that, and a row of the trail says so. The\n" +
			"journal is kept as audit.journal.discarded. One that can be used is used instead.",
		Args: program.NoArgs,
		RunE: program.Ran(func(cmd *cobra.Command) error { return discardJournal(cmd.Context(), dataDir, cmd.OutOrStdout()) }),
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
		_, err = fmt.Fprintf(out, "nothing was given up: the trail is whole up to row %d\n", last)
		return err
	}
	_, err = fmt.Fprintf(out, "rows after %d are given up; the journal that was there is now audit.journal.discarded\n", last)
	return err
}
