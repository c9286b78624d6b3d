package engine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// How many random states TestExplainIsTheGate goes through on each database, and by which
// seed.
const (
	statesVariable = "EXPLAIN_STATES"
	seedVariable   = "EXPLAIN_SEED"
)

// What is explained is what the gate then says, in states that change at random; and what
// is said to turn it round, done for real, does.
func TestExplainIsTheGate(t *testing.T) {
	states, seed := 200, rand.Uint64()
	if text := os.Getenv(statesVariable); text != "" {
		states = must(strconv.Atoi(text))(t)
	}
	if text := os.Getenv(seedVariable); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))(t)
	}
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		w := newMaze(t, f, seed)
		var allowed, refused, turned int
		for range states {
			w.change()
			if is := w.compare(w.question()); is.Allowed {
				allowed++
			} else {
				refused++
			}
			turned += w.turn()
		}
		t.Logf("allowed %d, refused %d, turned round %d", allowed, refused, turned)
		if allowed < states/20 || refused < states/20 || turned < states/4 {
			t.Error("one of them is hardly ever there: the states are no good")
		}
	})
}

// maze is a key server whose state changes at random.
type maze struct {
	*testing.T
	f       *enginetest.Fixture
	seed    uint64
	dice    *rand.Rand
	auditor keyserver.Caller
	people  []keyserver.Caller
	groups  []keyserver.ID
	roles   []keyserver.ID
	keys    []keyserver.HiddenLink
	last    keyserver.Question
	lastIs  keyserver.Explanation
}

func newMaze(t *testing.T, f *enginetest.Fixture, seed uint64) *maze {
	t.Helper()
	w := &maze{T: t, f: f, seed: seed, dice: rand.New(rand.NewPCG(seed, 0))}
	t.Logf("seed %d", seed)
	w.auditor = f.Add(t, keyserver.PasswordPrincipal, "auditor", []keyserver.ID{keyserver.RoleAuditor}, nil)
	for n := range 3 {
		g := f.Add(t, keyserver.GroupPrincipal, fmt.Sprintf("group-%d", n), nil, nil)
		w.groups = append(w.groups, g.Principal.ID)
		id := must(f.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: fmt.Sprintf("role-%d", n), Operations: []keyserver.ID{keyserver.OpReadVersion.ID}}))(t)
		w.roles = append(w.roles, id)
	}
	for n := range 3 {
		w.people = append(w.people, f.Add(t, keyserver.PasswordPrincipal, fmt.Sprintf("person-%d", n), nil, nil))
	}
	w.people = append(w.people, f.Add(t, keyserver.CertificatePrincipal, "machine", nil, nil))
	for _, a := range []keyserver.Algorithm{keyserver.HMACSHA384, keyserver.HMACSHA384, keyserver.AES256} {
		w.keys = append(w.keys, must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: a}))(t).Link)
	}
	return w
}

func pick[T any](w *maze, from []T) T { return from[w.dice.IntN(len(from))] }

func (w *maze) update(change func(tx *sqlstore.Tx) error) {
	w.Helper()
	if err := w.f.Store.Update(ctx, change); err != nil {
		w.Fatalf("seed %d: %v", w.seed, err)
	}
}

