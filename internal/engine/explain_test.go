package engine_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Environment variables of TestExplainIsTheGate: the number of random states for each database, and the first seed.
// Each key server has statesEach states. The next key server uses the next seed.
const (
	statesVariable = "EXPLAIN_STATES"
	seedVariable   = "EXPLAIN_SEED"
	statesEach     = 2000
)

// TestExplainIsTheGate checks in random states that an explanation equals the decision of the gate, and that the
// suggested changes reverse the decision.
func TestExplainIsTheGate(t *testing.T) {
	states, first := 200, uint64(1)
	if text := os.Getenv(statesVariable); text != "" {
		states = enginetest.Must(strconv.Atoi(text))(t)
	}
	if text := os.Getenv(seedVariable); text != "" {
		first = enginetest.Must(strconv.ParseUint(text, 10, 64))(t)
	}
	for name, database := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			var all tally
			for done, seed := 0, first; done < states && !t.Failed(); done, seed = done+statesEach, seed+1 {
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					all = all.and(explore(t, database, seed, min(statesEach, states-done)))
				})
			}
			if testing.Short() && all == (tally{}) {
				t.Skip("-short: there is no such database")
			}
			t.Logf("%+v", all)
			if all.allowed < states/20 || all.refused < states/20 || all.turned < states/5 {
				t.Error("one of them is hardly ever there: the states are no good")
			}
		})
	}
}

// tally counts explained requests: allowed, refused, and reversed.
type tally struct{ allowed, refused, turned int }

func (t tally) and(more tally) tally {
	return tally{t.allowed + more.allowed, t.refused + more.refused, t.turned + more.turned}
}

// maxTries limits the attempts to reproduce a difference in fewer steps.
const maxTries = 100

// explore tests random states of one key server. If an explanation differs from the decision, it reports a short
// sequence of steps that reproduces the difference.
func explore(t *testing.T, database func(testing.TB) sqlstore.Config, seed uint64, states int) tally {
	t.Helper()
	steps := make([]int, states)
	for i := range steps {
		steps[i] = i
	}
	all, found := walk(t, database, seed, steps)
	if found == nil {
		return all
	}
	steps = steps[:found.steps]
	for size, tries := len(steps)/2, 0; size > 0; size /= 2 {
		for from := 0; from+size < len(steps) && tries < maxTries; tries++ {
			var less *finding
			fewer := slices.Delete(slices.Clone(steps), from, from+size)
			t.Run("Less", func(t *testing.T) { _, less = walk(t, database, seed, fewer) })
			if less == nil {
				from += size
				continue
			}
			steps, found = fewer[:less.steps], less
		}
	}
	t.Errorf("%s\nafter\n%s", found.says, strings.Join(found.did, "\n"))
	return all
}

// finding is a difference between an explanation and the decision.
type finding struct {
	says  string
	did   []string
	steps int // number of steps before the difference
}

// walk does the given steps with a seed. The effect of a step depends on the seed, the number of the step, and the
// current state.
func walk(t *testing.T, database func(testing.TB) sqlstore.Config, seed uint64, steps []int) (all tally, found *finding) {
	t.Helper()
	w := newMaze(t, enginetest.New(t, database(t)), seed)
	defer func() {
		switch said := recover().(type) {
		case nil:
		case *finding:
			found = said
		default:
			panic(said)
		}
	}()
	for i, step := range steps {
		w.dice, w.steps = rand.New(rand.NewPCG(seed, uint64(step))), i+1
		w.change()
		switch {
		case step%64 == 63:
			w.crowd()
		case w.dice.IntN(5) == 0:
			w.lends(&all)
		default:
			w.asks(&all)
		}
	}
	return all, nil
}

// fail ends the walk with a finding.
func (w *maze) fail(format string, args ...any) {
	panic(&finding{says: fmt.Sprintf(format, args...), did: w.did, steps: w.steps})
}

// lastDid is the number of steps that a finding shows.
const lastDid = 400

func (w *maze) note(format string, args ...any) {
	if len(w.did) == lastDid {
		w.did = w.did[1:]
	}
	w.did = append(w.did, fmt.Sprintf(format, args...))
}

