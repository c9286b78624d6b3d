package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// staleness is how much older than the database an answer of a replica may be
// (contract 4.5).
const staleness = time.Second

// order is what several clients of a site have seen of lists that all of them change: of
// keys, whose entries a user is let by, and of templates, whose members are read. One
// order has to explain every answer.
type order struct {
	site  *site
	bound time.Duration
	start time.Time

	mu      sync.Mutex
	ops     []porcupine.Operation
	lists   []*list // that are changed now
	made    int     // lists
	decided int
}

// list has one member that comes and goes: of a key, or of a template.
type list struct {
	key      schema.HiddenLink
	template schema.HexID // zero for a key
	which    int
	unsure   atomic.Bool // a change of it was not answered
	// quiet lists change seldom, so that an answer that is too old shows: of one that
	// comes and goes all the time any answer was right a moment ago.
	quiet bool
	rests atomic.Int64 // until when a quiet one is left alone
}

func (l *list) ofKey() bool { return l.template == schema.HexID{} }

// put, take and look are what is done to a list; look answers whether the member is there.
type deed struct {
	what  string
	which int
}

var oneMember = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[int][]porcupine.Operation{}
		for _, op := range history {
			by[op.Input.(deed).which] = append(by[op.Input.(deed).which], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return false },
	Step: func(state, in, out any) (bool, any) {
		switch in.(deed).what {
		case "put":
			return true, true
		case "take":
			return true, false
		default:
			return out == state, state
		}
	},
}

func newOrder(s *site) *order {
	o := &order{site: s, start: time.Now()}
	if len(s.members) > 1 {
		o.bound = staleness
	}
	return o
}

const (
	writersOfLists = 2
	shared         = 4 // lists at a time
	betweenDeeds   = 25 * time.Millisecond
	betweenLooks   = 100 * time.Millisecond
	// A quiet list is left alone for longer than an answer may be old.
	leastRest = staleness + 200*time.Millisecond
	moreRest  = staleness
)

// begin lets clients work until it is over, through every process.
func (o *order) begin(t *testing.T, ctx context.Context, group *sync.WaitGroup, over *atomic.Bool, r *rand.Rand, tell func(error)) {
	t.Helper()
	for n := range shared {
		rig.Succeeds(t, func() error { return o.add(ctx, o.site.admin, n%2 == 0, n < shared/2) })
	}
	id := 0
	for i := range writersOfLists {
		c, chance, me := o.site.client(t, i%len(o.site.members), program.Never), rand.New(rand.NewPCG(r.Uint64(), 0)), id
		id++
		group.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				o.write(ctx, c, chance, me, tell)
				time.Sleep(betweenDeeds)
			}
		})
	}
	for i := range o.site.members {
		user := program.Client(t, o.site.members[i].over, "user", userPassword, program.Never)
		admin := o.site.client(t, i, program.Never)
		// Members are read from the database, which may take its time; the user is let by
		// what the process knows.
		for _, ofKey := range []bool{true, false} {
			chance, me := rand.New(rand.NewPCG(r.Uint64(), 0)), id
			id++
			group.Go(func() {
				for !over.Load() && ctx.Err() == nil {
					o.look(ctx, user, admin, o.one(chance, ofKey), me, tell)
					time.Sleep(betweenLooks)
				}
			})
		}
	}
}

// add makes a list of which nobody knows but those who work here.
func (o *order) add(ctx context.Context, c *client.Client, ofKey, quiet bool) error {
	one := &list{quiet: quiet}
	if ofKey {
		made, err := c.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		if err != nil {
			return err
		}
		one.key = made.TTag
	} else {
		made, err := c.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: fmt.Sprint("shared ", time.Now().UnixNano())})
		if err != nil {
			return err
		}
		one.template = made.ID
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	one.which = o.made
	o.made++
	i := slices.IndexFunc(o.lists, func(l *list) bool { return l.unsure.Load() && l.quiet == quiet && l.ofKey() == ofKey })
	if i >= 0 {
		o.lists[i] = one
	} else {
		o.lists = append(o.lists, one)
	}
	return nil
}

// one draws a list.
func (o *order) one(r *rand.Rand, ofKey bool) *list {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*list
	for _, l := range o.lists {
		if l.ofKey() == ofKey {
			all = append(all, l)
		}
	}
	return all[r.IntN(len(all))]
}

// never is the return of what nobody has answered: it may come at any later time.
const never = int64(1) << 62

func (o *order) note(who int, in deed, out any, call, end int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if in.what == "look" {
		o.decided++
	}
	o.ops = append(o.ops, porcupine.Operation{ClientId: who, Input: in, Output: out, Call: call, Return: end})
}

func (o *order) now() int64 { return int64(time.Since(o.start)) }

