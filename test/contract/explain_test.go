package contract

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const (
	explainPath = "/api/explain"
	whoCanPath  = "/api/who-can"

	evaluationPath  = "/access/v1/evaluation"
	evaluationsPath = "/access/v1/evaluations"
)

// TestExplain checks contract 18.18: the response shows the authorizer's decision and its reasons.
func TestExplain(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, auditor, link := s.AsAdmin(t), s.with(t, keyserver.RoleAuditor), s.mint(t, "key")
		user, pair := s.holder(t, keyserver.RoleExchanger)
		id, group := s.self(t, user), s.group(t, "team")
		asks := func(more rig.Object) rig.Object {
			return join(rig.Object{"operation": "hmacData", "hiddenLink": link, "principalId": id}, more)
		}
		supposes := func(with ...rig.Object) rig.Object { return asks(rig.Object{"with": with}) }
		s.refusals(t, auditor, "POST", map[string]refusal{
			"NoOperation":   {explainPath, rig.Object{"hiddenLink": link}, 400, "BAD_REQUEST", "operation"},
			"NoSuch":        {explainPath, asks(rig.Object{"operation": "HMAC Data"}), 400, "BAD_REQUEST", "operation"},
			"NoKeyTaken":    {explainPath, asks(rig.Object{"operation": "listRoles"}), 400, "BAD_REQUEST", "hiddenLink"},
			"BadLink":       {explainPath, asks(rig.Object{"hiddenLink": "AAAAAR=="}), 400, "BAD_REQUEST", "hiddenLink"},
			"EmptyLink":     {explainPath, asks(rig.Object{"hiddenLink": ""}), 400, "BAD_REQUEST", "hiddenLink"},
			"NoPrincipal":   {explainPath, asks(rig.Object{"principalId": noID}), 404, "NOT_FOUND", noID},
			"Group":         {explainPath, asks(rig.Object{"principalId": group}), 400, "INVALID_ARGUMENT", "principalId"},
			"Future":        {explainPath, asks(rig.Object{"at": 1 << 40}), 400, "INVALID_ARGUMENT", "at"},
			"AtZero":        {explainPath, asks(rig.Object{"at": 0}), 400, "BAD_REQUEST", "at"},
			"Address":       {explainPath, asks(rig.Object{"address": "nowhere"}), 400, "BAD_REQUEST", "address"},
			"NoChange":      {explainPath, supposes(rig.Object{"principalId": id}), 400, "BAD_REQUEST", "change"},
			"UnknownChange": {explainPath, supposes(rig.Object{"change": "promote"}), 400, "BAD_REQUEST", "change"},
			"Lacks":         {explainPath, supposes(rig.Object{"change": "giveRole", "principalId": id}), 400, "BAD_REQUEST", "with[0]: giveRole requires roleId"},
			"TooMuch":       {explainPath, supposes(rig.Object{"change": "enable", "principalId": id, "groupId": group}), 400, "BAD_REQUEST", "with[0]: enable does not allow groupId"},
			"Rights":        {explainPath, supposes(rig.Object{"change": "setEntry", "principalId": id, "rights": []string{"ALL"}}), 400, "BAD_REQUEST", "rights"},
			"TooMany":       {explainPath, supposes(slices.Repeat([]rig.Object{{"change": "approve"}}, 17)...), 400, "BAD_REQUEST", "with"},
			"KeylessState":  {explainPath, rig.Object{"operation": "hmacData", "with": []rig.Object{{"change": "enableKey"}}}, 400, "BAD_REQUEST", "hiddenLink"},
		})
		s.Refused(t, user, "POST", explainPath, rig.Object{"operation": "hmacData", "principalId": s.self(t, auditor)}, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, user, "POST", explainPath, rig.Object{"operation": "hmacData", "with": []rig.Object{{"change": "approve"}}}, http.StatusForbidden, "ACCESS_DENIED")

		// The refusal, its reason, and the changes that would allow the request.
		a := s.OK(t, auditor, "POST", explainPath, asks(nil))
		if a.Body["allowed"] != false || a.Body["code"] != "ACL_DENIED" || a.Body["reason"] != "aclDenied" || a.Body["principalId"] != id {
			t.Fatalf("no entry: %s", a.Raw)
		}
		steps := a.List(t, "steps")
		if last := steps[len(steps)-1]; last["step"] != "list" || last["outcome"] != "refused" {
			t.Errorf("the last step is %v", last)
		}
		change := a.List(t, "change")
		if len(change) != 1 || change[0]["change"] != "setEntry" || change[0]["principalId"] != id {
			t.Fatalf("what would change it: %s", a.Raw)
		}
		if a := s.OK(t, auditor, "POST", explainPath, supposes(change[0])); a.Body["allowed"] != true {
			t.Errorf("with it: %s", a.Raw)
		}
		s.Refused(t, user, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""}, http.StatusForbidden, "ACL_DENIED")

		// The response names a role to grant, and each other sufficient role.
		lacking := s.OK(t, auditor, "POST", explainPath, rig.Object{"operation": "readAudit", "principalId": id})
		change, roles := lacking.List(t, "change"), lacking.List(t, "roles")
		if len(change) != 1 || change[0]["name"] != "Auditor" || change[0]["roleId"] != keyserver.RoleAuditor.Hex() || len(roles) < 2 ||
			roles[0]["id"] != change[0]["roleId"] || roles[0]["name"] != "Auditor" || roles[0]["kind"] != "role" {
			t.Errorf("no role: %s", lacking.Raw)
		}

		// For an expired entry, the response suggests an entry of the same duration, and has the old end.
		begun, over := time.Now().Add(-3*time.Hour), time.Now().Add(-time.Hour)
		s.OK(t, admin, "POST", "/api/keys/acl/grant", join(pair, rig.Object{
			"ttag": link, "rights": []string{"WRITE"}, "maxUsage": 5, "startTime": stamp(begun), "endTime": stamp(over),
		}))
		ended := s.OK(t, auditor, "POST", explainPath, asks(nil))
		steps = ended.List(t, "steps")
		by, _ := steps[len(steps)-1]["by"].(map[string]any)
		if by["startTime"] != stamp(begun) || by["endTime"] != stamp(over) {
			t.Errorf("the entry is shown as %v", by)
		}
		again := ended.List(t, "change")
		if len(again) != 1 || !cmp.Equal(again[0]["rights"], []any{"READ", "WRITE"}) || again[0]["maxUsage"] != 5.0 || again[0]["startTime"] != stamp(begun) {
			t.Fatalf("an entry that is over: %s", ended.Raw)
		}
		raw, _ := base64.StdEncoding.DecodeString(again[0]["endTime"].(string))
		if end := time.UnixMilli(int64(binary.BigEndian.Uint64(raw))); !end.After(over.Add(2*time.Hour)) || end.After(time.Now().Add(2*time.Hour+time.Second)) {
			t.Errorf("it would end %v", end)
		}
		s.OK(t, admin, "POST", "/api/keys/acl/revoke", join(pair, rig.Object{"ttag": link}))

		// For the caller itself, the response shows no more than the request would.
		own := rig.Object{"operation": "hmacData", "hiddenLink": link}
		a = s.OK(t, user, "POST", explainPath, own)
		if a.Body["code"] != "ACL_DENIED" || len(a.List(t, "change")) > 0 || strings.Contains(string(a.Raw), `"kind"`) {
			t.Errorf("of himself: %s", a.Raw)
		}

		// Explaining a request does not count as a use.
		s.OK(t, admin, "POST", "/api/keys/acl/grant", join(pair, rig.Object{"ttag": link, "rights": []string{"READ"}, "maxUsage": 1}))
		for range 3 {
			if a = s.OK(t, auditor, "POST", explainPath, asks(rig.Object{"at": 1, "address": "192.0.2.1"})); a.Body["allowed"] != true || a.Body["uses"] != 1.0 || a.Body["evidenceAge"] == 0.0 {
				t.Errorf("one use: %s", a.Raw)
			}
		}
		if change = a.List(t, "change"); len(change) != 1 || change[0]["change"] != "removeEntry" {
			t.Errorf("what would take it away: %s", a.Raw)
		}
		s.OK(t, user, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""})
		if a = s.OK(t, auditor, "POST", explainPath, asks(nil)); a.Body["allowed"] != false || a.Body["uses"] != 0.0 {
			t.Errorf("no use: %s", a.Raw)
		}
		rows := s.OK(t, auditor, "GET", s.trail("operation=explainAccess&order=desc&limit=1"), nil).List(t, "entries")
		if len(rows) != 1 || rows[0]["object"] != "hmacData "+link+" for "+id {
			t.Errorf("the trail has %v", rows)
		}
	})
}

