// Package lifecycle has the rules for the life cycle of keys: the allowed state changes, and the actions that a
// rotation schedule requires for a key lineage, with their times. The rules are pure functions: the key server reads
// and stores the keys. The package also has Loop, which performs the due actions periodically.
package lifecycle

import (
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of numbers of days (contract 7.13, 7.17).
const (
	MaxDestroyDays  = 365
	MaxRotationDays = 3650
)

const day = 24 * time.Hour

// transitions has for each action the states in which it is allowed, and the resulting state.
var transitions = map[keyserver.KeyAction]struct {
	from []keyserver.KeyState
	to   keyserver.KeyState
}{
	keyserver.DisableKey: {[]keyserver.KeyState{keyserver.KeyEnabled, keyserver.KeyVerifyOnly, keyserver.KeyDisabled}, keyserver.KeyDisabled},
	keyserver.EnableKey:  {[]keyserver.KeyState{keyserver.KeyEnabled, keyserver.KeyVerifyOnly, keyserver.KeyDisabled}, keyserver.KeyEnabled},
	keyserver.DestroyKey: {[]keyserver.KeyState{keyserver.KeyEnabled, keyserver.KeyVerifyOnly, keyserver.KeyDisabled}, keyserver.KeyDestroying},
	keyserver.RestoreKey: {[]keyserver.KeyState{keyserver.KeyDestroying, keyserver.KeyDisabled}, keyserver.KeyDisabled},
}

// Target returns the state that a change leads to. It returns KEY_STATE if the state of the key does not allow the
// change. A change to the current state is allowed. But a key that is being destroyed can be destroyed again only with
// the same number of days.
func Target(change keyserver.KeyStateChange, life keyserver.KeyLife) (keyserver.KeyState, error) {
	act, from := change.Action, life.State
	if act == keyserver.DestroyKey && from == keyserver.KeyDestroying && life.DestroyAt.Equal(life.StateAt.Add(days(change.Days))) {
		return from, nil
	}
	rule := transitions[act]
	for _, state := range rule.from {
		if state == from {
			return rule.to, nil
		}
	}
	switch {
	case from == keyserver.KeyDestroyed:
		return "", misfit("the key is destroyed, and its bytes cannot be restored; mint another one")
	case act == keyserver.RestoreKey:
		return "", misfit("the key is %s, but must be waiting for its destruction to be restored", from)
	case act == keyserver.DestroyKey:
		return "", misfit("the key is already being destroyed, after a different number of days; restore it first to change the number")
	default:
		return "", misfit("the key is being destroyed; restore it first")
	}
}

func misfit(format string, args ...any) error {
	return fault.New(fault.KeyState, format, args...).Audited(fault.ReasonKeyState)
}

// Change returns the life cycle of a key after an action at the time now.
func Change(life keyserver.KeyLife, change keyserver.KeyStateChange, now time.Time) (keyserver.KeyLife, error) {
	to, err := Target(change, life)
	switch {
	case err != nil, to == life.State:
		return life, err
	case change.Action == keyserver.RestoreKey && !now.Before(life.DestroyAt):
		return life, misfit("the destruction time of the key has passed, so it cannot be restored; mint another one")
	}
	life.State, life.StateAt, life.DestroyAt = to, now, time.Time{}
	if to == keyserver.KeyDestroying {
		life.DestroyAt = now.Add(days(change.Days))
	}
	return life, nil
}

// End returns the life cycle of a key after the deletion of its bytes. It returns false if the deletion is not due at
// now.
func End(life keyserver.KeyLife, now time.Time) (keyserver.KeyLife, bool) {
	if life.State != keyserver.KeyDestroying || life.DestroyAt.IsZero() || now.Before(life.DestroyAt) {
		return life, false
	}
	life.State, life.StateAt, life.DestroyAt = keyserver.KeyDestroyed, now, time.Time{}
	return life, true
}

// Rotate returns the new life cycle of the newest key of a lineage (former) and that of its successor (next). If the
// lineage has a rotation schedule and the newest key is enabled, that key becomes verifyOnly; otherwise it keeps its
// state. Rotate returns KEY_STATE if the newest key is destroyed or is being destroyed.
func Rotate(newest keyserver.KeyLife, rotation keyserver.KeyRotation, now time.Time) (former, next keyserver.KeyLife, err error) {
	switch newest.State {
	case keyserver.KeyDestroying, keyserver.KeyDestroyed:
		return newest, next, misfit("the newest key of the lineage is %s, so the lineage cannot be rotated; mint another key", newest.State)
	case keyserver.KeyEnabled, keyserver.KeyVerifyOnly, keyserver.KeyDisabled:
	}
	next = keyserver.KeyLife{State: keyserver.KeyEnabled, Lineage: newest.Lineage, Generation: newest.Generation + 1, Exportable: newest.Exportable}
	former = newest
	if !rotation.IsZero() && former.State == keyserver.KeyEnabled {
		former.State, former.StateAt = keyserver.KeyVerifyOnly, now
	}
	return former, next, nil
}

// Generation is a key of a key lineage.
type Generation struct {
	ID        keyserver.ID
	CreatedAt time.Time
	Life      keyserver.KeyLife
}

// Due lists the actions that a rotation schedule requires now.
type Due struct {
	// Retire has the older keys whose time for verification is over, with their new life cycles.
	Retire []Generation
	Rotate bool
	// Next is the time of the next action after these; zero if none can be predicted. If Rotate is true, call Plan
	// again after the rotation.
	Next time.Time
}

// Plan returns the due actions for a lineage, whose keys are sorted from oldest to newest. A newest key that the owner
// disabled gets no successor, because this would make the lineage usable again.
func Plan(rotation keyserver.KeyRotation, line []Generation, now time.Time) Due {
	due := Due{}
	later := func(at time.Time) bool {
		if !now.Before(at) {
			return false
		}
		if due.Next.IsZero() || at.Before(due.Next) {
			due.Next = at
		}
		return true
	}
	for i, key := range line {
		if newest := i == len(line)-1; newest {
			if rotation.Every > 0 && key.Life.State == keyserver.KeyEnabled {
				due.Rotate = !later(key.CreatedAt.Add(days(rotation.Every)))
			}
			continue
		}
		if key.Life.State != keyserver.KeyVerifyOnly || rotation.VerifyOnly == 0 || rotation.DestroyAfter == 0 ||
			later(key.Life.StateAt.Add(days(rotation.VerifyOnly))) {
			continue
		}
		key.Life.State, key.Life.StateAt, key.Life.DestroyAt = keyserver.KeyDestroying, now, now.Add(days(rotation.DestroyAfter))
		due.Retire = append(due.Retire, key)
	}
	return due
}

func days(n int) time.Duration { return time.Duration(n) * day }
