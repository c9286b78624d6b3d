package approval_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// walk is the API and a model of the API. The model shares no code with the API.
type walk struct {
	*world
	people    []*person
	targets   []*target
	members   []*account // principals that can be in the group
	role      keyserver.ID
	wide      bool // the role grants an additional operation
	asked     []*asked
	approvers int // required by the rule GiveDuties
	reached   map[string]int
}

type person struct {
	account
	name     string
	role     keyserver.ID // zero if the person has no role now
	disabled bool
}

// account has the credentials with which a client can log in as a principal.
type account struct {
	caller      keyserver.Caller
	password    string
	certificate bool
}

func (a *account) String() string { return fmt.Sprint(a.caller.Name, a.password, a.certificate) }

// target is the principal that gets the requested role: a user, a group, or a principal that does not exist yet.
type target struct {
	account
	exists, group bool
	roles         []keyserver.ID
	in            []*account // members, if the target is the group
}

// mark returns the state of the objects in a request, according to the model.
func (w *walk) mark(a *asked) string {
	t := w.targets[a.target]
	in := slices.Clone(t.in)
	slices.SortFunc(in, func(a, b *account) int { return strings.Compare(a.caller.Name, b.caller.Name) })
	return fmt.Sprint(a.by.String(), t.String(), t.exists, t.roles, in, (a.role == w.role || slices.Contains(t.roles, w.role)) && w.wide)
}

// hasDuty reports whether the person has a duty. The roles Administrator, Security Officer and Auditor give one,
// Encryptor does not.
func (p *person) hasDuty() bool {
	return !p.disabled && slices.Contains([]keyserver.ID{keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer, keyserver.RoleAuditor}, p.role)
}

// setsRoles reports whether the person may set roles.
func (p *person) setsRoles() bool {
	return !p.disabled && (p.role == keyserver.RoleAdministrator || p.role == keyserver.RoleSecurityOfficer)
}

// gives reports whether the person may give a role. Only a Security Officer gives Security Officer. An Administrator
// gives all other roles.
func (p *person) gives(role keyserver.ID) bool {
	switch role {
	case keyserver.RoleSecurityOfficer:
		return p.role == keyserver.RoleSecurityOfficer
	default:
		return p.role == keyserver.RoleAdministrator
	}
}

type asked struct {
	id, digest string
	by         *person
	target     int
	role       keyserver.ID
	until      time.Time
	approved   []*person
	decision   string
	ran        int
	mark       string // at the time of the request
}

func (a *asked) state(w *walk) string {
	counts := 0
	for _, p := range a.approved {
		if p.hasDuty() {
			counts++
		}
	}
	switch {
	case a.decision != "":
		return a.decision
	case !w.Clock.Now().Before(a.until):
		return "expired"
	case counts >= w.approvers:
		return "approved"
	default:
		return "pending"
	}
}

