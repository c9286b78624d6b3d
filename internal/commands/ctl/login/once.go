package login

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/access"
)

// OneTimeFlags has the flags of commands that can log in for one run. Pods and scripts use them instead of a session
// that is kept.
type OneTimeFlags struct{ access.Options }

// Read reads the files that the flags name, for the key server of a context.
func (o *OneTimeFlags) Read(cmd *cobra.Command, h *Context) (access.Access, error) {
	o.Server, o.CAFile, o.ExternalURL = h.place.Server, h.place.CAFile, h.place.ExternalURL
	return o.Options.Read(cmd)
}

// Open returns a client with a valid session: one that it opens if a has a password, else the session that is kept. The
// caller calls end, which ends the session that Open opened.
func (h *Context) Open(ctx context.Context, a access.Access, userAgent string) (c *client.Client, end func(), err error) {
	end = func() {}
	if a.Admin == nil {
		if c, err = h.Resume(); err == nil {
			_, err = c.GetCurrentSession(ctx) // it may have ended
		}
		return c, end, err
	}
	if c, err = a.Client(ctx, a.Admin, userAgent); err != nil {
		return nil, end, err
	}
	return c, func() { _ = c.Logout(context.WithoutCancel(ctx)) }, nil
}
