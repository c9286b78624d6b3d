package contract

import (
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// letters are the short names of all built-in roles in the matrix: see newMatrix.
var letters = map[rune]keyserver.ID{
	'A': keyserver.RoleAdministrator, 'O': keyserver.RoleSecurityOfficer, 'E': keyserver.RoleEncryptor,
	'X': keyserver.RoleExchanger, 'U': keyserver.RoleAuditor,
}

// roleLetters are the roles in the order of the requests.
var roleLetters = slices.Sorted(maps.Keys(letters))

// open are the routes that need no session.
var open = []string{"GET /api/health", "GET /api/ready", "GET /api/openapi.json", "POST /api/sessions"}

// byDuty are the approval routes that need no operation of a role: see TestMatrixOfApprovals.
var byDuty = []string{
	"POST /api/approvals", "POST /api/approvals/{id}/approve", "POST /api/approvals/{id}/reject", "POST /api/approvals/{id}/execute", "POST /api/approvals/{id}/withdraw",
}

// allowed lists the roles that may use each route in a split deployment. It follows the table of contract 4.4 and the
// duties of contract 4.1, not the catalogue of roles. Administrator has administration, Security Officer has trust and
// its evidence. Encryptor creates keys, Exchanger uses them, and Auditor reads everything except keys. In a unified
// deployment, Administrator may also use all routes of Security Officer.
var allowed = map[string]string{
	"GET /api/operations":          "AOEXU",
	"POST /api/server/version":     "AOEXU",
	"GET /api/sessions/current":    "AOEXU",
	"DELETE /api/sessions/current": "AOEXU",

	"GET /api/sessions":                    "A",
	"DELETE /api/sessions/{id}":            "A",
	"DELETE /api/principals/{id}/sessions": "A",

	"GET /api/custody":         "A",
	"POST /api/custody/rotate": "A",
	"POST /api/backups":        "A",

	"GET /api/approvals/policy": "AOU",
	"PUT /api/approvals/policy": "A",
	"GET /api/approvals":        "AOU",
	"GET /api/approvals/{id}":   "AOU",

	"GET /api/audit":                     "OU",
	"GET /api/audit/{seq}/receipt":       "OU",
	"GET /api/audit/tile/entries/{tile}": "OU",
	"GET /api/audit/tile/{level}/{tile}": "AOEXU",
	"GET /api/audit/checkpoint":          "AOEXU",
	"GET /api/audit/key":                 "AOEXU",
	"GET /api/witness":                   "OU",
	"GET /api/changes":                   "AOU",
	"POST /api/explain":                  "OU", // with another principal in the body
	"POST /api/who-can":                  "OU",
	"POST /access/v1/evaluation":         "OU", // with another principal in the body
	"POST /access/v1/evaluations":        "OU",
	"POST /api/config/get":               "AU",

	"POST /api/keys":                    "E",
	"POST /api/keys/get":                "", // only for a transport principal, with any role: see TestMatrixOfTransportPrincipals
	"POST /api/keys/authorize":          "EX",
	"POST /api/keys/export":             "E",
	"GET /api/keys":                     "EX",
	"POST /api/keys/disable":            "E",
	"POST /api/keys/enable":             "E",
	"POST /api/keys/destroy":            "E",
	"POST /api/keys/restore":            "E",
	"POST /api/keys/rotate":             "E",
	"PUT /api/keys/rotation":            "E",
	"POST /api/crypto/hmac":             "EX",
	"POST /api/crypto/mac":              "EX",
	"POST /api/crypto/mac/verify":       "EX",
	"POST /api/crypto/mac/batch":        "EX",
	"POST /api/crypto/mac/verify/batch": "EX",
	"POST /api/crypto/encrypt":          "EX",
	"POST /api/crypto/decrypt":          "EX",
	"POST /api/keys/acl/get":            "EX",
	"POST /api/keys/acl/grant":          "E",
	"POST /api/keys/acl/update":         "E",
	"POST /api/keys/acl/revoke":         "E",

	"GET /api/principals":                               "AOU",
	"POST /api/principals/lookup":                       "AOE",
	"POST /api/principals/password":                     "A",
	"POST /api/principals/ldap":                         "A",
	"POST /api/principals/xauth":                        "A",
	"GET /api/principals/{id}":                          "AOU",
	"PUT /api/principals/{id}/flags":                    "A",
	"PUT /api/principals/{id}/delegates/{pid}":          "A",
	"DELETE /api/principals/{id}/delegates/{pid}":       "A",
	"PUT /api/principals/{id}/roles":                    "A",
	"PUT /api/principals/{id}/password":                 "A",
	"DELETE /api/principals/{id}":                       "A",
	"POST /api/principals/groups":                       "A",
	"GET /api/principals/groups/{gid}/members":          "AOU",
	"PUT /api/principals/groups/{gid}/members/{pid}":    "A",
	"DELETE /api/principals/groups/{gid}/members/{pid}": "A",

	"GET /api/roles":         "AOU",
	"POST /api/roles":        "A",
	"PUT /api/roles/{id}":    "A",
	"DELETE /api/roles/{id}": "A",

	"GET /api/trusted-cas":         "AOU",
	"POST /api/trusted-cas":        "O",
	"POST /api/trusted-cas/remove": "O",

	"GET /api/trusted-servers":               "AOU",
	"POST /api/trusted-servers":              "O",
	"PUT /api/trusted-servers/{systemId}":    "O",
	"DELETE /api/trusted-servers/{systemId}": "O",
	"GET /api/trust/local-info":              "AO",

	"GET /api/authority":           "AOU",
	"POST /api/authority/prepare":  "O",
	"POST /api/authority/activate": "O",
	"POST /api/authority/retire":   "O",

	"GET /api/principal-trusts":         "OU",
	"POST /api/principal-trusts":        "O",
	"PUT /api/principal-trusts/{id}":    "O",
	"DELETE /api/principal-trusts/{id}": "O",

	"GET /api/owners":                "AOU",
	"GET /api/owners/{kind}/{id}":    "AOU",
	"PUT /api/owners/{kind}/{id}":    "AO",
	"DELETE /api/owners/{kind}/{id}": "AO",

	"GET /api/acl-templates":                                          "OU",
	"POST /api/acl-templates":                                         "O",
	"PUT /api/acl-templates/{id}":                                     "O",
	"DELETE /api/acl-templates/{id}":                                  "O",
	"GET /api/acl-templates/{id}/members":                             "OU",
	"POST /api/acl-templates/{id}/members":                            "O",
	"DELETE /api/acl-templates/{id}/members/{systemId}/{principalId}": "O",
	"GET /api/templated-directories":                                  "OU",
	"POST /api/templated-directories":                                 "O",
	"DELETE /api/templated-directories/{id}":                          "O",

	"POST /api/certificates":                        "A",
	"POST /api/certificates/renew":                  "A",
	"POST /api/certificates/enroll":                 "A",
	"POST /api/certificates/by-subject":             "AOU",
	"POST /api/certificates/by-transport-principal": "AOU",
	"POST /api/transport-principals/reset":          "A",

	"GET /api/revocation/issuers":                 "OU",
	"GET /api/revocation/issuers/{digest}/policy": "OU",
	"PUT /api/revocation/issuers/{digest}/policy": "O",
	"POST /api/revocation/crls":                   "O",
}

// giving is the route by which the Security Officer grants its own roles in a split deployment. The Administrator may
// not grant them (contract 4.9).
const giving = "PUT /api/principals/{id}/roles"

// TestMatrix sends a request to every route with every built-in role on both deployments.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for deployment, with := range map[string]struct {
		run     func(*testing.T, func(*testing.T, *subject), ...testserver.Option)
		options []testserver.Option
	}{"Unified": {own, nil}, "Split": {ownEmbedded, []testserver.Option{divided}}} {
		t.Run(deployment, func(t *testing.T) {
			with.run(t, func(t *testing.T, s *subject) {
				m := newMatrix(t, s)
				knows(t, slices.Collect(maps.Keys(m.bodies)), slices.Collect(maps.Keys(m.paths)))
				for _, deny := range []bool{true, false} { // refusals first: an allowed request may delete its object
					for _, r := range deletionsLast(routes.All()) {
						m.route(t, r.Method+" "+r.Path, deployment == "Unified", deny)
					}
				}
			}, with.options...)
		})
	}
}

