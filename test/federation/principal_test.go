package federation

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func pair(u user) object { return object{"systemId": u.at.system, "principalId": u.decimal} }

func (s *site) lookup(t testing.TB, session string, pairs ...object) answer {
	t.Helper()
	return s.ok(t, session, "POST", "/api/principals/lookup", object{"principals": pairs})
}

// POST /api/principals/lookup: each pair is resolved where it belongs. A
// principal that its home reports as disabled or removed has its entries here
// closed, which is audited and shows in the change feed.
func TestForwardedLookup(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		asker := a.user(t, "asker", keyserver.RoleEncryptor)
		here := a.user(t, "here")
		there, other := b.user(t, "there", keyserver.RoleExchanger), b.user(t, "other")
		ttag := asker.mint(t, nil)
		asker.grant(t, ttag, there, "READ")
		asker.grant(t, ttag, other, "READ")
		removed := user{at: b, decimal: "987654321"}
		asker.grant(t, ttag, removed, "READ")
		list := func() answer { return a.ok(t, asker.session, "POST", "/api/keys/acl/get", object{"ttag": ttag}) }

		// Not exposed: the local pair is resolved, the foreign one is absent.
		found := a.lookup(t, asker.session, pair(there), pair(here))
		if got := found.list("principals"); len(got) != 1 || got[0]["name"] != "here" || found.body["requested"] != 2.0 {
			t.Errorf("not exposed: %s", found.raw)
		}
		if got := brief(a.rows(t, found.requestID)); got != "[lookupPrincipals allowed  lookupPrincipals refused notExposed]" {
			t.Errorf("not exposed: %s", got)
		}

		a.expose(t, asker.id, b)
		found = a.lookup(t, asker.session, pair(there), pair(here), pair(other))
		got := found.list("principals")
		if len(got) != 3 || got[0]["name"] != "there" || got[1]["name"] != "here" || got[2]["name"] != "other" {
			t.Fatalf("exposed: %s", found.raw)
		}
		own := b.ok(t, b.admin(t), "GET", "/api/principals/"+there.id, nil)
		for field, want := range own.body {
			if field == "roleIds" || field == "groupIds" { // what a principal may do stays where it belongs
				want = []any{}
			}
			if !reflect.DeepEqual(got[0][field], want) {
				t.Errorf("%s is %v, and %v where it belongs", field, got[0][field], want)
			}
		}
		b.trust(t, other.id, a, "restrict")
		if found := a.lookup(t, asker.session, pair(other)).list("principals"); len(found) != 1 || found[0]["name"] != other.id || found[0]["disabled"] != false {
			t.Errorf("restricted for the key server that asks: %v", found)
		}
		if rows := b.rows(t, found.requestID); brief(rows) != "[lookupPrincipals allowed ]" || rows[0]["systemId"] != float64(a.system) {
			t.Errorf("where they belong: %v", rows)
		}
		for _, u := range []user{there, other, removed} {
			if e := entry(list(), u); e["endTimeUnset"] != true {
				t.Errorf("%s: %v", u.decimal, e)
			}
		}

		// Disabled, and never heard of.
		b.ok(t, b.admin(t), "PUT", "/api/principals/"+there.id+"/flags", object{"disabled": true})
		cursor := a.ok(t, a.admin(t), "GET", "/api/changes?after=0", nil).body["cursor"]
		found = a.lookup(t, asker.session, pair(there), pair(other), pair(removed))
		if got := found.list("principals"); len(got) != 2 || got[0]["disabled"] != true || got[1]["disabled"] != false {
			t.Errorf("disabled: %s", found.raw)
		}
		if got := brief(a.rows(t, found.requestID)); got != "[lookupPrincipals allowed  lookupPrincipals allowed  closeACLEntries allowed  closeACLEntries allowed ]" {
			t.Errorf("disabled and removed: %s", got)
		}
		for u, closed := range map[*user]bool{&there: true, &other: false, &removed: true} {
			if e := entry(list(), *u); e == nil || e["endTimeUnset"] == closed {
				t.Errorf("%s: %v, want it closed: %v", u.decimal, e, closed)
			}
		}
		if got := a.changes(t, cursor); got != "key updated, key updated" {
			t.Errorf("in the change feed: %s", got)
		}

		// Said again, it changes nothing more; enabled again, the owner has to
		// grant anew.
		cursor = a.ok(t, a.admin(t), "GET", "/api/changes?after=0", nil).body["cursor"]
		a.lookup(t, asker.session, pair(there), pair(removed))
		if got := a.changes(t, cursor); got != "" {
			t.Errorf("said again: %s", got)
		}
		b.ok(t, b.admin(t), "PUT", "/api/principals/"+there.id+"/flags", object{"disabled": false})
		b.expose(t, there.id, a)
		b.refused(t, there.session, "POST", "/api/keys/authorize", object{"ttag": ttag}, http.StatusForbidden, "ACL_DENIED")
		asker.grant(t, ttag, there, "READ")
		b.ok(t, there.session, "POST", "/api/keys/authorize", object{"ttag": ttag})
	})
}

// changes lists what the feed has after a cursor, sessions left out.
func (s *site) changes(t testing.TB, cursor any) string {
	t.Helper()
	var all []string
	for _, c := range s.ok(t, s.admin(t), "GET", "/api/changes?after="+number(cursor), nil).list("changes") {
		if c["kind"] != "session" {
			all = append(all, c["kind"].(string)+" "+c["action"].(string))
		}
	}
	return strings.Join(all, ", ")
}
