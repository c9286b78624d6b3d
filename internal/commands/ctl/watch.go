package ctl

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

const (
	// watchLeast and watchMost are the minimum and the maximum pause between two reads of a watched list.
	watchLeast = 2 * time.Second
	watchMost  = 30 * time.Second
	// maxWatched is the maximum number of rows of a watched list.
	maxWatched = 10_000
)

// watchable reports whether a verb has --watch. Lists that only grow have their own commands (followers), and the
// change feed can wait for the next change itself.
func (v *verb) watchable() bool {
	of, _ := listed(v, nil)
	return of != nil && !v.route.Waits && !slices.ContainsFunc(followers, func(f follower) bool { return f.verb == strings.Join(v.words, " ") })
}

// watching prints a list, and then each row that is new or has changed.
type watching struct {
	*options
	*caller
	verb    *verb
	request *request
	input   *input
	show    *printer
	seen    map[[sha256.Size]byte]bool // digests of the rows of the previous read
}

// watch executes a listing until a signal or an error.
func (o *options) watch(cmd *cobra.Command, v *verb, in *input, args []string) error {
	row, _ := listed(v, nil)
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
	w := &watching{options: o, caller: c, verb: v, request: r, input: in, show: show}
	return w.run(cmd.Context())
}

func (w *watching) run(ctx context.Context) error {
	for pause := watchLeast; ; {
		rows, err := w.read(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a signal ended the command
		}
		if err != nil {
			return err
		}
		fresh, err := w.fresh(rows)
		if err != nil {
			return err
		}
		w.show.now = time.Now()
		if err := w.show.list(w.verb, fresh); err != nil {
			return err
		}
		if pause = min(pause*3/2, watchMost); len(fresh) > 0 {
			pause = watchLeast
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause - rand.N(pause/5)): //nolint:gosec // jitter, not a secret
		}
	}
}

// read returns the rows of all pages.
func (w *watching) read(ctx context.Context) ([]jsontext.Value, error) {
	var all []jsontext.Value
	next := pages(w.verb)
	for r := *w.request; ; {
		answer, err := w.ask(ctx, w.caller, w.verb, &r)
		if err != nil {
			return nil, err
		}
		_, rows := listed(w.verb, answer)
		if all = append(all, rows...); len(all) > maxWatched {
			return nil, fmt.Errorf("--watch: the list has more than %d rows; narrow the request", maxWatched)
		}
		more := next.of(answer)
		if more == "" {
			return all, nil
		}
		if err := next.turn(&r, w.input, more); err != nil {
			return nil, err
		}
	}
}

// fresh returns the rows that are new or different since the previous read. Changes of the members in activity are
// ignored.
func (w *watching) fresh(rows []jsontext.Value) ([]jsontext.Value, error) {
	var fresh []jsontext.Value
	now := make(map[[sha256.Size]byte]bool, len(rows))
	for _, row := range rows {
		var all members[jsontext.Value]
		if err := json.Unmarshal(row, &all); err != nil {
			return nil, err
		}
		text, err := marshal(slices.DeleteFunc(all, func(m member[jsontext.Value]) bool { return slices.Contains(activity, m.name) }))
		if err != nil {
			return nil, err
		}
		digest := sha256.Sum256(text)
		if now[digest] = true; !w.seen[digest] {
			fresh = append(fresh, row)
		}
	}
	w.seen = now
	return fresh, nil
}