// TestWalk checks random sequences of steps. No asker approves its own request, and no request runs twice. A request
// runs only as it was approved, and only if the required approvers have the duty at that time.
func TestWalk(t *testing.T) {
	f := enginetest.New(t, sqlstore.Config{Dir: migrated.Dir(t)})
	shared, round := newWorld(t, f), 0
	reached := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		round++
		ctx := context.Background()
		fatal(t, f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.DeleteApprovals(ctx, f.Clock.Now().Add(1000*time.Hour), 1000) }))
		w := &walk{world: shared, reached: reached}
		for i, role := range []keyserver.ID{
			keyserver.RoleAdministrator, keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer, keyserver.RoleSecurityOfficer,
			keyserver.RoleAuditor, keyserver.RoleEncryptor,
		} {
			name := fmt.Sprintf("%d in round %d", i, round)
			w.people = append(w.people, &person{name: name, account: account{caller: w.add(t, name, role)}, role: role})
		}
		for i := range 2 {
			w.targets = append(w.targets, &target{account: account{caller: w.add(t, fmt.Sprintf("target %d in round %d", i, round))}, exists: true})
			w.members = append(w.members, &account{caller: w.add(t, fmt.Sprintf("member %d in round %d", i, round))})
		}
		group := w.Add(t, keyserver.GroupPrincipal, fmt.Sprintf("group in round %d", round), nil, nil)
		nobody := w.callerOf(t, fmt.Sprintf("nobody in round %d", round))
		w.targets = append(w.targets, &target{account: account{caller: group}, exists: true, group: true}, &target{account: account{caller: nobody}})
		w.role = w.addRole(t, fmt.Sprintf("round %d", round))
		w.policy(r, 1)
		r.Repeat(map[string]func(*rapid.T){
			"":         w.check,
			"ask":      w.asks,
			"approve":  func(r *rapid.T) { w.decides(r, "approve") },
			"reject":   func(r *rapid.T) { w.decides(r, "reject") },
			"withdraw": w.withdraws,
			"again":    w.thinksAgain,
			"execute":  w.executes,
			"expire":   func(r *rapid.T) { w.Clock.Advance(time.Duration(rapid.IntRange(1, 13).Draw(r, "hours")) * time.Hour) },
			"roles":    w.changes,
			"becomes":  w.becomes,
			"policy":   func(r *rapid.T) { w.policy(r, rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(r, "approvers")) },
			// Several entries make these steps more frequent. Otherwise few sequences would reach an execution.
			"approved": func(r *rapid.T) { w.decides(r, "approve") },
			"executed": w.executes,
			"between": func(r *rapid.T) {
				w.becomes(r)
				w.executes(r)
			},
		})
	})
	t.Log(reached)
	if testing.Short() { // rapid runs only a fifth of the sequences then
		return
	}
	for _, what := range []string{"approve", "execute", "withdraw", "withdraw an approval", "approve what changed", "execute what changed"} {
		if reached[what] == 0 {
			t.Errorf("no walk came to %s", what)
		}
	}
}

func (w *walk) person(r *rapid.T) *person { return rapid.SampledFrom(w.people).Draw(r, "who") }

func (w *walk) approval(r *rapid.T) *asked {
	if len(w.asked) == 0 {
		r.Skip("nothing is asked for")
	}
	list := slices.DeleteFunc(slices.Clone(w.asked), func(a *asked) bool { return a.state(w) != "approved" })
	if len(list) == 0 || rapid.Bool().Draw(r, "any") {
		list = w.asked
	}
	return rapid.SampledFrom(list).Draw(r, "approval")
}

func (w *walk) policy(r *rapid.T, approvers int) {
	ctx := context.Background()
	w.approvers = approvers
	fatal(r, w.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		return tx.SetApprovalPolicy(ctx, fmt.Appendf(nil, `[{"operation":"giveDuties","approvers":%d,"duty":"any"}]`, approvers))
	}))
}

func (w *walk) changes(r *rapid.T) {
	p := w.person(r)
	if rapid.Bool().Draw(r, "flag") {
		p.disabled = !p.disabled
		w.enable(r, p.caller, !p.disabled)
		return
	}
	p.role = rapid.SampledFrom([]keyserver.ID{{}, keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer, keyserver.RoleAuditor, keyserver.RoleEncryptor}).Draw(r, "role")
	if p.role.IsZero() {
		w.setRoles(r, p.caller)
	} else {
		w.setRoles(r, p.caller, p.role)
	}
}

