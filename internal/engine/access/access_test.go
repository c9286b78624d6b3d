package access

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func TestEvaluate(t *testing.T) {
	var (
		now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		alice = keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(10)}
		bob   = keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(11)}
		ops   = keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(20)}
		twin  = keyserver.PrincipalRef{System: 2, ID: alice.ID}
		none  = keyserver.NoUsageLimit
		at    = func(d time.Duration) keyserver.Stamp { return values.StampOf(now.Add(d)) }
	)
	type entries []keyserver.ACLEntry
	cases := map[string]struct {
		reason  string
		entries entries
		who     Subject
		want    keyserver.Rights
		allowed bool
		limited int
	}{
		"EmptyList": {
			reason: "a list without entries lets nobody in",
			who:    Subject{Principal: alice}, want: keyserver.Read,
		},
		"SomebodyElse": {
			reason:  "another principal's entry gives nothing",
			entries: entries{{Principal: bob, Rights: keyserver.Read, MaxUsage: none}},
			who:     Subject{Principal: alice}, want: keyserver.Read,
		},
		"SameIDOtherSystem": {
			reason:  "a principal is a pair: the same id of another key server is somebody else",
			entries: entries{{Principal: twin, Rights: keyserver.Read, MaxUsage: none}},
			who:     Subject{Principal: alice}, want: keyserver.Read,
		},
		"ReadIsNotWrite": {
			reason:  "READ does not widen upwards",
			entries: entries{{Principal: alice, Rights: keyserver.Read, MaxUsage: none}},
			who:     Subject{Principal: alice}, want: keyserver.Write,
		},
		"BeforeStart": {
			reason:  "an entry whose window has not begun is checked out",
			entries: entries{{Principal: alice, Rights: keyserver.Read, MaxUsage: none, Start: at(time.Millisecond)}},
			who:     Subject{Principal: alice}, want: keyserver.Read,
		},
		"AtEnd": {
			reason:  "the end is exclusive",
			entries: entries{{Principal: alice, Rights: keyserver.Read, MaxUsage: none, End: at(0)}},
			who:     Subject{Principal: alice}, want: keyserver.Read,
		},
		"NoUsesAtAll": {
			reason:  "maxUsage 0 is a limit, not the absence of one",
			entries: entries{{Principal: alice, Rights: keyserver.Read, MaxUsage: 0}},
			who:     Subject{Principal: alice}, want: keyserver.Read,
		},
		"UsesSpent": {
			reason:  "an entry whose uses are spent is checked out",
			entries: entries{{Principal: alice, Rights: keyserver.Owner, MaxUsage: 2, Used: 2}},
			who:     Subject{Principal: alice}, want: keyserver.Read,
		},
		"MandatoryGroupNotHeld": {
			reason: "a mandatory group shuts out even the owner who is not in it",
			entries: entries{
				{Principal: alice, Rights: keyserver.Owner, MaxUsage: none},
				{Principal: ops, Rights: keyserver.MandatoryGroup, MaxUsage: none},
			},
			who: Subject{Principal: alice}, want: keyserver.Read,
		},
		"HostMatrixNotHeld": {
			reason: "a host matrix shuts out who is not in it",
			entries: entries{
				{Principal: alice, Rights: keyserver.Read, MaxUsage: none},
				{Principal: ops, Rights: keyserver.HostMatrix, MaxUsage: none},
			},
			who: Subject{Principal: alice}, want: keyserver.Read,
		},
		"ExpiredDemandStays": {
			reason: "a restriction does not lapse with its entry's window",
			entries: entries{
				{Principal: alice, Rights: keyserver.Read, MaxUsage: none},
				{Principal: ops, Rights: keyserver.MandatoryGroup, MaxUsage: none, End: at(-time.Hour)},
			},
			who: Subject{Principal: alice}, want: keyserver.Read,
		},
		"MandatoryGroupGivesNothing": {
			reason:  "being in the mandatory group is needed, not enough",
			entries: entries{{Principal: ops, Rights: keyserver.MandatoryGroup, MaxUsage: none}},
			who:     Subject{Principal: alice, Groups: []keyserver.PrincipalRef{ops}}, want: keyserver.Read,
		},
		"AtStart": {
			reason:  "the start is inclusive",
			entries: entries{{Principal: alice, Rights: keyserver.Read, MaxUsage: none, Start: at(0), End: at(time.Millisecond)}},
			who:     Subject{Principal: alice}, want: keyserver.Read, allowed: true,
		},
		"OwnerMayRead": {
			reason:  "OWNER widens to READ",
			entries: entries{{Principal: alice, Rights: keyserver.Owner, MaxUsage: none}},
			who:     Subject{Principal: alice}, want: keyserver.Read, allowed: true,
		},
		"GroupEntryCounts": {
			reason:  "a group's entry counts for its members",
			entries: entries{{Principal: ops, Rights: keyserver.Read, MaxUsage: none}},
			who:     Subject{Principal: alice, Groups: []keyserver.PrincipalRef{ops}}, want: keyserver.Read, allowed: true,
		},
		"MandatoryGroupHeld": {
			reason: "in the mandatory group and with an entry: in",
			entries: entries{
				{Principal: alice, Rights: keyserver.Read, MaxUsage: none},
				{Principal: ops, Rights: keyserver.MandatoryGroup, MaxUsage: none},
			},
			who: Subject{Principal: alice, Groups: []keyserver.PrincipalRef{ops}}, want: keyserver.Read, allowed: true,
		},
		"LimitedEntryIsCounted": {
			reason:  "where only a limited entry allows it, a use is to be counted",
			entries: entries{{Principal: alice, Rights: keyserver.Read, MaxUsage: 2, Used: 1}},
			who:     Subject{Principal: alice}, want: keyserver.Read, allowed: true, limited: 1,
		},
		"UnlimitedEntrySparesTheLimited": {
			reason: "an unlimited entry is taken before a use is spent",
			entries: entries{
				{Principal: alice, Rights: keyserver.Read, MaxUsage: 2},
				{Principal: ops, Rights: keyserver.Read, MaxUsage: none},
			},
			who: Subject{Principal: alice, Groups: []keyserver.PrincipalRef{ops}}, want: keyserver.Read, allowed: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Evaluate(keyserver.ACL{Entries: tc.entries}, tc.who, tc.want, now)
			if got.Allowed != tc.allowed || (tc.allowed && len(got.Limited) != tc.limited) {
				t.Errorf("%s: got %+v, want allowed %v with %d limited entries", tc.reason, got, tc.allowed, tc.limited)
			}
			if !got.Allowed && got.Why == "" {
				t.Errorf("%s: a refusal must say why", tc.reason)
			}
		})
	}
}