// TestWhoCan checks clause 18.19: which principals may do an operation, and by which right.
func TestWhoCan(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, auditor, link := s.AsAdmin(t), s.with(t, keyserver.RoleAuditor), s.mint(t, "key")
		user, pair := s.holder(t, keyserver.RoleExchanger)
		_, idle := s.holder(t, keyserver.RoleAuditor) // has an entry, but no role for the operation
		asks := rig.Object{"operation": "hmacData", "hiddenLink": link}
		s.refusals(t, auditor, "POST", map[string]refusal{
			"NoOperation": {whoCanPath, rig.Object{"hiddenLink": link}, 400, "BAD_REQUEST", "operation"},
			"NoKeyTaken":  {whoCanPath, join(asks, rig.Object{"operation": "listRoles"}), 400, "BAD_REQUEST", "hiddenLink"},
			"NoKey":       {whoCanPath, join(asks, rig.Object{"hiddenLink": "AAAAAQAAAAAAAAPp"}), 404, "KEY_NOT_FOUND", ""},
			"Elsewhere":   {whoCanPath, join(asks, rig.Object{"hiddenLink": "AAAACQAAAAAAAAPp"}), 400, "INVALID_ARGUMENT", "hiddenLink"},
			"Limit":       {whoCanPath, join(asks, rig.Object{"limit": 1001}), 400, "BAD_REQUEST", "limit"},
			"After":       {whoCanPath, join(asks, rig.Object{"after": "x"}), 400, "BAD_REQUEST", "after"},
		})
		s.Refused(t, user, "POST", whoCanPath, asks, http.StatusForbidden, "ACCESS_DENIED")
		for _, who := range []rig.Object{pair, idle} {
			s.OK(t, admin, "POST", "/api/keys/acl/grant", join(who, rig.Object{"ttag": link, "rights": []string{"READ"}}))
		}
		a := s.OK(t, auditor, "POST", whoCanPath, asks)
		ids := []string{}
		for _, who := range a.List(t, "who") {
			ids = append(ids, who["principalId"].(string))
			by, _ := who["by"].([]any)
			if len(by) != 2 || by[0].(map[string]any)["kind"] != "role" || by[1].(map[string]any)["name"] != who["name"] {
				t.Errorf("by %v", who["by"])
			}
		}
		want := []string{s.self(t, admin), s.self(t, user)}
		slices.Sort(want)
		if !slices.Equal(ids, want) || a.Body["next"] != nil {
			t.Fatalf("got %s, want %v", a.Raw, want)
		}
		first := s.OK(t, auditor, "POST", whoCanPath, join(asks, rig.Object{"limit": 1}))
		if first.Text(t, "next") != want[0] {
			t.Fatalf("the first page: %s", first.Raw)
		}
		second := s.OK(t, auditor, "POST", whoCanPath, join(asks, rig.Object{"limit": 1, "after": want[0]}))
		if got := second.List(t, "who"); len(got) != 1 || got[0]["principalId"] != want[1] || second.Body["next"] != nil {
			t.Errorf("the second page: %s", second.Raw)
		}

		// Without a key only the role counts, also that of a group.
		group := s.group(t, "readers", keyserver.RoleAuditor)
		member := s.principal(t, "member")
		s.join(t, group, member)
		a = s.OK(t, auditor, "POST", whoCanPath, rig.Object{"operation": "explainAccess", "limit": 1000})
		if !strings.Contains(string(a.Raw), member) || strings.Contains(string(a.Raw), group+`","systemId"`) {
			t.Errorf("by a group: %s", a.Raw)
		}
	})
}

