package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const day = 24 * time.Hour

var (
	start = time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	first = values.IDFromUint64(1)
)

// The resulting state of each action in each state; empty if the action is not allowed.
func TestActs(t *testing.T) {
	for state, want := range map[keyserver.KeyState][4]keyserver.KeyState{
		//                        disable                enable                destroy                  restore
		keyserver.KeyEnabled:    {keyserver.KeyDisabled, keyserver.KeyEnabled, keyserver.KeyDestroying, ""},
		keyserver.KeyVerifyOnly: {keyserver.KeyDisabled, keyserver.KeyEnabled, keyserver.KeyDestroying, ""},
		keyserver.KeyDisabled:   {keyserver.KeyDisabled, keyserver.KeyEnabled, keyserver.KeyDestroying, keyserver.KeyDisabled},
		keyserver.KeyDestroying: {"", "", "", keyserver.KeyDisabled},
		keyserver.KeyDestroyed:  {},
		"unknown":               {},
	} {
		for i, act := range []keyserver.KeyAction{keyserver.DisableKey, keyserver.EnableKey, keyserver.DestroyKey, keyserver.RestoreKey} {
			life := keyserver.KeyLife{State: state, StateAt: start, DestroyAt: start.Add(2 * day)}
			got, err := lifecycle.Change(life, keyserver.KeyStateChange{Action: act, Days: 7}, start.Add(day))
			switch {
			case want[i] == "":
				if fault.CodeOf(err) != fault.KeyState || got != life {
					t.Errorf("%s a %s key: %+v, %v", act, state, got, err)
				}
			case err != nil || got.State != want[i]:
				t.Errorf("%s a %s key: %+v, %v", act, state, got, err)
			case got.State == state && got != life:
				t.Errorf("%s a %s key is no change, and changes %+v", act, state, got)
			case got.State == keyserver.KeyDestroying && !got.DestroyAt.Equal(start.Add(8*day)):
				t.Errorf("%s: its bytes go at %s", act, got.DestroyAt)
			case got.State != state && got.State != keyserver.KeyDestroying && !got.DestroyAt.IsZero():
				t.Errorf("%s a %s key: its bytes go at %s", act, state, got.DestroyAt)
			}
		}
	}
	// A second destruction with the same number of days keeps the time of the first. With another number, it is
	// refused.
	destroying := keyserver.KeyLife{State: keyserver.KeyDestroying, StateAt: start, DestroyAt: start.Add(7 * day)}
	for days, fits := range map[int]bool{6: false, 7: true, 8: false} {
		got, err := lifecycle.Change(destroying, keyserver.KeyStateChange{Action: keyserver.DestroyKey, Days: days}, start.Add(day))
		if got != destroying || (err == nil) != fits || !fits && fault.CodeOf(err) != fault.KeyState {
			t.Errorf("destroyed again after %d days: %+v, %v", days, got, err)
		}
	}
	over := keyserver.KeyLife{State: keyserver.KeyDestroying, DestroyAt: start}
	if _, err := lifecycle.Change(over, keyserver.KeyStateChange{Action: keyserver.RestoreKey}, start); fault.CodeOf(err) != fault.KeyState {
		t.Errorf("restored when its time is over: %v", err)
	}
}

func TestEnd(t *testing.T) {
	life := keyserver.KeyLife{State: keyserver.KeyDestroying, DestroyAt: start}
	for name, tc := range map[string]struct {
		life keyserver.KeyLife
		now  time.Time
		want bool
	}{
		"Early":    {life, start.Add(-time.Microsecond), false},
		"Due":      {life, start, true},
		"Restored": {keyserver.KeyLife{State: keyserver.KeyDisabled, DestroyAt: start}, start, false},
		"Timeless": {keyserver.KeyLife{State: keyserver.KeyDestroying}, start, false},
	} {
		got, ends := lifecycle.End(tc.life, tc.now)
		if ends != tc.want || ends != (got.State == keyserver.KeyDestroyed) {
			t.Errorf("%s: %+v, %v", name, got, ends)
		}
	}
}

