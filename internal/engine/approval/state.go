package approval

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of approvals.
const (
	Lifetime           = 24 * time.Hour
	MaxBody            = 64 << 10 // bytes of the canonical form
	MaxPending         = 1000
	Reserved           = 200 // part of MaxPending for askers that have a duty
	MaxPendingPerAsker = 20
	// Retention is how long a decided or expired approval is kept.
	Retention = 30 * 24 * time.Hour
	// WithdrawnRetention is the number of an asker's withdrawn approvals that are kept during Retention.
	WithdrawnRetention = 20
)

// Digest returns the SHA-256 digest of method, path and body in canonical JSON (RFC 8785). body must be canonical. A
// missing body becomes null.
func Digest(method, path string, body []byte) ([32]byte, error) {
	if body == nil {
		body = []byte("null")
	}
	text, err := json.Marshal(struct {
		Method string         `json:"method"`
		Path   string         `json:"path"`
		Body   jsontext.Value `json:"body"`
	}{method, path, body})
	if err != nil {
		return [32]byte{}, err
	}
	form, err := canonical.JSON(text)
	return sha256.Sum256(form), err
}

// ApproverOperations maps each approver to the operations that its roles grant now, or to nil if the
// approver is disabled or deleted.
type ApproverOperations map[keyserver.PrincipalRef][]keyserver.ID

// Tally is the number of approvals under one rule.
type Tally struct {
	Rule
	Approved int // approvers that count under the rule now
}

// Tallied counts the approvers for each rule. An approver counts if it is not the asker and has the duty now.
func Tallied(a keyserver.Approval, rules []Rule, now ApproverOperations) []Tally {
	tallies := make([]Tally, len(rules))
	for i, r := range rules {
		tallies[i].Rule = r
		for _, v := range a.Votes {
			if v.Principal != a.Asker && keyserver.HoldsDuty(now[v.Principal], r.Duty) {
				tallies[i].Approved++
			}
		}
	}
	return tallies
}

func satisfied(tallies []Tally) bool {
	return !slices.ContainsFunc(tallies, func(t Tally) bool { return t.Approved < t.Approvers })
}

// State returns the state of an approval.
func State(a keyserver.Approval, tallies []Tally, now time.Time) keyserver.ApprovalState {
	switch {
	case a.Decision != "":
		return a.Decision
	case !now.Before(a.ExpiresAt):
		return keyserver.ApprovalExpired
	case satisfied(tallies):
		return keyserver.ApprovalApproved
	default:
		return keyserver.ApprovalPending
	}
}

// mayDecide returns an error if the caller may not approve or reject. holds are the operations of the caller.
func mayDecide(a keyserver.Approval, rules []Rule, by keyserver.Caller, holds []keyserver.ID, digest [32]byte, now time.Time) error {
	has := slices.ContainsFunc(rules, func(r Rule) bool { return keyserver.HoldsDuty(holds, r.Duty) })
	switch state := State(a, nil, now); {
	case by.Principal == a.Asker:
		return fault.New(fault.OwnAccount, "the caller cannot approve or reject its own request; another principal must do it").Audited(fault.ReasonNotApprovable)
	case !by.Bound:
		return fault.New(fault.SessionNotBound, "approving and rejecting require a bound session; log in with a DPoP proof or a client certificate").
			Audited(fault.ReasonNotBound)
	case len(rules) == 0:
		return invalidState("no rule guards the request any more, so it needs no approval")
	case !has:
		return fault.New(fault.AccessDenied, "%s cannot approve or reject this request without one of these duties: %s", by.Name, duties(rules)).Audited(fault.ReasonRoleDenied)
	case digest != a.Digest:
		return fault.New(fault.DigestMismatch, "digest does not match the request %s; read the approval and its objects again", a.ID.Hex()).
			Audited(fault.ReasonNotApprovable)
	case state != keyserver.ApprovalApproved: // without tallies, open is ApprovalApproved
		return invalidState("the request is " + string(state))
	default:
		return nil
	}
}

func approved(a keyserver.Approval, by keyserver.Caller) bool {
	return slices.ContainsFunc(a.Votes, func(v keyserver.ApprovalVote) bool { return v.Principal == by.Principal })
}

// mayWithdraw returns an error unless the caller is the asker of the request, or an
// approver that withdraws its own approval.
func mayWithdraw(a keyserver.Approval, by keyserver.Caller, now time.Time) error {
	switch {
	case by.Principal == a.Asker:
	case !approved(a, by):
		return fault.New(fault.AccessDenied, "the caller is neither asker nor approver of the request, so it cannot withdraw anything; reject the request instead").
			Audited(fault.ReasonNotApprovable)
	case !by.Bound:
		return fault.New(fault.SessionNotBound, "withdrawing an approval requires a bound session; log in with a DPoP proof or a client certificate").
			Audited(fault.ReasonNotBound)
	}
	if state := State(a, nil, now); state != keyserver.ApprovalApproved { // without tallies, open is ApprovalApproved
		return invalidState("the request is " + string(state))
	}
	return nil
}

func duties(rules []Rule) string {
	var names []string
	for _, r := range rules {
		if !slices.Contains(names, string(r.Duty)) {
			names = append(names, string(r.Duty))
		}
	}
	return strings.Join(names, ", ")
}

// mayExecute returns an error if the caller may not execute the request. runs is the digest of the request that the
// caller sends.
func mayExecute(a keyserver.Approval, tallies []Tally, by keyserver.Caller, runs [32]byte, now time.Time) error {
	if by.Principal != a.Asker {
		return fault.New(fault.AccessDenied, "only the asker can execute the request; ask that principal").Audited(fault.ReasonNotApprovable)
	}
	if state := State(a, tallies, now); state == keyserver.ApprovalPending {
		i := slices.IndexFunc(tallies, func(t Tally) bool { return t.Approved < t.Approvers })
		return invalidState(fmt.Sprintf("rule %s requires the approval of %s; %d valid approvals so far",
			tallies[i].Operation, who(tallies[i].Rule), tallies[i].Approved))
	} else if state != keyserver.ApprovalApproved {
		return invalidState("the request is " + string(state))
	}
	if runs != a.Digest {
		return errors.New("the request to execute differs from the approved request")
	}
	return nil
}

func invalidState(why string) error {
	return fault.New(fault.ApprovalState, "%s", why).Audited(fault.ReasonNotApprovable)
}
