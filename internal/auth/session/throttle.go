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

// bucketLimit is a token bucket: the number of failed logins in a burst, and the time until one more.
type bucketLimit struct {
	interval time.Duration
	burst    int
}

// The limit of a pair of name and address is the smallest. The limit of a name alone is large, so that it is expensive
// to lock out a user from many addresses, but it still bounds guesses.
var (
	pairLimit    = bucketLimit{6 * time.Second, 10}
	nameLimit    = bucketLimit{time.Second, 60}
	addressLimit = bucketLimit{time.Second, 60}
)

const (
	// After a login, the address is known for the name for the time knownFor. knownAgain is the age after which a login
	// writes that again.
	knownFor   = 30 * 24 * time.Hour
	knownAgain = 24 * time.Hour
	// maxBuckets bounds the memory of one process.
	maxBuckets = 65536
)

// bucket is a token bucket of an attempt.
type bucket struct {
	bucketLimit
	what string // pair, name or address
	key  [32]byte
}

// attempt is a login that is not decided yet. It takes its tokens before the decision, and success
// returns them. So concurrent logins allow no more guesses than sequential ones.
type attempt struct {
	buckets []bucket // from which the attempt takes a token, the tightest first
	taken   int      // number of buckets whose token was taken
	guess   bool     // the login has a password, which can be guessed
	origin  [32]byte // digest of method, name and network
	known   bool     // the name has logged in from this network before
	refresh bool     // the record of that should be renewed
	empty   string   // the bucket that had no token
}

// throttle limits guesses per name, per address and per pair of both. A successful login gets its tokens back. So if a
// user knows the password, only guesses from the user's own address delay the login.
type throttle struct {
	clock func() time.Time
	store *sqlstore.Store
	local buckets
}

func newThrottle(clock func() time.Time, store *sqlstore.Store) *throttle {
	return &throttle{clock: clock, store: store, local: buckets{full: map[[32]byte]time.Time{}}}
}

// look prepares the attempt for a login. It returns LOGIN_THROTTLED if one of the buckets of the attempt is empty in
// this process. It checks the bucket of name and address together first, because that needs no read from the store.
func (t *throttle) look(ctx context.Context, l Login) (*attempt, error) {
	now, name, from := t.clock(), cut(l.Name), network(l.Address)
	a := &attempt{guess: guesses(l)}
	if err := t.add(a, now, bucket{pairLimit, "pair", digest("pair", string(l.Method), name, from)}); err != nil {
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
		return a, nil // other clients' guesses at the name or from the address do not count
	}
	more := []bucket{{addressLimit, "address", digest("address", from)}}
	if a.guess {
		// Without a password there is no bucket for the name alone. Otherwise any client that claims
		// the subject of a token could lock out its owner.
		more = append(more, bucket{nameLimit, "name", digest("name", string(l.Method), name)})
	}
	return a, t.add(a, now, more...)
}

// add adds buckets to the attempt. If a bucket is empty, it fails and adds none.
func (t *throttle) add(a *attempt, now time.Time, more ...bucket) error {
	for _, b := range more {
		if wait := t.local.wait(b, now); wait > 0 {
			return a.throttled(b, wait)
		}
	}
	a.buckets = append(a.buckets, more...)
	return nil
}

// take takes the tokens of an attempt, just before it is decided. If a bucket is empty, it takes
// none and returns LOGIN_THROTTLED.
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
	f := fault.New(fault.LoginThrottled, "too many failed logins for this name or address; wait for the time in Retry-After")
	f.RetryAfter, f.Retryable = wait, true
	return f.Audited(fault.ReasonThrottled)
}

// one takes a token from a bucket of this process, and from the shared database if there is one. Logins without a
// password cannot be guessed, so they take none from the database.
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

// giveBack returns the tokens of an attempt that was not a failed guess. An error is ignored,
// because tokens also return with time.
func (t *throttle) giveBack(ctx context.Context, a *attempt) {
	for _, b := range a.buckets[:a.taken] {
		t.local.giveBack(b)
		if t.store.Shared() {
			_ = t.store.ReturnToken(context.WithoutCancel(ctx), b.key, b.interval)
		}
	}
	a.taken = 0
}

// guesses reports whether the login has a password that could be guessed.
func guesses(l Login) bool {
	return l.Method == keyserver.PasswordSession || l.Method == keyserver.LDAPSession
}

// network returns the key under which attempts of an address are counted.
func network(address string) string { return prefix(address, clientaddr.Network) }

// site returns the key under which attempts of an address share a queue.
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

// digest returns a hash of words that is unambiguous: word boundaries count.
func digest(words ...string) [32]byte {
	h := sha256.New()
	for _, w := range words {
		sum := sha256.Sum256([]byte(w))
		h.Write(sum[:])
	}
	return [32]byte(h.Sum(nil))
}

// buckets are the token buckets of this process.
type buckets struct {
	mu   sync.Mutex
	full map[[32]byte]time.Time // when each bucket is full again
}

// wait returns the time until the bucket has a token, zero if it has one.
func (s *buckets) wait(b bucket, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, wait := s.after(b, now)
	return max(0, wait)
}

// after returns when the bucket would be full if one more token were taken, and the time until it
// has one.
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

// makeRoom keeps the table bounded. It deletes full buckets first. Then, of a random sample, it
// deletes the bucket that will be full first.
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