// question returns a random question about a principal in its own session.
func (w *maze) question() keyserver.Question {
	who := pick(w, w.people).Principal.ID
	q := keyserver.Question{Operation: pick(w, asked), Principal: &who}
	if q.Operation.AboutKey() {
		q.Link = w.key()
	}
	if w.dice.IntN(8) == 0 {
		q.At = 1
	}
	return q
}

// asks explains a request of a principal, and tests the suggested changes.
func (w *maze) asks(all *tally) {
	w.Helper()
	q := w.question()
	by := w.caller(*q.Principal)
	is := w.compare(w.auditor, by, q)
	all.count(is)
	all.turned += w.turn(by, q, is)
}

// lends explains a request in a delegated session or with a scoped credential. Such a caller asks about itself.
func (w *maze) lends(all *tally) {
	w.Helper()
	by := pick(w, w.people)
	if w.dice.IntN(2) == 0 {
		by = actingFor(by, pick(w, w.people))
	} else {
		by.Kind, by.Scope = keyserver.ScopedSession, []keyserver.HiddenLink{pick(w, w.keys), pick(w, w.keys)}
		by.ScopeOperations, by.MayGrant = []keyserver.ID{pick(w, asked).ID, pick(w, asked).ID}, keyserver.Read
	}
	q := w.question()
	q.Principal, q.At = nil, 0
	is := w.compare(by, by, q)
	all.count(is)
	if slices.ContainsFunc(is.Steps, func(s keyserver.ExplainedStep) bool { return s.By != nil }) || is.Uses != nil || is.Sequence != 0 || is.Change != nil {
		w.fail("somebody without a right to it is told more than by trying: %+v", is)
	}
}

func (t *tally) count(is keyserver.Explanation) {
	if is.Allowed {
		t.allowed++
	} else {
		t.refused++
	}
}

// compare explains a request and sends it. It fails if the two decisions differ.
func (w *maze) compare(asker, by keyserver.Caller, q keyserver.Question) keyserver.Explanation {
	w.Helper()
	is, err := w.gate.Explain(ctx, asker, q)
	did := w.do(by, q.Operation, q.Link)
	w.note("%s by %s of %s is explained as %v, and answered %v", q.Operation.Key, w.name(by), w.name(q.Link), is.Refusal, did)
	switch {
	case fault.As(err) != nil && q.Principal == nil && fault.CodeOf(err) == fault.CodeOf(did):
		return keyserver.Explanation{Refusal: err} // a caller without rights may not ask
	case err != nil:
		w.fail("explain: %v", err)
	case fault.CodeOf(did) != fault.CodeOf(is.Refusal), did != nil && fault.ReasonOf(did) != fault.ReasonOf(is.Refusal), is.Allowed != (did == nil):
		w.fail("explained as %v %+v, and the gate says %v", is.Refusal, is.Steps, did)
	}
	order := -1
	for i, step := range is.Steps {
		at := slices.Index(keyserver.GateSteps, step.Step)
		if last := i == len(is.Steps)-1; at <= order || (step.Outcome == keyserver.StepRefused) != (last && !is.Allowed) {
			w.fail("the steps are %+v", is.Steps)
		}
		order = at
	}
	return is
}

// turn makes the suggested changes. It returns 1 if they reversed the decision, otherwise 0.
func (w *maze) turn(by keyserver.Caller, q keyserver.Question, was keyserver.Explanation) int {
	w.Helper()
	if was.Allowed { // the request in compare may have taken the last use
		is, err := w.gate.Explain(ctx, w.auditor, q)
		if err != nil || !is.Allowed {
			return 0
		}
		was = is
	}
	if len(was.Change) == 0 {
		everything := q
		everything.With = w.everything(q)
		if is, err := w.gate.Explain(ctx, w.auditor, everything); err != nil || is.Allowed || was.Allowed {
			w.fail("it is said that nothing turns %+v round, and it is %v with %+v (%v)", was.Steps, is.Allowed, everything.With, err)
		}
		return 0
	}
	supposed := q
	supposed.With = was.Change
	if is, err := w.gate.Explain(ctx, w.auditor, supposed); err != nil || is.Allowed == was.Allowed {
		w.fail("with %+v it is still %v (%v)", was.Change, is.Allowed, err)
	}
	w.least(q, was)
	for i, s := range was.Change {
		if s.Kind == keyserver.SupposeRole { // any of the named roles is sufficient
			role := pick(w, was.Roles)
			s.Role, s.Name = role.ID, role.Name
			was.Change[i] = s
		}
		w.note("so that %s of %s %s", s.Kind, w.called[s.Principal], w.name(s.Link))
		if s.Kind == keyserver.SupposeApproval {
			by.Approved = append(by.Approved, q.Operation.Key)
		} else {
			w.make(q, s)
		}
	}
	if len(by.Approved) > 0 { // the approval is only for this request, so a question does not have it
		if did := w.do(by, q.Operation, q.Link); did != nil {
			w.fail("%+v were done, and it is %v", was.Change, did)
		}
		return 1
	}
	if is := w.compare(w.auditor, by, q); is.Allowed == was.Allowed {
		w.fail("%+v were done, and it is still %v: %+v", was.Change, is.Allowed, is.Steps)
	}
	return 1
}

