package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// facts returns the metadata of one key from the listing.
func (s *subject) facts(t testing.TB, session, link string) rig.Object {
	t.Helper()
	for after := ""; ; {
		a := s.OK(t, session, "GET", "/api/keys?limit=500"+after, nil)
		for _, key := range a.List(t, "keys") {
			if key["ttag"] == link {
				return key
			}
		}
		next, more := a.Body["next"].(string)
		if !more {
			t.Fatalf("the listing has no key %s", link)
		}
		after = "&after=" + url.QueryEscape(next)
	}
}

// turn changes a key's state and returns the new state.
func (s *subject) turn(t testing.TB, session, act string, body rig.Object) string {
	t.Helper()
	a := s.OK(t, session, "POST", "/api/keys/"+act, body)
	if a.Body["saved"] != true || a.Body["ttag"] != body["ttag"] || (a.Body["state"] == "destroying") != (a.Body["destroyAt"] != nil) {
		t.Errorf("%s: %s", act, a.Raw)
	}
	return a.Text(t, "state")
}

// TestKeyStates checks POST /api/keys/disable, enable, destroy and restore, refusals first.
func TestKeyStates(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		encryptor, reader := s.with(t, keyserver.RoleEncryptor), s.with(t, keyserver.RoleExchanger)
		body := rig.Object{"ttag": link}
		for _, act := range []string{"disable", "enable", "destroy", "restore"} {
			path := "/api/keys/" + act
			for name, bad := range badLinks {
				t.Run(act+name, func(t *testing.T) {
					s.Refused(t, admin, "POST", path, rig.Object{"ttag": bad}, http.StatusBadRequest, "BAD_REQUEST")
				})
			}
			s.Refused(t, reader, "POST", path, body, http.StatusForbidden, "ACCESS_DENIED")
			s.Refused(t, encryptor, "POST", path, body, http.StatusForbidden, "ACL_DENIED")
			s.Refused(t, admin, "POST", path, rig.Object{"ttag": "AAAAAQECAwQFBgcI"}, http.StatusNotFound, "KEY_NOT_FOUND")
			s.Refused(t, admin, "POST", path, rig.Object{"ttag": "AAAACQECAwQFBgcI"}, http.StatusNotFound, "KEY_NOT_FOUND")
		}
		for _, days := range []any{0, 366, -1, "7", 1.5, nil} {
			s.Refused(t, admin, "POST", "/api/keys/destroy", rig.Object{"ttag": link, "afterDays": days}, http.StatusBadRequest, "BAD_REQUEST")
		}
		s.Refused(t, admin, "POST", "/api/keys/restore", body, http.StatusConflict, "KEY_STATE")
		// READ does not allow this, even with EXPORT.
		s.OK(t, admin, "POST", "/api/keys/acl/grant", join(rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, s.self(t, encryptor)), "rights": []string{"READ", "WRITE"}}))
		s.Refused(t, encryptor, "POST", "/api/keys/disable", body, http.StatusForbidden, "ACL_DENIED")

		hmac := func() rig.Answer {
			return s.Send(t, encryptor, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
		}
		is(t, hmac(), http.StatusOK, "")
		if got := s.turn(t, admin, "disable", body); got != "disabled" {
			t.Errorf("disabled is %s", got)
		}
		is(t, hmac(), http.StatusForbidden, "KEY_DISABLED")
		s.Refused(t, encryptor, "POST", "/api/keys/authorize", body, http.StatusForbidden, "KEY_DISABLED")
		s.Refused(t, admin, "POST", "/api/keys/export", rig.Object{"ttag": link, "systemId": 1, "principalId": "1"}, http.StatusForbidden, "KEY_DISABLED")
		// A caller without rights does not learn the state.
		s.Refused(t, reader, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""}, http.StatusForbidden, "ACL_DENIED")
		if rows := s.OK(t, admin, "GET", s.trail("reason=keyDisabled"), nil).List(t, "entries"); len(rows) != 3 {
			t.Errorf("the trail says keyDisabled %d times, not of hmac, authorize and export", len(rows))
		}
		if got := s.turn(t, admin, "disable", body); got != "disabled" { // the key already has this state
			t.Errorf("disabled again is %s", got)
		}
		if got := s.facts(t, admin, link)["state"]; got != "disabled" {
			t.Errorf("listed as %v", got)
		}
		if got := s.turn(t, admin, "enable", body); got != "enabled" {
			t.Errorf("enabled is %s", got)
		}
		is(t, hmac(), http.StatusOK, "")

		a := s.OK(t, admin, "POST", "/api/keys/destroy", rig.Object{"ttag": link, "afterDays": 7})
		at, err := time.Parse(time.RFC3339, a.Text(t, "destroyAt"))
		if left := time.Until(at); err != nil || a.Body["state"] != "destroying" || left < 6*24*time.Hour || left > 7*24*time.Hour {
			t.Errorf("destroying: %s", a.Raw)
		}
		is(t, hmac(), http.StatusForbidden, "KEY_DISABLED")
		for _, act := range []string{"enable", "disable", "destroy"} {
			s.Refused(t, admin, "POST", "/api/keys/"+act, body, http.StatusConflict, "KEY_STATE")
		}
		if got := s.turn(t, admin, "restore", body); got != "disabled" {
			t.Errorf("restored is %s", got)
		}
		is(t, hmac(), http.StatusForbidden, "KEY_DISABLED")
		s.turn(t, admin, "enable", body)
		is(t, hmac(), http.StatusOK, "")
		// The audit log distinguishes reads and changes.
		rows := s.OK(t, admin, "GET", s.trail("operation=changeKeyState&limit=1000"), nil).List(t, "entries")
		changes := map[string]int{}
		for _, row := range rows {
			if _, act, ok := strings.Cut(row["object"].(string), " "); ok && row["outcome"] == "allowed" {
				changes[act]++
			}
		}
		if fmt.Sprint(changes) != "map[destroy:1 disable:1 enable:2 restore:1]" {
			t.Errorf("the trail has the changes %v", changes)
		}
	})
}

