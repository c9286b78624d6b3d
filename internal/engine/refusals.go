package engine

import (
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/quota"
)

// Each refusal is a durable row of the audit trail, so whoever may do nothing could still fill the
// disk and keep it busy. A principal is refused so many operations at once, and then so many a
// second.
const (
	refusalsPerSecond = 200
	refusalsAtOnce    = 2000 // two batches
)

// Refusals counts what principals were refused, and what they may ask without any right.
type Refusals = quota.Meter[refusedParty]

// refusedParty is whom a refusal counts for. Credentials that a principal has made for others count
// apart, so that whoever holds one cannot put the principal itself off.
type refusedParty struct {
	principal keyserver.PrincipalRef
	scoped    bool
}

func partyOf(by keyserver.Caller) refusedParty { return refusedParty{by.Acting(), len(by.Scope) > 0} }

// NewRefusals returns a meter with the bounds of a key server.
func NewRefusals(clock func() time.Time) *Refusals {
	return quota.NewMeter[refusedParty](refusalsPerSecond, refusalsAtOnce, clock)
}

// Restrained puts off a caller whose principal was refused too much. That is no decision, and has
// no row.
func (e *Engine) Restrained(by keyserver.Caller) error { return e.restrained(by, 1) }

// restrained is Restrained for a caller that asks for n operations.
func (e *Engine) restrained(by keyserver.Caller, n int) error {
	wait := e.Refusals.Wait(partyOf(by), n)
	if wait == 0 || e.view != nil {
		return nil
	}
	return fault.Temporary(fault.Overloaded, fault.ScopeSession, wait,
		"the principal was refused more than %d operations and then %d a second; ask only for what it may do, and try again", refusalsAtOnce, refusalsPerSecond)
}
