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

// bucketLimit is the limit of a token bucket: its size, and the time after which it gets another token.
type bucketLimit struct {
	interval time.Duration
	burst    int
}

// The bucket of a name and an address together is the smallest. The bucket of a name is large, so that locking out a
// user from many addresses is expensive. It still limits guesses.
var (
	pairLimit    = bucketLimit{6 * time.Second, 10}
	nameLimit    = bucketLimit{time.Second, 60}
	addressLimit = bucketLimit{time.Second, 60}
)

const (
	// After a successful login, the address is known for the name during knownFor. If the record is older than knownAgain,
	// a login renews it.
	knownFor   = 30 * 24 * time.Hour
	knownAgain = 24 * time.Hour
	// maxBuckets is the maximum number of buckets in one process.
	maxBuckets = 65536
)

type bucket struct {
	bucketLimit
	what string // pair, name or address
	key  [32]byte
}

// attempt is a login that is not decided yet. It takes tokens before the decision. After a successful login, the tokens
// are returned. So concurrent logins cannot make more guesses than sequential logins.
type attempt struct {
	buckets []bucket // buckets of the login; the smallest is the first
	taken   int      // number of buckets from which a token was taken
	guess   bool     // the login has a password, which can be guessed
	origin  [32]byte // digest of method, name and network
	known   bool     // the name has logged in from this network before
	refresh bool     // the record of the known network must be renewed
	empty   string   // kind of the bucket that had no token
}

// throttle limits password guesses per name, per address, and per pair of name and address. A successful login gets its
// tokens back. If a user knows the password, only guesses from the user's own address can delay the login.
type throttle struct {
	clock func() time.Time
	store *sqlstore.Store
	local buckets
}

func newThrottle(clock func() time.Time, store *sqlstore.Store) *throttle {
	return &throttle{clock: clock, store: store, local: buckets{full: map[[32]byte]time.Time{}}}
}

// look returns the buckets for a login. It returns LOGIN_THROTTLED if one of them is empty in this process. It checks
// the pair of name and address first, because this check needs no read from the store.
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
		return a, nil // guesses of other clients must not delay this login
	}
	more := []bucket{{addressLimit, "address", digest("address", from)}}
	if a.guess {
		// Without a password, there is no bucket for the name. Otherwise any client that claims the subject of a token could
		// throttle the owner of the token.
		more = append(more, bucket{nameLimit, "name", digest("name", string(l.Method), name)})
	}
	return a, t.add(a, now, more...)
}

// add adds buckets to the attempt. If one of them is empty, it returns an error and adds none.
func (t *throttle) add(a *attempt, now time.Time, more ...bucket) error {
	for _, b := range more {
		if wait := t.local.wait(b, now); wait > 0 {
			return a.throttled(b, wait)
		}
	}
	a.buckets = append(a.buckets, more...)
	return nil
}

// take takes a token from each bucket of an attempt. If a bucket is empty, it returns all taken tokens and fails with
// LOGIN_THROTTLED.
func (t *throttle) take(ctx context.Context, a *attempt) error {
	for _, b := range a.buckets {
		wait, err := t.takeToken(ctx, b, a.guess)
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

// takeToken takes a token from a bucket of this process and, if replicas share the database, from the same bucket there. A
// login without a password is not a guess, so it takes no token from the database.
func (t *throttle) takeToken(ctx context.Context, b bucket, guess bool) (time.Duration, error) {
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

// giveBack returns the tokens of an attempt that was not a wrong guess. It ignores errors, because the buckets also
// refill with time.
func (t *throttle) giveBack(ctx context.Context, a *attempt) {
	for _, b := range a.buckets[:a.taken] {
		t.local.giveBack(b)
		if t.store.Shared() {
			_ = t.store.ReturnToken(context.WithoutCancel(ctx), b.key, b.interval)
		}
	}
	a.taken = 0
}

func guesses(l Login) bool {
	return l.Method == keyserver.PasswordSession || l.Method == keyserver.LDAPSession
}

// network returns the network of an address, for which attempts are counted.
func network(address string) string { return prefix(address, clientaddr.Network) }

// site returns the IPv4 address, or the IPv6 network of 48 bits, for which waiting logins are counted.
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

// digest returns a hash of a list of words. Lists with other word boundaries have another hash.
func digest(words ...string) [32]byte {
	h := sha256.New()
	for _, w := range words {
		sum := sha256.Sum256([]byte(w))
		h.Write(sum[:])
	}
	return [32]byte(h.Sum(nil))
}

type buckets struct {
	mu   sync.Mutex
	full map[[32]byte]time.Time // time at which each bucket is full again
}

// wait returns the time until the bucket has a token, or zero if it has a token now.
func (s *buckets) wait(b bucket, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, wait := s.after(b, now)
	return max(0, wait)
}

// after returns the time at which the bucket would be full if one more token were taken, and how long it takes until
// the bucket has a token.
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

// makeRoom deletes buckets if there are too many: first all full ones, then, of random samples, the bucket that will be
// full soonest.
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