// TestDisabledKeySpendsNoUse checks that a use that the key's state forbids does not count.
func TestDisabledKeySpendsNoUse(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link, reader := s.AsAdmin(t), s.mint(t, "key"), s.with(t, keyserver.RoleExchanger)
		s.OK(t, admin, "POST", "/api/keys/acl/grant", rig.Object{
			"ttag": link, "systemId": 1, "principalId": decimal(t, s.self(t, reader)), "rights": []string{"READ"}, "maxUsage": 1,
		})
		use := rig.Object{"ttag": link}
		s.turn(t, admin, "disable", use)
		for range 3 {
			s.Refused(t, reader, "POST", "/api/keys/authorize", use, http.StatusForbidden, "KEY_DISABLED")
		}
		s.turn(t, admin, "enable", use)
		s.OK(t, reader, "POST", "/api/keys/authorize", use)
		s.Refused(t, reader, "POST", "/api/keys/authorize", use, http.StatusForbidden, "ACL_DENIED")
	})
}

// TestKeyMetadata checks state, lineage, generation, createdAt, lastUsedAt, uses, exportable and destroyAt.
// exportable false cannot be changed.
func TestKeyMetadata(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		for _, bad := range []any{"no", 0, nil} {
			s.Refused(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "AES-256", "exportable": bad}, http.StatusBadRequest, "BAD_REQUEST")
		}
		minted := s.OK(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384", "exportable": false})
		link := minted.Text(t, "ttag")
		for name, want := range map[string]any{
			"state": "enabled", "lineage": link, "generation": 1.0, "exportable": false, "uses": 0.0, "lastUsedAt": nil, "destroyAt": nil, "rotation": nil,
		} {
			if got := minted.Body[name]; got != want {
				t.Errorf("minted with %s %v, not %v", name, got, want)
			}
		}
		if at, err := time.Parse(time.RFC3339, minted.Text(t, "createdAt")); err != nil || time.Since(at) > time.Minute {
			t.Errorf("createdAt: %s", minted.Raw)
		}
		ca := peerCA(t, s.name("issuer"))
		s.trustCA(t, admin, ca)
		agent := s.agent(t, ca, "agent", keyserver.RoleEncryptor)
		id := s.principalNamed(t, "/CN=agent")
		export := rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, id)}
		s.Refused(t, admin, "POST", "/api/keys/export", export, http.StatusForbidden, "KEY_NOT_EXPORTABLE")
		if rows := s.OK(t, admin, "GET", s.trail("reason=notExportable"), nil).List(t, "entries"); len(rows) != 1 {
			t.Errorf("%d rows say notExportable", len(rows))
		}
		s.readable(t, link, id)
		for range 3 {
			s.OK(t, admin, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
		}
		s.OK(t, admin, "POST", "/api/keys/authorize", rig.Object{"ttag": link})
		s.turn(t, admin, "disable", rig.Object{"ttag": link})
		s.Refused(t, admin, "POST", "/api/keys/authorize", rig.Object{"ttag": link}, http.StatusForbidden, "KEY_DISABLED")
		// The metadata of a disabled key can still be read.
		with := s.showing(t, agent)
		got := with.OK(t, with.login(t), "POST", "/api/keys/get", rig.Object{"ttag": link})
		if got.Body["uses"] != 4.0 || got.Body["lastUsedAt"] == nil || got.Body["state"] != "disabled" {
			t.Errorf("after four uses: %s", got.Raw)
		}
		other := s.mint(t, "key")
		s.OK(t, admin, "POST", "/api/keys/export", join(export, rig.Object{"ttag": other}))
		if got := s.facts(t, admin, other); got["uses"] != 1.0 {
			t.Errorf("an export is counted %v times", got["uses"])
		}
	})
}

