package contract

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestExplanationsComeTrue checks that each request has the explained result, and that the suggested changes reverse
// it. It is like TestExplainIsTheGate of package engine, but only sends requests. EXPLAIN_STATES is the number of
// states, EXPLAIN_SEED the seed.
func TestExplanationsComeTrue(t *testing.T) {
	number := func(variable string, or uint64) uint64 {
		text, set := os.LookupEnv(variable)
		if !set {
			return or
		}
		n, err := strconv.ParseUint(text, 10, 64)
		rig.Must(t, err)
		return n
	}
	states, seed := number("EXPLAIN_STATES", 40), number("EXPLAIN_SEED", 1)
	ownEmbedded(t, func(t *testing.T, s *subject) { // suggestions include roles of other tests
		w := newWorkload(t, s, seed)
		for range states {
			w.change()
			w.ask()
		}
		t.Logf("seed %d: allowed %d, refused %d, turned round %d", seed, w.allowed, w.refused, w.turned)
		if n := int(states) / 20; w.allowed < n || w.refused < n || w.turned < n {
			t.Error("one of them is hardly ever there: the states are no good")
		}
	})
}

// workload is a set of users and keys of a server whose rights change randomly.
type workload struct {
	*testing.T
	s                        *subject
	seed                     uint64
	dice                     *rand.Rand
	admin, auditor           string
	users                    []*user
	group                    string
	roles                    []string
	keys                     []string
	allowed, refused, turned int
}

type user struct {
	name, session, id string
	pair              rig.Object
}

func newWorkload(t *testing.T, s *subject, seed uint64) *workload {
	t.Helper()
	w := &workload{T: t, s: s, seed: seed, dice: rand.New(rand.NewPCG(seed, 0)), admin: s.AsAdmin(t), auditor: s.with(t, keyserver.RoleAuditor)}
	w.roles = hexes(keyserver.RoleEncryptor, keyserver.RoleExchanger, keyserver.RoleAuditor)
	w.group = s.group(t, "team")
	for _, name := range []string{"ann", "ben"} {
		u := s.User(t, name)
		p := s.OK(t, u.Session, "GET", "/api/sessions/current", nil)
		w.users = append(w.users, &user{name, u.Session, p.Text(t, "principal", "id"), rig.Object{
			"systemId": p.At(t, "principal", "systemId"), "principalId": p.Text(t, "principal", "principalId"),
		}})
	}
	w.keys = []string{s.mint(t, "first"), s.mint(t, "second"), s.aes(t)}
	return w
}

func (w *workload) one(from []string) string { return from[w.dice.IntN(len(from))] }

// change makes one random change.
func (w *workload) change() {
	w.Helper()
	who, key := w.users[w.dice.IntN(len(w.users))], w.one(w.keys)
	switch w.dice.IntN(6) {
	case 0:
		w.hold(who.id, w.one(w.roles))
	case 1:
		w.hold(w.group, w.one(w.roles))
	case 2:
		w.member(who.id, w.dice.IntN(2) == 0)
	case 3:
		w.s.Send(w, w.admin, "POST", "/api/keys/"+w.one([]string{"disable", "enable"}), rig.Object{"ttag": key}) // refused if the key already has the state
	default:
		uses := -1
		if w.dice.IntN(3) == 0 {
			uses = w.dice.IntN(2)
		}
		entry := rig.Object{"rights": []string{w.one([]string{"READ", "OWNER"})}, "maxUsage": uses}
		if n := w.dice.IntN(5); n < 3 { // the entry is expired, valid, or in the future
			entry["startTime"] = stamp(time.Now().Add(time.Duration(2*n-3) * time.Hour))
			if w.dice.IntN(2) == 0 {
				entry["endTime"] = stamp(time.Now().Add(time.Duration(2*n-1) * time.Hour))
			}
		}
		w.entry(key, who.pair, w.dice.IntN(3) > 0, entry)
	}
}

func (w *workload) hold(id, role string) {
	w.Helper()
	w.s.OK(w, w.admin, "PUT", "/api/principals/"+id+"/roles", rig.Object{"roleIds": []string{role}})
}

func (w *workload) member(id string, in bool) {
	w.Helper()
	method := "DELETE"
	if in {
		method = "PUT"
	}
	w.s.Send(w, w.admin, method, "/api/principals/groups/"+w.group+"/members/"+id, nil)
}

// entry replaces or removes an entry of a key's ACL.
func (w *workload) entry(key string, pair rig.Object, there bool, entry rig.Object) {
	w.Helper()
	who := join(pair, rig.Object{"ttag": key})
	w.s.Send(w, w.admin, "POST", "/api/keys/acl/revoke", who) // the entry may not exist
	if there {
		w.s.OK(w, w.admin, "POST", "/api/keys/acl/grant", join(who, entry))
	}
}