// becomes changes the objects of requests: credentials, members of the group, operations of the role, or whether the
// principal exists.
func (w *walk) becomes(r *rapid.T) {
	ctx := context.Background()
	var accounts []*account
	for _, p := range w.people {
		accounts = append(accounts, &p.account)
	}
	for _, t := range w.targets[:2] {
		accounts = append(accounts, &t.account)
	}
	a := rapid.SampledFrom(append(accounts, w.members...)).Draw(r, "account")
	if len(w.asked) > 0 && rapid.Bool().Draw(r, "named") {
		named := w.approval(r)
		a = &named.by.account
		if t := w.targets[named.target]; !t.group && t.exists {
			a = rapid.SampledFrom([]*account{a, &t.account}).Draw(r, "which")
		}
	}
	id := a.caller.Principal.ID
	group, nobody := w.targets[2], w.targets[3]
	fatal(r, w.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		switch what := rapid.SampledFrom([]string{"password", "certificate", "group", "role", "appears"}).Draw(r, "what"); {
		case what == "password":
			a.password = rapid.SampledFrom([]string{"one", "two"}).Draw(r, "password")
			return tx.SetPassword(ctx, id, a.password)
		case what == "certificate" && a.certificate:
			a.certificate = false
			_, err := tx.DeleteCertificatesOf(ctx, id)
			return err
		case what == "certificate":
			a.certificate = true
			return tx.InsertCertificate(ctx, keyserver.Certificate{ID: id, Principal: id, Subject: id.Hex(), DER: id[:], Status: keyserver.StatusRegular})
		case what == "role":
			w.wide = !w.wide
			return tx.UpdateRole(ctx, keyserver.RoleChange{ID: w.role, Operations: roleOperations(w.wide)})
		case what == "group":
			m := rapid.SampledFrom(w.members).Draw(r, "member")
			if i := slices.Index(group.in, m); i >= 0 {
				group.in = slices.Delete(group.in, i, i+1)
				return tx.RemoveGroupMember(ctx, group.caller.Principal.ID, m.caller.Principal.ID)
			}
			group.in = append(group.in, m)
			return tx.AddGroupMember(ctx, group.caller.Principal.ID, m.caller.Principal.ID)
		case nobody.exists:
			return nil
		default:
			nobody.exists = true
			c := nobody.caller
			return tx.InsertPrincipal(ctx, keyserver.Principal{
				ID: c.Principal.ID, System: c.Principal.System, Type: c.Type, Name: c.Name, Flags: keyserver.FlagEnable,
			}, "")
		}
	}))
}

func roleOperations(wide bool) []keyserver.ID {
	if wide {
		return []keyserver.ID{keyserver.OpHMAC.ID, keyserver.OpReadKey.ID}
	}
	return []keyserver.ID{keyserver.OpHMAC.ID}
}

func (w *walk) asks(r *rapid.T) {
	p := w.person(r)
	a := &asked{
		by: p, target: rapid.IntRange(0, len(w.targets)-1).Draw(r, "target"), until: w.Clock.Now().Add(24 * time.Hour),
		role: rapid.SampledFrom([]keyserver.ID{keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer, w.role}).Draw(r, "role"),
	}
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(r, "space")
	got := w.ask(r, p.name, "POST", "/api/approvals", strings.ReplaceAll(fmt.Sprintf(`{~"reason":"why",~"body":~{~"roleIds"~:[~"%s"]},"path":"/api/principals/%s/roles","method"~:"PUT"}`,
		a.role.Hex(), w.targets[a.target].caller.Principal.ID.Hex()), "~", space))
	open := 0
	for _, other := range w.asked {
		if s := other.state(w); other.by == p && (s == "pending" || s == "approved") {
			open++
		}
	}
	switch {
	case p.disabled:
		is(r, got, http.StatusForbidden, "PRINCIPAL_DISABLED")
	case !p.setsRoles():
		is(r, got, http.StatusForbidden, "ACCESS_DENIED")
	case open >= 20:
		is(r, got, http.StatusConflict, "APPROVAL_LIMIT")
	default:
		is(r, got, http.StatusOK, "")
		a.id, a.digest = got.text("approvalId"), got.text("digest")
		a.mark = w.mark(a)
		w.asked = append(w.asked, a)
	}
}