// TestMatrixIsWhole checks that the matrix has all built-in roles, and only existing roles and routes.
func TestMatrixIsWhole(t *testing.T) {
	for _, d := range []keyserver.Deployment{keyserver.Unified, keyserver.Split} {
		built := map[keyserver.ID]bool{}
		for _, b := range keyserver.BuiltInRoles(d) {
			built[b.ID] = true
			if !slices.Contains(slices.Collect(maps.Values(letters)), b.ID) {
				t.Errorf("%s: the matrix has no letter for the role %s", d, b.Name)
			}
		}
		for letter, id := range letters {
			if !built[id] {
				t.Errorf("%s: no built-in role is %c", d, letter)
			}
		}
	}
	knows(t, open, byDuty, slices.Collect(maps.Keys(allowed)), slices.Collect(maps.Keys(again)), slices.Collect(maps.Keys(unread)))
	for name, who := range allowed {
		for _, r := range who {
			if _, ok := letters[r]; !ok {
				t.Errorf("%s: %c is no role", name, r)
			}
		}
	}
}

// knows checks that all routes in the lists exist.
func knows(t *testing.T, lists ...[]string) {
	t.Helper()
	table := map[string]bool{}
	for _, r := range routes.All() {
		table[r.Method+" "+r.Path] = true
	}
	for _, names := range lists {
		for _, name := range names {
			if !table[name] {
				t.Errorf("the matrix knows the route %s, which is not there", name)
			}
		}
	}
}

