package auditlog

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/auditverify"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/login"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// Commands returns the commands of this package, by their words after keyserverctl.
func Commands(flags *login.Flags) map[string]*cobra.Command {
	return map[string]*cobra.Command{
		"audit verify":         newVerify(flags),
		"audit receipt verify": newVerifyReceipt(),
	}
}

// verifyOptions are the flags of audit verify.
type verifyOptions struct {
	login.OneTimeFlags
	flags *login.Flags
	noted auditverify.Noted
}

func newVerify(flags *login.Flags) *cobra.Command {
	o := verifyOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every row of the audit log of a key server against the audit tree",
		Long: "Check every row of the audit log of a key server against the audit tree, and report\n" +
			"rows that were changed, removed or inserted. It reads only, with the session that\n" +
			"login keeps, or with --password-file. With --key, which GET /api/audit/key returns,\n" +
			"that key must have signed the newest checkpoint. With --checkpoint, which was saved\n" +
			"earlier, the log must continue that checkpoint. Both together find every change of\n" +
			"the database since then, also rows that were removed from the end.\n\n" +
			"keyserver-operator audit verify checks a database or an archive.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	o.BindPassword(cmd.Flags())
	o.noted.Bind(cmd.Flags())
	return cmd
}

func (o *verifyOptions) run(cmd *cobra.Command) error {
	if err := program.OneFormat(cmd); err != nil {
		return err
	}
	options, err := o.noted.Read()
	if err != nil {
		return err
	}
	h, err := o.flags.FindWithoutSession()
	if err != nil {
		return err
	}
	a, err := o.Read(cmd, h)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c, end, err := h.Open(ctx, a, "keyserver-operator-audit")
	if err != nil {
		return h.Failed(err)
	}
	defer end()
	found := auditverify.Report{Remote: true, Options: options}
	if found.Tree, err = verify(ctx, &remoteLog{client: c}, &found.Options); err != nil {
		if client.IsCode(err, "ACCESS_DENIED") {
			err = fmt.Errorf("%w; log in as a principal that may read the audit log", err)
		}
		return h.Failed(err)
	}
	// A key server does not return the number of the last archived row, so assume that the archive has all removed rows.
	found.Begin(audit.Extent{First: found.Options.First, Archived: found.Options.First - 1})
	return found.Show(cmd.OutOrStdout())
}

func verify(ctx context.Context, trail *remoteLog, options *tree.Options) (tree.Report, error) {
	var err error
	if options.First, err = trail.first(ctx); err != nil {
		return tree.Report{}, err
	}
	v, err := tree.NewVerifier(ctx, trail, *options)
	if err != nil {
		return tree.Report{}, err
	}
	if err := v.Read(ctx); err != nil {
		return tree.Report{}, err
	}
	return v.End(ctx)
}
