package session

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// allowance is how many logins may fail at once, and how often one more.
type allowance struct {
	interval time.Duration
	burst    int
}

// The pair of name and address is the tightest; the name alone is wide, so that
// many addresses cannot lock a user out cheaply, and still bounds what they guess.
var (
	pairAllowance    = allowance{6 * time.Second, 10}
	nameAllowance    = allowance{time.Second, 60}
	addressAllowance = allowance{time.Second, 60}
)

const (
	// knownFor is how long an address from which a name has logged in is known,
	// knownAgain how old that may be before it is written anew.
	knownFor   = 30 * 24 * time.Hour
	knownAgain = 24 * time.Hour
	// maxBuckets bounds the memory of one process.
	maxBuckets = 65536
)

// bucket is one that an attempt takes a token from.
type bucket struct {
	allowance
	what string // pair, name or address
	key  [32]byte
}

// attempt is a login that is not judged yet. It takes its tokens before it is, and a right one gives
// them back: logins at once find out no more than one after the other.
type attempt struct {
	buckets []bucket // to take a token from, the tightest first
	taken   int      // how many of them gave theirs
	guess   bool     // what was sent could be guessed
	origin  [32]byte // of the pair
	known   bool     // the name has logged in from there before
	refresh bool     // and should be known for longer
	empty   string   // the bucket that had no token
}

// throttle bounds guesses, per name, per address and per pair of both. A token
// is given back where the login succeeds, so that who knows a password is slowed
// by nobody but by whoever guesses from his own address.
type throttle struct {
	clock func() time.Time
	store *sqlstore.Store
	local buckets
}

func newThrottle(clock func() time.Time, store *sqlstore.Store) *throttle {
	return &throttle{clock: clock, store: store, local: buckets{full: map[[32]byte]time.Time{}}}
}

// look returns the attempt of a login. It fails with LOGIN_THROTTLED if one of its buckets is empty
// in this process. That of the pair comes first: an empty one costs no reading.
func (t *throttle) look(ctx context.Context, l Login) (*attempt, error) {
	now, name, from := t.clock(), cut(l.Name), network(l.Address)
	a := &attempt{guess: guesses(l)}
	if err := t.add(a, now, bucket{pairAllowance, "pair", digest("pair", string(l.Method), name, from)}); err != nil {
		return a, err
	}
	if a.guess {
		a.origin = digest("origin", string(l.Method), name, from)
		until, err := t.store.KnownOrigin(ctx, a.origin)
		if err != nil {
			return a, err
		}
		a.known, a.refresh = until.After(now), until.Sub(now) < knownFor-knownAgain
	}
	if a.known {
		return a, nil // what strangers do to the name, or behind the same address, is not his doing
	}
	more := []bucket{{addressAllowance, "address", digest("address", from)}}
	if a.guess {
		// Without a password there is none for the name alone: whoever claims the
		// subject of a token could keep its owner out, and gain nothing else.
		more = append(more, bucket{nameAllowance, "name", digest("name", string(l.Method), name)})
	}
	return a, t.add(a, now, more...)
}

// add has the attempt take tokens of more buckets, none of which may be empty.
func (t *throttle) add(a *attempt, now time.Time, more ...bucket) error {
	for _, b := range more {
		if wait := t.local.wait(b, now); wait > 0 {
			return a.throttled(b, wait)
		}
	}
	a.buckets = append(a.buckets, more...)
	return nil
}

// take takes the tokens of an attempt, just before it is judged. It fails with LOGIN_THROTTLED,
// and takes none, if a bucket is empty.
func (t *throttle) take(ctx context.Context, a *attempt) error {
	for _, b := range a.buckets {
		wait, err := t.one(ctx, b, a.guess)
		if err == nil && wait == 0 {
			a.taken++
			continue
		}
		t.giveBack(ctx, a)
		if err != nil {
			return err
		}
		return a.throttled(b, wait)
	}
	return nil
}