func TestOwns(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	alice := keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(10)}
	ops := keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(20)}
	cases := map[string]struct {
		reason string
		entry  keyserver.ACLEntry
		want   bool
	}{
		"WriterIsNoOwner": {"WRITE does not own", keyserver.ACLEntry{Principal: alice, Rights: keyserver.Write}, false},
		"LapsedOwner":     {"ownership ends with its window", keyserver.ACLEntry{Principal: alice, Rights: keyserver.Owner, End: values.StampOf(now)}, false},
		"Owner":           {"OWNER owns", keyserver.ACLEntry{Principal: alice, Rights: keyserver.Owner.Widen()}, true},
		"SpentOwner":      {"a usage limit is about the key, not its list", keyserver.ACLEntry{Principal: alice, Rights: keyserver.Owner, MaxUsage: 1, Used: 1}, true},
		"OwningGroup":     {"a group can own", keyserver.ACLEntry{Principal: ops, Rights: keyserver.Owner}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			who := Subject{Principal: alice, Groups: []keyserver.PrincipalRef{ops}}
			if got := Owns(keyserver.ACL{Entries: []keyserver.ACLEntry{tc.entry}}, who, now); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

func TestExpired(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) keyserver.Stamp { return values.StampOf(now.Add(d)) }
	open := keyserver.ACLEntry{Rights: keyserver.Owner, MaxUsage: keyserver.NoUsageLimit}
	cases := map[string]struct {
		reason string
		second keyserver.ACLEntry
		want   bool
	}{
		"Unset":     {"an end that is unset never comes", open, false},
		"BeforeEnd": {"the last moment of the window", keyserver.ACLEntry{End: at(time.Millisecond)}, false},
		"NotBegun":  {"what has yet to begin has not ended", keyserver.ACLEntry{Start: at(time.Hour), End: at(2 * time.Hour)}, false},
		"UsesSpent": {"uses are no time", keyserver.ACLEntry{MaxUsage: 1, Used: 1}, false},
		"AtEnd":     {"the end is exclusive", keyserver.ACLEntry{End: at(0)}, true},
		"LongEnded": {"it stays so", keyserver.ACLEntry{Start: at(-2 * time.Hour), End: at(-time.Hour)}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Expired(keyserver.ACL{Entries: []keyserver.ACLEntry{open, tc.second}}, now); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
	if Expired(keyserver.ACL{}, now) {
		t.Error("a list without entries has none that has ended")
	}
}

func TestAmended(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) keyserver.Stamp { return values.StampOf(now.Add(d)) }
	none := keyserver.NoUsageLimit
	cases := map[string]struct {
		reason   string
		entry    *keyserver.ACLEntry
		right    keyserver.Rights
		ownerMay bool
		want     keyserver.ACLEntry
	}{
		"None": {
			reason: "without an entry it is the right alone",
			right:  keyserver.Read, want: keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none},
		},
		"Right": {
			reason: "a right is added, and nothing else changes",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Read | keyserver.HostMatrix, MaxUsage: 3, Used: 1, Start: at(-time.Hour), End: at(time.Hour)},
			right:  keyserver.Owner,
			want:   keyserver.ACLEntry{Rights: keyserver.Read | keyserver.HostMatrix | keyserver.Owner, MaxUsage: 3, Used: 1, Start: at(-time.Hour), End: at(time.Hour)},
		},
		"Over": {
			reason: "what is over is let for as long as it was",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Owner, MaxUsage: 3, Start: at(-3 * time.Hour), End: at(0)},
			right:  keyserver.Read,
			want:   keyserver.ACLEntry{Rights: keyserver.Owner | keyserver.Read, MaxUsage: 3, Start: at(-3 * time.Hour), End: at(3 * time.Hour)},
		},
		"OverWithoutBeginning": {
			reason: "of what had no beginning nobody knows how long it was",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, End: at(-time.Hour)},
			right:  keyserver.Read, want: keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, End: at(24 * time.Hour)},
		},
		"ToCome": {
			reason: "what is to come begins, and ends when it would have",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, Start: at(time.Millisecond), End: at(time.Hour)},
			right:  keyserver.Read, want: keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, End: at(time.Hour)},
		},
		"Never": {
			reason: "a window that ends before it begins is neither",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, Start: at(time.Hour), End: at(-time.Hour)},
			right:  keyserver.Read, want: keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, End: at(24 * time.Hour)},
		},
		"Spent": {
			reason: "a limit that is used up is left out",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: 2, Used: 2, End: at(time.Hour)},
			right:  keyserver.Read, want: keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, Used: 2, End: at(time.Hour)},
		},
		"SpentOwner": {
			reason: "an owner does not use the key where he may do it by owning it",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: 1, Used: 1},
			right:  keyserver.Owner, ownerMay: true, want: keyserver.ACLEntry{Rights: keyserver.Read | keyserver.Owner, MaxUsage: 1, Used: 1},
		},
		"SpentOwnerWhoUses": {
			reason: "an owner who uses the key is held to the limit like anybody",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Owner, MaxUsage: 1, Used: 1},
			right:  keyserver.Owner, want: keyserver.ACLEntry{Rights: keyserver.Owner, MaxUsage: none, Used: 1},
		},
		"SpentReader": {
			reason: "who reads the list without owning it is held to the limit",
			entry:  &keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: 1, Used: 1},
			right:  keyserver.Read, ownerMay: true, want: keyserver.ACLEntry{Rights: keyserver.Read, MaxUsage: none, Used: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Amended(tc.entry, tc.right, tc.ownerMay, now)
			if got != tc.want {
				t.Errorf("%s: got %+v, want %+v", tc.reason, got, tc.want)
			}
			acl, who := keyserver.ACL{Entries: []keyserver.ACLEntry{got}}, Subject{Principal: got.Principal}
			if !Evaluate(acl, who, tc.right, now).Allowed && (!tc.ownerMay || !Owns(acl, who, now)) {
				t.Errorf("%s: %+v does not let", tc.reason, got)
			}
		})
	}
}

