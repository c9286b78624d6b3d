package keyserver

import "testing"

// A scoped credential allows an operation only if the credential names it and OfferedOperations contains it. Export and
// new sessions are not offered.
func TestOperationsOfACredential(t *testing.T) {
	all := []ID{}
	for _, op := range Operations {
		all = append(all, op.ID)
	}
	default4 := map[string]bool{"hmacData": true, "authorizeKey": true, "readKeyMetadata": true, "readACL": true}
	offered := map[string]bool{"macData": true, "verifyMAC": true, "encryptData": true, "decryptData": true, "amendACL": true}
	for _, op := range Operations {
		plain, old := Caller{}, Caller{Scope: []HiddenLink{"k"}}
		greedy := Caller{Scope: []HiddenLink{"k"}, ScopeOperations: all, MayGrant: AllRights}
		none := Caller{Scope: []HiddenLink{"k"}, ScopeOperations: []ID{}}
		for name, c := range map[string]struct {
			by   Caller
			want bool
		}{
			"NotScoped": {plain, true}, "Old": {old, default4[op.Key]}, "None": {none, false},
			"Everything": {greedy, default4[op.Key] || offered[op.Key]},
		} {
			if got := c.by.CoversOperation(op); got != c.want {
				t.Errorf("%s: %s is covered: %v", name, op.Key, got)
			}
		}
	}
}

// A scoped credential never grants or revokes OWNER. For every pair of rights, it grants nothing beyond MayGrant.
func TestGrantsOfACredential(t *testing.T) {
	for may := Rights(0); may <= AllRights; may++ {
		by := Caller{Scope: []HiddenLink{"k"}, MayGrant: may}
		for from := Rights(0); from <= AllRights; from++ {
			for to := Rights(0); to <= AllRights; to++ {
				want := (from|to)&Owner == 0 && (may.Widen()).Has(from.Widen()|to.Widen())
				if got := by.CoversGrant(from, to); got != want {
					t.Fatalf("may give %v: from %v to %v is %v", may.Names(), from.Names(), to.Names(), got)
				}
			}
		}
	}
	if !(Caller{}).CoversGrant(0, AllRights) {
		t.Error("a session that is not scoped is held to something")
	}
}
