package diagnose

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/login"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

// Commands returns doctor and support-bundle.
func Commands(flags *login.Flags) []*cobra.Command {
	return []*cobra.Command{newDoctor(flags), newSupportBundle(flags)}
}

type doctorOptions struct {
	once  login.OneTimeFlags
	in    cluster.Options
	flags *login.Flags
}

func newDoctor(flags *login.Flags) *cobra.Command {
	o := doctorOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a key server or a cluster",
		Long: "Run checks, and print one line for each check and one for each finding.\n\n" +
			"Without --cluster, it checks the key server of the context: do its parts work? With the\n" +
			"session of login, or with --password-file, it also checks that the key server has this\n" +
			"release, that its keys are under the active data key, that no certificate expires within\n" +
			"30 days, and that the newest checkpoint of the audit log is signed.\n\n" +
			"With --cluster, it checks that the definitions exist, that a manager is active, and that\n" +
			"every object is Ready. A response of the cluster may take 10 seconds, 32 MiB and 500,000\n" +
			"values. It checks 500,000 objects of each kind, and stops at 1000 findings.\n\n" +
			"It only reads. Exit code 1 means that there are findings. keyserver-operator doctor\n" +
			"checks a database.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	o.once.BindPassword(cmd.Flags())
	o.in.Bind(cmd.Flags())
	return cmd
}

func (o *doctorOptions) run(cmd *cobra.Command) error {
	if err := program.OneFormat(cmd); err != nil {
		return err
	}
	if o.in.Cluster {
		return o.checkCluster(cmd)
	}
	h, err := o.flags.FindWithoutSession()
	if err != nil {
		return err
	}
	a, err := o.once.Read(cmd, h)
	if err != nil {
		return err
	}
	asked, end, err := ask(cmd.Context(), h, a, "keyserver-operator-doctor")
	if err != nil {
		return err
	}
	defer end()
	return doctor.Run(cmd.Context(), cmd.OutOrStdout(), doctor.Service(asked))
}

// ask returns a key server with a new session if a has a login, or with the stored session. If there is neither, or if
// the login fails, it has no session, because a failed login is a finding. The caller must call end if err is nil.
func ask(ctx context.Context, h *login.Context, a access.Access, userAgent string) (_ doctor.Server, end func(), err error) {
	asked := doctor.Server{Build: version.String(), Now: time.Now()}
	if a.Admin != nil || h.LoggedIn() {
		if asked.Client, end, err = h.Open(ctx, a, userAgent); err == nil {
			asked.LoggedIn = true
			return asked, end, nil
		}
		if ctx.Err() != nil {
			return asked, func() {}, err
		}
		asked.Refused = h.Failed(err)
	}
	asked.Client, err = h.Client()
	return asked, func() {}, err
}

func (o *doctorOptions) checkCluster(cmd *cobra.Command) error {
	if o.flags.Chosen() {
		return program.Usagef("--cluster: cannot be combined with --server or --context; give one of them")
	}
	if err := program.ForbidFlags(cmd, "does not apply to --cluster; leave one of them out", "ca-file", "external-url", "username", "password-file"); err != nil {
		return err
	}
	if err := cluster.CheckNamespace(o.in.Namespace); err != nil {
		return err
	}
	c, err := o.in.Connect(cmd.Context())
	if err != nil {
		return err
	}
	return doctor.Run(cmd.Context(), cmd.OutOrStdout(), doctor.Cluster{
		Client: c, Namespace: o.in.Namespace, Lease: cluster.ManagerLease, Now: time.Now(),
	}.Checks())
}
