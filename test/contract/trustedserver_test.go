package contract

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// otherSystem is the system id of a peer.
const otherSystem = 7

// peerSystem returns the system id of the peer that a test registers.
func (s *subject) peerSystem() int {
	if s.number == 0 {
		return otherSystem
	}
	return 1000 + s.number
}

// peerName returns the server name of the peer that a test registers. It is an address that no machine uses: for
// documentation (RFC 5737) or for network tests (RFC 2544).
func (s *subject) peerName() string {
	if s.number == 0 {
		return "192.0.2.7"
	}
	return fmt.Sprintf("198.18.%d.%d", s.number/256, s.number%256)
}

// peer returns the record of the peer that the test has registered.
func (s *subject) peer(t testing.TB, session string) rig.Object {
	t.Helper()
	all := s.OK(t, session, "GET", "/api/trusted-servers", nil)
	list := s.peers(t, all)
	if len(list) != 1 {
		t.Fatalf("one peer is registered, listed: %s", all.Raw)
	}
	return list[0]
}

// peers returns the entries of a list with the system id of the test's peer.
func (s *subject) peers(t testing.TB, a rig.Answer) []rig.Object {
	t.Helper()
	return rows(a.List(t, "trustedServers"), "systemId", float64(s.peerSystem()))
}

// peerCA creates a CA for the certificates of peers.
func peerCA(t testing.TB, name string) pki.Identity {
	t.Helper()
	ca, err := pki.NewCA(name, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// chainOf returns the PKCS#7 chain of a new server certificate and its CA, in base64.
func chainOf(t testing.TB, ca pki.Identity, subject string) string {
	t.Helper()
	leaf, err := ca.IssueServer(subject, []string{"peer.example"}, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return encoded(t, leaf.Certificate, ca.Certificate)
}

func encoded(t testing.TB, certs ...*x509.Certificate) string {
	t.Helper()
	der, err := pki.EncodeChain(certs...)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func blob(system any, name string, port any, chain string) string {
	return fmt.Sprintf("%v\t%s\t%v\t%s", system, name, port, chain)
}

func peerRequest(trustBlob string) rig.Object {
	return rig.Object{"trustBlob": trustBlob, "friendlyName": "the other one", "description": "for tests"}
}

func (s *subject) trustCA(t testing.TB, session string, ca pki.Identity) {
	t.Helper()
	s.OK(t, session, "POST", "/api/trusted-cas", rig.Object{"certificate": base64.StdEncoding.EncodeToString(ca.Certificate.Raw)})
}

// registerPeer trusts the CA of a peer, registers the peer, and returns its trust blob.
func (s *subject) registerPeer(t testing.TB, session string) string {
	t.Helper()
	ca := peerCA(t, s.name("CA of the other system"))
	s.trustCA(t, session, ca)
	b := blob(s.peerSystem(), s.peerName(), 9443, chainOf(t, ca, s.name("other")))
	s.OK(t, session, "POST", "/api/trusted-servers", peerRequest(b))
	t.Cleanup(func() { s.Send(t, session, "DELETE", peerPath(s.peerSystem()), nil) }) // if the test has not deleted it
	return b
}

func peerPath(system int) string { return "/api/trusted-servers/" + strconv.Itoa(system) }

// GET /api/trusted-servers: every peer, or those of one server name.
func TestListTrustedServers(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/trusted-servers"
		admin := s.AsAdmin(t)
		s.Refused(t, "", "GET", path, nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, admin, "GET", path+"?name=", nil, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, admin, "GET", path+"?friendlyName=x", nil, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, admin, "GET", path+"?name=nobody", nil, http.StatusNotFound, "NOT_FOUND")

		registered := s.registerPeer(t, admin)
		for _, session := range []string{admin, s.with(t, keyserver.RoleSecurityOfficer), s.with(t, keyserver.RoleAuditor)} {
			if list := s.peers(t, s.OK(t, session, "GET", path, nil)); len(list) != 1 || list[0]["trustBlob"] != nil {
				t.Errorf("one peer is registered, listed: %v", list)
			}
		}
		s.Refused(t, admin, "GET", path+"?includeBodies=1", nil, http.StatusBadRequest, "BAD_REQUEST")
		for _, query := range []string{"?includeBodies=true", "?includeBodies=true&name=" + s.peerName()} {
			a := s.OK(t, admin, "GET", path+query, nil)
			if list := s.peers(t, a); len(list) != 1 || list[0]["trustBlob"] != registered {
				t.Errorf("the blob that it was registered with: %s", a.Raw)
			}
		}
		found := s.OK(t, admin, "GET", path+"?name="+s.peerName(), nil)
		if len(found.List(t, "trustedServers")) != 1 || found.Text(t, "matchedOn") != "serverName" {
			t.Errorf("by name: %s", found.Raw)
		}
		s.Refused(t, admin, "GET", path+"?name="+s.peerName()[:6], nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "GET", path+"?name=the+other+one", nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// TestRegisterPeerRefusals checks the refusals of POST /api/trusted-servers: those of the HTTP service, and those of
// the key server behind it.
func TestRegisterPeerRefusals(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/trusted-servers"
		admin := s.AsAdmin(t)
		trusted, stranger := peerCA(t, s.name("trusted CA")), peerCA(t, s.name("CA of strangers"))
		s.trustCA(t, admin, trusted)
		chain := chainOf(t, trusted, s.name("other"))
		good := blob(s.peerSystem(), s.peerName(), 9443, chain)
		leaf, err := trusted.IssueServer("second", nil, nil, time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		old, err := trusted.IssueServer("old", nil, nil, time.Now().Add(-2*365*24*time.Hour), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		without := func(field string) rig.Object {
			o := peerRequest(good)
			delete(o, field)
			return o
		}
		cases := map[string]struct {
			body  any
			code  string
			names string // text that the detail must contain
		}{
			"NoBlob":            {without("trustBlob"), "BAD_REQUEST", "trustBlob"},
			"NoFriendlyName":    {without("friendlyName"), "BAD_REQUEST", "friendlyName"},
			"NoDescription":     {without("description"), "BAD_REQUEST", "description"},
			"EmptyFriendlyName": {rig.Object{"trustBlob": good, "friendlyName": "", "description": ""}, "BAD_REQUEST", "friendlyName"},
			"BlankFriendlyName": {rig.Object{"trustBlob": good, "friendlyName": "  ", "description": ""}, "BAD_REQUEST", "friendlyName"},
			"EmptyBlob":         {peerRequest(""), "BAD_REQUEST", "four fields"},
			"ThreeFields":       {peerRequest(strings.Join(strings.Split(good, "\t")[:3], "\t")), "BAD_REQUEST", "four fields"},
			"FiveFields":        {peerRequest(good + "\tmore"), "BAD_REQUEST", "four fields"},
			"Spaces":            {peerRequest(strings.ReplaceAll(good, "\t", " ")), "BAD_REQUEST", "four fields"},
			"LineEnd":           {peerRequest(good + "\n"), "BAD_REQUEST", "fourth field"},
			"HexSystemID":       {peerRequest(blob("0000000000000007", s.peerName(), 9443, chain)), "BAD_REQUEST", "system id"},
			"SystemIDTooLarge":  {peerRequest(blob(4294967296, s.peerName(), 9443, chain)), "BAD_REQUEST", "system id"},
			"NoServerName":      {peerRequest(blob(s.peerSystem(), "", 9443, chain)), "BAD_REQUEST", "server name"},
			"ServerNameAsURL":   {peerRequest(blob(s.peerSystem(), "https://peer", 9443, chain)), "BAD_REQUEST", "server name"},
			"PortZero":          {peerRequest(blob(s.peerSystem(), s.peerName(), 0, chain)), "BAD_REQUEST", "port"},
			"PortTooLarge":      {peerRequest(blob(s.peerSystem(), s.peerName(), 65536, chain)), "BAD_REQUEST", "port"},
			"NotCanonical":      {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, strings.TrimRight(chain, "=")+"\r\n")), "BAD_REQUEST", "base64"},
			"NoPKCS7":           {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, "MAA=")), "BAD_REQUEST", "PKCS#7"},
			"ACertificate":      {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, base64.StdEncoding.EncodeToString(leaf.Certificate.Raw))), "BAD_REQUEST", "PKCS#7"},
			"TrailingBytes":     {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, appended(t, chain))), "BAD_REQUEST", "DER"},
			"NoLeaf":            {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, encoded(t, trusted.Certificate))), "BAD_REQUEST", "no server certificate"},
			"TwoLeaves":         {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, encoded(t, leaf.Certificate, old.Certificate))), "BAD_REQUEST", "more than one"},

			"UntrustedCA":   {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, chainOf(t, stranger, s.name("other")))), "INVALID_ARGUMENT", "not trusted"},
			"Expired":       {peerRequest(blob(s.peerSystem(), s.peerName(), 9443, encoded(t, old.Certificate))), "INVALID_ARGUMENT", "valid"},
			"OwnSystemID":   {peerRequest(blob(s.SystemID(), s.peerName(), 9443, chain)), "INVALID_ARGUMENT", "own"},
			"OwnAddress":    {peerRequest(blob(s.peerSystem(), "127.0.0.1", 9443, chain)), "INVALID_ARGUMENT", "address of this key server"},
			"OwnAddressV6":  {peerRequest(blob(s.peerSystem(), "::ffff:127.0.0.1", 9443, chain)), "INVALID_ARGUMENT", "address of this key server"},
			"OwnName":       {peerRequest(blob(s.peerSystem(), "localhost", 9443, chain)), "INVALID_ARGUMENT", "address of this key server"},
			"AnyAddress":    {peerRequest(blob(s.peerSystem(), "0.0.0.0", 9443, chain)), "INVALID_ARGUMENT", "address of this key server"},
			"Unresolvable":  {peerRequest(blob(s.peerSystem(), "nobody.invalid", 9443, chain)), "INVALID_ARGUMENT", "cannot be resolved"},
			"NoSuchAddress": {peerRequest(blob(s.peerSystem(), "999.0.2.7", 9443, chain)), "INVALID_ARGUMENT", "cannot be resolved"},
		}
		details := map[string]string{}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				a := s.Refused(t, admin, "POST", path, tc.body, http.StatusBadRequest, tc.code)
				details[name], _ = a.Body["detail"].(string)
				if !strings.Contains(details[name], tc.names) {
					t.Errorf("the detail %q does not name %q", details[name], tc.names)
				}
			})
		}
		if details["Unresolvable"] != details["NoSuchAddress"] {
			t.Errorf("two failures to resolve read %q and %q", details["Unresolvable"], details["NoSuchAddress"])
		}
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, peerRequest(good), http.StatusForbidden, "ACCESS_DENIED")
		if list := s.peers(t, s.OK(t, admin, "GET", path, nil)); len(list) != 0 {
			t.Errorf("a refused peer is registered: %v", list)
		}

		s.OK(t, admin, "POST", path, peerRequest(good))
		s.Refused(t, admin, "POST", path, peerRequest(good), http.StatusConflict, "ALREADY_EXISTS")
		s.Refused(t, admin, "POST", path, peerRequest(blob(8, s.peerName(), 9443, chain)), http.StatusConflict, "ALREADY_EXISTS") // another transport principal has this name
	})
}