// TestMayShare checks which principals may let others use a group's ACL entries (contract 4.9).
func TestMayShare(t *testing.T) {
	var (
		now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		clerk = keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(10)}
		own   = keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(11)} // a group of the clerk
		group = keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(20)}
		at    = func(d time.Duration) keyserver.Stamp { return values.StampOf(now.Add(d)) }
	)
	entry := func(p keyserver.PrincipalRef, rights keyserver.Rights, change ...func(*keyserver.ACLEntry)) keyserver.ACLEntry {
		e := keyserver.ACLEntry{ID: p.ID, Principal: p, Rights: rights, MaxUsage: keyserver.NoUsageLimit}
		for _, c := range change {
			c(&e)
		}
		return e
	}
	uses := func(most, used int64) func(*keyserver.ACLEntry) {
		return func(e *keyserver.ACLEntry) { e.MaxUsage, e.Used = most, used }
	}
	window := func(start, end keyserver.Stamp) func(*keyserver.ACLEntry) {
		return func(e *keyserver.ACLEntry) { e.Start, e.End = start, end }
	}
	never := keyserver.Stamp{}
	for name, tc := range map[string]struct {
		reason  string
		entries []keyserver.ACLEntry
		member  bool // clerk is a member of the group
		may     bool
	}{
		"NoEntry":      {"a group without an entry gives nothing", nil, false, true},
		"Nothing":      {"the clerk has no entry", []keyserver.ACLEntry{entry(group, keyserver.Read)}, false, false},
		"Same":         {"what it holds it may share", []keyserver.ACLEntry{entry(group, keyserver.Read), entry(clerk, keyserver.Read)}, false, true},
		"ByGroup":      {"by a group of its own as well", []keyserver.ACLEntry{entry(group, keyserver.Read), entry(own, keyserver.Write)}, false, true},
		"Member":       {"as a member it holds what it shares", []keyserver.ACLEntry{entry(group, keyserver.Read, uses(3, 1))}, true, true},
		"Less":         {"OWNER is more than WRITE", []keyserver.ACLEntry{entry(group, keyserver.Owner), entry(clerk, keyserver.Write)}, false, false},
		"Widened":      {"WRITE is more than READ", []keyserver.ACLEntry{entry(group, keyserver.Write), entry(clerk, keyserver.Read)}, false, false},
		"Limited":      {"its own uses end", []keyserver.ACLEntry{entry(group, keyserver.Read), entry(clerk, keyserver.Read, uses(9, 0))}, false, false},
		"TwoLimits":    {"they would be added", []keyserver.ACLEntry{entry(group, keyserver.Read, uses(1, 0)), entry(clerk, keyserver.Read, uses(9, 0))}, false, false},
		"Ending":       {"its own time ends", []keyserver.ACLEntry{entry(group, keyserver.Read), entry(clerk, keyserver.Read, window(never, at(time.Hour)))}, false, false},
		"EndingLater":  {"but not before the group's", []keyserver.ACLEntry{entry(group, keyserver.Read, window(never, at(time.Hour))), entry(clerk, keyserver.Read, window(never, at(time.Hour)))}, false, true},
		"NotYet":       {"its own time has not begun", []keyserver.ACLEntry{entry(group, keyserver.Read), entry(clerk, keyserver.Read, window(at(time.Hour), never))}, false, false},
		"ToCome":       {"that of the group will", []keyserver.ACLEntry{entry(group, keyserver.Read, window(at(time.Hour), never))}, false, false},
		"Over":         {"that of the group is over", []keyserver.ACLEntry{entry(group, keyserver.Owner, window(never, at(0)))}, false, true},
		"Empty":        {"no use at all", []keyserver.ACLEntry{entry(group, keyserver.Read, uses(0, 0))}, false, true},
		"Spent":        {"no use left", []keyserver.ACLEntry{entry(group, keyserver.Write, uses(2, 2))}, false, true},
		"SpentOwner":   {"an owner changes the list without a use", []keyserver.ACLEntry{entry(group, keyserver.Owner, uses(2, 2))}, false, false},
		"Owner":        {"an owner may give it directly", []keyserver.ACLEntry{entry(group, keyserver.Owner), entry(clerk, keyserver.Owner, uses(0, 0), window(never, at(time.Hour)))}, false, true},
		"Demand":       {"the demand is met by joining", []keyserver.ACLEntry{entry(group, keyserver.MandatoryGroup), entry(clerk, keyserver.Read)}, false, false},
		"DemandOver":   {"a demand does not lapse", []keyserver.ACLEntry{entry(group, keyserver.HostMatrix, uses(0, 0), window(never, at(0)))}, false, false},
		"DemandMet":    {"the clerk meets it", []keyserver.ACLEntry{entry(group, keyserver.MandatoryGroup), entry(clerk, keyserver.Read)}, true, true},
		"DemandOfAll":  {"a demand keeps the clerk from its rights", []keyserver.ACLEntry{entry(group, keyserver.Read), entry(clerk, keyserver.Write), entry(keyserver.PrincipalRef{System: 1}, keyserver.MandatoryGroup)}, false, false},
		"DemandOwner":  {"but not from its ownership", []keyserver.ACLEntry{entry(group, keyserver.MandatoryGroup), entry(clerk, keyserver.Owner)}, false, true},
		"OtherEntries": {"nobody else's entry counts", []keyserver.ACLEntry{entry(keyserver.PrincipalRef{System: 2, ID: clerk.ID}, keyserver.Owner), entry(group, keyserver.Read)}, false, false},
	} {
		giver := Subject{Principal: clerk, Groups: []keyserver.PrincipalRef{own}}
		if tc.member {
			giver.Groups = append(giver.Groups, group)
		}
		if got := MayShare(keyserver.ACL{Entries: tc.entries}, giver, group, now); got != tc.may {
			t.Errorf("%s: got %t (%s)", name, got, tc.reason)
		}
	}
}
