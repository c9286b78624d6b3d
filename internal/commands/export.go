package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/export"
)

type exportOptions struct {
	access.Options
	namespace string
	keyServer string
	kinds     []string
}

func (o *exportOptions) bind(f *pflag.FlagSet) {
	o.Bind(f)
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the manifests")
	f.StringVar(&o.keyServer, "key-server-ref", "default", "KeyServer that the manifests refer to")
	f.StringSliceVar(&o.kinds, "kind", nil, "only this kind, one of "+strings.Join(export.Kinds, ", ")+"; may be given several times")
}

func newExport() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print manifests that adopt the objects of a key server",
		Long: "Print manifests for the trusted CAs, peers, principal trusts, roles, principals, ACL\n" +
			"templates and keys of a key server. When you apply them, the operator adopts the existing objects\n" +
			"without a change. This command only reads. It leaves out objects and fields that\n" +
			"manifests cannot declare, and prints the reason on standard error.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	o.bind(cmd.Flags())
	return cmd
}

// check returns a usage error for flags that give invalid manifests.
func (o *exportOptions) check(cmd *cobra.Command) error {
	if err := program.RequireFlags(cmd, "server", "password-file"); err != nil {
		return err
	}
	if err := cluster.CheckNamespace(o.namespace); err != nil {
		return err
	}
	if len(validation.IsDNS1123Subdomain(o.keyServer)) > 0 {
		return program.Usagef("--key-server-ref is %q; it must be the name of a KeyServer: lower-case letters, digits, dashes and dots", o.keyServer)
	}
	for i, kind := range o.kinds {
		at := slices.IndexFunc(export.Kinds, func(k string) bool { return strings.EqualFold(k, kind) })
		if at < 0 {
			return program.Usagef("--kind is %q; it must be one of %s", kind, strings.Join(export.Kinds, ", "))
		}
		o.kinds[i] = export.Kinds[at]
	}
	return nil
}

func (o *exportOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	a, err := o.Read(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	admin, err := a.Client(ctx, a.Admin, "keyserver-operator-export")
	if err != nil {
		return a.WithHint(err)
	}
	defer func() { _ = admin.Logout(context.WithoutCancel(ctx)) }()
	officer := admin
	if a.Officer != nil {
		if officer, err = a.Client(ctx, a.Officer, "keyserver-operator-export"); err != nil {
			return a.WithHint(err)
		}
		defer func() { _ = officer.Logout(context.WithoutCancel(ctx)) }()
	}
	made, err := export.Collect(ctx, export.Options{
		Admin: admin, Officer: officer, Namespace: o.namespace, KeyServer: o.keyServer, Kinds: o.kinds,
	})
	if err != nil {
		return a.WithHint(err)
	}
	for _, left := range made.LeftOut {
		fmt.Fprintln(cmd.ErrOrStderr(), left)
	}
	return made.YAML(cmd.OutOrStdout())
}