func appended(t testing.TB, chain string) string {
	t.Helper()
	der, err := base64.StdEncoding.DecodeString(chain)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(append(der, 5, 0))
}

// TestRegisterPeer checks POST /api/trusted-servers: the response and the fields of the peer.
func TestRegisterPeer(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		ca := peerCA(t, s.name("CA of the other system"))
		s.trustCA(t, admin, ca)
		a := s.OK(t, admin, "POST", "/api/trusted-servers", peerRequest(blob(s.peerSystem(), s.peerName(), 9443, chainOf(t, ca, s.name("other")))))
		if a.Body["saved"] != true || a.Body["systemId"] != float64(s.peerSystem()) || a.Text(t, "aclSideEffect") == "" || a.Body["code"] != nil {
			t.Errorf("registered: %s", a.Raw)
		}
		list := s.peers(t, a)
		if len(list) != 1 {
			t.Fatalf("listed: %s", a.Raw)
		}
		p := list[0]
		fields := rig.Object{
			"systemId": float64(s.peerSystem()), "serverName": s.peerName(), "port": float64(9443), "friendlyName": "the other one", "description": "for tests",
		}
		for field, want := range fields {
			if p[field] != want {
				t.Errorf("%s is %v, want %v", field, p[field], want)
			}
		}
		if roles, ok := p["roleIds"].([]any); !ok || len(roles) != 0 {
			t.Errorf("roleIds is %v", p["roleIds"])
		}
		certificate, _ := p["certificate"].(rig.Object)
		if certificate["subject"] != s.name("/CN=other") || certificate["statusLabel"] != "Trusted server" || certificate["certificate"] != nil {
			t.Errorf("certificate is %v", certificate)
		}
		principal := s.OK(t, admin, "GET", "/api/principals/"+transportOf(t, p), nil)
		if principal.Text(t, "name") != s.name("/CN=other") || principal.Text(t, "className") != "CertificatePrincipal" || principal.Body["systemId"] != float64(s.SystemID()) {
			t.Errorf("the transport principal is %s", principal.Raw)
		}
	})
}

