package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
)

// verifyArchive verifies an audit archive. It requires --key, and forbids flags about other sources.
func (o *auditOptions) verifyArchive(cmd *cobra.Command, options tree.Options) (err error) {
	if err := program.ForbidFlags(cmd, "applies to a database or a key server, but --archive reads neither; leave one of them out", "data-dir", "database-url", "server", "ca-file", "username", "password-file", "expect-head"); err != nil {
		return err
	}
	if options.Key == nil {
		return program.Usagef("--key is missing; an archive cannot be verified without it: give the response of GET /api/audit/key")
	}
	ctx := cmd.Context()
	a, err := openArchive(ctx, o.archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	done, err := archive.Verify(ctx, a, options.Key, options.Noted...)
	if err != nil && done.Segments == 0 {
		return err
	}
	if err != nil {
		return fmt.Errorf("the %d rows of the first %d segments are intact; verification then failed: %w", done.Rows, done.Segments, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "audit archive intact: rows 1 to %d in %d segments; checkpoint of %d rows, signed by %s\n",
		done.Rows, done.Segments, done.Newest.Size, options.Key.Name())
	for _, n := range options.Noted {
		if n.Head.Size <= done.Rows {
			fmt.Fprintf(&b, "continues the checkpoint in %s (%d rows)\n", n.Name, n.Head.Size)
		} else {
			fmt.Fprintf(&b, "the checkpoint in %s has %d rows, more than the archive has; verify the newer rows in the database\n", n.Name, n.Head.Size)
		}
	}
	if len(options.Noted) == 0 {
		b.WriteString("No --checkpoint of an earlier time was given. So this does not show whether segments were removed from the end.\n")
	}
	_, err = io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}

// openArchive opens the archive at the URL of --archive.
func openArchive(ctx context.Context, url string) (*archive.Archive, error) {
	if err := blobstore.CheckURL(url); err != nil {
		return nil, program.Usagef("--archive: %s", err)
	}
	return archive.Open(ctx, url)
}

// showOptions are the flags of audit show.
type showOptions struct {
	archive                               string
	from, to                              int64
	reason, operation, address, principal string
	outcome, session, object              string
	since, until                          string
}

func newAuditShow() *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print rows of an audit archive",
		Long: "Print rows of an audit archive, oldest first, each as a line of JSON, as GET /api/audit\n" +
			"returns it. Nothing is verified: audit verify --archive does that.",
		Args: program.NoArgs,
		RunE: program.RunE(func(cmd *cobra.Command) error {
			if err := program.RequireFlags(cmd, "archive"); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.archive, "archive", "", "URL of the archive, as in serve --audit-archive")
	f.Int64Var(&o.from, "from", 1, "first row (seq)")
	f.Int64Var(&o.to, "to", 0, "last row (seq); default: the last row of the archive")
	f.StringVar(&o.reason, "reason", "", "only rows with this reason, for instance aclDenied")
	f.StringVar(&o.operation, "operation", "", "only rows of this operation, for instance hmacData")
	f.StringVar(&o.outcome, "outcome", "", "only rows with this outcome: allowed, refused or failed")
	f.StringVar(&o.object, "object", "", "only rows of this object, as rows show it, for instance the URL form of a key's link")
	f.StringVar(&o.session, "session", "", "only rows of the session with this public id")
	f.StringVar(&o.principal, "principal-id", "", "only rows of the principal with this id, in decimal")
	f.StringVar(&o.address, "address", "", "only rows of requests from this IP address, without a port")
	f.StringVar(&o.since, "since", "", "only rows at or after this RFC 3339 time")
	f.StringVar(&o.until, "until", "", "only rows before this RFC 3339 time")
	return cmd
}

func (o *showOptions) filter() (f keyserver.AuditFilter, err error) {
	f = keyserver.AuditFilter{Reason: o.reason, Operation: o.operation, Object: o.object, Outcome: keyserver.Outcome(o.outcome)}
	if f.Outcome != "" && f.Outcome != keyserver.Allowed && f.Outcome != keyserver.Refused && f.Outcome != keyserver.Failed {
		return f, program.Usagef("--outcome is %q; it must be allowed, refused or failed", o.outcome)
	}
	if o.session != "" {
		id, err := values.ParseHexID(o.session)
		if err != nil {
			return f, program.Usagef("--session is %q; it must be the public id of a session, 16 hexadecimal digits", o.session)
		}
		f.Session = &id
	}
	if o.principal != "" {
		id, err := values.ParseDecimalID(o.principal)
		if err != nil {
			return f, program.Usagef("--principal-id is %q; it must be a principal's id in decimal", o.principal)
		}
		f.Principal = &id
	}
	if o.address != "" {
		address, err := netip.ParseAddr(o.address)
		if err != nil {
			return f, program.Usagef("--address is %q; it must be an IP address without a port", o.address)
		}
		f.Address = address.String()
	}
	for flag, at := range map[string]struct {
		text string
		to   *time.Time
	}{"--since": {o.since, &f.Since}, "--until": {o.until, &f.Until}} {
		if at.text == "" {
			continue
		}
		if *at.to, err = time.Parse(time.RFC3339Nano, at.text); err != nil {
			return f, program.Usagef("%s is %q; it must be an RFC 3339 time, for instance 2026-01-31T12:00:00Z", flag, at.text)
		}
	}
	if o.from < 1 || o.to != 0 && o.to < o.from {
		return f, program.Usagef("--from must be at least 1, and --to not less than --from")
	}
	return f, nil
}

func (o *showOptions) run(ctx context.Context, out io.Writer) (err error) {
	filter, err := o.filter()
	if err != nil {
		return err
	}
	a, err := openArchive(ctx, o.archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return archive.Show(ctx, a, filter, o.from, o.to, func(e *keyserver.AuditEntry) error {
		line, err := json.Marshal(httpapi.AuditEntryOf(*e))
		if err != nil {
			return err
		}
		_, err = out.Write(append(line, '\n'))
		return err
	})
}
