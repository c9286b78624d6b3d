package verified

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// The tests below check with random states that a write reports success if and only if the state read back has the
// requested change. The values are drawn from a small set, so that equal values are as likely as different ones.

func drawID(t *rapid.T, label string) keyserver.ID {
	return values.IDFromUint64(rapid.Uint64Range(1, 3).Draw(t, label))
}

func drawRights(t *rapid.T, label string) keyserver.Rights {
	return keyserver.Rights(rapid.Uint32Range(0, uint32(keyserver.AllRights)).Draw(t, label))
}

// agree checks that the reported success and the fault match the truth.
func agree(t *rapid.T, claims bool, err error, truth bool, bad fault.Code) {
	if claims != truth || (err == nil) != truth || (err != nil && fault.CodeOf(err) != bad) {
		t.Fatalf("claims %v with %v, but the truth is %v", claims, err, truth)
	}
}

func TestVerdictOnAnyACL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		change := keyserver.ACLChange{
			Principal: keyserver.PrincipalRef{System: 1, ID: drawID(t, "principal")},
			Rights:    drawRights(t, "requested"), MaxUsage: rapid.Int64Range(-1, 1).Draw(t, "maxUsage"),
		}
		var after keyserver.ACL
		for range rapid.IntRange(0, 2).Draw(t, "entries") {
			e := keyserver.ACLEntry{
				Principal: keyserver.PrincipalRef{System: 1, ID: drawID(t, "holder")},
				Rights:    drawRights(t, "held"), MaxUsage: rapid.Int64Range(-1, 1).Draw(t, "held uses"),
				Start: keyserver.Stamp{7: rapid.ByteRange(0, 1).Draw(t, "held start")},
			}
			if _, twice := after.Entry(e.Principal); !twice {
				after.Entries = append(after.Entries, e)
			}
		}
		exact := rapid.Bool().Draw(t, "amendment")
		entry, there := after.Entry(change.Principal)
		truth := there && entry.Rights.Has(change.Rights) && entry.MaxUsage == change.MaxUsage &&
			entry.Start == change.Start && entry.End == change.End
		if exact {
			truth = truth && change.Rights.Widen().Has(entry.Rights)
		}
		r, err := judgeACL("op", change, exact, after)
		agree(t, r.Verified, err, truth, fault.NotVerified)
	})
}

func TestVerdictOnAnyRole(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b"})
	operations := func(t *rapid.T, label string) []keyserver.ID {
		return keyserver.NormalizeIDs(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) keyserver.ID { return drawID(t, "op") }), 0, 2).Draw(t, label))
	}
	rapid.Check(t, func(t *rapid.T) {
		id := drawID(t, "id")
		var name *string
		if rapid.Bool().Draw(t, "renames") {
			n := names.Draw(t, "requested name")
			name = &n
		}
		var ops []keyserver.ID
		if rapid.Bool().Draw(t, "replaces") {
			ops = operations(t, "requested operations")
		}
		var after []keyserver.Role
		for n := range rapid.Uint64Range(0, 3).Draw(t, "roles") {
			after = append(after, keyserver.Role{ID: values.IDFromUint64(n + 1), Name: names.Draw(t, "name"), Operations: operations(t, "operations")})
		}
		role, there := findRole(after, id)
		truth := there && (name == nil || role.Name == *name) && (ops == nil || slices.Equal(role.Operations, ops))
		r, err := judgeRole(keyserver.RoleChange{ID: id, Name: name, Operations: ops}, after)
		agree(t, r.Saved, err, truth, fault.NotSaved)
		if r.Missing == there {
			t.Fatalf("missing is %v, but the role is there: %v", r.Missing, there)
		}
	})
}

// TestVerdictOnAnyListOfCAs checks that a CA counts as added only with evidence. A returned id is no evidence if the
// certificate differs.
func TestVerdictOnAnyListOfCAs(t *testing.T) {
	bodies := rapid.SampledFrom([][]byte{nil, []byte("sent"), []byte("other")})
	list := func(t *rapid.T, label string) []keyserver.Certificate {
		var out []keyserver.Certificate
		for n := range rapid.Uint64Range(0, 3).Draw(t, label) {
			out = append(out, keyserver.Certificate{ID: values.IDFromUint64(n + 1), DER: bodies.Draw(t, "body")})
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		before, after := list(t, "before"), list(t, "after")
		var echoed []keyserver.ID
		if rapid.Bool().Draw(t, "echoes") {
			echoed = append(echoed, drawID(t, "echoed"))
		}
		r, err := judgeAddedCA([]byte("sent"), echoed, before, after)
		body := slices.ContainsFunc(after, func(c keyserver.Certificate) bool { return string(c.DER) == "sent" })
		switch {
		case r.Saved != (err == nil), err != nil && fault.CodeOf(err) != fault.NotSaved:
			t.Fatalf("claims %v with %v", r.Saved, err)
		case body && r.MatchedBy != MatchedByBody:
			t.Fatalf("the body is listed, and the evidence is %q", r.MatchedBy)
		case !r.Saved:
			if r.TrustedCA != nil {
				t.Fatal("a CA is shown as evidence of nothing")
			}
		case len(r.TrustedCA.DER) > 0 && !bytes.Equal(r.TrustedCA.DER, []byte("sent")):
			t.Fatal("another certificate counts as the one sent")
		case !body && slices.ContainsFunc(before, func(c keyserver.Certificate) bool { return c.ID == r.TrustedCA.ID }):
			t.Fatal("a row that was there before counts as added")
		}
	})
}