// TestReplacePeer checks POST /api/trusted-servers with the extension replace: the record changes, and the peer keeps
// its identity on this server.
func TestReplacePeer(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/trusted-servers"
		admin := s.AsAdmin(t)
		ca := peerCA(t, s.name("CA of the other system"))
		s.trustCA(t, admin, ca)
		request := func(port int, subject string, replace any) rig.Object {
			o := peerRequest(blob(s.peerSystem(), s.peerName(), port, chainOf(t, ca, s.name(subject))))
			o["replace"] = replace
			return o
		}
		s.Refused(t, admin, "POST", path, request(9443, "other", "yes"), http.StatusBadRequest, "BAD_REQUEST")
		first := s.OK(t, admin, "POST", path, request(9443, "other", true))
		transport := transportOf(t, s.peers(t, first)[0])
		s.OK(t, admin, "PUT", "/api/principals/"+transport+"/flags", rig.Object{"disabled": true})

		s.Refused(t, admin, "POST", path, request(9444, "renamed", false), http.StatusConflict, "ALREADY_EXISTS")
		again := s.OK(t, admin, "POST", path, request(9444, "renamed", true))
		list := s.peers(t, again)
		if len(list) != 1 || list[0]["port"] != float64(9444) || transportOf(t, list[0]) != transport || again.Body["saved"] != true {
			t.Errorf("replaced: %s", again.Raw)
		}
		if p := s.OK(t, admin, "GET", "/api/principals/"+transport, nil); p.Text(t, "name") != s.name("/CN=renamed") || p.Body["disabled"] != true {
			t.Errorf("the transport principal is %s", p.Raw)
		}
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", path, request(9445, "other", true), http.StatusForbidden, "ACCESS_DENIED")
	})
}