// least checks that a change names its role or group. A changed ACL entry must keep all values that do not cause the
// refusal.
func (w *maze) least(q keyserver.Question, was keyserver.Explanation) {
	w.Helper()
	for _, s := range was.Change {
		switch s.Kind {
		case keyserver.SupposeRole:
			if len(was.Roles) == 0 || was.Roles[0].ID != s.Role || was.Roles[0].Name != s.Name || s.Name == "" {
				w.fail("%+v is to do, of the roles %+v", s, was.Roles)
			}
		case keyserver.SupposeNoRole, keyserver.SupposeMember:
			if s.Name == "" {
				w.fail("%+v says no name", s)
			}
		case keyserver.SupposeEntry:
			had, has := w.has(cmp.Or(s.Link, q.Link), keyserver.PrincipalRef{System: s.System, ID: s.Principal})
			now := values.StampOf(w.f.Clock.Now())
			begun, ended := had.Start.IsUnset() || had.Start.Millis() <= now.Millis(), !had.End.IsUnset() && had.End.Millis() <= now.Millis()
			switch {
			case !has && (s.MaxUsage != keyserver.NoUsageLimit || !s.Start.IsUnset() || !s.End.IsUnset()):
				w.fail("there is no entry, and %+v has limits", s)
			case !has:
			case !s.Rights.Has(had.Rights):
				w.fail("%+v takes a right away from %+v", s, had)
			case begun && s.Start != had.Start, !begun && !s.Start.IsUnset(), !ended && s.End != had.End:
				w.fail("%+v changes another bound of %+v than the one that keeps it out", s, had)
			case ended && (s.End.IsUnset() || s.End.Millis() <= now.Millis()):
				w.fail("%+v was over, and of %+v there is no end", had, s)
			case (had.Used < had.MaxUsage || ownerMay[q.Operation.ID] && s.Rights.Has(keyserver.Owner)) && s.MaxUsage != had.MaxUsage:
				w.fail("%+v changes the limit of %+v, which is no obstacle", s, had)
			}
		default: // no name and no ACL entry
		}
	}
}

// ownerMay has the operations that an owner may do even if no uses are left.
var ownerMay = map[keyserver.ID]bool{
	keyserver.OpReadACL.ID: true, keyserver.OpAmendACL.ID: true, keyserver.OpChangeKeyState.ID: true, keyserver.OpRotateKey.ID: true,
}

// has returns the entry of a principal in a key's ACL, and whether there is one.
func (w *maze) has(key keyserver.HiddenLink, who keyserver.PrincipalRef) (entry keyserver.ACLEntry, has bool) {
	w.Helper()
	_, id, _ := key.Split()
	acl, err := w.f.Store.ACL(ctx, id)
	if err != nil {
		w.fail("the list of %s: %v", w.name(key), err)
	}
	return acl.Entry(who)
}