// deletionsLast moves routes that delete an object to the end, so that every route finds its object.
func deletionsLast(table []routes.Route) []routes.Route {
	takes := func(r routes.Route) bool {
		return r.Method == http.MethodDelete || slices.Contains([]string{"remove", "revoke", "reset", "retire"}, path.Base(r.Path))
	}
	slices.SortStableFunc(table, func(a, b routes.Route) int {
		switch {
		case takes(a) == takes(b):
			return 0
		case takes(a):
			return 1
		default:
			return -1
		}
	})
	return table
}

// again has the error codes that all roles after the first one get, because the first role has already created the
// object.
var again = map[string]string{
	"POST /api/trusted-cas":           "ALREADY_TRUSTED",
	"POST /api/acl-templates":         "ALREADY_EXISTS",
	"POST /api/templated-directories": "ALREADY_EXISTS",
	"POST /api/trusted-servers":       "ALREADY_EXISTS",
	"POST /api/principal-trusts":      "ALREADY_EXISTS",
	"POST /api/authority/prepare":     "AUTHORITY_STATE",
	"POST /api/authority/activate":    "AUTHORITY_STATE",
	"POST /api/authority/retire":      "NOT_FOUND",

	"POST /api/trusted-cas/remove":                                    "NOT_TRUSTED",
	"DELETE /api/principals/{id}":                                     "NOT_FOUND",
	"DELETE /api/acl-templates/{id}":                                  "NOT_FOUND",
	"DELETE /api/acl-templates/{id}/members/{systemId}/{principalId}": "NOT_FOUND",
	"DELETE /api/templated-directories/{id}":                          "NOT_FOUND",
	"DELETE /api/trusted-servers/{systemId}":                          "NOT_FOUND",
	"DELETE /api/principal-trusts/{id}":                               "NOT_FOUND",
	"DELETE /api/owners/{kind}/{id}":                                  "NOT_FOUND",
}

// matrix is a server with an object of every kind. Otherwise a route could fail with "not found" before it checks the
// role.
type matrix struct {
	s      *subject
	bodies map[string]any
	paths  map[string]string // paths with path parameters and query
}

func (m *matrix) route(t *testing.T, name string, unified, deny bool) {
	t.Helper()
	if slices.Contains(open, name) || slices.Contains(byDuty, name) {
		return
	}
	letter, known := allowed[name]
	if !known {
		t.Errorf("the matrix does not say who may use %s", name)
		return
	}
	method, at, _ := strings.Cut(name, " ")
	if p, ok := m.paths[name]; ok {
		at = p
	}
	if strings.Contains(at, "{") {
		t.Fatalf("the matrix has no object for %s", name)
	}
	if deny {
		m.s.Refused(t, "", method, at, m.bodies[name], http.StatusUnauthorized, "SESSION_NOT_FOUND")
	}
	used := false
	for _, r := range roleLetters {
		may := strings.ContainsRune(letter, r) || unified && r == 'A' && strings.Contains(letter, "O") ||
			!unified && r == 'O' && name == giving
		if may == deny {
			continue
		}
		session := m.s.with(t, letters[r])
		if name == "DELETE /api/sessions/current" {
			session = m.s.OK(t, "", "POST", sessions, rig.Object{"method": "password", "name": m.s.holderOf(letters[r]), "password": "a password for tests"}).Text(t, "sessionId")
		}
		a := m.s.Send(t, session, method, at, m.bodies[name])
		switch {
		case !may && a.Status == http.StatusForbidden && a.Code() == "ACCESS_DENIED":
		case may && a.Status == http.StatusOK, may && used && a.Code() == again[name]:
		default:
			t.Errorf("%s as %c: got %d %s, allowed should be %v", name, r, a.Status, rig.Shorten(string(a.Raw)), may)
		}
		used = used || may
	}
}