// transportOf returns the hexadecimal id of a peer's transport principal.
func transportOf(t testing.TB, peer rig.Object) string {
	t.Helper()
	text, _ := peer["transportPrincipalId"].(string)
	id, err := values.ParseDecimalID(text)
	if err != nil {
		t.Fatalf("transportPrincipalId is %v", peer["transportPrincipalId"])
	}
	return id.Hex()
}

// PUT /api/trusted-servers/{systemId}: friendly name, description, or both.
func TestUpdatePeer(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		s.registerPeer(t, admin)
		transport, _ := s.peer(t, admin)["transportPrincipalId"].(string)
		refusals := map[string]struct {
			path   string
			body   any
			status int
			code   string
		}{
			"HexID":             {"/api/trusted-servers/0000000000000007", rig.Object{"description": "x"}, 400, "BAD_REQUEST"},
			"Negative":          {"/api/trusted-servers/-7", rig.Object{"description": "x"}, 400, "BAD_REQUEST"},
			"TransportID":       {"/api/trusted-servers/" + transport, rig.Object{"description": "x"}, 400, "BAD_REQUEST"},
			"Neither":           {peerPath(s.peerSystem()), rig.Object{}, 400, "BAD_REQUEST"},
			"EmptyFriendlyName": {peerPath(s.peerSystem()), rig.Object{"friendlyName": ""}, 400, "BAD_REQUEST"},
			"ServerName":        {peerPath(s.peerSystem()), rig.Object{"serverName": "x"}, 400, "BAD_REQUEST"},
			"Unknown":           {peerPath(8), rig.Object{"description": "x"}, 404, "NOT_FOUND"},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) { s.Refused(t, admin, "PUT", tc.path, tc.body, tc.status, tc.code) })
		}
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "PUT", peerPath(s.peerSystem()), rig.Object{"description": "x"}, http.StatusForbidden, "ACCESS_DENIED")

		steps := []struct{ send, want rig.Object }{
			{rig.Object{"friendlyName": "renamed"}, rig.Object{"friendlyName": "renamed", "description": "for tests"}},
			{rig.Object{"description": ""}, rig.Object{"friendlyName": "renamed", "description": ""}},
			{rig.Object{"friendlyName": "both", "description": "changed"}, rig.Object{"friendlyName": "both", "description": "changed"}},
		}
		for _, step := range steps {
			a := s.OK(t, admin, "PUT", peerPath(s.peerSystem()), step.send)
			if a.Body["saved"] != true {
				t.Errorf("%v: %s", step.send, a.Raw)
			}
			for field, want := range step.want {
				if got := a.At(t, "trustedServer", field); got != want {
					t.Errorf("%v: %s is %v, want %v", step.send, field, got, want)
				}
			}
		}
	})
}