// everything returns all changes that could reverse a refusal.
func (w *maze) everything(q keyserver.Question) []keyserver.Supposition {
	all := []keyserver.Supposition{
		{Kind: keyserver.SupposeEnabled, Principal: *q.Principal},
		{Kind: keyserver.SupposeRole, Principal: *q.Principal, Role: keyserver.RoleEncryptor},
		{Kind: keyserver.SupposeRole, Principal: *q.Principal, Role: keyserver.RoleExchanger},
		{Kind: keyserver.SupposeRole, Principal: *q.Principal, Role: keyserver.RoleAuditor},
		{Kind: keyserver.SupposeExposed, Principal: *q.Principal, System: enginetest.PeerSystem},
		{Kind: keyserver.SupposeApproval},
	}
	for _, key := range w.keys {
		all = append(all, keyserver.Supposition{
			Kind: keyserver.SupposeEntry, Principal: *q.Principal, System: w.f.Prepared.System, Link: key, Rights: keyserver.Owner, MaxUsage: keyserver.NoUsageLimit,
		})
	}
	if q.Operation.ID != keyserver.OpMACData.ID { // a lineage would use another key
		all = append(all, keyserver.Supposition{Kind: keyserver.SupposeState})
	}
	for _, g := range w.groups {
		all = append(all, keyserver.Supposition{Kind: keyserver.SupposeMember, Principal: *q.Principal, Group: g})
	}
	return all
}

// make makes a suggested change on the key server.
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
		w.flag(s.Principal, keyserver.FlagEnable, true)
	case keyserver.SupposeDisabled:
		w.flag(s.Principal, keyserver.FlagEnable, false)
	case keyserver.SupposeEntry, keyserver.SupposeNoEntry:
		w.entry(cmp.Or(s.Link, q.Link), keyserver.ACLEntry{
			Principal: keyserver.PrincipalRef{System: s.System, ID: s.Principal}, Rights: s.Rights.Widen(), MaxUsage: s.MaxUsage, Start: s.Start, End: s.End,
		}, s.Kind == keyserver.SupposeEntry)
	case keyserver.SupposeState:
		w.state(cmp.Or(s.Link, q.Link), keyserver.KeyEnabled)
	case keyserver.SupposeExposed:
		w.expose(s.Principal, keyserver.Expose)
	default:
		w.fail("%s is not made here", s.Kind)
	}
}

// crowd calls WhoCan for an operation, and checks each principal in the response.
func (w *maze) crowd() {
	w.Helper()
	q := w.question()
	c := keyserver.WhoCanQuery{Operation: q.Operation, Link: q.Link, Limit: 2}
	var listed, elsewhere, may []keyserver.ID
	for more := true; more; {
		page, err := w.gate.WhoCan(ctx, w.auditor, c)
		switch {
		case fault.CodeOf(err) == fault.InvalidArgument: // the key belongs to another key server
			return
		case fault.CodeOf(err) == fault.KeyNotFound: // no such key
		case err != nil:
			w.fail("who can %s: %v", c.Operation.Key, err)
		}
		for _, who := range page.Principals {
			listed = append(listed, who.Principal.ID)
		}
		for _, who := range page.Foreign {
			elsewhere = append(elsewhere, who.Principal.ID)
		}
		c.After, more = page.Next, !page.Next.IsZero()
	}
	for _, p := range w.allPrincipals() {
		is, err := w.gate.Explain(ctx, w.auditor, keyserver.Question{Operation: q.Operation, Link: q.Link, Principal: &p.ID})
		if err != nil {
			w.fail("explain %s: %v", q.Operation.Key, err)
		}
		if is.Allowed {
			may = append(may, p.ID)
		}
	}
	slices.SortFunc(may, func(a, b keyserver.ID) int { return slices.Compare(a[:], b[:]) })
	w.note("who can %s of %s", q.Operation.Key, w.name(q.Link))
	if !slices.Equal(listed, may) {
		w.fail("%v are listed, and %v may", w.names(listed), w.names(may))
	}
	if c.Link != "" && c.Operation.Forwarded() && w.do(w.stranger(), q.Operation, q.Link) == nil && !slices.Contains(elsewhere, w.foreigner.ID) {
		w.fail("the principal of a peer may, and is not listed elsewhere: %v", elsewhere)
	}
}

