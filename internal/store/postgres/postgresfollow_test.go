package postgres

import (
	"net"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/replication"
)

// TestSilence checks which connections are closed after queries without a
// response, and when.
func TestSilence(t *testing.T) {
	var all connTracker
	open := func() *trackedConn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
		c := &trackedConn{Conn: ours, of: &all}
		if all.open == nil {
			all.open = map[*trackedConn]struct{}{}
		}
		all.open[c] = struct{}{}
		c.lastRead.Store(all.tick.Load())
		return c
	}
	hear := func(c *trackedConn) { c.lastRead.Store(all.tick.Load()) }
	isOpen := func(c *trackedConn) bool { _, open := all.open[c]; return open }
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var quiet silence

	all.next()
	before, meanwhile, slow := open(), open(), open()
	look := all.next()
	hear(meanwhile) // the host responds no more after that
	hear(slow)
	quiet.extend(look, all.next())
	look = all.next() // a second query without a response
	quiet.extend(look, all.next())

	all.next() // another host responds
	fresh := open()
	if n := all.closeSilent(quiet.cutoff(now)); n != 1 || isOpen(before) || !isOpen(meanwhile) {
		t.Errorf("cut %d at once, want the one that was silent from the beginning", n)
	}
	if n := all.closeSilent(quiet.cutoff(now.Add(replication.MaxStaleness / 2))); n != 0 {
		t.Errorf("cut %d before they had time to be heard", n)
	}
	hear(slow) // the response to a slow statement
	if n := all.closeSilent(quiet.cutoff(now.Add(replication.MaxStaleness))); n != 1 || isOpen(meanwhile) || !isOpen(slow) || !isOpen(fresh) {
		t.Errorf("cut %d then, want the one that fell silent meanwhile", n)
	}
	all.next()
	all.next()
	if n := all.closeSilent(quiet.cutoff(now.Add(time.Hour))); n != 0 {
		t.Errorf("cut %d long after the silence", n)
	}

	// Two silences with one short response between them count as one.
	look = all.next()
	quiet.extend(look, all.next())
	all.closeSilent(quiet.cutoff(now))
	again := open()
	look = all.next()
	hear(again)
	quiet.extend(look, all.next())
	if n := all.closeSilent(quiet.cutoff(now.Add(2 * replication.MaxStaleness))); isOpen(slow) {
		t.Errorf("cut %d, and not what was silent from the beginning", n)
	}
	all.closeSilent(quiet.cutoff(now.Add(4 * replication.MaxStaleness)))
	if isOpen(again) {
		t.Error("what fell silent in the second part is open")
	}

	// Another host became the primary, although every query got a response.
	all.next()
	old, busy := open(), open()
	quiet.extend(0, all.next())
	if n := all.closeSilent(quiet.cutoff(now)); n != 0 {
		t.Errorf("cut %d as soon as the other host was there, where a statement may be on its way", n)
	}
	hear(busy)
	if n := all.closeSilent(quiet.cutoff(now.Add(replication.MaxStaleness))); n == 0 || isOpen(old) || !isOpen(busy) {
		t.Errorf("cut %d, want what was there before the other host", n)
	}
}
