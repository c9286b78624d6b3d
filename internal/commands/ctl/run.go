package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/login"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	// maxAnswer limits a response that is read into memory, in bytes.
	maxAnswer = 32 << 20
	// slack is the time for a call in addition to the timeout of its route.
	slack = 15 * time.Second
	// patience is the longest Retry-After pause for which the client waits.
	patience = 30 * time.Second
	// maxPages is the maximum number of pages for --all.
	maxPages = 10_000
)

// caller sends requests to one key server.
type caller struct {
	*login.Context
	client *client.Client
	in     bool // the calls use a session
}

// caller returns a client for the verb. It uses the stored session if the verb requires a session, or accepts one and a
// session is stored.
func (o *options) caller(v *verb) (*caller, error) {
	h, err := o.Find()
	if err != nil {
		return nil, err
	}
	c := &caller{Context: h, in: !v.open && (!v.maybe || h.LoggedIn())}
	if c.in {
		c.client, err = h.Resume()
	} else {
		c.client, err = h.Client()
	}
	return c, err
}

// run executes a verb: it sends the request and prints the response. With --all it requests all pages.
func (o *options) run(cmd *cobra.Command, v *verb, in *input, args []string) error {
	of, _ := listed(v, nil)
	if err := o.showable(&v.answer, of); err != nil {
		return err
	}
	c, err := o.caller(v)
	if err != nil {
		return err
	}
	defer c.client.CloseIdleConnections()
	r, err := in.request(cmd, args)
	if err != nil {
		return err
	}
	if !v.json {
		return o.download(cmd, c, v, r)
	}
	show := o.printer(cmd)
	next := pages(v)
	var all pagedDocument
	document := o.all && o.output != asTable && o.field == ""
	for page := 0; ; page++ {
		answer, err := o.ask(cmd.Context(), c, v, r)
		if err != nil {
			if answer != nil { // the response of an error may have the reasons
				_ = show.refused(v, answer)
			}
			return err
		}
		more := next.of(answer)
		if document {
			if err := show.page(v, &all, answer, more == ""); err != nil || more == "" {
				return err
			}
		} else if !o.all || more == "" {
			show.more(next, more)
			return show.print(v, answer)
		}
		if page == maxPages {
			return fmt.Errorf("--all: there are more than %d pages; narrow the request", maxPages)
		}
		if !document {
			if err := show.print(v, answer); err != nil {
				return err
			}
			show.behind = true
		}
		if err := next.turn(r, in, more); err != nil {
			return err
		}
	}
}

// ask sends a request and returns the response. If the status is 409 or 503, it returns the response and the error.
func (o *options) ask(ctx context.Context, c *caller, v *verb, r *request) (answer jsontext.Value, err error) {
	err = c.send(o.purposed(ctx), v, r, o.owner, func(resp *http.Response, failure *client.Error) error {
		text, err := cmdline.ReadAll("the response", resp.Body, maxAnswer)
		if err != nil {
			return &client.NetworkError{Sent: true, Err: err}
		}
		if failure != nil {
			if failure.Status == http.StatusConflict || failure.Status == http.StatusServiceUnavailable {
				answer = jsontext.Value(text)
			}
			return failure
		}
		answer = jsontext.Value(text)
		return v.believe(r, answer, resp)
	})
	if answer != nil && !answer.IsValid() {
		answer = nil
	}
	return answer, c.Failed(err)
}

func (o *options) purposed(ctx context.Context) context.Context {
	if o.purpose == "" {
		return ctx
	}
	return client.For(ctx, o.purpose)
}

func (c *caller) send(ctx context.Context, v *verb, r *request, owner string, answer func(*http.Response, *client.Error) error) error {
	header := http.Header{}
	if owner != "" {
		header.Set("X-Keyserver-Owner", owner)
	}
	return c.client.Forward(ctx, client.Forwarded{
		Route: v.route.Name, Method: v.route.Method, Target: r.target, Header: header,
		Body: r.body, Rest: r.rest, Length: -1, WithoutSession: !c.in, Counts: v.route.Counts,
		Timeout: v.route.Timeout + slack, MaxRetryAfter: patience,
	}, answer)
}