func (a *attempt) throttled(by bucket, wait time.Duration) error {
	a.empty = by.what
	f := fault.New(fault.LoginThrottled, "too many failed logins for this name or address; wait as Retry-After says")
	f.RetryAfter, f.Retryable = wait, true
	return f.Audited(fault.ReasonThrottled)
}

// one takes a token here, and where other processes work on the same database
// also there. Without a password there is nothing to guess, so that what happens
// elsewhere does not matter.
func (t *throttle) one(ctx context.Context, b bucket, guess bool) (time.Duration, error) {
	now := t.clock()
	if wait := t.local.take(b, now); wait > 0 || !guess || !t.store.Shared() {
		return wait, nil
	}
	wait, err := t.store.TakeToken(ctx, b.key, now, b.interval, b.burst)
	if err != nil || wait > 0 {
		t.local.giveBack(b)
	}
	return wait, err
}

// giveBack returns what an attempt took that was not a guess. What cannot be
// given back comes back by itself.
func (t *throttle) giveBack(ctx context.Context, a *attempt) {
	for _, b := range a.buckets[:a.taken] {
		t.local.giveBack(b)
		if t.store.Shared() {
			_ = t.store.ReturnToken(context.WithoutCancel(ctx), b.key, b.interval)
		}
	}
	a.taken = 0
}

// guesses says whether a password could be guessed.
func guesses(l Login) bool {
	return l.Method == keyserver.PasswordSession || l.Method == keyserver.LDAPSession
}

// network is whose attempts are counted together.
func network(address string) string { return prefix(address, clientaddr.Network) }

// site is whose attempts wait together.
func site(address string) string {
	return prefix(address, func(at netip.Addr) netip.Prefix { return clientaddr.Site(clientaddr.Network(at)) })
}

func prefix(address string, of func(netip.Addr) netip.Prefix) string {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	return of(at).String()
}

// digest names something by words, none of which can run into the next.
func digest(words ...string) [32]byte {
	h := sha256.New()
	for _, w := range words {
		sum := sha256.Sum256([]byte(w))
		h.Write(sum[:])
	}
	return [32]byte(h.Sum(nil))
}

// buckets are those of this process.
type buckets struct {
	mu   sync.Mutex
	full map[[32]byte]time.Time // when each is full again
}

// wait returns the time until the bucket has a token, and zero if it has one.
func (s *buckets) wait(b bucket, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, wait := s.after(b, now)
	return max(0, wait)
}

// after returns when the bucket would be full after one more token, and the time until it has one.
func (s *buckets) after(b bucket, now time.Time) (full time.Time, wait time.Duration) {
	full = s.full[b.key]
	if full.Before(now) {
		full = now
	}
	full = full.Add(b.interval)
	return full, full.Sub(now) - time.Duration(b.burst)*b.interval
}

func (s *buckets) take(b bucket, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	full, wait := s.after(b, now)
	if wait > 0 {
		return wait
	}
	if _, ok := s.full[b.key]; !ok {
		s.makeRoom(now)
	}
	s.full[b.key] = full
	return 0
}

func (s *buckets) giveBack(b bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if full, ok := s.full[b.key]; ok {
		s.full[b.key] = full.Add(-b.interval)
	}
}

// makeRoom keeps the table bounded: full buckets go first, then, of a few that
// the map happens to give, the one that soonest will be.
func (s *buckets) makeRoom(now time.Time) {
	if len(s.full) < maxBuckets {
		return
	}
	for k, full := range s.full {
		if !full.After(now) {
			delete(s.full, k)
		}
	}
	const sample = 16
	for len(s.full) >= maxBuckets {
		var soonest [32]byte
		seen := 0
		for k, full := range s.full {
			if seen == 0 || full.Before(s.full[soonest]) {
				soonest = k
			}
			if seen++; seen == sample {
				break
			}
		}
		delete(s.full, soonest)
	}
}
