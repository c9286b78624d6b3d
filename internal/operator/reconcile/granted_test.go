package reconcile

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// TestWithheld checks when a grant without adopt blocks the adoption of an existing external object.
func TestWithheld(t *testing.T) {
	for scenario, tc := range map[string]struct {
		reason string
		change func(*Facts)
		adopt  bool
		want   Action
		says   v1beta1.Reason
	}{
		"its own":             {"it was made by it", func(*Facts) {}, false, actReport, v1beta1.ReasonVerified},
		"somebody else's":     {"the grant lets nothing be taken over", func(f *Facts) { f.Owned = "" }, false, actReport, v1beta1.ReasonAccessDenied},
		"one that differs":    {"nor corrected", func(f *Facts) { f.Owned, f.Adoption, f.External.Drift = "", v1beta1.AdoptAlways, differing() }, false, actReport, v1beta1.ReasonAccessDenied},
		"granted":             {"the grant says so", func(f *Facts) { f.Owned = "" }, true, actAdopt, v1beta1.ReasonVerified},
		"never":               {"the object itself does not want it", func(f *Facts) { f.Owned, f.Adoption = "", v1beta1.AdoptNever }, false, actReport, v1beta1.ReasonConflict},
		"observed":            {"looking takes nothing over", func(f *Facts) { f.Owned, f.Management = "", v1beta1.Observe }, false, actReport, v1beta1.ReasonVerified},
		"its own attempt":     {"a creation whose outcome was not recorded is its own", func(f *Facts) { f.Owned, f.Attempted = "", true }, false, actAdopt, v1beta1.ReasonVerified},
		"one it has replaced": {"a rotation may go back", func(f *Facts) { f.Owned, f.Superseded = "id-0", []Superseded{{ID: "id-1"}} }, false, actAdopt, v1beta1.ReasonVerified},
		"nothing is there":    {"making something takes nothing over", func(f *Facts) { f.Owned, f.External.Exists, f.External.ID = "", false, "" }, false, actCreate, v1beta1.ReasonProgressing},
	} {
		t.Run(scenario, func(t *testing.T) {
			f := settledFacts()
			tc.change(&f)
			f.withhold(&v1beta1.Grant{Name: "g", Adopt: tc.adopt})
			if d := both(f); d.Action != tc.want || d.Reason != tc.says {
				t.Errorf("%s: %s: %s %s: %s", tc.reason, d.Rule, d.Action, d.Reason, d.Message)
			}
		})
	}
}