// change changes one thing.
func (w *maze) change() {
	w.Helper()
	person := pick(w, w.people).Principal
	switch w.dice.IntN(8) {
	case 0:
		w.update(func(tx *sqlstore.Tx) error {
			return tx.SetPrincipalFlags(ctx, person.ID, keyserver.Flags(w.dice.UintN(4)/3^1)&keyserver.FlagEnable)
		})
	case 1, 2:
		holder := pick(w, append(slices.Clone(w.groups), person.ID))
		roles := []keyserver.ID{pick(w, append(w.roles, keyserver.RoleEncryptor, keyserver.RoleExchanger))}
		w.update(func(tx *sqlstore.Tx) error { return tx.SetPrincipalRoles(ctx, holder, roles) })
	case 3:
		w.member(person.ID, pick(w, w.groups), w.dice.IntN(2) == 0)
	case 4:
		role, op := pick(w, w.roles), pick(w, asked)
		if err := w.f.UpdateRole(ctx, w.f.Admin, keyserver.RoleChange{ID: role, Operations: []keyserver.ID{op.ID, pick(w, asked).ID}}); err != nil {
			w.Fatal(err)
		}
	case 5:
		state := pick(w, []keyserver.KeyState{keyserver.KeyEnabled, keyserver.KeyEnabled, keyserver.KeyVerifyOnly, keyserver.KeyDisabled, keyserver.KeyDestroying})
		w.state(pick(w, w.keys), state)
	default:
		entry := keyserver.ACLEntry{Principal: person, MaxUsage: keyserver.NoUsageLimit}
		if w.dice.IntN(3) == 0 {
			entry.Principal.ID = pick(w, w.groups)
		}
		entry.Rights = (keyserver.Rights(w.dice.UintN(8)) | keyserver.Rights(w.dice.UintN(12)/11)<<3).Widen()
		if w.dice.IntN(3) == 0 {
			entry.MaxUsage = int64(w.dice.IntN(3))
		}
		if w.dice.IntN(4) == 0 {
			entry.Start = keyserver.StampOf(w.f.Clock.Now().Add(time.Duration(w.dice.IntN(3)-1) * time.Hour))
		}
		if w.dice.IntN(4) == 0 {
			entry.End = keyserver.StampOf(w.f.Clock.Now().Add(time.Duration(w.dice.IntN(3)-1) * time.Hour))
		}
		w.entry(pick(w, w.keys), entry, w.dice.IntN(4) > 0)
	}
}

func (w *maze) member(person, group keyserver.ID, in bool) {
	w.Helper()
	w.update(func(tx *sqlstore.Tx) error {
		p, err := tx.Principal(ctx, person)
		switch has := slices.Contains(p.Groups, group); {
		case err != nil || has == in:
			return err
		case in:
			return tx.AddGroupMember(ctx, group, person)
		default:
			return tx.RemoveGroupMember(ctx, group, person)
		}
	})
}

func (w *maze) state(key keyserver.HiddenLink, state keyserver.KeyState) {
	w.Helper()
	_, id, _ := key.Split()
	w.update(func(tx *sqlstore.Tx) error {
		record, err := tx.Key(ctx, id)
		if err != nil {
			return err
		}
		record.Life.State = state
		return tx.SetKeyLife(ctx, id, record.Life)
	})
}

// entry replaces an entry of a key's list, or removes it.
func (w *maze) entry(key keyserver.HiddenLink, entry keyserver.ACLEntry, there bool) {
	w.Helper()
	_, id, _ := key.Split()
	w.update(func(tx *sqlstore.Tx) error {
		acl, err := tx.ACL(ctx, id)
		if err != nil {
			return err
		}
		if _, has := acl.Entry(entry.Principal); has {
			err = tx.DeleteACLEntry(ctx, acl.ID, entry.Principal)
		}
		if err != nil || !there {
			return err
		}
		entry.ACL = acl.ID
		entry.ID, err = keyserver.NewID(w.f.Random)
		if err != nil {
			return err
		}
		return tx.PutACLEntry(ctx, entry)
	})
}

// asked are the operations of the questions, each of which can be done again and again.
var asked = []keyserver.Operation{
	keyserver.OpAuthorizeKey, keyserver.OpHMAC, keyserver.OpMACData, keyserver.OpVerifyMAC, keyserver.OpEncrypt,
	keyserver.OpReadKey, keyserver.OpReadACL, keyserver.OpChangeKeyState, keyserver.OpListRoles, keyserver.OpReadAudit,
}