// believe checks a successful response. It returns an error if the response does not conform to docs/contract.md, has
// no evidence of its result, or has evidence that does not match the request.
func (v *verb) believe(r *request, answer jsontext.Value, resp *http.Response) error {
	said := &client.Error{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "application/json" || !answer.IsValid() {
		said.Detail = fmt.Sprintf("the response to %s %s does not conform to the API of a key server; check --server", v.route.Method, v.route.Path)
		return said
	}
	if v.route.Response == nil || v.route.Response.Kind() != reflect.Struct {
		return nil
	}
	out := reflect.New(v.route.Response)
	if json.Unmarshal(answer, out.Interface()) != nil { // the decoder's error may quote a secret
		said.Detail = fmt.Sprintf("the response to %s %s does not conform to the API of a key server; check --server", v.route.Method, v.route.Path)
		return said
	}
	verified, ok := out.Interface().(interface{ MissingEvidence() string })
	if !ok {
		return nil
	}
	said.Code, said.Detail = "NOT_VERIFIED", verified.MissingEvidence()
	if mismatch := reflect.ValueOf(r.in).Elem().MethodByName("Mismatch"); said.Detail == "" && mismatch.IsValid() {
		said.Detail = mismatch.Call([]reflect.Value{out.Elem()})[0].String()
	}
	if said.Detail == "" {
		return nil
	}
	return said
}

// download copies a response that is not JSON to standard output or to the file of --to.
func (o *options) download(cmd *cobra.Command, c *caller, v *verb, r *request) error {
	to := cmd.OutOrStdout()
	if o.to == "" && program.IsTerminal(to) {
		if !strings.HasPrefix(v.route.MediaType(), "text/") {
			return cmdline.Usagef("--to is missing, but the response is not text; name a file, or redirect standard output to one")
		}
		text := readable(to)
		defer func() { _ = text.Close() }() // an error only means that the last character is incomplete
		to = text
	}
	var file *os.File
	if o.to != "" && o.to != program.StandardOutput {
		var err error
		if file, err = os.OpenFile(o.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		to = file
	}
	err := c.send(o.purposed(cmd.Context()), v, r, o.owner, func(resp *http.Response, failure *client.Error) error {
		if failure != nil {
			return failure
		}
		want, _, _ := mime.ParseMediaType(v.route.MediaType())
		if got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || got != want {
			return &client.Error{Status: resp.StatusCode, Detail: fmt.Sprintf("the response to %s %s does not conform to the API of a key server; check --server", v.route.Method, v.route.Path)}
		}
		if _, err := io.Copy(to, resp.Body); err != nil {
			return &client.NetworkError{Sent: true, Err: err}
		}
		return nil
	})
	if file != nil {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(o.to) // an incomplete file is of no use
		}
	}
	return c.Failed(err)
}

// pager describes how to request the next page of a listing. member is the member of the response that has the next
// position. field is the request field for this position.
type pager struct {
	member string
	field  field
	inBody bool
}

// pages returns the pager of a verb, or nil if its responses have no pages. A response with pages has the member
// "next". The request has the field "after" or "cursor" for its value.
func pages(v *verb) *pager {
	if !slices.ContainsFunc(v.answer.fields, func(p property) bool { return p.name == "next" }) {
		return nil
	}
	for i, list := range [][]field{v.query, v.body} {
		for _, f := range list {
			if f.name == "after" || f.name == "cursor" {
				return &pager{member: "next", field: f, inBody: i == 1}
			}
		}
	}
	return nil
}

// of returns the position of the next page, or "" if there is none.
func (p *pager) of(answer jsontext.Value) string {
	if p == nil {
		return ""
	}
	var all members[jsontext.Value]
	if json.Unmarshal(answer, &all) != nil {
		return ""
	}
	if next, ok := all.get(p.member); ok && next.Kind() != 'n' {
		return plain(next)
	}
	return ""
}

// turn changes the request so that it requests the page at where.
func (p *pager) turn(r *request, in *input, where string) error {
	if !p.inBody {
		query, err := url.ParseQuery(r.query)
		if err != nil {
			return err
		}
		query.Set(p.field.name, where)
		r.query = query.Encode()
		return in.check(r)
	}
	var body members[jsontext.Value]
	if err := json.Unmarshal(r.body, &body); err != nil {
		return err
	}
	spelled, err := p.field.spell("--"+p.field.flag, where)
	if err != nil {
		return err
	}
	body.set(p.field.name, spelled)
	if r.body, err = json.Marshal(body); err != nil {
		return err
	}
	return in.check(r)
}

// follow returns the command that polls a listing for new rows.
func (o *options) follow(t *table, f follower, use string) *cobra.Command {
	v := t.find(f.verb)
	var many int
	var every time.Duration
	cmd := &cobra.Command{
		Use:   use,
		Short: "Show the newest rows of " + f.verb + ", and then each new row.",
		Args:  cmdline.NoArgs,
	}
	only := *v
	only.query = slices.DeleteFunc(slices.Clone(v.query), func(one field) bool {
		return slices.Contains([]string{f.cursor, f.order, f.limit, "since", "until"}, one.name)
	})
	in := only.inputs(cmd)
	row, _ := listed(v, nil)
	cmd.Flags().IntVar(&many, "rows", 10, "number of existing rows to show first, from 0 to 1000")
	cmd.Flags().DurationVar(&every, "every", 5*time.Second, "time between two requests, at least 100ms; the audit rows of these requests are not shown")
	cmd.Flags().StringSliceVar(&o.columns, "columns", nil, "comma-separated members to show as columns")
	cmd.Flags().StringVar(&o.field, "field", "", "print only this member of each row, as text")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.complete(cmd); err != nil {
			return err
		}
		if many < 0 || many > 1000 {
			return cmdline.Usagef("--rows is %d; it must be from 0 to 1000", many)
		}
		if every < 100*time.Millisecond {
			return cmdline.Usagef("--every is %s; it must be at least 100ms", every)
		}
		if err := o.showable(row, row); err != nil {
			return err
		}
		c, err := o.caller(v)
		if err != nil {
			return err
		}
		defer c.client.CloseIdleConnections()
		r, err := in.request(cmd, args)
		if err != nil {
			return err
		}
		show := o.printer(cmd)
		show.notes, show.rows = io.Discard, true
		tail := tailing{follower: f, options: o, caller: c, verb: v, request: r, input: &input{verb: v}, show: show}
		return tail.run(cmd.Context(), many, every)
	}
	return cmd
}