// TestRotateKey checks POST /api/keys/rotate: the successor has the algorithm, the ACL and exportable of the
// newest key of the lineage.
func TestRotateKey(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/keys/rotate"
		admin, reader, encryptor := s.AsAdmin(t), s.with(t, keyserver.RoleExchanger), s.with(t, keyserver.RoleEncryptor)
		first := s.OK(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "AES-256", "material": b64(make([]byte, 32)), "exportable": false}).Text(t, "ttag")
		for name, bad := range badLinks {
			t.Run("Ttag"+name, func(t *testing.T) {
				s.Refused(t, admin, "POST", path, rig.Object{"ttag": bad}, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		body := rig.Object{"ttag": first}
		s.Refused(t, reader, "POST", path, body, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, encryptor, "POST", path, body, http.StatusForbidden, "ACL_DENIED")
		s.Refused(t, admin, "POST", path, rig.Object{"ttag": "AAAAAQECAwQFBgcI"}, http.StatusNotFound, "KEY_NOT_FOUND")
		s.Refused(t, admin, "POST", path, rig.Object{"ttag": "AAAACQECAwQFBgcI"}, http.StatusNotFound, "KEY_NOT_FOUND")
		s.OK(t, admin, "POST", "/api/keys/acl/grant", rig.Object{"ttag": first, "systemId": 1, "principalId": decimal(t, s.self(t, reader)), "rights": []string{"READ"}, "maxUsage": 2})
		s.OK(t, reader, "POST", "/api/keys/authorize", body)

		a := s.OK(t, admin, "POST", path, body)
		second := a.Text(t, "ttag")
		if second == first || a.Body["saved"] != true || a.Body["lineage"] != first || a.Body["generation"] != 2.0 || a.Body["algorithm"] != "AES-256" ||
			a.Body["exportable"] != false || a.Body["state"] != "enabled" || a.Body["keyBytes"] != 32.0 {
			t.Errorf("the successor is %s", a.Raw)
		}
		if got := s.facts(t, admin, first)["state"]; got != "enabled" {
			t.Errorf("without a rotation policy the former key is %v", got)
		}
		// One of two uses is left, also for the successor.
		s.OK(t, reader, "POST", "/api/keys/authorize", rig.Object{"ttag": second})
		s.Refused(t, reader, "POST", "/api/keys/authorize", rig.Object{"ttag": second}, http.StatusForbidden, "ACL_DENIED")

		// A request can name the lineage by any of its keys. The ACL of the newest key decides.
		third := s.OK(t, admin, "POST", path, body)
		if third.Body["generation"] != 3.0 || third.Body["lineage"] != first {
			t.Errorf("the third is %s", third.Raw)
		}
		newest := rig.Object{"ttag": third.Text(t, "ttag")}
		s.OK(t, admin, "POST", "/api/keys/acl/revoke", join(newest, rig.Object{"systemId": 1, "principalId": decimal(t, s.self(t, reader))}))
		s.turn(t, admin, "disable", newest)
		fourth := s.OK(t, admin, "POST", path, body) // an owner can rotate a disabled key
		if fourth.Body["generation"] != 4.0 {
			t.Errorf("the fourth is %s", fourth.Raw)
		}
		s.Refused(t, reader, "POST", "/api/keys/authorize", rig.Object{"ttag": fourth.Text(t, "ttag")}, http.StatusForbidden, "ACL_DENIED")
		s.turn(t, admin, "destroy", rig.Object{"ttag": fourth.Text(t, "ttag")})
		s.Refused(t, admin, "POST", path, body, http.StatusConflict, "KEY_STATE")
		s.Refused(t, admin, "PUT", "/api/keys/rotation", join(body, rig.Object{"everyDays": 1, "verifyOnlyDays": 0, "destroyAfterDays": 0}), http.StatusConflict, "KEY_STATE")

		line := s.OK(t, admin, "GET", "/api/keys?lineage="+url.QueryEscape(first), nil).List(t, "keys")
		if len(line) != 4 || line[0]["ttag"] != first || line[3]["generation"] != 4.0 {
			t.Errorf("the line is %v", line)
		}
	})
}

// TestListKeys checks GET /api/keys: it lists the keys that the caller may read, by its own entry or that of a group.
func TestListKeys(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, reader := s.AsAdmin(t), s.with(t, keyserver.RoleExchanger)
		for _, query := range []string{"limit=0", "limit=501", "limit=x", "state=gone", "lineage=x", "after=", "after=A", "offset=1", "state=enabled&state=enabled"} {
			s.Refused(t, admin, "GET", "/api/keys?"+query, nil, http.StatusBadRequest, "BAD_REQUEST")
		}
		s.Refused(t, admin, "GET", "/api/keys?after=AAAAAQECAwQFBgcI", nil, http.StatusBadRequest, "INVALID_ARGUMENT")
		s.Refused(t, admin, "GET", "/api/keys?lineage=AAAACQECAwQFBgcI", nil, http.StatusBadRequest, "INVALID_ARGUMENT")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/keys", nil, http.StatusForbidden, "ACCESS_DENIED")

		const n = 150
		links := map[string]bool{}
		for range n {
			links[s.mint(t, "key")] = true
		}
		var some []string
		for link := range links {
			if some = append(some, link); len(some) == 3 {
				break
			}
		}
		s.turn(t, admin, "disable", rig.Object{"ttag": some[0]})
		collect := func(session, query string) map[string]bool {
			t.Helper()
			found := map[string]bool{}
			for after := ""; ; {
				a := s.OK(t, session, "GET", "/api/keys?"+query+after, nil)
				for _, key := range a.List(t, "keys") {
					if found[key["ttag"].(string)] {
						t.Fatalf("%v is listed twice", key["ttag"])
					}
					found[key["ttag"].(string)] = true
				}
				next, more := a.Body["next"].(string)
				if !more {
					return found
				}
				after = "&after=" + url.QueryEscape(next)
			}
		}
		for _, limit := range []int{1, 7, 64, 149, 150, 500} {
			if limit == 1 && testing.Short() {
				continue
			}
			found := collect(admin, fmt.Sprintf("limit=%d", limit))
			if len(found) != n {
				t.Errorf("pages of %d: %d of %d keys", limit, len(found), n)
			}
			for link := range found {
				if !links[link] {
					t.Errorf("%s is listed and was not minted", link)
				}
			}
		}
		if found := collect(admin, "limit=10&state=disabled"); len(found) != 1 || !found[some[0]] {
			t.Errorf("disabled are %v", found)
		}
		if found := collect(reader, "limit=10"); len(found) != 0 {
			t.Errorf("somebody without entries sees %v", found)
		}
		// An entry of the caller, one of a group, and an expired one.
		self := s.self(t, reader)
		group := s.group(t, "group")
		s.OK(t, admin, "PUT", "/api/principals/groups/"+group+"/members/"+self, nil)
		grant := func(link, id string, more rig.Object) {
			s.OK(t, admin, "POST", "/api/keys/acl/grant", join(rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, id), "rights": []string{"READ"}}, more))
		}
		grant(some[0], self, nil)
		grant(some[0], group, nil)
		grant(some[1], group, nil)
		grant(some[2], self, rig.Object{"maxUsage": 0})
		if found := collect(reader, "limit=1"); len(found) != 2 || !found[some[0]] || !found[some[1]] {
			t.Errorf("by himself and his group he sees %v, not %v", found, some[:2])
		}
		s.OK(t, admin, "DELETE", "/api/principals/groups/"+group+"/members/"+self, nil)
		if found := collect(reader, "limit=1"); len(found) != 1 || !found[some[0]] {
			t.Errorf("without the group he sees %v", found)
		}
	})
}