// TestRemovePeer checks DELETE /api/trusted-servers/{systemId}: refusals and the complete response.
func TestRemovePeer(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		s.registerPeer(t, admin)
		s.Refused(t, admin, "DELETE", "/api/trusted-servers/0000000000000007", nil, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, admin, "DELETE", peerPath(s.peerSystem()), rig.Object{"systemId": 7}, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, admin, "DELETE", peerPath(8), nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "DELETE", peerPath(s.peerSystem()), nil, http.StatusForbidden, "ACCESS_DENIED")

		transport := transportOf(t, s.peer(t, admin))
		a := s.OK(t, admin, "DELETE", peerPath(s.peerSystem()), nil)
		if a.Body["removed"] != float64(s.peerSystem()) || len(s.peers(t, a)) != 0 || len(a.List(t, "orphanedPrincipalTrusts")) != 0 {
			t.Errorf("removed: %s", a.Raw)
		}
		for _, field := range []string{"aclSideEffect", "principalTrustSideEffect", "transportPrincipalSideEffect"} {
			if a.Text(t, field) == "" {
				t.Errorf("%s says nothing", field)
			}
		}
		s.Refused(t, admin, "GET", "/api/principals/"+transport, nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "DELETE", peerPath(s.peerSystem()), nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// TestStatesOfAPeer registers, removes and registers a peer again, and checks its ACL entries and principal
// trusts after each step.
func TestStatesOfAPeer(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		ttag := s.OK(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"}).Text(t, "ttag")
		grant := rig.Object{"ttag": ttag, "systemId": s.peerSystem(), "principalId": "123456789012345678", "rights": []string{"WRITE"}, "maxUsage": 5}
		foreign := func() []rig.Object {
			t.Helper()
			var found []rig.Object
			acl, _ := s.OK(t, admin, "POST", "/api/keys/acl/get", rig.Object{"ttag": ttag}).At(t, "acl", "entries").([]any)
			for _, e := range acl {
				if entry, _ := e.(rig.Object); entry["systemId"] == float64(s.peerSystem()) {
					found = append(found, entry)
				}
			}
			return found
		}
		self := s.OK(t, admin, "GET", "/api/sessions/current", nil).Text(t, "principal", "id")
		trust := rig.Object{"principalId": self, "trustedServerSystemId": s.peerSystem(), "flag": "expose"}

		// Before registration: the peer's principals cannot get rights.
		s.Refused(t, admin, "POST", "/api/keys/acl/grant", grant, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "POST", "/api/principal-trusts", trust, http.StatusNotFound, "NOT_FOUND")

		// After registration.
		b := s.registerPeer(t, admin)
		s.OK(t, admin, "POST", "/api/keys/acl/grant", grant)
		trustID := s.OK(t, admin, "POST", "/api/principal-trusts", trust).Text(t, "principalTrust", "id")
		before := foreign()
		if len(before) != 1 {
			t.Fatalf("granted: %v", before)
		}

		// Removed: ACL entries are deleted, principal trusts are orphaned.
		cursor := s.cursor(t, admin)
		a := s.OK(t, admin, "DELETE", peerPath(s.peerSystem()), nil)
		if left := foreign(); len(left) != 0 {
			t.Errorf("after the removal the key still has %v", left)
		}
		if !strings.Contains(a.Text(t, "aclSideEffect"), "1 ACL row") || !strings.Contains(a.Text(t, "principalTrustSideEffect"), "1 principal trust") {
			t.Errorf("removed: %s", a.Raw)
		}
		orphans := a.List(t, "orphanedPrincipalTrusts")
		if len(orphans) != 1 || orphans[0]["id"] != trustID || orphans[0]["trustedServerSystemId"] != float64(s.peerSystem()) {
			t.Errorf("orphans: %v", orphans)
		}
		if list := rows(s.OK(t, admin, "GET", "/api/principal-trusts", nil).List(t, "principalTrusts"), "id", trustID); len(list) != 1 {
			t.Errorf("the orphan is not listed: %v", list)
		}
		if kinds := s.changedSince(t, admin, cursor); !slices.Equal(kinds, []string{"key updated", "principal deleted", "trustedServer deleted"}) {
			t.Errorf("the removal is in the feed as %v", kinds)
		}
		s.Refused(t, admin, "POST", "/api/keys/acl/grant", grant, http.StatusNotFound, "NOT_FOUND")

		// Registered again: ACL entries and principal trusts are as before.
		cursor = s.cursor(t, admin)
		a = s.OK(t, admin, "POST", "/api/trusted-servers", peerRequest(b))
		if !strings.Contains(a.Text(t, "aclSideEffect"), "1 ACL row") {
			t.Errorf("registered again: %s", a.Raw)
		}
		if after := foreign(); len(after) != 1 || fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("resurrected %v, purged %v", after, before)
		}
		if kinds := s.changedSince(t, admin, cursor); !slices.Equal(kinds, []string{"key updated", "principal created", "trustedServer created"}) {
			t.Errorf("the registration is in the feed as %v", kinds)
		}

		// An orphan can be deleted by request.
		s.OK(t, admin, "DELETE", "/api/principal-trusts/"+trustID, nil)
		a = s.OK(t, admin, "DELETE", peerPath(s.peerSystem()), nil)
		if orphans := a.List(t, "orphanedPrincipalTrusts"); len(orphans) != 0 {
			t.Errorf("orphans: %v", orphans)
		}
	}, alone)
}