type tailing struct {
	follower
	*options
	*caller
	verb    *verb
	request *request
	input   *input
	show    *printer
	filter  url.Values
}

func (t *tailing) run(ctx context.Context, many int, every time.Duration) error {
	var err error
	if t.filter, err = url.ParseQuery(t.request.query); err != nil {
		return err
	}
	// Read at least one row, to find the current end of the log.
	rows, _, err := t.look(ctx, map[string]string{t.order: t.newest, t.limit: strconv.Itoa(max(many, 1))})
	if err != nil {
		return err
	}
	behind := "0"
	if len(rows) > 0 {
		behind = t.place(rows[0])
	}
	slices.Reverse(rows)
	if many == 0 {
		rows = nil
	}
	for more := false; ; {
		if err := t.show.list(t.verb, t.others(rows)); err != nil {
			return err
		}
		if !more {
			select {
			case <-ctx.Done(): // a signal ended the command
				return nil
			case <-time.After(every):
			}
		}
		if rows, more, err = t.look(ctx, map[string]string{t.cursor: behind}); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // interrupted, as above
			}
			return err
		}
		if len(rows) > 0 {
			behind = t.place(rows[len(rows)-1])
		}
	}
}

// look sends the query once, with additional parameters. It returns the rows, and whether there are more.
func (t *tailing) look(ctx context.Context, parameters map[string]string) ([]jsontext.Value, bool, error) {
	query := url.Values{}
	for name, values := range t.filter {
		query[name] = values
	}
	for name, value := range parameters {
		query.Set(name, value)
	}
	t.request.query = query.Encode()
	if err := t.input.check(t.request); err != nil {
		return nil, false, err
	}
	answer, err := t.ask(ctx, t.caller, t.verb, t.request)
	if err != nil {
		return nil, false, err
	}
	_, rows := listed(t.verb, answer)
	return rows, pages(t.verb).of(answer) != "", nil
}

// others removes the rows that the polling itself adds to the log.
func (t *tailing) others(rows []jsontext.Value) []jsontext.Value {
	return slices.DeleteFunc(slices.Clone(rows), func(row jsontext.Value) bool {
		var all members[jsontext.Value]
		if json.Unmarshal(row, &all) != nil {
			return false
		}
		whose, _ := all.get(t.session)
		what, _ := all.get(t.operation)
		return plain(whose) == t.SessionID() && slices.ContainsFunc(t.verb.route.Operations, func(o keyserver.Operation) bool { return o.Key == plain(what) })
	})
}

// place returns the position of a row.
func (t *tailing) place(row jsontext.Value) string {
	var all members[jsontext.Value]
	if json.Unmarshal(row, &all) != nil {
		return ""
	}
	at, _ := all.get(t.mark)
	return plain(at)
}