// requests map each explained operation to a request that does it.
var requests = map[string]func(key string) (method, path string, body any){
	"authorizeKey": func(key string) (string, string, any) { return "POST", "/api/keys/authorize", rig.Object{"ttag": key} },
	"hmacData": func(key string) (string, string, any) {
		return "POST", "/api/crypto/hmac", rig.Object{"hiddenLink": key, "data": ""}
	},
	"macData": func(key string) (string, string, any) {
		return "POST", "/api/crypto/mac", rig.Object{"lineage": key, "data": ""}
	},
	"encryptData": func(key string) (string, string, any) {
		return "POST", "/api/crypto/encrypt", rig.Object{"ttag": key, "data": ""}
	},
	"readKeyMetadata": func(key string) (string, string, any) { return "POST", "/api/keys/get", rig.Object{"ttag": key} },
	"readACL":         func(key string) (string, string, any) { return "POST", "/api/keys/acl/get", rig.Object{"ttag": key} },
	"readAudit":       func(string) (string, string, any) { return "GET", "/api/audit?limit=1", nil },
	"listRoles":       func(string) (string, string, any) { return "GET", "/api/roles", nil },
}

// ask explains a request, sends it, and makes the suggested changes.
func (w *workload) ask() {
	w.Helper()
	names := slices.Sorted(maps.Keys(requests))
	name, who, key := w.one(names), w.users[w.dice.IntN(len(w.users))], w.one(w.keys)
	question := rig.Object{"operation": name, "principalId": who.id}
	if op, _ := keyserver.OperationNamed(name); op.AboutKey() {
		question["hiddenLink"] = key
	}
	is := w.compare(question, who, key)
	if is.Body["allowed"] == true { // the request may have been the last use
		w.allowed++
		if is = w.s.OK(w, w.auditor, "POST", explainPath, question); is.Body["allowed"] != true {
			return
		}
	} else {
		w.refused++
	}
	change := is.List(w, "change")
	if len(change) == 0 {
		return
	}
	if supposed := w.s.OK(w, w.auditor, "POST", explainPath, join(question, rig.Object{"with": change})); supposed.Body["allowed"] == is.Body["allowed"] {
		w.Fatalf("seed %d: %v with %v is still %s", w.seed, question, change, supposed.Raw)
	}
	for _, c := range change {
		if roles := is.List(w, "roles"); c["change"] == "giveRole" { // each named role is sufficient
			role := roles[w.dice.IntN(len(roles))]
			c["roleId"], c["name"] = role["id"], role["name"]
		}
		w.make(c, key)
	}
	if after := w.compare(question, who, key); after.Body["allowed"] == is.Body["allowed"] {
		w.Fatalf("seed %d: %v were done, and %v is still %s", w.seed, change, question, after.Raw)
	}
	w.turned++
}

// compare explains a request, sends it, and fails if the results differ.
func (w *workload) compare(question rig.Object, who *user, key string) rig.Answer {
	w.Helper()
	is := w.s.OK(w, w.auditor, "POST", explainPath, question)
	method, path, body := requests[question["operation"].(string)](key)
	did := w.s.Send(w, who.session, method, path, body)
	if is.Text(w, "code") != did.Code() || (is.Body["allowed"] == true) != (did.Status == http.StatusOK) {
		w.Fatalf("seed %d: %v is explained as %s, and answered %d %s", w.seed, question, is.Raw, did.Status, did.Raw)
	}
	return is
}

// make applies a suggested change.
func (w *workload) make(c rig.Object, key string) {
	w.Helper()
	id, _ := c["principalId"].(string)
	of := slices.IndexFunc(w.users, func(u *user) bool { return u.id == id })
	switch c["change"] {
	case "giveRole":
		w.hold(id, c["roleId"].(string))
	case "takeRole": // each user has one role
		w.s.OK(w, w.admin, "PUT", "/api/principals/"+id+"/roles", rig.Object{"roleIds": []string{}})
	case "addMember":
		w.member(id, true)
	case "disable":
		w.s.OK(w, w.admin, "PUT", "/api/principals/"+id+"/flags", rig.Object{"disabled": true})
	case "enable": // its sessions ended when it was disabled
		w.s.OK(w, w.admin, "PUT", "/api/principals/"+id+"/flags", rig.Object{"disabled": false})
		w.users[of].session = w.s.LogIn(w, w.users[of].name, rig.Password)
	case "enableKey":
		w.s.OK(w, w.admin, "POST", "/api/keys/enable", rig.Object{"ttag": key})
	case "setEntry", "removeEntry":
		entry := rig.Object{}
		for _, field := range []string{"rights", "maxUsage", "startTime", "endTime"} {
			if value, has := c[field]; has {
				entry[field] = value
			}
		}
		w.entry(key, w.users[of].pair, c["change"] == "setEntry", entry)
	default:
		w.Fatalf("seed %d: %v is not made here", w.seed, c)
	}
}
