package commands

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	keyOptions
	access.Options
	in cluster.Options
}

// keyOptions are the flags of what looks at a database with its key-encryption key.
type keyOptions struct {
	databaseOptions
	kek string
}

func (o *keyOptions) bind(f *pflag.FlagSet) {
	o.databaseOptions.bind(f, ", and of the key-encryption key where --kek names none")
	f.StringVar(&o.kek, "kek", "", "URL of the key-encryption key, as serve has it; default, or file: the file kek in --data-dir")
}

// keyURL is the key-encryption key that is there; none is made.
func (o *keyOptions) keyURL() (string, error) {
	if o.kek != "" && o.kek != "file" {
		return o.kek, nil
	}
	return keyring.FileKey(o.dataDir)
}

func newDoctor() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that what should hold of a database, a key server or a cluster does",
		Long: "Print one line for each thing that should hold, and one for each that does not.\n\n" +
			"Without --server and --cluster, look at the database as serve would open it: it is of\n" +
			"this version, the key-encryption key opens it, and every row that rights follow from\n" +
			"agrees with its MAC. Rows that do not are refused by the server (STORE_TAMPERED), and\n" +
			"docs/security.md says what to do. It may run beside a server.\n\n" +
			"With --server, ask a key server: its parts work, and with --password-file, it is of this\n" +
			"release, keys are wrapped as they should be, no certificate ends within 30 days, and\n" +
			"the newest checkpoint of the audit trail is signed. With --cluster: the\n" +
			"definitions are there, a manager is active, and every object is Ready; an answer of the\n" +
			"cluster may take 10 seconds, 32 MiB and 500,000 values, and of each kind 500,000 objects\n" +
			"are looked at, until 1000 of them are not Ready.\n\n" +
			"It reads only. Exit code 1 says that something does not hold.",
		Args: program.NoArgs,
		RunE: program.Ran(o.run),
	}
	o.keyOptions.bind(cmd.Flags())
	o.BindOne(cmd.Flags())
	o.in.Bind(cmd.Flags())
	return cmd
}

func (o *doctorOptions) run(cmd *cobra.Command) error {
	if o.in.Cluster && o.Server != "" {
		return program.Usagef("--cluster and --server are looked at one after the other; give one of them")
	}
	if o.Server == "" {
		if err := program.Without(cmd, "is for --server, which is missing", "ca-file", "username", "password-file"); err != nil {
			return err
		}
	}
	if !o.in.Cluster && o.Server == "" {
		return o.lookAtDatabase(cmd.Context(), cmd.OutOrStdout())
	}
	if err := program.Without(cmd, "is for a database, and something else is looked at; give one of them", "data-dir", "database-url", "kek"); err != nil {
		return err
	}
	if o.in.Cluster {
		return o.lookAtCluster(cmd.Context(), cmd.OutOrStdout())
	}
	return o.lookAtServer(cmd)
}

func (o *doctorOptions) lookAtDatabase(ctx context.Context, out io.Writer) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	store, err := sqlstore.OpenReadOnly(ctx, cfg)
	if err != nil {
		return sqlstore.Explain(err, cfg)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	checks := storecheck.Database(store, o.keyURL)
	if cfg.Dir != "" {
		checks = append(checks, storecheck.Volume(cfg.Dir))
	}
	return doctor.Run(ctx, out, checks)
}

func (o *doctorOptions) lookAtServer(cmd *cobra.Command) error {
	a, err := o.Read(cmd)
	if err != nil {
		return err
	}
	asked, err := ask(cmd.Context(), a, "keyserver-operator-doctor")
	if err != nil {
		return err
	}
	return doctor.Run(cmd.Context(), cmd.OutOrStdout(), doctor.Service(asked))
}

// ask is a key server, asked as a stranger where no password is given, or where a login
// fails: that a service cannot do that much is what is to be found out.
func ask(ctx context.Context, a access.Access, userAgent string) (doctor.Asked, error) {
	asked := doctor.Asked{Build: version.String(), Now: time.Now()}
	var err error
	if asked.LoggedIn = a.Admin != nil; asked.LoggedIn {
		if asked.Client, err = a.Client(ctx, a.Admin, userAgent); err == nil || ctx.Err() != nil {
			return asked, err
		}
		asked.LoggedIn, asked.Refused = false, a.Explained(err)
	}
	asked.Client, err = a.Connect(&access.Login{}, userAgent, nil)
	return asked, err
}

func (o *doctorOptions) lookAtCluster(ctx context.Context, out io.Writer) error {
	if err := cluster.CheckNamespace(o.in.Namespace); err != nil {
		return err
	}
	c, err := o.in.Connect(ctx)
	if err != nil {
		return err
	}
	return doctor.Run(ctx, out, doctor.Cluster{
		Client: c, Namespace: o.in.Namespace, Lease: cluster.ManagerLease, Now: time.Now(),
	}.Checks())
}