// TestExplanationsTellNoMore checks that a principal with few rights learns no more from an explanation than
// from the request itself.
func TestExplanationsTellNoMore(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		user, pair := s.holder(t, keyserver.RoleExchanger)
		somebody, group := s.principal(t, "somebody"), s.group(t, "a secret team")
		s.OK(t, admin, "POST", "/api/keys/acl/grant", join(pair, rig.Object{"ttag": link, "rights": []string{"READ"}, "maxUsage": 7}))
		own := rig.Object{"operation": "hmacData", "hiddenLink": link}

		// The response is the same for existing and missing principals and keys.
		same := func(what, path string, body func(id, link string) rig.Object) {
			t.Helper()
			there := s.Refused(t, user, "POST", path, body(somebody, link), http.StatusForbidden, "ACCESS_DENIED")
			neither := s.Refused(t, user, "POST", path, body(noID, "AAAAAQAAAAAAAAPp"), http.StatusForbidden, "ACCESS_DENIED")
			if there.Field("detail") != neither.Field("detail") {
				t.Errorf("%s: %s is told apart from %s", what, there.Raw, neither.Raw)
			}
		}
		same("explain", explainPath, func(id, link string) rig.Object {
			return rig.Object{"operation": "hmacData", "hiddenLink": link, "principalId": id}
		})
		same("with", explainPath, func(id, link string) rig.Object {
			return rig.Object{"operation": "hmacData", "hiddenLink": link, "with": []rig.Object{{"change": "setEntry", "principalId": id, "rights": []string{"READ"}}}}
		})
		same("who-can", whoCanPath, func(_, link string) rig.Object { return rig.Object{"operation": "hmacData", "hiddenLink": link} })
		same("who-can by role", whoCanPath, func(string, string) rig.Object { return rig.Object{"operation": "readAudit"} })
		same("evaluation", evaluationPath, func(id, link string) rig.Object {
			return join(accessTo("hmacData", id), rig.Object{"resource": rig.Object{"type": "key", "id": link}})
		})
		a := s.OK(t, user, "POST", evaluationsPath, rig.Object{"evaluations": []rig.Object{accessTo("hmacData", somebody), accessTo("hmacData", noID)}})
		if each := a.List(t, "evaluations"); !cmp.Equal(each[0], each[1]) {
			t.Errorf("several: %s", a.Raw)
		}

		// The response hides the number of changes by others. Bisection with at does not reveal it, either.
		for _, at := range []int{1, 1 << 40} {
			s.Refused(t, user, "POST", explainPath, join(own, rig.Object{"at": at}), http.StatusForbidden, "ACCESS_DENIED")
		}
		a = s.OK(t, user, "POST", explainPath, own)
		if a.Body["allowed"] != true || a.Body["sequence"] != 0.0 || a.Body["uses"] != nil {
			t.Errorf("of himself: %s", a.Raw)
		}

		// The response hides the groups that the ACL requires and the principals on it.
		number := decimal(t, group)
		s.OK(t, admin, "POST", "/api/keys/acl/grant", rig.Object{"ttag": link, "systemId": 1, "principalId": number, "rights": []string{"MANDATORY_GROUP"}})
		a = s.OK(t, user, "POST", explainPath, own)
		for _, secret := range []string{group, number, "a secret team", s.self(t, admin)} {
			if strings.Contains(string(a.Raw), secret) {
				t.Errorf("%q is told: %s", secret, a.Raw)
			}
		}
		if tried := s.Refused(t, user, "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": link, "data": ""}, http.StatusForbidden, "ACL_DENIED"); tried.Field("detail") != a.Body["detail"] {
			t.Errorf("asked %s, tried %s", a.Raw, tried.Raw)
		}
	})
}

