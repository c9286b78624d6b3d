package keyserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Ids are permanent and unique; keys and names are unique, or an audit filter
// and a manifest would be ambiguous.
func TestOperationsCatalogue(t *testing.T) {
	seen := map[string]bool{}
	once := func(what string) {
		if seen[what] {
			t.Errorf("%s is there twice", what)
		}
		seen[what] = true
	}
	for i, op := range Operations {
		once("id " + op.ID.Hex())
		once("key " + op.Key)
		once("name " + op.Name)
		if op.ID.IsZero() || op.Key == "" || op.Name == "" || op.Duty == "" || op.Key[0] < 'a' || op.Key[0] > 'z' {
			t.Errorf("%+v is not complete", op)
		}
		if i > 0 && Operations[i-1].ID.Uint64() >= op.ID.Uint64() {
			t.Errorf("%s is out of order", op.Key)
		}
	}
}

func TestBuiltInRoles(t *testing.T) {
	for _, d := range []Deployment{Unified, Split} {
		granted := map[ID]bool{}
		for _, b := range BuiltInRoles(d) {
			r := b.Role()
			if !r.BuiltIn || r.ID.IsZero() || r.Name == "" || !slices.Equal(r.Operations, NormalizeIDs(r.Operations)) {
				t.Errorf("%s: %+v", d, r)
			}
			for _, id := range r.Operations {
				granted[id] = true
			}
			trust := slices.Contains(r.Operations, OpAddTrustedCA.ID)
			wanted := b.ID == RoleSecurityOfficer || (b.ID == RoleAdministrator && d == Unified)
			if trust != wanted {
				t.Errorf("%s: %s may add a CA: %v", d, r.Name, trust)
			}
		}
		for _, op := range Operations {
			if !granted[op.ID] {
				t.Errorf("%s: no built-in role grants %s", d, op.Key)
			}
		}
	}
}

func TestNormalizeIDs(t *testing.T) {
	a, b := IDFromUint64(1), IDFromUint64(2)
	in := []ID{b, a, b}
	if got := NormalizeIDs(in); !slices.Equal(got, []ID{a, b}) || in[0] != b {
		t.Errorf("got %v from %v", got, in)
	}
	if NormalizeIDs(nil) == nil {
		t.Error("no ids are null and not an empty list")
	}
}

func TestFlags(t *testing.T) {
	if !Flags(0).Disabled() || FlagEnable.Disabled() || !FlagDelegation.Delegation() || !FlagSystemDefined.SystemDefined() || FlagEnable.Delegation() {
		t.Error("a flag is read from another's bit")
	}
}

func TestEveryTypeAndStatusHasAWord(t *testing.T) {
	for _, typ := range PrincipalTypes {
		if typ.ClassName() == "" {
			t.Errorf("%s has no class", typ)
		}
	}
	if PrincipalType("x").ClassName() != "" || CertificateStatus(9).Label() != "" {
		t.Error("an unknown type or status has a word")
	}
	for s := StatusCA; s <= StatusExpired; s++ {
		if s.Label() == "" {
			t.Errorf("status %d has no label", s)
		}
	}
}

// No formatting verb shows a secret of a request.
func TestSecretsDoNotPrint(t *testing.T) {
	for _, v := range []any{
		NewKey{Algorithm: AES256, Material: []byte("hunter2")}, &NewKey{Material: []byte("hunter2")},
		NewPasswordPrincipal{Name: "ann", Password: "hunter2"},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X"} {
			out := fmt.Sprintf(verb, v)
			if strings.Contains(out, "hunter2") || strings.Contains(strings.ToLower(out), "68756e74657232") || strings.Contains(out, "104 117") {
				t.Errorf("%s prints %s", verb, out)
			}
		}
	}
}
