package contract

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestRoutesTakeTheirOperations checks the operations that each route lists. With exactly these, the request
// succeeds and has an allowed audit row for each. Without any one of them, it is refused for that operation,
// and audited.
func TestRoutesTakeTheirOperations(t *testing.T) {
	t.Parallel()
	g := newGate(t, start(t))
	table := deletionsLast(slices.DeleteFunc(routes.All(), func(r routes.Route) bool { return len(r.Operations) == 0 }))
	for _, r := range table {
		for i := range r.Operations {
			g.miss(t, r, i)
		}
	}
	for _, r := range table {
		g.succeed(t, r)
	}
	g.compare(t)
}

// unread are the routes that need an operation only to read the created object. Without that operation the
// object is created but not verified.
var unread = map[string][]keyserver.Operation{
	"POST /api/principals/password": {keyserver.OpReadPrincipal},
	"POST /api/principals/ldap":     {keyserver.OpReadPrincipal},
	"POST /api/principals/xauth":    {keyserver.OpReadPrincipal},
	"POST /api/principals/groups":   {keyserver.OpReadPrincipal},
	"POST /api/certificates":        {keyserver.OpFindCertificates},
	"POST /api/certificates/enroll": {keyserver.OpReadPrincipal, keyserver.OpFindCertificates},
}

// gate is a caller whose only role is changed before each request. It is a transport principal, so that it can
// use every route.
type gate struct {
	*matrix
	over    *subject // connections with its certificate
	session string
	self    string // the caller, 16 hex digits
	role    string
	want    map[string][]string // expected audit rows by request id
}

func newGate(t *testing.T, s *subject) *gate {
	t.Helper()
	m := newMatrix(t, s)
	ca := peerCA(t, s.name("of the caller"))
	officer := s.with(t, keyserver.RoleSecurityOfficer)
	s.trustCA(t, officer, ca)
	over := s.showing(t, s.agent(t, ca, "caller"))
	g := &gate{matrix: m, over: over, session: over.login(t), self: s.principalNamed(t, "/CN=caller"), want: map[string][]string{}}
	g.role = s.OK(t, s.AsAdmin(t), "POST", "/api/roles", rig.Object{"name": "exactly", "operations": []string{}}).Text(t, "id")
	s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+g.self+"/roles", rig.Object{"roleIds": []string{g.role}})
	owner := rig.Object{"systemId": 1, "principalId": decimal(t, g.self), "rights": []string{"OWNER"}}
	for _, route := range []string{"POST /api/keys/authorize", "POST /api/keys/disable", "POST /api/crypto/encrypt"} {
		key := rig.Object{"ttag": m.bodies[route].(rig.Object)["ttag"]}
		s.OK(t, s.with(t, keyserver.RoleEncryptor), "POST", "/api/keys/acl/grant", join(owner, key))
	}
	for _, template := range []string{"PUT /api/acl-templates/{id}", "DELETE /api/acl-templates/{id}"} {
		s.OK(t, officer, "POST", m.paths[template]+"/members", owner)
	}
	return g
}

// ask sends the route's request with a role of exactly these operations.
func (g *gate) ask(t *testing.T, r routes.Route, id string, ops []keyserver.Operation, body any) rig.Answer {
	t.Helper()
	g.s.OK(t, g.s.AsAdmin(t), "PUT", "/api/roles/"+g.role, rig.Object{"operations": opIDs(ops...)})
	path := r.Path
	if p, ok := g.paths[r.Method+" "+r.Path]; ok {
		path = p
	}
	return g.over.Do(t, rig.Request{ID: id, Session: g.session, Method: r.Method, Path: path, Body: body})
}

func (g *gate) succeed(t *testing.T, r routes.Route) {
	t.Helper()
	id := identifier(r) + ".all"
	if a := g.ask(t, r, id, r.Operations, g.bodies[r.Method+" "+r.Path]); a.Status != http.StatusOK {
		t.Errorf("%s %s with the operations that it is listed with: got %d %s", r.Method, r.Path, a.Status, a.Raw)
	}
	for _, op := range r.Operations {
		g.want[id] = append(g.want[id], op.Key+" allowed")
	}
	if r.Name == "deletePrincipal" { // the evidence of a deletion is a failed read
		g.want[id] = append(g.want[id], keyserver.OpReadPrincipal.Key+" failed objectNotFound")
	}
}

func (g *gate) miss(t *testing.T, r routes.Route, i int) {
	t.Helper()
	missing := r.Operations[i]
	id := fmt.Sprintf("%s.%d", identifier(r), i)
	name, status, code := r.Method+" "+r.Path, http.StatusForbidden, "ACCESS_DENIED"
	body := g.bodies[name]
	if slices.Contains(unread[name], missing) {
		status, code = http.StatusBadGateway, "READBACK_FAILED"
		body = elseNamed(body)
	}
	if a := g.ask(t, r, id, slices.Delete(slices.Clone(r.Operations), i, i+1), body); a.Status != status || a.Code() != code {
		t.Errorf("%s without %s: got %d %s", name, missing.Key, a.Status, a.Raw)
	}
	g.want[id] = []string{missing.Key + " refused roleDenied"}
}

// elseNamed returns the same request with another name.
func elseNamed(body any) rig.Object {
	out := join(body.(rig.Object))
	for field, name := range (rig.Object{"name": "unread", "subject": "system:serviceaccount:a:unread"}) {
		if _, ok := out[field]; ok {
			out[field] = name
		}
	}
	return out
}

// identifier returns a short form of a route with only characters that a request id permits.
func identifier(r routes.Route) string {
	path := strings.TrimPrefix(r.Path, "/api/")
	return r.Method + "." + strings.Trim(strings.NewReplacer("/", "-", "{", "", "}", "", "principals", "p").Replace(path), "-")
}

// compare compares the audit log with the expected rows. A verified write reads twice, and operations before a
// refusal may be allowed.
func (g *gate) compare(t *testing.T) {
	t.Helper()
	got := map[string][]string{}
	for path, cursor := "/api/audit?limit=1000&principalId="+decimal(t, g.self), ""; ; {
		page := g.s.OK(t, g.s.with(t, keyserver.RoleAuditor), "GET", path+cursor, nil)
		for _, row := range page.List(t, "entries") {
			id, _ := row["requestId"].(string)
			line := strings.TrimSpace(fmt.Sprint(row["operation"], " ", row["outcome"], " ", row["reason"]))
			if _, asked := g.want[id]; !asked || !strings.HasSuffix(id, ".all") && row["outcome"] == "allowed" {
				continue
			}
			got[id] = append(got[id], line)
		}
		next, more := page.Body["next"].(float64)
		if !more {
			break
		}
		cursor = "&cursor=" + rig.Number(next)
	}
	for _, rows := range []map[string][]string{g.want, got} {
		for id := range rows {
			slices.Sort(rows[id])
			rows[id] = slices.Compact(rows[id])
		}
	}
	if diff := cmp.Diff(g.want, got); diff != "" {
		t.Errorf("audit rows by request (-wanted +found):\n%s", diff)
	}
}