// later returns an option with a clock that a test can move.
func later(ahead *atomic.Int64) testserver.Option {
	return func(c *server.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c.SessionIdle, c.SessionLifetime = 9000*time.Hour, 10_000*time.Hour
	}
}

const day = 24 * time.Hour

// TestKeyRotation checks PUT /api/keys/rotation: successors are created and key bytes are destroyed
// automatically.
func TestKeyRotation(t *testing.T) {
	var ahead atomic.Int64
	ownEmbedded(t, func(t *testing.T, s *subject) {
		const path = "/api/keys/rotation"
		admin, first := s.AsAdmin(t), s.mint(t, "key")
		days := func(every, verify, destroy any) rig.Object {
			return rig.Object{"ttag": first, "everyDays": every, "verifyOnlyDays": verify, "destroyAfterDays": destroy}
		}
		for name, bad := range map[string]rig.Object{
			"Negative": days(-1, 0, 0), "Long": days(3651, 0, 0), "LongVerify": days(1, 3651, 0), "LongDestroy": days(1, 1, 366), "NoVerify": days(1, 0, 1),
			"Text": days("1", 1, 1), "Missing": {"ttag": first, "everyDays": 1}, "Null": days(nil, 1, 1), "NoLink": {"everyDays": 1, "verifyOnlyDays": 1, "destroyAfterDays": 1},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "PUT", path, bad, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "PUT", path, days(1, 1, 1), http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "PUT", path, days(1, 1, 1), http.StatusForbidden, "ACL_DENIED")

		a := s.OK(t, admin, "PUT", path, days(90, 30, 7))
		if a.Body["saved"] != true || a.Body["lineage"] != first || fmt.Sprint(a.Body["rotation"]) != "map[destroyAfterDays:7 everyDays:90 verifyOnlyDays:30]" {
			t.Errorf("set: %s", a.Raw)
		}
		line := func() []rig.Object {
			return s.OK(t, admin, "GET", "/api/keys?lineage="+url.QueryEscape(first), nil).List(t, "keys")
		}
		states := func() string {
			out := []string{}
			for _, key := range line() {
				out = append(out, key["state"].(string))
			}
			return strings.Join(out, " ")
		}
		soon := func(want string) {
			t.Helper()
			rig.Succeeds(t, func() error {
				if got := states(); got != want {
					return fmt.Errorf("after %v the line is %s, want %s", time.Duration(ahead.Load()), got, want)
				}
				return nil
			})
		}
		ahead.Store(int64(89 * day))
		time.Sleep(1500 * time.Millisecond)
		soon("enabled")
		ahead.Store(int64(90 * day))
		soon("verifyOnly enabled")
		s.Refused(t, admin, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": first, "data": ""}, http.StatusForbidden, "KEY_DISABLED")
		second := line()[1]["ttag"].(string)
		s.OK(t, admin, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": second, "data": ""})
		ahead.Store(int64(121 * day))
		soon("destroying enabled")
		ahead.Store(int64(129 * day))
		soon("destroyed enabled")
		if gone := line()[0]; gone["destroyAt"] == nil || gone["keyBytes"] != 3.0 {
			t.Errorf("what stays of the key is %v", gone)
		}
		for _, act := range []string{"enable", "disable", "destroy", "restore"} {
			s.Refused(t, admin, "POST", "/api/keys/"+act, rig.Object{"ttag": first}, http.StatusConflict, "KEY_STATE")
		}
		s.Refused(t, admin, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": first, "data": ""}, http.StatusForbidden, "KEY_DISABLED")
		// A disabled newest key gets no successor until it is enabled.
		s.turn(t, admin, "disable", rig.Object{"ttag": second})
		ahead.Store(int64(200 * day))
		time.Sleep(1500 * time.Millisecond)
		soon("destroyed disabled")
		s.turn(t, admin, "enable", rig.Object{"ttag": second})
		soon("destroyed verifyOnly enabled")
		// After a manual rotation, the previous key computes no MACs, either.
		s.OK(t, admin, "POST", "/api/keys/rotate", rig.Object{"ttag": second})
		soon("destroyed verifyOnly verifyOnly enabled")
		if a := s.OK(t, admin, "PUT", path, days(0, 0, 0)); a.Body["rotation"] != nil {
			t.Errorf("taken away: %s", a.Raw)
		}
		ahead.Store(int64(300 * day))
		time.Sleep(1500 * time.Millisecond)
		soon("destroyed verifyOnly verifyOnly enabled")

		by := map[string]int{}
		for _, row := range s.OK(t, admin, "GET", "/api/audit?limit=1000", nil).List(t, "entries") {
			if row["sessionKind"] == "internal" && row["outcome"] == "allowed" {
				_, what, _ := strings.Cut(row["object"].(string), " ")
				by[fmt.Sprintf("%v %s", row["operation"], strings.Fields(what + " -")[0])]++
			}
		}
		if by["rotateKey to"] != 2 || by["changeKeyState destroy"] != 1 || by["changeKeyState destroyed"] != 1 {
			t.Errorf("by itself, the trail has %v", by)
		}
	}, later(&ahead))
}