func (w *walk) decides(r *rapid.T, what string) {
	a, p := w.approval(r), w.person(r)
	if others := slices.DeleteFunc(slices.Clone(w.people), func(o *person) bool { return o == a.by || !o.hasDuty() }); len(others) > 0 && rapid.Bool().Draw(r, "suits") {
		p = rapid.SampledFrom(others).Draw(r, "by")
	}
	who, digest := p.name, a.digest
	bound := rapid.IntRange(0, 5).Draw(r, "bound") > 0
	if !bound {
		who += " unbound"
	}
	if rapid.IntRange(0, 5).Draw(r, "digest") == 0 {
		digest = rapid.SampledFrom(w.asked).Draw(r, "digest of").digest
	}
	state := a.state(w)
	got := w.ask(r, who, "POST", at(a.id, what), object{"digest": digest})
	if strings.Contains(got.text("detail"), "has changed since approval was requested") {
		w.reached[what+" what changed"]++
	}
	switch {
	case p.disabled:
		is(r, got, http.StatusForbidden, "PRINCIPAL_DISABLED")
	case p == a.by:
		is(r, got, http.StatusForbidden, "OWN_ACCOUNT")
	case !bound:
		is(r, got, http.StatusForbidden, "SESSION_NOT_BOUND")
	case !p.hasDuty():
		is(r, got, http.StatusForbidden, "ACCESS_DENIED")
	case digest != a.digest:
		is(r, got, http.StatusConflict, "DIGEST_MISMATCH")
	case state != "pending" && state != "approved", what == "approve" && (slices.Contains(a.approved, p) || w.mark(a) != a.mark):
		is(r, got, http.StatusConflict, "APPROVAL_STATE")
	case what == "approve":
		is(r, got, http.StatusOK, "")
		w.reached[what]++
		a.approved = append(a.approved, p)
	default:
		is(r, got, http.StatusOK, "")
		a.decision = "rejected"
	}
}

func (w *walk) withdraws(r *rapid.T) {
	a, p := w.approval(r), w.person(r)
	if rapid.IntRange(0, 3).Draw(r, "takes it back") > 0 {
		return // in most cases, so that some approvals remain
	}
	if rapid.Bool().Draw(r, "asker") {
		p = a.by
	}
	w.withdrawn(r, a, p)
}

// thinksAgain withdraws the approval of an approver, if there is one.
func (w *walk) thinksAgain(r *rapid.T) {
	approved := slices.DeleteFunc(slices.Clone(w.asked), func(a *asked) bool { return len(a.approved) == 0 })
	if len(approved) > 0 {
		a := rapid.SampledFrom(approved).Draw(r, "approved")
		w.withdrawn(r, a, rapid.SampledFrom(a.approved).Draw(r, "of"))
	}
}

func (w *walk) withdrawn(r *rapid.T, a *asked, p *person) {
	who, bound := p.name, rapid.IntRange(0, 5).Draw(r, "bound") > 0
	if !bound {
		who += " unbound"
	}
	state := a.state(w)
	got := w.ask(r, who, "POST", at(a.id, "withdraw"), nil)
	vote := slices.Index(a.approved, p)
	switch {
	case p.disabled:
		is(r, got, http.StatusForbidden, "PRINCIPAL_DISABLED")
	case p != a.by && vote < 0:
		is(r, got, http.StatusForbidden, "ACCESS_DENIED")
	case p != a.by && !bound:
		is(r, got, http.StatusForbidden, "SESSION_NOT_BOUND")
	case state != "pending" && state != "approved":
		is(r, got, http.StatusConflict, "APPROVAL_STATE")
	case p != a.by:
		is(r, got, http.StatusOK, "")
		a.approved = slices.Delete(a.approved, vote, vote+1)
		w.reached["withdraw an approval"]++
	default:
		is(r, got, http.StatusOK, "")
		a.decision = "withdrawn"
		w.reached["withdraw"]++
	}
}

