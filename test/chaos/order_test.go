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

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// staleness is how much older than the database a response of a replica may be (contract 4.5).
const staleness = time.Second

// order records how several clients of a site change and read the same lists: ACLs of keys, whose entries allow a user,
// and members of templates. One sequential order of the operations has to explain every response.
type order struct {
	site  *site
	bound time.Duration
	start time.Time

	mu      sync.Mutex
	ops     []porcupine.Operation
	lists   []*list // the lists that are changed now
	made    int     // number of created lists
	decided int
}

// list is the ACL of a key or the member list of a template. One member is added and removed.
type list struct {
	key      schema.HiddenLink
	template schema.HexID // zero for a key
	which    int
	unsure   atomic.Bool // a change of it got no response
	// quiet lists change rarely, so that a stale response shows. In a list that changes all the
	// time, any response was correct a moment ago.
	quiet bool
	rests atomic.Int64 // time before which a quiet list is not changed
}

func (l *list) ofKey() bool { return l.template == schema.HexID{} }

// listOperation is an operation on a list: put, take or look. look returns whether the member is in the list.
type listOperation struct {
	what  string
	which int
}

var oneMember = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[int][]porcupine.Operation{}
		for _, op := range history {
			by[op.Input.(listOperation).which] = append(by[op.Input.(listOperation).which], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return false },
	Step: func(state, in, out any) (bool, any) {
		switch in.(listOperation).what {
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
	// A quiet list stays unchanged for longer than a response may be stale.
	leastRest = staleness + 200*time.Millisecond
	moreRest  = staleness
)

// begin runs clients through every process until over is set.
func (o *order) begin(t *testing.T, ctx context.Context, group *sync.WaitGroup, over *atomic.Bool, r *rand.Rand, tell func(error)) {
	t.Helper()
	for n := range shared {
		rig.Succeeds(t, func() error { return o.add(ctx, o.site.admin, n%2 == 0, n < shared/2) })
	}
	id := 0
	for i := range writersOfLists {
		c, chance, me := o.site.client(t, i%len(o.site.members), program.NoRetries), rand.New(rand.NewPCG(r.Uint64(), 0)), id
		id++
		group.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				o.write(ctx, c, chance, me, tell)
				time.Sleep(betweenDeeds)
			}
		})
	}
	for i := range o.site.members {
		user := program.Client(t, o.site.members[i].over, "user", userPassword, program.NoRetries)
		admin := o.site.client(t, i, program.NoRetries)
		// Members are read from the database, which may be slow. The user is allowed by the cache of the process.
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

// add makes a list that only the clients of this test use.
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

// one returns a random list.
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

// never is the return time of an operation without a response: it may take effect at any later time.
const never = int64(1) << 62

func (o *order) note(who int, in listOperation, out any, call, end int64) {
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
		// Each change without a response makes more orders possible: use another list.
		_ = o.add(ctx, c, one.ofKey(), one.quiet)
		return
	case one.quiet && o.now() < one.rests.Load():
		return
	}
	defer func() { one.rests.Store(o.now() + int64(leastRest+upTo(r, moreRest))) }()
	user, system := o.site.user.PrincipalID, o.site.system
	in := listOperation{[]string{"put", "take"}[r.IntN(2)], one.which}
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

// undone are the errors of a change that another client undid before the re-read.
var undone = []string{"NOT_VERIFIED", "NOT_SAVED", "NOT_REMOVED"}

// unexpected reports an error, unless it is a possible result for a list or means that there was no response.
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
			return // the server has not decided
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
	o.note(me, listOperation{"look", one.which}, there, call-int64(o.bound), o.now())
}

// minLooks is the minimum number of responses that make a result significant.
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

// TestTheCheckerOfListsRefuses checks that the checker rejects impossible orders.
func TestTheCheckerOfListsRefuses(t *testing.T) {
	o := &order{}
	o.note(1, listOperation{"put", 1}, nil, 0, 10)
	o.note(1, listOperation{"take", 1}, nil, 20, 30)
	o.note(2, listOperation{"look", 1}, true, 25, 40)
	if porcupine.CheckOperations(oneMember, o.ops) != true {
		t.Error("an answer to a question that was asked before the change was over is refused")
	}
	o.note(2, listOperation{"look", 1}, true, 31, 40)
	if porcupine.CheckOperations(oneMember, o.ops) {
		t.Error("an old answer is taken")
	}
}
