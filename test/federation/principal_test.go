package federation

import (
	"net/http"
	"reflect"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func pair(u rig.User) rig.Object {
	return rig.Object{"systemId": u.Site.System, "principalId": u.Decimal}
}

func (s *site) lookup(t testing.TB, session string, pairs ...rig.Object) rig.Answer {
	t.Helper()
	return s.OK(t, session, "POST", "/api/principals/lookup", rig.Object{"principals": pairs})
}

// POST /api/principals/lookup asks the key server of each principal. If that reports a principal as disabled or
// removed, its ACL entries on local keys are closed. The audit log and the change feed show this.
func TestForwardedLookup(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		asker := a.User(t, "asker", keyserver.RoleEncryptor)
		here := a.User(t, "here")
		there, other := b.User(t, "there", keyserver.RoleExchanger), b.User(t, "other")
		ttag := asker.Mint(t, nil)
		asker.Grant(t, ttag, there, "READ")
		asker.Grant(t, ttag, other, "READ")
		removed := rig.User{Site: b.Site, Decimal: "987654321"}
		asker.Grant(t, ttag, removed, "READ")
		list := func() rig.Answer {
			return a.OK(t, asker.Session, "POST", "/api/keys/acl/get", rig.Object{"ttag": ttag})
		}

		// Not exposed: the local pair is resolved, the foreign one is absent.
		found := a.lookup(t, asker.Session, pair(there), pair(here))
		if got := found.List(t, "principals"); len(got) != 1 || got[0]["name"] != "here" || found.Body["requested"] != 2.0 {
			t.Errorf("not exposed: %s", found.Raw)
		}
		if got := rig.FormatRows(a.Rows(t, found.RequestID)); got != `["lookupPrincipals allowed" "lookupPrincipals refused notExposed"]` {
			t.Errorf("not exposed: %s", got)
		}

		a.Expose(t, asker.ID, b.Site)
		found = a.lookup(t, asker.Session, pair(there), pair(here), pair(other))
		got := found.List(t, "principals")
		if len(got) != 3 || got[0]["name"] != "there" || got[1]["name"] != "here" || got[2]["name"] != "other" {
			t.Fatalf("exposed: %s", found.Raw)
		}
		own := b.OK(t, b.AsAdmin(t), "GET", "/api/principals/"+there.ID, nil)
		for field, want := range own.Body {
			if field == "roleIds" || field == "groupIds" { // a response to a peer omits the rights of a principal
				want = []any{}
			}
			if !reflect.DeepEqual(got[0][field], want) {
				t.Errorf("%s is %v, and %v where it belongs", field, got[0][field], want)
			}
		}
		b.TrustPrincipal(t, other.ID, a.Site, "restrict")
		if found := a.lookup(t, asker.Session, pair(other)).List(t, "principals"); len(found) != 1 || found[0]["name"] != other.ID || found[0]["disabled"] != false {
			t.Errorf("restricted for the key server that asks: %v", found)
		}
		if rows := b.Rows(t, found.RequestID); rig.FormatRows(rows) != `["lookupPrincipals allowed"]` || rows[0]["systemId"] != float64(a.System) {
			t.Errorf("where they belong: %v", rows)
		}
		for _, u := range []rig.User{there, other, removed} {
			if e := entry(list(), u); e["endTimeUnset"] != true {
				t.Errorf("%s: %v", u.Decimal, e)
			}
		}

		// One principal is disabled, and one is unknown.
		b.OK(t, b.AsAdmin(t), "PUT", "/api/principals/"+there.ID+"/flags", rig.Object{"disabled": true})
		_, cursor := a.Changes(t, a.AsAdmin(t), "0")
		found = a.lookup(t, asker.Session, pair(there), pair(other), pair(removed))
		if got := found.List(t, "principals"); len(got) != 2 || got[0]["disabled"] != true || got[1]["disabled"] != false {
			t.Errorf("disabled: %s", found.Raw)
		}
		if got := rig.FormatRows(a.Rows(t, found.RequestID)); got != `["lookupPrincipals allowed" "lookupPrincipals allowed" "closeACLEntries allowed" "closeACLEntries allowed"]` {
			t.Errorf("disabled and removed: %s", got)
		}
		for u, closed := range map[*rig.User]bool{&there: true, &other: false, &removed: true} {
			if e := entry(list(), *u); e == nil || e["endTimeUnset"] == closed {
				t.Errorf("%s: %v, want it closed: %v", u.Decimal, e, closed)
			}
		}
		if got := a.Changed(t, a.AsAdmin(t), cursor); !slices.Equal(got, []string{"key updated", "key updated"}) {
			t.Errorf("in the change feed: %q", got)
		}

		// A repeated report has no further effect. After the principal is enabled, the owner has to grant the rights
		// again.
		_, cursor = a.Changes(t, a.AsAdmin(t), "0")
		a.lookup(t, asker.Session, pair(there), pair(removed))
		if got := a.Changed(t, a.AsAdmin(t), cursor); len(got) > 0 {
			t.Errorf("said again: %q", got)
		}
		b.OK(t, b.AsAdmin(t), "PUT", "/api/principals/"+there.ID+"/flags", rig.Object{"disabled": false})
		there.Session = b.LogIn(t, "there", rig.Password) // disabling the principal ended its session
		b.Expose(t, there.ID, a.Site)
		b.Refused(t, there.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag}, http.StatusForbidden, "ACL_DENIED")
		asker.Grant(t, ttag, there, "READ")
		b.OK(t, there.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag})
	})
}
