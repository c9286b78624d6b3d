package ctl

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// approvable reports whether a request can be submitted for approval. An operation must authorize it, and the server
// must be able to store it.
func (v *verb) approvable() bool {
	return v.route.Session && len(v.route.Operations) > 0 && v.stream == "" && !v.route.Waits && !v.route.Uncounted
}

// askOthers submits the request for approval instead of sending it. It first validates the request, so that approvers
// get only requests that the server can read.
func (o *options) askOthers(cmd *cobra.Command, ask, v *verb, in *input, args []string) error {
	if err := o.showable(&ask.answer, nil); err != nil {
		return err
	}
	if o.owner != "" || o.to != "" || o.all || o.watches {
		return cmdline.Usagef("--ask: cannot be combined with --owned-by, --to, --all or --watch, because an approval is for one request; leave them out")
	}
	for _, f := range v.body { // checked first, so that no password is asked for
		if f.secret && (f.required || in.files[f.name].said != nil) {
			return cmdline.Usagef("--ask: --%s-file contains a secret, which approvers would see; leave out one of them", f.flag)
		}
	}
	r, err := in.request(cmd, args)
	if err != nil {
		return err
	}
	request, err := inApproval(v, r, o.reason)
	if err != nil {
		return err
	}
	if err := (&input{verb: ask}).check(request); err != nil {
		return err
	}
	c, err := o.caller(ask)
	if err != nil {
		return err
	}
	defer c.client.CloseIdleConnections()
	answer, err := o.ask(cmd.Context(), c, ask, request)
	if err != nil {
		return err
	}
	show := o.printer(cmd)
	if err := show.print(ask, answer); err != nil {
		return err
	}
	id, digest := plain(within(answer, []string{"approvalId"})[0]), plain(within(answer, []string{"digest"})[0])
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "the request was submitted for approval, but not executed; another person reads and approves it:\n"+
		"  keyserverctl approvals get %[1]s\n  keyserverctl approve %[1]s --digest %[2]s\nthen execute it:\n  keyserverctl approvals execute %[1]s\n", printable(id), printable(digest))
	return err
}

// inApproval returns the request that submits r for approval.
func inApproval(v *verb, r *request, reason string) (*request, error) {
	var body members[jsontext.Value]
	for _, m := range []struct{ name, said string }{{"method", v.route.Method}, {"path", r.target}, {"reason", reason}} {
		spelled, err := quote(m.said)
		if err != nil {
			return nil, err
		}
		body.set(m.name, spelled)
	}
	if len(v.body) > 0 {
		body.set("body", r.body)
	}
	text, err := marshal(body)
	return &request{segments: map[string]string{}, body: text}, err
}