func (w *walk) executes(r *rapid.T) {
	a, p := w.approval(r), w.person(r)
	if rapid.IntRange(0, 5).Draw(r, "stranger") > 0 {
		p = a.by
	}
	state := a.state(w)
	before := make([]string, len(w.targets))
	for i, to := range w.targets {
		before[i] = w.rolesOf(r, to.caller)
	}
	got := w.ask(r, p.name, "POST", at(a.id, "execute"), nil)
	ran := false
	switch {
	case p.disabled:
		is(r, got, http.StatusForbidden, "PRINCIPAL_DISABLED")
	case p != a.by:
		is(r, got, http.StatusForbidden, "ACCESS_DENIED")
	case state != "approved":
		is(r, got, http.StatusConflict, "APPROVAL_STATE")
	case w.mark(a) != a.mark:
		is(r, got, http.StatusConflict, "APPROVAL_STATE")
		w.reached["execute what changed"]++
	case p.role == keyserver.RoleAuditor && !w.targets[a.target].exists: // an Auditor may read principals, so it learns that the target does not exist
		is(r, got, http.StatusNotFound, "NOT_FOUND")
		a.decision = "executed"
	case !p.setsRoles():
		is(r, got, http.StatusForbidden, "ACCESS_DENIED")
		a.decision = "executed"
	default:
		a.decision, ran = "executed", got.status == http.StatusOK
		to := w.targets[a.target]
		if code := got.text("code"); !ran && code != "ESCALATION" && code != "DUTIES_CONFLICT" && (code != "NOT_FOUND" || to.exists) {
			r.Fatalf("it came to nothing by %s", got.raw)
		}
		if !ran && p.gives(a.role) && before[a.target] == "[]" && to.exists {
			r.Fatalf("what he may give was refused: %s", got.raw)
		}
	}
	if ran {
		a.ran++
		w.reached["execute"]++
		w.targets[a.target].roles = []keyserver.ID{a.role}
	}
	for i, to := range w.targets {
		want := before[i]
		if ran && i == a.target {
			want = fmt.Sprint([]keyserver.ID{a.role})
		}
		if now := w.rolesOf(r, to.caller); now != want {
			r.Fatalf("%s of %s: target %d has %s, want %s", got.raw, a.id, i, now, want)
		}
	}
}

// check compares the state of each approval in the API with the model.
func (w *walk) check(r *rapid.T) {
	list, err := w.Store.Approvals(context.Background(), sqlstore.ApprovalFilter{Limit: 1000})
	fatal(r, err)
	if len(list) != len(w.asked) {
		r.Fatalf("%d are kept, want %d", len(list), len(w.asked))
	}
	for _, a := range w.asked {
		if a.by.disabled || a.ran > 1 {
			if a.ran > 1 {
				r.Fatalf("%s ran %d times", a.id, a.ran)
			}
			continue
		}
		v := w.ok(r, a.by.name, "GET", at(a.id), nil)
		body := object{"roleIds": []any{a.role.Hex()}}
		if v.text("state") != a.state(w) || v.text("digest") != a.digest || fmt.Sprint(v.body["body"]) != fmt.Sprint(body) || len(v.body["approvedBy"].([]any)) != len(a.approved) {
			r.Fatalf("%s is %s, want it %s with %d approvals", a.id, v.raw, a.state(w), len(a.approved))
		}
		changed := strings.Contains(v.raw, `"changed":true`)
		if !strings.Contains(v.raw, `"changed"`) { // only for a caller that may read approvals
			if state := a.state(w); a.by.hasDuty() && (state == "pending" || state == "approved") {
				r.Fatalf("%s is not told what changed: %s", a.by.name, v.raw)
			}
			continue
		}
		if state := a.state(w); changed != (w.mark(a) != a.mark) && (state == "pending" || state == "approved") {
			r.Fatalf("%s is about %s, which was %s: %s", a.id, w.mark(a), a.mark, v.raw)
		}
	}
}