func newMatrix(t *testing.T, s *subject) *matrix {
	t.Helper()
	admin, officer, encryptor := s.AsAdmin(t), s.with(t, keyserver.RoleSecurityOfficer), s.with(t, keyserver.RoleEncryptor)
	self := func(r keyserver.ID) string { return s.self(t, s.with(t, r)) }
	auditor, exchanger := self(keyserver.RoleAuditor), self(keyserver.RoleExchanger)
	pair := func(id string) rig.Object { return rig.Object{"systemId": 1, "principalId": decimal(t, id)} }
	owner := rig.Object{"rights": []string{"OWNER"}}

	// Exchanger gets OWNER on the keys, because some routes read a key before they check the right to write it.
	key := s.OK(t, encryptor, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"}).Text(t, "ttag")
	aged := s.OK(t, encryptor, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"}).Text(t, "ttag")
	entry := join(pair(exchanger), owner, rig.Object{"ttag": key})
	s.OK(t, encryptor, "POST", "/api/keys/acl/grant", entry)
	sealing := s.OK(t, encryptor, "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}).Text(t, "ttag")
	s.OK(t, encryptor, "POST", "/api/keys/acl/grant", join(pair(exchanger), owner, rig.Object{"ttag": sealing}))
	sealed := s.OK(t, encryptor, "POST", "/api/crypto/encrypt", rig.Object{"ttag": sealing, "data": ""}).Text(t, "ciphertext")
	template, spare := s.template(t, officer, "used"), s.template(t, officer, "spare")
	for _, id := range []string{template, spare} {
		for _, member := range []string{auditor, self(keyserver.RoleAdministrator)} {
			s.OK(t, officer, "POST", "/api/acl-templates/"+id+"/members", join(pair(member), owner))
		}
	}
	s.OK(t, officer, "POST", "/api/acl-templates/"+template+"/members", join(pair(exchanger), owner))
	directory := s.OK(t, officer, "POST", "/api/templated-directories", rig.Object{"path": "/a", "aclTemplateId": template}).Text(t, "id")
	s.registerPeer(t, officer)
	person, group := s.principal(t, "person"), s.group(t, "group")
	forgetful := s.principal(t, "forgetful")
	s.OK(t, admin, "PUT", "/api/principals/groups/"+group+"/members/"+person, nil)
	row := s.OK(t, officer, "POST", "/api/principal-trusts", rig.Object{"principalId": person, "trustedServerSystemId": otherSystem, "flag": "expose"}).Text(t, "principalTrust", "id")
	role := s.OK(t, admin, "POST", "/api/roles", rig.Object{"name": "custom", "operations": []string{}}).Text(t, "id")
	s.OK(t, officer, "PUT", "/api/owners/aclTemplate/"+template, rig.Object{"owner": "one"})
	ca, another := peerCA(t, s.name("issuer")), peerCA(t, s.name("another"))
	s.trustCA(t, officer, ca)
	digest := s.digestOf(t, officer)
	listed := s.OK(t, officer, "GET", "/api/trusted-cas", nil).List(t, "trustedCAs")[0]["certificateId"]
	first := s.OK(t, officer, "GET", "/api/authority", nil).List(t, "authorities")[0]["certificateId"]
	request := b64(enginetest.NewRequest(t, s.name("agent"), newKey(t)))
	issued := s.OK(t, admin, "POST", "/api/certificates", rig.Object{"request": request}).Text(t, "certificate")
	agent := s.enroll(t, enginetest.NewAgent(t, ca, s.name("transport"), time.Now(), nil).Certificate.Raw)[0]["id"].(string)
	fresh := b64(enginetest.NewAgent(t, ca, s.name("fresh"), time.Now(), nil).Certificate.Raw)
	link := rig.Object{"ttag": key}
	// Approvals are checked by TestMatrixOfApprovals. The matrix has one approval to read.
	const policy = "/api/approvals/policy"
	guarded := rig.Object{"rules": []rig.Object{{"operation": "setApprovalPolicy", "approvers": 1, "duty": "trust"}}}
	if s.Officer.Name == "" {
		s.Officer = rig.Credentials{Name: s.holderOf(keyserver.RoleSecurityOfficer), Password: rig.Password}
		s.OK(t, admin, "PUT", policy, guarded)
		defer func() { s.Officer = rig.Credentials{} }()
	}
	asked := s.OK(t, admin, "POST", "/api/approvals", rig.Object{"method": "PUT", "path": policy, "body": guarded, "reason": "to be read"}).Text(t, "approvalId")
	s.Approved(t, admin, s.Officer, "PUT", policy, rig.Object{"rules": []rig.Object{}})
	opened := s.OK(t, "", "POST", sessions, rig.Object{"method": "password", "name": "person", "password": somePassword}).Text(t, "id")

	return &matrix{s: s, bodies: map[string]any{
		"PUT /api/approvals/policy":                     rig.Object{"rules": []rig.Object{}},
		"POST /api/config/get":                          rig.Object{"xpath": "ROOT"},
		"POST /api/backups":                             rig.Object{"recipient": "age19f7s6zn4nl49zxcfgxkd8j5f08uxrrxkshk6zfq740h0mj427essu9kra6"},
		"POST /api/keys":                                rig.Object{"algorithm": "AES-256"},
		"POST /api/keys/get":                            link,
		"POST /api/keys/authorize":                      link,
		"POST /api/keys/export":                         join(pair(agent), link),
		"POST /api/keys/disable":                        join(rig.Object{"ttag": aged}),
		"POST /api/keys/enable":                         join(rig.Object{"ttag": aged}),
		"POST /api/keys/destroy":                        join(rig.Object{"ttag": aged}),
		"POST /api/keys/restore":                        join(rig.Object{"ttag": aged}),
		"POST /api/keys/rotate":                         link,
		"PUT /api/keys/rotation":                        join(link, rig.Object{"everyDays": 0, "verifyOnlyDays": 1, "destroyAfterDays": 1}),
		"POST /api/crypto/mac":                          rig.Object{"lineage": key, "data": ""},
		"POST /api/crypto/mac/verify":                   rig.Object{"ttag": key, "mac": b64(make([]byte, 48)), "data": ""},
		"POST /api/crypto/mac/batch":                    rig.Object{"items": []rig.Object{{"lineage": key, "data": ""}}},
		"POST /api/crypto/mac/verify/batch":             rig.Object{"items": []rig.Object{{"ttag": key, "mac": b64(make([]byte, 48)), "data": ""}}},
		"POST /api/crypto/encrypt":                      rig.Object{"ttag": sealing, "data": ""},
		"POST /api/crypto/decrypt":                      rig.Object{"ttag": sealing, "ciphertext": sealed},
		"POST /api/crypto/hmac":                         rig.Object{"hiddenLink": key, "data": ""},
		"POST /api/keys/acl/get":                        link,
		"POST /api/keys/acl/grant":                      entry,
		"POST /api/keys/acl/update":                     entry,
		"POST /api/keys/acl/revoke":                     join(pair(exchanger), link),
		"POST /api/explain":                             rig.Object{"operation": "listRoles", "principalId": person},
		"POST /api/who-can":                             rig.Object{"operation": "listRoles"},
		"POST /access/v1/evaluation":                    accessTo("listRoles", person),
		"POST /access/v1/evaluations":                   accessTo("listRoles", person),
		"POST /api/principals/lookup":                   rig.Object{"principals": []rig.Object{pair(person)}},
		"POST /api/principals/password":                 rig.Object{"name": "p", "password": somePassword, "roleIds": []string{}},
		"POST /api/principals/ldap":                     rig.Object{"name": "l", "roleIds": []string{}},
		"POST /api/principals/xauth":                    rig.Object{"name": "x", "issuer": issuer, "subject": "system:serviceaccount:a:b", "roleIds": []string{}},
		"POST /api/principals/groups":                   rig.Object{"name": "g"},
		"PUT /api/principals/{id}/flags":                rig.Object{"delegation": true},
		"PUT /api/principals/{id}/roles":                rig.Object{"roleIds": []string{}},
		"PUT /api/principals/{id}/password":             rig.Object{"password": newPassword},
		"POST /api/roles":                               rig.Object{"name": "r", "operations": []string{}},
		"PUT /api/roles/{id}":                           rig.Object{"name": "renamed"},
		"POST /api/trusted-cas":                         rig.Object{"certificate": b64(another.Certificate.Raw)},
		"POST /api/trusted-cas/remove":                  rig.Object{"certificateId": listed},
		"POST /api/trusted-servers":                     peerRequest(blob(otherSystem+1, "203.0.113.9", 9443, chainOf(t, ca, s.name("third")))),
		"PUT /api/trusted-servers/{systemId}":           rig.Object{"description": "changed"},
		"POST /api/authority/activate":                  rig.Object{"early": true},
		"POST /api/authority/retire":                    rig.Object{"certificateId": first},
		"POST /api/principal-trusts":                    rig.Object{"principalId": agent, "trustedServerSystemId": otherSystem, "flag": "expose"},
		"PUT /api/principal-trusts/{id}":                rig.Object{"flag": "restrict"},
		"PUT /api/owners/{kind}/{id}":                   rig.Object{"owner": "one"},
		"POST /api/acl-templates":                       rig.Object{"name": "new"},
		"PUT /api/acl-templates/{id}":                   rig.Object{"name": "renamed"},
		"POST /api/acl-templates/{id}/members":          join(pair(exchanger), owner),
		"POST /api/templated-directories":               rig.Object{"path": "/b", "aclTemplateId": template},
		"POST /api/certificates":                        rig.Object{"request": request},
		"POST /api/certificates/renew":                  rig.Object{"certificate": issued},
		"POST /api/certificates/enroll":                 rig.Object{"certificates": []string{fresh}},
		"POST /api/certificates/by-subject":             rig.Object{"subject": "%"},
		"POST /api/certificates/by-transport-principal": rig.Object{"subject": "/CN=agent"},
		"POST /api/transport-principals/reset":          rig.Object{"principalId": agent},
		"PUT /api/revocation/issuers/{digest}/policy":   rig.Object{"mode": "off", "maxAgeSeconds": 0},
		"POST /api/revocation/crls":                     rig.Object{"crl": b64(enginetest.NewCRL(t, ca, 1, time.Now(), nil))},
	}, paths: map[string]string{
		"GET /api/approvals/{id}":                                         "/api/approvals/" + asked,
		"GET /api/audit/{seq}/receipt":                                    "/api/audit/1/receipt",
		"GET /api/audit/tile/{level}/{tile}":                              "/api/audit/tile/0/000.p%2F1",
		"GET /api/audit/tile/entries/{tile}":                              "/api/audit/tile/entries/000.p%2F1",
		"GET /api/changes":                                                "/api/changes?after=0&wait=0",
		"GET /api/principals":                                             "/api/principals?type=password",
		"GET /api/principals/{id}":                                        "/api/principals/" + person,
		"DELETE /api/sessions/{id}":                                       sessions + "/" + opened,
		"DELETE /api/principals/{id}/sessions":                            "/api/principals/" + person + "/sessions",
		"PUT /api/principals/{id}/flags":                                  "/api/principals/" + person + "/flags",
		"PUT /api/principals/{id}/delegates/{pid}":                        "/api/principals/" + person + "/delegates/" + agent,
		"DELETE /api/principals/{id}/delegates/{pid}":                     "/api/principals/" + person + "/delegates/" + agent,
		"PUT /api/principals/{id}/roles":                                  "/api/principals/" + person + "/roles",
		"PUT /api/principals/{id}/password":                               passwordOf(forgetful),
		"DELETE /api/principals/{id}":                                     "/api/principals/" + forgetful,
		"GET /api/principals/groups/{gid}/members":                        "/api/principals/groups/" + group + "/members",
		"PUT /api/principals/groups/{gid}/members/{pid}":                  "/api/principals/groups/" + group + "/members/" + person,
		"DELETE /api/principals/groups/{gid}/members/{pid}":               "/api/principals/groups/" + group + "/members/" + person,
		"PUT /api/roles/{id}":                                             "/api/roles/" + role,
		"DELETE /api/roles/{id}":                                          "/api/roles/" + role,
		"PUT /api/trusted-servers/{systemId}":                             peerPath(otherSystem),
		"DELETE /api/trusted-servers/{systemId}":                          peerPath(otherSystem),
		"PUT /api/principal-trusts/{id}":                                  "/api/principal-trusts/" + row,
		"DELETE /api/principal-trusts/{id}":                               "/api/principal-trusts/" + row,
		"GET /api/owners":                                                 "/api/owners?kind=role",
		"GET /api/owners/{kind}/{id}":                                     "/api/owners/aclTemplate/" + template,
		"PUT /api/owners/{kind}/{id}":                                     "/api/owners/aclTemplate/" + template,
		"DELETE /api/owners/{kind}/{id}":                                  "/api/owners/aclTemplate/" + template + "?expect=one",
		"PUT /api/acl-templates/{id}":                                     "/api/acl-templates/" + template,
		"DELETE /api/acl-templates/{id}":                                  "/api/acl-templates/" + spare,
		"GET /api/acl-templates/{id}/members":                             "/api/acl-templates/" + template + "/members",
		"POST /api/acl-templates/{id}/members":                            "/api/acl-templates/" + template + "/members",
		"DELETE /api/acl-templates/{id}/members/{systemId}/{principalId}": "/api/acl-templates/" + template + "/members/1/" + decimal(t, exchanger),
		"DELETE /api/templated-directories/{id}":                          "/api/templated-directories/" + directory,
		"GET /api/revocation/issuers/{digest}/policy":                     "/api/revocation/issuers/" + digest + "/policy",
		"PUT /api/revocation/issuers/{digest}/policy":                     "/api/revocation/issuers/" + digest + "/policy",
	}}
}

// digestOf returns the revocation digest of a trusted CA.
func (s *subject) digestOf(t testing.TB, session string) string {
	t.Helper()
	return s.OK(t, session, "GET", "/api/trusted-cas", nil).List(t, "trustedCAs")[0]["revocationDigest"].(string)
}

// TestMatrixOfDelegatedLogins checks that any caller may use POST /api/sessions, except for a delegated login. A
// delegated login needs the role Exchanger or, in a unified deployment, Administrator.
func TestMatrixOfDelegatedLogins(t *testing.T) {
	t.Parallel()
	for deployment, granted := range map[string]string{"Unified": "AX", "Split": "X"} {
		t.Run(deployment, func(t *testing.T) {
			var with []choice
			if deployment == "Split" {
				with = append(with, split)
			}
			embedded(t, func(t *testing.T, s *subject) {
				boss := s.principal(t, "boss")
				s.flags(t, boss, rig.Object{"delegation": true})
				for r, id := range letters {
					a := s.Send(t, s.with(t, id), "POST", sessions, delegated(boss))
					if strings.ContainsRune(granted, r) {
						is(t, a, http.StatusOK, "")
					} else {
						is(t, a, http.StatusForbidden, "ACCESS_DENIED")
					}
				}
			}, with...)
		})
	}
}

// TestMatrixOfGiving checks which role may grant which roles: the caller must hold the granted role, or the
// right to grant any. TestMatrix checks callers that may set no roles.
func TestMatrixOfGiving(t *testing.T) {
	t.Parallel()
	for deployment, gives := range map[string]map[rune]string{
		"Unified": {'A': "AOEXU"},
		"Split":   {'A': "AEX", 'O': "O"},
	} {
		t.Run(deployment, func(t *testing.T) {
			var with []choice
			if deployment == "Split" {
				with = append(with, split)
			}
			embedded(t, func(t *testing.T, s *subject) {
				for giver, given := range gives {
					for r, id := range letters {
						to := s.principal(t, "to "+string(giver)+string(r))
						session, path, body := s.with(t, letters[giver]), "/api/principals/"+to+"/roles", rig.Object{"roleIds": hexes(id)}
						a := s.Send(t, session, "PUT", path, body)
						switch {
						case !strings.ContainsRune(given, r):
							is(t, a, http.StatusForbidden, "ESCALATION")
						case deployment == "Split" && strings.ContainsRune(duties, r):
							is(t, a, http.StatusForbidden, "APPROVAL_REQUIRED")
							s.Approved(t, session, s.Officer, "PUT", path, body)
						default:
							is(t, a, http.StatusOK, "")
						}
					}
				}
			}, with...)
		})
	}
}

// duties are the roles with an operation of one of the separated duties.
const duties = "AOU"

// TestMatrixOfApprovals checks which callers can request, approve and execute: a caller that could make the
// request, a principal with a duty and a bound session, and the requester.
func TestMatrixOfApprovals(t *testing.T) {
	t.Parallel()
	for deployment, exports := range map[string]string{"Unified": "E", "Split": "E"} {
		t.Run(deployment, func(t *testing.T) {
			var with []choice
			if deployment == "Split" {
				with = append(with, split)
			}
			embedded(t, func(t *testing.T, s *subject) {
				defer s.keepPolicy(t)()
				export := rig.Object{"method": "POST", "path": "/api/keys/export", "reason": "to be asked for", "body": rig.Object{
					"ttag": "AAAAAQAAAAAAAAPp", "systemId": 1, "principalId": "1",
				}}
				set := rig.Object{"rules": []rig.Object{{"operation": "exportKey", "approvers": 1, "duty": "any"}}}
				for _, id := range letters {
					s.with(t, id)
				}
				if deployment == "Split" {
					s.Approved(t, s.AsAdmin(t), s.Officer, "PUT", "/api/approvals/policy", set)
				} else {
					s.OK(t, s.AsAdmin(t), "PUT", "/api/approvals/policy", set)
				}
				for _, r := range roleLetters {
					a := s.Send(t, s.with(t, letters[r]), "POST", "/api/approvals", export)
					if !strings.ContainsRune(exports, r) {
						is(t, a, http.StatusForbidden, "ACCESS_DENIED")
						continue
					}
					is(t, a, http.StatusOK, "")
				}
				encryptor := s.with(t, keyserver.RoleEncryptor)
				for _, r := range roleLetters {
					asked := s.OK(t, encryptor, "POST", "/api/approvals", export)
					at := "/api/approvals/" + asked.Text(t, "approvalId")
					decision := rig.Object{"digest": asked.Text(t, "digest")}
					for _, what := range []string{"/approve", "/reject"} {
						s.Refused(t, "", "POST", at+what, decision, http.StatusUnauthorized, "SESSION_NOT_FOUND")
						if r != 'E' {
							s.Refused(t, s.with(t, letters[r]), "POST", at+what, decision, http.StatusForbidden, "SESSION_NOT_BOUND")
						}
					}
					s.Refused(t, "", "POST", at+"/execute", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
					if r != 'E' {
						s.Refused(t, s.with(t, letters[r]), "POST", at+"/execute", nil, http.StatusForbidden, "ACCESS_DENIED")
					}
					s.Refused(t, encryptor, "POST", at+"/execute", nil, http.StatusConflict, "APPROVAL_STATE")
					if !strings.ContainsRune(duties, r) {
						continue
					}
					s.Approve(t, rig.Credentials{Name: s.holderOf(letters[r]), Password: rig.Password}, asked)
					s.Refused(t, encryptor, "POST", at+"/execute", nil, http.StatusNotFound, "KEY_NOT_FOUND") // executed, but there is no such key
				}
				s.Refused(t, "", "POST", "/api/approvals", export, http.StatusUnauthorized, "SESSION_NOT_FOUND")
			}, append(with, alone)...)
		})
	}
}

// TestMatrixOfTransportPrincipals checks that POST /api/keys/get needs a transport principal and a role.
func TestMatrixOfTransportPrincipals(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		ca := peerCA(t, s.name("issuer"))
		s.trustCA(t, s.AsAdmin(t), ca)
		key := s.mint(t, "key")
		for r, id := range letters {
			agent := s.agent(t, ca, "agent "+strconv.QuoteRune(r), id)
			with := s.showing(t, agent)
			a := with.Send(t, with.login(t), "POST", "/api/keys/get", rig.Object{"ttag": key})
			if refused := a.Code() == "ACCESS_DENIED"; refused == strings.ContainsRune("EX", r) || a.Status == http.StatusUnauthorized {
				t.Errorf("%c: got %d %s", r, a.Status, a.Raw)
			}
		}
	})
}
