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
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// walk is the API beside a model of it that shares no code with it.
type walk struct {
	*world
	people    []*person
	targets   []keyserver.Caller
	asked     []*asked
	approvers int // that rule giveDuties asks for
}

type person struct {
	name     string
	caller   keyserver.Caller
	role     keyserver.ID // zero: none at the moment
	disabled bool
}

// hasDuty: Administrator, Security Officer and Auditor have one, Encryptor none.
func (p *person) hasDuty() bool {
	return !p.disabled && slices.Contains([]keyserver.ID{keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer, keyserver.RoleAuditor}, p.role)
}

// holds: who may set roles at all.
func (p *person) setsRoles() bool {
	return !p.disabled && (p.role == keyserver.RoleAdministrator || p.role == keyserver.RoleSecurityOfficer)
}

// gives: Administrator gives administration and the use of keys, Security Officer
// trust.
func (p *person) gives(role keyserver.ID) bool {
	switch role {
	case keyserver.RoleAdministrator, keyserver.RoleEncryptor:
		return p.role == keyserver.RoleAdministrator
	default:
		return p.role == keyserver.RoleSecurityOfficer
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

// Whatever happens in whatever order: nobody approves his own, nothing runs twice
// or without those who have to approve at that moment, and what runs is what was
// approved.
func TestWalk(t *testing.T) {
	f := enginetest.New(t, sqlstore.Config{Dir: t.TempDir()})
	shared, round := newWorld(t, f), 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		ctx := context.Background()
		fatal(t, f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.DeleteApprovals(ctx, f.Clock.Now().Add(1000*time.Hour), 1000) }))
		w := &walk{world: shared}
		for i, role := range []keyserver.ID{
			keyserver.RoleAdministrator, keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer, keyserver.RoleSecurityOfficer,
			keyserver.RoleAuditor, keyserver.RoleEncryptor,
		} {
			name := fmt.Sprintf("%d in round %d", i, round)
			w.people = append(w.people, &person{name: name, caller: w.add(t, name, role), role: role})
		}
		for i := range 2 {
			w.targets = append(w.targets, w.add(t, fmt.Sprintf("target %d in round %d", i, round)))
		}
		w.policy(r, 1)
		r.Repeat(map[string]func(*rapid.T){
			"":        w.check,
			"ask":     w.asks,
			"approve": func(r *rapid.T) { w.decides(r, "approve") },
			"reject":  func(r *rapid.T) { w.decides(r, "reject") },
			"execute": w.executes,
			"expire":  func(r *rapid.T) { w.Clock.Advance(time.Duration(rapid.IntRange(1, 13).Draw(r, "hours")) * time.Hour) },
			"roles":   w.changes,
			"policy":  func(r *rapid.T) { w.policy(r, rapid.IntRange(1, 3).Draw(r, "approvers")) },
		})
	})
}

func (w *walk) person(r *rapid.T) *person { return rapid.SampledFrom(w.people).Draw(r, "who") }

func (w *walk) approval(r *rapid.T) *asked {
	if len(w.asked) == 0 {
		r.Skip("nothing is asked for")
	}
	return rapid.SampledFrom(w.asked).Draw(r, "approval")
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

func (w *walk) asks(r *rapid.T) {
	p := w.person(r)
	a := &asked{
		by: p, target: rapid.IntRange(0, len(w.targets)-1).Draw(r, "target"), until: w.Clock.Now().Add(24 * time.Hour),
		role: rapid.SampledFrom([]keyserver.ID{keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer, keyserver.RoleEncryptor}).Draw(r, "role"),
	}
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(r, "space")
	got := w.ask(r, p.name, "POST", "/api/approvals", strings.ReplaceAll(fmt.Sprintf(`{~"reason":"why",~"body":~{~"roleIds"~:[~"%s"]},"path":"/api/principals/%s/roles","method"~:"PUT"}`,
		a.role.Hex(), w.targets[a.target].Principal.ID.Hex()), "~", space))
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
		w.asked = append(w.asked, a)
	}
}

func (w *walk) decides(r *rapid.T, what string) {
	a, p := w.approval(r), w.person(r)
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
	case state != "pending" && state != "approved", slices.Contains(a.approved, p):
		is(r, got, http.StatusConflict, "APPROVAL_STATE")
	case what == "approve":
		is(r, got, http.StatusOK, "")
		a.approved = append(a.approved, p)
	default:
		is(r, got, http.StatusOK, "")
		a.decision = "rejected"
	}
}

func (w *walk) executes(r *rapid.T) {
	a, p := w.approval(r), w.person(r)
	if rapid.Bool().Draw(r, "asker") {
		p = a.by
	}
	state := a.state(w)
	before := make([]string, len(w.targets))
	for i, to := range w.targets {
		before[i] = w.rolesOf(r, to)
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
	case !p.setsRoles():
		is(r, got, http.StatusForbidden, "ACCESS_DENIED")
		a.decision = "executed"
	default:
		a.decision, ran = "executed", got.status == http.StatusOK
		if code := got.text("code"); !ran && code != "ESCALATION" && code != "DUTIES_CONFLICT" {
			r.Fatalf("it came to nothing by %s", got.raw)
		}
		if !ran && p.gives(a.role) && before[a.target] == "[]" {
			r.Fatalf("what he may give was refused: %s", got.raw)
		}
	}
	if ran {
		a.ran++
	}
	for i, to := range w.targets {
		want := before[i]
		if ran && i == a.target {
			want = fmt.Sprint([]keyserver.ID{a.role})
		}
		if now := w.rolesOf(r, to); now != want {
			r.Fatalf("%s of %s: target %d has %s, want %s", got.raw, a.id, i, now, want)
		}
	}
}

// check holds what the API says of each approval against the model.
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
	}
}