// accessTo returns an AuthZEN question whether a principal may do an operation without a key.
func accessTo(operation, principal string) rig.Object {
	return rig.Object{
		"subject": rig.Object{"type": "principal", "id": principal}, "action": rig.Object{"name": operation},
		"resource": rig.Object{"type": "keyserver", "id": "self"},
	}
}

// TestAccessEvaluation checks contract 18.20: AuthZEN responses contain the same decisions.
func TestAccessEvaluation(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, auditor, link := s.AsAdmin(t), s.with(t, keyserver.RoleAuditor), s.mint(t, "key")
		user, pair := s.holder(t, keyserver.RoleExchanger)
		id := s.self(t, user)
		key := rig.Object{"resource": rig.Object{"type": "key", "id": link}}
		asks := join(accessTo("hmacData", id), key)
		with := func(name string, value rig.Object) rig.Object { return join(asks, rig.Object{name: value}) }
		s.refusals(t, auditor, "POST", map[string]refusal{
			"NoSubject":    {evaluationPath, rig.Object{"action": asks["action"], "resource": asks["resource"]}, 400, "BAD_REQUEST", "subject"},
			"SubjectType":  {evaluationPath, with("subject", rig.Object{"type": "user", "id": id}), 400, "BAD_REQUEST", "subject.type"},
			"SubjectID":    {evaluationPath, with("subject", rig.Object{"type": "principal", "id": "alice"}), 400, "BAD_REQUEST", "subject.id"},
			"Action":       {evaluationPath, with("action", rig.Object{"name": "can_read"}), 400, "BAD_REQUEST", "action.name"},
			"ResourceType": {evaluationPath, with("resource", rig.Object{"type": "todo", "id": link}), 400, "BAD_REQUEST", "resource.type"},
			"ResourceID":   {evaluationPath, with("resource", rig.Object{"type": "key", "id": "AAAAAR=="}), 400, "BAD_REQUEST", "resource.id"},
			"NoKeyTaken":   {evaluationPath, with("action", rig.Object{"name": "listRoles"}), 400, "BAD_REQUEST", "resource.type"},
			"OtherServer":  {evaluationPath, with("resource", rig.Object{"type": "keyserver", "id": "9"}), 400, "BAD_REQUEST", "resource.id"},
			"Properties":   {evaluationPath, with("action", rig.Object{"name": "hmacData", "properties": 1}), 400, "BAD_REQUEST", "action.properties"},
			"NoneOfThem":   {evaluationsPath, rig.Object{"evaluations": []rig.Object{}}, 400, "BAD_REQUEST", "subject"},
			"TooMany":      {evaluationsPath, rig.Object{"evaluations": slices.Repeat([]rig.Object{asks}, 65)}, 400, "BAD_REQUEST", "evaluations"},
			"Semantic":     {evaluationsPath, with("options", rig.Object{"evaluations_semantic": "any"}), 400, "BAD_REQUEST", "options.evaluations_semantic"},
		})
		s.Refused(t, user, "POST", evaluationPath, accessTo("hmacData", s.self(t, auditor)), http.StatusForbidden, "ACCESS_DENIED")

		decision := func(who string, body rig.Object, want bool, code string) {
			t.Helper()
			a := s.OK(t, who, "POST", evaluationPath, join(body, rig.Object{"context": rig.Object{"time": "2026-01-01T00:00:00Z"}}))
			if because := a.Body["context"].(map[string]any); a.Body["decision"] != want || because["code"] != code {
				t.Errorf("got %s, want %v and %q", a.Raw, want, code)
			}
		}
		nobody := with("subject", rig.Object{"type": "principal", "id": noID})
		decision(auditor, asks, false, "ACL_DENIED")
		decision(user, asks, false, "ACL_DENIED")
		decision(auditor, nobody, false, "NOT_FOUND")
		decision(auditor, accessTo("listRoles", id), false, "ACCESS_DENIED")
		s.OK(t, admin, "POST", "/api/keys/acl/grant", join(pair, rig.Object{"ttag": link, "rights": []string{"READ"}}))
		decision(auditor, asks, true, "")
		decision(user, asks, true, "")
		decision(auditor, accessTo("hmacData", id), true, "")

		// In a request with several questions, each inherits missing members from the request.
		refused := rig.Object{"action": rig.Object{"name": "listRoles"}} // needs a key
		several := join(asks, rig.Object{"evaluations": []rig.Object{{}, refused, {"subject": nobody["subject"]}, {"resource": rig.Object{"type": "keyserver", "id": "self"}}}})
		for semantic, want := range map[string][]bool{
			"execute_all": {true, false, false, true}, "deny_on_first_deny": {true, false}, "permit_on_first_permit": {true},
		} {
			a := s.OK(t, auditor, "POST", evaluationsPath, join(several, rig.Object{"options": rig.Object{"evaluations_semantic": semantic}}))
			var got []bool
			for _, one := range a.List(t, "evaluations") {
				got = append(got, one["decision"] == true)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v: %s", semantic, got, want, a.Raw)
			}
		}
		a := s.OK(t, auditor, "POST", evaluationsPath, several)
		because, _ := a.List(t, "evaluations")[1]["context"].(map[string]any)
		if e, _ := because["error"].(map[string]any); e["status"] != 400.0 || !strings.Contains(e["message"].(string), "resource.type") {
			t.Errorf("a question that was refused: %s", a.Raw)
		}
		// A refused question about another principal does not affect the question about the caller itself.
		a = s.OK(t, user, "POST", evaluationsPath, rig.Object{"evaluations": []rig.Object{accessTo("hmacData", s.self(t, auditor)), asks}})
		if got := a.List(t, "evaluations"); got[0]["decision"] != false || got[1]["decision"] != true {
			t.Errorf("of others and himself: %s", a.Raw)
		}
		if a := s.OK(t, user, "POST", evaluationsPath, asks); a.Body["decision"] != true || a.Body["evaluations"] != nil {
			t.Errorf("without evaluations: %s", a.Raw)
		}
	})
}