// TestEveryRuleIsExplained tests each rule of an approval policy. If the rule guards the request, gate and explanation
// refuse it. If the rule guards only some requests of the operation, the passed step names the rule.
func TestEveryRuleIsExplained(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		machine := withAllOperations(t, f)
		link := enginetest.Must(f.MintKey(ctx, machine, keyserver.NewKey{Algorithm: keyserver.HMACSHA384}))(t).Link
		explained := func(q keyserver.Question) (keyserver.Explanation, string) {
			t.Helper()
			is := enginetest.Must(f.Explain(ctx, machine, q))(t)
			i := slices.IndexFunc(is.Steps, func(s keyserver.ExplainedStep) bool { return s.Step == keyserver.StepApproval })
			if i < 0 {
				t.Fatalf("%s was not asked for an approval: %v", q.Operation.Key, is.Refusal)
			}
			return is, is.Steps[i].Detail
		}
		conditional := map[string][]keyserver.Operation{ // by the name of the rule
			approval.DestroyKey: {keyserver.OpChangeKeyState},
			approval.GiveDuties: {
				keyserver.OpCreateRole, keyserver.OpUpdateRole, keyserver.OpCreatePrincipal, keyserver.OpUpdatePrincipalRoles,
				keyserver.OpChangeGroupMembers, keyserver.OpEnrollCertificate, keyserver.OpSetPassword, keyserver.OpDeletePrincipal,
			},
		}
		for _, rule := range approval.RuleNames() {
			setPolicy(t, f, fmt.Sprintf(`[{"operation":%q,"approvers":1,"duty":"trust"}]`, rule))
			op, asked := keyserver.OperationNamed(rule)
			if !asked && conditional[rule] == nil {
				t.Errorf("no explanation knows the rule %s", rule)
			}
			for _, passes := range conditional[rule] {
				is, detail := explained(keyserver.Question{Operation: passes})
				if !is.Allowed || !strings.Contains(detail, "rule "+rule) {
					t.Errorf("%s under the rule %s: %v, %q", passes.Key, rule, is.Refusal, detail)
				}
				if _, detail = explained(keyserver.Question{Operation: passes, With: []keyserver.Supposition{{Kind: keyserver.SupposeApproval}}}); detail != "" {
					t.Errorf("%s with the approval: %q", passes.Key, detail)
				}
			}
			if !asked {
				continue
			}
			links := []keyserver.HiddenLink{""}
			if op.AboutKey() {
				links = append(links, link)
			}
			for _, link := range links {
				is, detail := explained(keyserver.Question{Operation: op, Link: link})
				if fault.CodeOf(is.Refusal) != fault.ApprovalRequired || !strings.Contains(detail, "rule "+rule) {
					t.Errorf("%s of %q under its rule: %v, %q", rule, link, is.Refusal, detail)
				}
			}
		}
	})
}

// TestDestroyKeyIsExplained compares the explanation of destroying a key with the gate. The gate checks the approval of
// the effect after the approval of the operation.
func TestDestroyKeyIsExplained(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		owner := f.Add(t, keyserver.CertificatePrincipal, "owner", []keyserver.ID{keyserver.RoleEncryptor}, nil)
		link := enginetest.Must(f.MintKey(ctx, owner, keyserver.NewKey{Algorithm: keyserver.HMACSHA384}))(t).Link
		auditor := f.Add(t, keyserver.PasswordPrincipal, "auditor", []keyserver.ID{keyserver.RoleAuditor}, nil)
		op, _ := keyserver.OperationNamed(approval.DestroyKey)
		for _, policy := range []string{
			`[{"operation":"changeKeyState","approvers":2,"duty":"trust"},{"operation":"destroyKey","approvers":1,"duty":"any"}]`,
			`[{"operation":"destroyKey","approvers":1,"duty":"any"}]`,
			`[{"operation":"exportKey","approvers":1,"duty":"any"}]`,
		} {
			setPolicy(t, f, policy)
			is := enginetest.Must(f.Explain(ctx, auditor, keyserver.Question{Operation: op, Link: link, Principal: &owner.Principal.ID}))(t)
			err := f.ChangeKeyState(ctx, owner, keyserver.KeyStateChange{Link: link, Action: keyserver.DestroyKey, Days: 7})
			if fmt.Sprint(is.Refusal) != fmt.Sprint(err) {
				t.Errorf("under %s it is explained as %v, and the gate says %v", policy, is.Refusal, err)
			}
			if !is.Allowed && (len(is.Change) != 1 || is.Change[0].Kind != keyserver.SupposeApproval) {
				t.Errorf("under %s it would be let by %v", policy, is.Change)
			}
		}
	})
}
