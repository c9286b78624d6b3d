package keyserver

import (
	"reflect"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

var (
	ann = PrincipalRef{System: 1, ID: values.IDFromUint64(1)}
	ben = PrincipalRef{System: 1, ID: values.IDFromUint64(2)}
)

func TestWhoWritesATemplate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	before, after := values.StampOf(now.Add(-time.Second)), values.StampOf(now.Add(time.Second))
	cases := map[string]struct {
		reason string
		member TemplateMember
		writes bool // now
		keeps  bool // permanently
	}{
		"Read":     {"READ does not write", TemplateMember{Rights: Read}, false, false},
		"Mask":     {"a demand on others gives nothing", TemplateMember{Rights: MandatoryGroup | HostMatrix}, false, false},
		"Write":    {"WRITE does", TemplateMember{Rights: Write}, true, true},
		"Owner":    {"OWNER includes it", TemplateMember{Rights: Owner}, true, true},
		"NoUses":   {"uses are of keys", TemplateMember{Rights: Write, MaxUsage: 0}, true, true},
		"Started":  {"a start lies behind", TemplateMember{Rights: Write, Start: before}, true, true},
		"NotYet":   {"a start lies ahead, and will be reached", TemplateMember{Rights: Write, Start: after}, false, true},
		"Ending":   {"a membership that ends keeps nobody", TemplateMember{Rights: Write, End: after}, true, false},
		"Over":     {"an end lies behind", TemplateMember{Rights: Write, End: before}, false, false},
		"AtTheEnd": {"the end is exclusive", TemplateMember{Rights: Write, End: values.StampOf(now)}, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.member.Writes(now); got != tc.writes {
				t.Errorf("%s: writes %v", tc.reason, got)
			}
			if got := KeepsWriter([]TemplateMember{{Rights: Read}, tc.member}); got != tc.keeps {
				t.Errorf("%s: keeps a writer %v", tc.reason, got)
			}
		})
	}
	if KeepsWriter(nil) {
		t.Error("nobody is a writer")
	}
}

func TestMembersOfATemplate(t *testing.T) {
	before := ACLTemplate{Members: []TemplateMember{{Principal: ann, Rights: Owner}}}
	with := before.With(TemplateMember{Principal: ben, Rights: Read})
	replaced := before.With(TemplateMember{Principal: ann, Rights: Read})
	without := before.Without(ann)
	if len(with) != 2 || len(replaced) != 1 || replaced[0].Rights != Read || len(without) != 0 {
		t.Errorf("with %v, replaced %v, without %v", with, replaced, without)
	}
	if before.Members[0].Rights != Owner {
		t.Error("asking what a change would do has done it")
	}
}

func TestEntriesOfANewKey(t *testing.T) {
	window := TemplateMember{Principal: ben, Rights: Write, MaxUsage: 3, Start: Stamp{1}, End: Stamp{2}}
	cases := map[string]struct {
		reason  string
		members []TemplateMember
		want    []ACLEntry
	}{
		"None":   {"the creator owns the key", nil, []ACLEntry{{Principal: ann, Rights: 7, MaxUsage: NoUsageLimit}}},
		"Member": {"a member gets an entry with his limits", []TemplateMember{window}, []ACLEntry{{Principal: ann, Rights: 7, MaxUsage: NoUsageLimit}, {Principal: ben, Rights: 3, MaxUsage: 3, Start: Stamp{1}, End: Stamp{2}}}},
		"Creator": {"the creator's own limits do not bind an owner", []TemplateMember{{Principal: ann, Rights: MandatoryGroup, MaxUsage: 1, End: Stamp{2}}},
			[]ACLEntry{{Principal: ann, Rights: 15, MaxUsage: NoUsageLimit}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := EntriesOf(ann, tc.members); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%s: got %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}
