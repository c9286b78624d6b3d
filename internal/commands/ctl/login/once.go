package login

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
)

// OneTimeFlags has the flags of commands that can log in for one run. Pods and scripts use them instead of a stored
// session.
type OneTimeFlags struct{ access.Options }

// Read reads the files that the flags name, for the key server of a context.
func (o *OneTimeFlags) Read(cmd *cobra.Command, h *Context) (access.Access, error) {
	o.Server, o.CAFile, o.ExternalURL = h.place.Server, h.place.CAFile, h.place.ExternalURL
	return o.Options.Read(cmd)
}

// Open returns a client with a valid session: a new one if a has a password, or else the stored one. The caller must
// call end, which ends a new session.
func (h *Context) Open(ctx context.Context, a access.Access, userAgent string) (c *client.Client, end func(), err error) {
	end = func() {}
	if a.Admin == nil {
		if c, err = h.Resume(); err == nil {
			_, err = c.GetCurrentSession(ctx) // the session may have expired
		}
		return c, end, err
	}
	if c, err = a.Client(ctx, a.Admin, userAgent); err != nil {
		return nil, end, err
	}
	return c, func() { _ = c.Logout(context.WithoutCancel(ctx)) }, nil
}
