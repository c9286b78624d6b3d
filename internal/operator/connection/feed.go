package connection

import (
	"context"
	"maps"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// catchUp moves to the end of the change feed and ignores the changes that it passes. The listings are read later and
// include these changes.
func (c *Connection) catchUp(ctx context.Context) (int64, FeedState, error) {
	const pages = 10000
	var cursor int64
	for range pages {
		page, err := c.Admin.ListChanges(ctx, changesAfter(cursor, 0))
		if feed, none := noFeed(err); none {
			return 0, feed, nil
		}
		if err != nil {
			return 0, FeedState{}, err
		}
		if page.Cursor == cursor || (len(page.Changes) == 0 && !page.Reset) {
			return page.Cursor, FeedState{Following: true, Reason: v1beta1.ReasonFollowing, Message: "the manager sees outside changes immediately"}, nil
		}
		cursor = page.Cursor
	}
	return cursor, FeedState{Following: true, Reason: v1beta1.ReasonFollowing, Message: "the manager sees outside changes immediately"}, nil
}

// noFeed reports whether err means that the manager cannot read a change feed. If so, it returns the state for the
// status.
func noFeed(err error) (FeedState, bool) {
	switch {
	case err == nil:
		return FeedState{}, false
	case client.IsUnsupported(err):
		return FeedState{Reason: v1beta1.ReasonUnsupported,
			Message: "the key server has no change feed, so outside changes are found only at each object's resyncInterval; upgrade it to find them immediately"}, true
	case client.CodeOf(err) == "ACCESS_DENIED":
		return FeedState{Reason: v1beta1.ReasonAccessDenied,
			Message: "no role of the administrator grants reading the change feed, so outside changes are found only at each object's resyncInterval; grant it to find them immediately"}, true
	default:
		return FeedState{}, false
	}
}

// follow reads the change feed until an error occurs, or until ctx ends because of Trip.
func (c *Connection) follow(ctx context.Context) error {
	if !c.Status().Feed.Following {
		return c.poll(ctx)
	}
	cursor := c.Status().Cursor
	due := c.clock.Now().Add(c.timing.FeedWait)
	for {
		page, err := c.Admin.ListChanges(ctx, changesAfter(cursor, untilDue(c.clock.Now(), due)))
		if ctx.Err() != nil {
			return nil //nolint:nilerr // tripped: the next probe finds the cause
		}
		if err != nil {
			return err
		}
		c.awaitWrites(ctx)
		quiet := page.Cursor == cursor && !page.Reset
		// After a reinstallation of the key server, its cursor starts again at zero.
		if page.Reset || page.Cursor < cursor {
			c.invalidateAll()
			c.notify(ctx, Notice{KeyServer: c.Name})
		} else {
			c.apply(ctx, page.Changes)
		}
		cursor = page.Cursor
		c.mu.Lock()
		c.state.Cursor = cursor
		c.mu.Unlock()
		if due, err = c.recheckDue(ctx, due, quiet); err != nil {
			return err
		}
	}
}

// untilDue returns the time from now to due, rounded up to entire seconds as the poll request requires.
func untilDue(now, due time.Time) time.Duration {
	return max(due.Sub(now), 0).Truncate(time.Second) + time.Second
}

// longestPoll is the maximum time that a key server waits for a change.
const longestPoll = 60 * time.Second

// changesAfter returns a query for the changes after a cursor. If there is none, the key server waits at most wait for
// a change.
func changesAfter(cursor int64, wait time.Duration) schema.ChangesQuery {
	seconds := int(min(max(wait, 0), longestPoll) / time.Second)
	return schema.ChangesQuery{After: &cursor, Wait: &seconds}
}

// AfterDrain is the time for a process that shuts down to exit.
const AfterDrain = time.Second

// recheckDue runs recheck if it is due, and returns the time of the next one. If quiet, a poll ended early without a
// change, because the process shuts down. The next process may start so quickly that no call fails, and its data may be
// different. So recheck runs early, after a pause that avoids polling the old process in a loop.
func (c *Connection) recheckDue(ctx context.Context, due time.Time, quiet bool) (time.Time, error) {
	if c.clock.Now().Before(due) {
		if !quiet {
			return due, nil
		}
		c.sleep(ctx, AfterDrain)
	}
	return c.clock.Now().Add(c.timing.FeedWait), c.recheck(ctx)
}

// recheck reads again the data whose changes the feed does not report. If the data has changed, it notifies the
// objects. It fails only if the key server does not respond.
func (c *Connection) recheck(ctx context.Context) error {
	c.mu.Lock()
	memos := maps.Clone(c.memos)
	c.mu.Unlock()
	for name, m := range memos {
		changed, err := m.recheck(ctx)
		if client.IsUnavailable(err) && ctx.Err() == nil {
			return err
		}
		if changed {
			c.notify(ctx, Notice{KeyServer: c.Name, Kind: name, IDs: map[string]bool{}})
		}
	}
	return nil
}

// poll replaces follow if there is no change feed. It only notices when the key server becomes unavailable. Objects
// notice changes at their resyncs.
func (c *Connection) poll(ctx context.Context) error {
	for {
		c.sleep(ctx, c.timing.PollEach)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // tripped: the next probe finds the cause
		}
		if _, err := c.probe(ctx); err != nil {
			return err
		}
	}
}

// apply reports the changes of one page to the caches of responses. It sends one notice for each kind.
func (c *Connection) apply(ctx context.Context, changes []schema.Change) {
	news, every := map[string]map[string]bool{}, map[string]bool{}
	for _, ch := range changes {
		spell, known := c.ids[ch.Kind]
		if !known {
			continue
		}
		if ch.Kind == keyFeed && ch.ID == (schema.HexID{}) {
			c.anyKeyChanged()
			every[ch.Kind] = true
			continue
		}
		id := spell(ch.ID)
		c.mu.Lock()
		l, own := c.listings[ch.Kind], false
		about := map[string]bool{id: true}
		for _, m := range c.memos {
			whole, news := m.Changed(ch.Kind, id, ch.Action)
			own = own || !news
			if whole != "" {
				about[whole] = true
			}
		}
		c.mu.Unlock()
		if own || l != nil && !l.Changed(id, ch.Action) {
			continue
		}
		if news[ch.Kind] == nil {
			news[ch.Kind] = map[string]bool{}
		}
		maps.Copy(news[ch.Kind], about)
	}
	for kind := range every {
		news[kind] = nil
	}
	for kind, ids := range news {
		c.notify(ctx, Notice{KeyServer: c.Name, Kind: kind, IDs: ids})
	}
}

// keyFeed is the feed's kind of changes of keys and their ACLs. A change with id zero means that any key may have
// changed.
const keyFeed = "key"

func (c *Connection) anyKeyChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.memos {
		m.anyChanged(keyFeed)
	}
}