// do does an operation for real.
func (w *maze) do(by keyserver.Caller, op keyserver.Operation, key keyserver.HiddenLink) error {
	w.Helper()
	var err error
	choice := keyserver.KeyChoice{Key: key}
	switch op.ID {
	case keyserver.OpAuthorizeKey.ID:
		_, err = w.f.AuthorizeKey(ctx, by, keyserver.Use{Link: key})
	case keyserver.OpHMAC.ID:
		_, err = w.f.HMAC(ctx, by, keyserver.HMACRequest{Link: key, Message: text("m")})
	case keyserver.OpMACData.ID:
		_, err = w.f.MAC(ctx, by, keyserver.MACRequest{Line: key, Message: text("m")})
	case keyserver.OpVerifyMAC.ID:
		_, err = w.f.VerifyMAC(ctx, by, keyserver.MACCheck{KeyChoice: choice, Message: text("m"), MAC: noMAC})
	case keyserver.OpEncrypt.ID:
		_, err = w.f.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: choice, Plain: []byte("p")})
	case keyserver.OpReadKey.ID:
		_, err = w.f.Key(ctx, by, key)
	case keyserver.OpReadACL.ID:
		_, err = w.f.ACL(ctx, by, key)
	case keyserver.OpChangeKeyState.ID:
		_, err = w.f.KeyState(ctx, by, key)
	case keyserver.OpListRoles.ID:
		_, err = w.f.Roles(ctx, by)
	case keyserver.OpReadAudit.ID:
		_, err = w.f.Audit(ctx, by, keyserver.AuditFilter{Limit: 1})
	default:
		w.Fatalf("%s is not asked", op.Key)
	}
	return err
}

// question draws one.
func (w *maze) question() keyserver.Question {
	who := pick(w, w.people).Principal.ID
	q := keyserver.Question{Operation: pick(w, asked), Principal: &who}
	if q.Operation.AboutKey() {
		if q.Link = pick(w, w.keys); w.dice.IntN(30) == 0 {
			q.Link = keyserver.NewHiddenLink(w.f.Prepared.System, keyserver.IDFromUint64(5))
		}
	}
	if w.dice.IntN(4) == 0 {
		q.At = 1
	}
	return q
}

func (w *maze) caller(id keyserver.ID) keyserver.Caller {
	return w.people[slices.IndexFunc(w.people, func(c keyserver.Caller) bool { return c.Principal.ID == id })]
}

// compare asks what the gate would say, has it say so, and reports where they differ.
func (w *maze) compare(q keyserver.Question) keyserver.Explanation {
	w.Helper()
	is, err := w.f.Explain(ctx, w.auditor, q)
	if err != nil {
		w.Fatalf("seed %d: explain %s: %v", w.seed, q.Operation.Key, err)
	}
	did := w.do(w.caller(*q.Principal), q.Operation, q.Link)
	if fault.CodeOf(did) != fault.CodeOf(is.Refusal) || fault.ReasonOf(did) != fault.ReasonOf(is.Refusal) && did != nil || is.Allowed != (did == nil) {
		w.Fatalf("seed %d: %s of %s: explained as %v %+v, and the gate says %v", w.seed, q.Operation.Key, w.caller(*q.Principal).Name, is.Refusal, is.Steps, did)
	}
	order := -1
	for i, step := range is.Steps {
		at := slices.Index(keyserver.GateSteps, step.Step)
		if last := i == len(is.Steps)-1; at <= order || (step.Outcome == keyserver.StepRefused) != (last && !is.Allowed) {
			w.Fatalf("seed %d: %s: the steps are %+v", w.seed, q.Operation.Key, is.Steps)
		}
		order = at
	}
	w.last, w.lastIs = q, is
	return is
}