func TestSucceed(t *testing.T) {
	rotation := keyserver.KeyRotation{Every: 1}
	for state, want := range map[keyserver.KeyState][2]keyserver.KeyState{ // state of the older key without and with a schedule
		keyserver.KeyEnabled:    {keyserver.KeyEnabled, keyserver.KeyVerifyOnly},
		keyserver.KeyVerifyOnly: {keyserver.KeyVerifyOnly, keyserver.KeyVerifyOnly},
		keyserver.KeyDisabled:   {keyserver.KeyDisabled, keyserver.KeyDisabled},
		keyserver.KeyDestroying: {},
		keyserver.KeyDestroyed:  {},
	} {
		life := keyserver.KeyLife{State: state, Lineage: first, Generation: 3, Exportable: state == keyserver.KeyEnabled, StateAt: start}
		for i, r := range []keyserver.KeyRotation{{}, rotation} {
			former, next, err := lifecycle.Rotate(life, r, start.Add(day))
			if want[i] == "" {
				if fault.CodeOf(err) != fault.KeyState {
					t.Errorf("a %s key is succeeded: %v", state, err)
				}
				continue
			}
			if err != nil || former.State != want[i] || (former.State != state) != former.StateAt.Equal(start.Add(day)) {
				t.Errorf("the %s key becomes %+v, %v", state, former, err)
			}
			if diff := cmp.Diff(keyserver.KeyLife{State: keyserver.KeyEnabled, Lineage: first, Generation: 4, Exportable: life.Exportable}, next); diff != "" {
				t.Errorf("the successor of a %s key (-want +got):\n%s", state, diff)
			}
		}
	}
}