// cursor returns the end of the change feed.
func (s *subject) cursor(t testing.TB, session string) string {
	t.Helper()
	_, end := s.Changes(t, session, "0")
	return end
}

// changedSince returns the sorted result of Changed.
func (s *subject) changedSince(t testing.TB, session, cursor string, ids ...any) []string {
	t.Helper()
	return slices.Sorted(slices.Values(s.Changed(t, session, cursor, ids...)))
}

// TestPeersOnASplitDeployment checks that in a split deployment the Security Officer manages peers. The
// Administrator can list them and read this server's own trust blob.
func TestPeersOnASplitDeployment(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, officer := s.AsAdmin(t), s.with(t, keyserver.RoleSecurityOfficer)
		b := s.registerPeer(t, officer)
		self := s.OK(t, admin, "GET", "/api/sessions/current", nil).Text(t, "principal", "id")
		trust := rig.Object{"principalId": self, "trustedServerSystemId": s.peerSystem(), "flag": "restrict"}
		id := s.OK(t, officer, "POST", "/api/principal-trusts", trust).Text(t, "principalTrust", "id")

		calls := []struct {
			method, path string
			body         any
		}{
			{"PUT", "/api/principal-trusts/" + id, rig.Object{"flag": "expose"}},
			{"GET", "/api/principal-trusts", nil},
			{"DELETE", "/api/principal-trusts/" + id, nil},
			{"POST", "/api/principal-trusts", trust},
			{"PUT", peerPath(s.peerSystem()), rig.Object{"friendlyName": "renamed"}},
			{"DELETE", peerPath(s.peerSystem()), nil},
			{"POST", "/api/trusted-servers", peerRequest(b)},
		}
		for _, c := range calls {
			if c.method == "POST" && c.path == "/api/trusted-servers" {
				continue // registering is refused below, after the officer has removed the peer
			}
			s.Refused(t, admin, c.method, c.path, c.body, http.StatusForbidden, "ACCESS_DENIED")
		}
		for _, path := range []string{"/api/trusted-servers", "/api/trusted-servers?name=" + s.peerName(), "/api/trust/local-info"} {
			s.OK(t, admin, "GET", path, nil)
			s.OK(t, officer, "GET", path, nil)
		}
		for _, c := range calls[:3] {
			s.OK(t, officer, c.method, c.path, c.body)
		}
		for _, c := range calls[3:6] {
			s.OK(t, officer, c.method, c.path, c.body)
		}
		s.Refused(t, admin, "POST", "/api/trusted-servers", peerRequest(b), http.StatusForbidden, "ACCESS_DENIED")
		s.OK(t, officer, "POST", "/api/trusted-servers", peerRequest(b))
	}, split)
}