// turn makes the changes that turn the last answer round, and reports how many it turned.
func (w *maze) turn() int {
	w.Helper()
	q, was := w.last, w.lastIs
	if was.Allowed { // the question was asked for real, and may have taken the last use
		is, err := w.f.Explain(ctx, w.auditor, q)
		if err != nil || !is.Allowed {
			return 0
		}
		was = is
	}
	if len(was.Change) == 0 {
		everything := q
		everything.With = w.everything(q)
		if is, err := w.f.Explain(ctx, w.auditor, everything); err != nil || is.Allowed || was.Allowed {
			w.Fatalf("seed %d: it is said that nothing turns %+v round, and it is %v with %+v (%v)", w.seed, was.Steps, is.Allowed, everything.With, err)
		}
		return 0
	}
	supposed := q
	supposed.With = was.Change
	if is, err := w.f.Explain(ctx, w.auditor, supposed); err != nil || is.Allowed == was.Allowed {
		w.Fatalf("seed %d: with %+v it is still %v (%v)", w.seed, was.Change, is.Allowed, err)
	}
	for _, s := range was.Change {
		w.make(q, s)
	}
	if is := w.compare(q); is.Allowed == was.Allowed {
		w.Fatalf("seed %d: %+v were done, and it is still %v: %+v", w.seed, was.Change, is.Allowed, is.Steps)
	}
	return 1
}

// everything is whatever may help.
func (w *maze) everything(q keyserver.Question) []keyserver.Supposition {
	all := []keyserver.Supposition{
		{Kind: keyserver.SupposeEnabled, Principal: *q.Principal},
		{Kind: keyserver.SupposeRole, Principal: *q.Principal, Role: keyserver.RoleEncryptor},
		{Kind: keyserver.SupposeRole, Principal: *q.Principal, Role: keyserver.RoleAuditor},
		{Kind: keyserver.SupposeEntry, Principal: *q.Principal, Rights: keyserver.Owner, MaxUsage: keyserver.NoUsageLimit},
	}
	if q.Link != "" {
		all = append(all, keyserver.Supposition{Kind: keyserver.SupposeState})
	}
	for _, g := range w.groups {
		all = append(all, keyserver.Supposition{Kind: keyserver.SupposeMember, Principal: *q.Principal, Group: g})
	}
	return all
}

// make does for real what was supposed.
func (w *maze) make(q keyserver.Question, s keyserver.Supposition) {
	w.Helper()
	switch s.Kind {
	case keyserver.SupposeRole, keyserver.SupposeNoRole:
		w.update(func(tx *sqlstore.Tx) error {
			p, err := tx.Principal(ctx, s.Principal)
			if err != nil {
				return err
			}
			roles := slices.DeleteFunc(p.Roles, func(id keyserver.ID) bool { return id == s.Role })
			if s.Kind == keyserver.SupposeRole {
				roles = append(roles, s.Role)
			}
			return tx.SetPrincipalRoles(ctx, s.Principal, roles)
		})
	case keyserver.SupposeMember, keyserver.SupposeLeft:
		w.member(s.Principal, s.Group, s.Kind == keyserver.SupposeMember)
	case keyserver.SupposeEnabled:
		w.update(func(tx *sqlstore.Tx) error { return tx.SetPrincipalFlags(ctx, s.Principal, keyserver.FlagEnable) })
	case keyserver.SupposeDisabled:
		w.update(func(tx *sqlstore.Tx) error { return tx.SetPrincipalFlags(ctx, s.Principal, 0) })
	case keyserver.SupposeEntry, keyserver.SupposeNoEntry:
		w.entry(q.Link, keyserver.ACLEntry{
			Principal: keyserver.PrincipalRef{System: s.System, ID: s.Principal}, Rights: s.Rights.Widen(), MaxUsage: s.MaxUsage, Start: s.Start, End: s.End,
		}, s.Kind == keyserver.SupposeEntry)
	case keyserver.SupposeState:
		w.state(q.Link, keyserver.KeyEnabled)
	default:
		w.Fatalf("seed %d: %s is not made here", w.seed, s.Kind)
	}
}