func TestPlan(t *testing.T) {
	key := func(n uint64, age time.Duration, state keyserver.KeyState, in time.Duration) lifecycle.Generation {
		return lifecycle.Generation{ID: values.IDFromUint64(n), CreatedAt: start.Add(-age), Life: keyserver.KeyLife{State: state, StateAt: start.Add(-in)}}
	}
	always := keyserver.KeyRotation{Every: 90, VerifyOnly: 30, DestroyAfter: 7}
	for name, tc := range map[string]struct {
		rotation keyserver.KeyRotation
		line     []lifecycle.Generation
		rotate   bool
		retire   []uint64
		next     time.Duration // from now, 0 for never
	}{
		"None":       {rotation: always},
		"Young":      {rotation: always, line: []lifecycle.Generation{key(1, 89*day, keyserver.KeyEnabled, 0)}, next: day},
		"Old":        {rotation: always, line: []lifecycle.Generation{key(1, 90*day, keyserver.KeyEnabled, 0)}, rotate: true},
		"Withdrawn":  {rotation: always, line: []lifecycle.Generation{key(1, 200*day, keyserver.KeyDisabled, 0)}},
		"Going":      {rotation: always, line: []lifecycle.Generation{key(1, 200*day, keyserver.KeyDestroying, 0)}},
		"NeverEvery": {rotation: keyserver.KeyRotation{VerifyOnly: 1, DestroyAfter: 1}, line: []lifecycle.Generation{key(1, 900*day, keyserver.KeyEnabled, 0)}},
		"Former": {
			rotation: always, next: 20 * day,
			line: []lifecycle.Generation{key(1, 100*day, keyserver.KeyVerifyOnly, 10*day), key(2, 10*day, keyserver.KeyEnabled, 0)},
		},
		"Over": {
			rotation: always, next: 80 * day, retire: []uint64{1},
			line: []lifecycle.Generation{key(1, 100*day, keyserver.KeyVerifyOnly, 30*day), key(2, 10*day, keyserver.KeyEnabled, 0)},
		},
		"Enabled": { // the older key had no rotation, or its owner enabled it
			rotation: always, next: 80 * day,
			line: []lifecycle.Generation{key(1, 100*day, keyserver.KeyEnabled, 99*day), key(2, 10*day, keyserver.KeyEnabled, 0)},
		},
		"ForEver": {
			rotation: keyserver.KeyRotation{Every: 90}, next: 80 * day,
			line: []lifecycle.Generation{key(1, 100*day, keyserver.KeyVerifyOnly, 99*day), key(2, 10*day, keyserver.KeyEnabled, 0)},
		},
		"Kept": {
			rotation: keyserver.KeyRotation{Every: 90, VerifyOnly: 30}, next: 80 * day,
			line: []lifecycle.Generation{key(1, 100*day, keyserver.KeyVerifyOnly, 99*day), key(2, 10*day, keyserver.KeyEnabled, 0)},
		},
	} {
		got := lifecycle.Plan(tc.rotation, tc.line, start)
		var retire []uint64
		for _, former := range got.Retire {
			retire = append(retire, former.ID.Uint64())
			if former.Life.State != keyserver.KeyDestroying || !former.Life.DestroyAt.Equal(start.Add(7*day)) {
				t.Errorf("%s: %+v", name, former)
			}
		}
		want := time.Time{}
		if tc.next > 0 {
			want = start.Add(tc.next)
		}
		if got.Rotate != tc.rotate || !cmp.Equal(retire, tc.retire) || !got.Next.Equal(want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// For any actions of the owner and any times: the generations of a lineage are consecutive. At most one key makes MACs,
// except keys that the owner enabled. Bytes are deleted only when they are due. After the plan is executed, nothing
// else is due at that time.
func TestLinesAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rotation := keyserver.KeyRotation{
			Every: rapid.IntRange(0, 5).Draw(t, "every"), VerifyOnly: rapid.IntRange(1, 5).Draw(t, "verify"), DestroyAfter: rapid.IntRange(0, 5).Draw(t, "destroy"),
		}
		now := start
		line := []lifecycle.Generation{{ID: first, CreatedAt: now, Life: keyserver.FirstLife(first)}}
		enabled := map[keyserver.ID]bool{} // keys that the owner enabled; a rotation does not change their state
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "days")) * day)
			if rapid.Bool().Draw(t, "acts") {
				i := rapid.IntRange(0, len(line)-1).Draw(t, "key")
				act := rapid.SampledFrom([]keyserver.KeyAction{keyserver.DisableKey, keyserver.EnableKey, keyserver.DestroyKey, keyserver.RestoreKey}).Draw(t, "act")
				if life, err := lifecycle.Change(line[i].Life, keyserver.KeyStateChange{Action: act, Days: 3}, now); err == nil {
					line[i].Life = life
					enabled[line[i].ID] = enabled[line[i].ID] || act == keyserver.EnableKey
				}
			}
			for i := range line {
				before := line[i].Life
				life, ends := lifecycle.End(before, now)
				if ends && (before.State != keyserver.KeyDestroying || now.Before(before.DestroyAt)) {
					t.Fatalf("the bytes of %+v go at %s", before, now)
				}
				line[i].Life = life
			}
			due := lifecycle.Plan(rotation, line, now)
			for _, former := range due.Retire {
				line[former.ID.Uint64()-1] = former
			}
			if due.Rotate {
				last := len(line) - 1
				former, next, err := lifecycle.Rotate(line[last].Life, rotation, now)
				if err != nil {
					t.Fatalf("what is planned cannot be done: %v", err)
				}
				line[last].Life = former
				line = append(line, lifecycle.Generation{ID: values.IDFromUint64(uint64(len(line) + 1)), CreatedAt: now, Life: next})
			}
			if again := lifecycle.Plan(rotation, line, now); again.Rotate || len(again.Retire) > 0 || !again.Next.IsZero() && !again.Next.After(now) {
				t.Fatalf("carried out, the plan still wants %+v", again)
			}
			makes := 0
			for i, key := range line {
				if key.Life.Generation != i+1 || key.Life.Lineage != first {
					t.Fatalf("the key %d is %+v", i, key.Life)
				}
				if key.Life.State.MayCreate() && !enabled[key.ID] {
					makes++
				}
			}
			if makes > 1 {
				t.Fatalf("%d keys make: %+v", makes, line)
			}
		}
	})
}