// TestRegisterOwnListener checks server names with a loopback address. A name with the address and port of this
// server's own listener for peers is refused. Another port or another loopback address belongs to another server.
func TestRegisterOwnListener(t *testing.T) {
	t.Parallel()
	for listen, tc := range map[string]struct {
		refused, taken string // server names, with the port of the listener
	}{
		"127.0.0.2": {"127.0.0.2", "127.0.0.3"},
		"0.0.0.0":   {"127.0.0.2", "192.0.2.7"},
	} {
		t.Run(listen, func(t *testing.T) {
			s := start(t, func(c *server.Config) { c.ExternalListen = listen + ":0" })
			admin := s.AsAdmin(t)
			ca := peerCA(t, s.name("CA of the other system"))
			s.trustCA(t, admin, ca)
			info := s.OK(t, admin, "GET", "/api/trust/local-info", nil)
			port, chain := info.Body["port"], chainOf(t, ca, s.name("other"))
			s.Refused(t, admin, "POST", "/api/trusted-servers", peerRequest(blob(otherSystem, tc.refused, port, chain)), http.StatusBadRequest, "INVALID_ARGUMENT")
			s.OK(t, admin, "POST", "/api/trusted-servers", peerRequest(blob(otherSystem, tc.taken, port, chain)))
		})
	}
}

// TestLocalTrustInfo checks that another server accepts the result of GET /api/trust/local-info.
func TestLocalTrustInfo(t *testing.T) {
	other := start(t, func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = otherSystem, "127.0.0.2", "127.0.0.1:0"
	})
	other.Refused(t, "", "GET", "/api/trust/local-info", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
	other.Refused(t, other.with(t, keyserver.RoleAuditor), "GET", "/api/trust/local-info", nil, http.StatusForbidden, "ACCESS_DENIED")
	info := other.OK(t, other.AsAdmin(t), "GET", "/api/trust/local-info", nil)
	fields := strings.Split(info.Text(t, "trustBlob"), "\t")
	port, _ := info.Body["port"].(float64)
	want := []string{strconv.Itoa(otherSystem), "127.0.0.2", strconv.Itoa(int(port)), info.Text(t, "chain")}
	if !slices.Equal(fields, want) || port < 1 || info.Body["systemId"] != float64(otherSystem) || info.Text(t, "serverName") != "127.0.0.2" {
		t.Errorf("%s", info.Raw)
	}
	if info.Text(t, "certificate", "subject") != "/CN=127.0.0.2" {
		t.Errorf("certificate: %s", info.Raw)
	}

	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		s.Refused(t, admin, "POST", "/api/trusted-servers", peerRequest(info.Text(t, "trustBlob")), http.StatusBadRequest, "INVALID_ARGUMENT")
		der, err := base64.StdEncoding.DecodeString(info.Text(t, "chain"))
		if err != nil {
			t.Fatal(err)
		}
		chain, err := pki.ParseChain(der)
		if err != nil || len(chain.Intermediates) != 1 {
			t.Fatalf("the chain has %d CA certificates, %v", len(chain.Intermediates), err)
		}
		s.trustCA(t, admin, pki.Identity{Certificate: chain.Intermediates[0]})
		a := s.OK(t, admin, "POST", "/api/trusted-servers", peerRequest(info.Text(t, "trustBlob")))
		if a.Body["saved"] != true || a.Body["systemId"] != float64(otherSystem) {
			t.Errorf("registered: %s", a.Raw)
		}
		s.OK(t, admin, "DELETE", peerPath(otherSystem), nil)

		// Without a listener for peers, there is no trust blob.
		if a := s.OK(t, admin, "GET", "/api/trust/local-info", nil); a.Body["trustBlob"] != nil || a.Body["port"] != nil || a.Text(t, "chain") == "" {
			t.Errorf("without a listener: %s", a.Raw)
		}
	})
}