func (o *order) write(ctx context.Context, c *client.Client, r *rand.Rand, me int, tell func(error)) {
	one := o.one(r, r.IntN(2) == 0)
	switch {
	case one.unsure.Load():
		// Each change without an answer makes more orders possible: go on elsewhere.
		_ = o.add(ctx, c, one.ofKey(), one.quiet)
		return
	case one.quiet && o.now() < one.rests.Load():
		return
	}
	defer func() { one.rests.Store(o.now() + int64(leastRest+upTo(r, moreRest))) }()
	user, system := o.site.user.PrincipalID, o.site.system
	in := deed{[]string{"put", "take"}[r.IntN(2)], one.which}
	var err error
	call := o.now()
	switch {
	case in.what == "put" && one.ofKey():
		_, err = c.GrantACL(ctx, schema.ACLChangeRequest{TTag: one.key, SystemID: system, PrincipalID: user, Rights: 1})
	case one.ofKey():
		_, err = c.RevokeACL(ctx, schema.ACLRevokeRequest{TTag: one.key, SystemID: system, PrincipalID: user})
	case in.what == "put":
		member := schema.SetACLTemplateMemberRequest{ID: one.template}
		member.SystemID, member.PrincipalID, member.Rights = system, user, 1
		_, err = c.SetACLTemplateMember(ctx, member)
	default:
		_, err = c.RemoveACLTemplateMember(ctx, schema.RemoveACLTemplateMemberRequest{ID: one.template, SystemID: system, PrincipalID: user})
	}
	end := o.now()
	var e *client.Error
	switch {
	case err == nil:
		o.note(me, in, nil, call, end)
	case errors.As(err, &e) && (e.Status == 404 || e.Code == "ACL_NOT_FOUND"): // nothing was sent
	case errors.As(err, &e) && slices.Contains(undone, e.Code):
		o.note(me, in, nil, call, end)
	default:
		one.unsure.Store(true)
		o.note(me, in, nil, call, never)
		o.unexpected(ctx, "change", err, tell)
	}
}

// undone are the verdicts on a change that somebody else undid before the re-read.
var undone = []string{"NOT_VERIFIED", "NOT_SAVED", "NOT_REMOVED"}

// unexpected tells of an answer that is neither one of those that a list may give nor
// that there is none.
func (o *order) unexpected(ctx context.Context, what string, err error, tell func(error)) {
	if err != nil && ctx.Err() == nil && !client.IsUnavailable(err) {
		tell(fmt.Errorf("%s a list at %s: %w", what, o.site.name, err))
	}
}

func (o *order) look(ctx context.Context, user, admin *client.Client, one *list, me int, tell func(error)) {
	call := o.now()
	there := false
	if one.ofKey() {
		_, err := user.AuthorizeKey(ledger.Unaudited(ctx), schema.AuthorizeKeyRequest{TTag: one.key})
		var e *client.Error
		if err != nil && (!errors.As(err, &e) || e.Code != "ACL_DENIED") {
			o.unexpected(ctx, "look at", err, tell)
			return // no decision
		}
		there = err == nil
	} else {
		members, err := admin.ListACLTemplateMembers(ctx, schema.ByID{ID: one.template})
		if err != nil {
			o.unexpected(ctx, "look at", err, tell)
			return
		}
		for _, m := range members.Members {
			there = there || m.PrincipalID == o.site.user.PrincipalID
		}
	}
	o.note(me, deed{"look", one.which}, there, call-int64(o.bound), o.now())
}

// minLooks is how many answers show anything.
const minLooks = 10

func (o *order) check(t *testing.T, round int) {
	t.Helper()
	if o.decided < minLooks {
		t.Logf("round %d: %s has answered %d questions about lists, which shows little", round, o.site.name, o.decided)
	}
	switch porcupine.CheckOperationsTimeout(oneMember, o.ops, 30*time.Second) {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Logf("round %d: no order of %d answers of %s was found in time, and none excluded", round, len(o.ops), o.site.name)
	default:
		t.Errorf("round %d: no order explains %d answers of %s about %d lists", round, len(o.ops), o.site.name, o.made)
	}
}

// TestTheCheckerOfListsRefuses: one that takes everything would show nothing.
func TestTheCheckerOfListsRefuses(t *testing.T) {
	o := &order{}
	o.note(1, deed{"put", 1}, nil, 0, 10)
	o.note(1, deed{"take", 1}, nil, 20, 30)
	o.note(2, deed{"look", 1}, true, 25, 40)
	if porcupine.CheckOperations(oneMember, o.ops) != true {
		t.Error("an answer to a question that was asked before the change was over is refused")
	}
	o.note(2, deed{"look", 1}, true, 31, 40)
	if porcupine.CheckOperations(oneMember, o.ops) {
		t.Error("an old answer is taken")
	}
}
