package rig

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Password is that of every user.
const Password = "a password for tests"

// User is a principal that a test made, logged in where it is one.
type User struct {
	Site    *Site
	Session string
	ID      string // 16 hex digits
	Decimal string
}

// User makes a password principal that holds roles.
func (s *Site) User(t testing.TB, name string, roles ...keyserver.ID) User {
	t.Helper()
	first := roles
	if s.Officer.Name != "" {
		first = nil // its password is for nobody to see who would approve it
	}
	a := s.OK(t, s.AsAdmin(t), "POST", "/api/principals/password", Object{"name": name, "password": Password, "roleIds": hex(first)})
	if !slices.Equal(first, roles) {
		s.GiveApart(t, a.Text(t, "principal", "id"), name, roles...)
	}
	return User{Site: s, Session: s.As(t, name, Password), ID: a.Text(t, "principal", "id"), Decimal: a.Text(t, "principal", "principalId")}
}

// withoutTrust are the roles that the administrator gives where duties are apart,
// before the officer gives the rest. Of an Auditor's operations each holds some,
// so that it takes both.
func (s *Site) withoutTrust(t testing.TB, name string, roles []keyserver.ID) []keyserver.ID {
	t.Helper()
	var first []keyserver.ID
	for _, r := range roles {
		switch r {
		case keyserver.RoleSecurityOfficer:
		case keyserver.RoleAuditor:
			id := s.Approved(t, s.AsAdmin(t), s.Officer, "POST", "/api/roles", Object{
				"name": "for " + name, "operations": []string{keyserver.OpReadConfiguration.ID.Hex()},
			}).Text(t, "id")
			role, err := keyserver.ParseHexID(id)
			if err != nil {
				t.Fatal(err)
			}
			first = append(first, role)
		default:
			first = append(first, r)
		}
	}
	return first
}

// Agent enrols a certificate that holds roles and logs in with it, over a client
// that shows it. The user's site is the same one by that client, which each of its
// requests has to come over.
func (s *Site) Agent(t testing.TB, certificate []byte, over *http.Client, roles ...keyserver.ID) User {
	t.Helper()
	enrolled := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/enroll", Object{
		"certificates": []string{base64.StdEncoding.EncodeToString(certificate)}, "roleIds": hex(roles),
	})
	id, _ := enrolled.List(t, "principals")[0]["id"].(string)
	decimal, _ := enrolled.List(t, "principals")[0]["principalId"].(string)
	if id == "" || decimal == "" {
		t.Fatalf("the enrolled principal has no id: %+v", enrolled)
	}
	shown := s.Over(over)
	session := shown.OK(t, "", "POST", "/api/sessions", Object{"method": "certificate"}).Text(t, "sessionId")
	return User{Site: shown, Session: session, ID: id, Decimal: decimal}
}

func hex(ids []keyserver.ID) []string {
	spelt := []string{}
	for _, id := range ids {
		spelt = append(spelt, id.Hex())
	}
	return spelt
}

// Mint makes a key with the given material, or with one that nobody knows, and
// answers its hidden link.
func (u User) Mint(t testing.TB, material []byte) (link string) {
	t.Helper()
	body := Object{"algorithm": "HMAC-SHA384"}
	if material != nil {
		body["material"] = base64.StdEncoding.EncodeToString(material)
	}
	return u.Site.OK(t, u.Session, "POST", "/api/keys", body).Text(t, "ttag")
}

// Grant gives somebody, of whatever site, rights on a key.
func (u User) Grant(t testing.TB, link string, to User, rights ...string) {
	t.Helper()
	u.Site.OK(t, u.Session, "POST", "/api/keys/acl/grant", to.Entry(link, rights...))
}

// Entry is the body of a change of the user's entry on a key; without rights that
// of its end.
func (u User) Entry(link string, rights ...string) Object {
	o := Object{"ttag": link, "systemId": u.Site.System, "principalId": u.Decimal}
	if len(rights) > 0 {
		o["rights"] = rights
	}
	return o
}

// Expose lets a peer know of a principal, and answers the row.
func (s *Site) Expose(t testing.TB, principal string, peer *Site) (row string) {
	t.Helper()
	return s.TrustPrincipal(t, principal, peer, "expose")
}

// TrustPrincipal makes or changes the principal trust of a principal for a peer,
// and answers the row.
func (s *Site) TrustPrincipal(t testing.TB, principal string, peer *Site, flag string) (row string) {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/principal-trusts", Object{
		"principalId": principal, "trustedServerSystemId": peer.System, "flag": flag,
	}).Text(t, "principalTrust", "id")
}

// Blob is the site's trust blob as another one registers it; at a port of its own
// where that is not empty.
func (s *Site) Blob(t testing.TB, port string) string {
	t.Helper()
	blob := s.localInfo(t).Text(t, "trustBlob")
	if port == "" {
		return blob
	}
	fields := strings.Split(blob, "\t")
	if len(fields) != 4 {
		t.Fatalf("a trust blob of %d fields", len(fields))
	}
	fields[2] = port
	return strings.Join(fields, "\t")
}

// Register makes another site, whose CA is trusted, a peer; at a port of its own
// where that is not empty.
func (s *Site) Register(t testing.TB, other *Site, port string) Answer {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-servers", Object{
		"trustBlob": other.Blob(t, port), "friendlyName": fmt.Sprint("site ", other.System), "description": "for tests",
	})
}

// Trust trusts the CA of another site and answers the CA's id in the list.
func (s *Site) Trust(t testing.TB, other *Site) (certificateID string) {
	t.Helper()
	return s.TrustCA(t, other.ca(t))
}

// TrustCA trusts a CA, by its certificate, and answers its id in the list.
func (s *Site) TrustCA(t testing.TB, certificate []byte) (certificateID string) {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-cas", Object{
		"certificate": base64.StdEncoding.EncodeToString(certificate),
	}).Text(t, "trustedCA", "certificateId")
}

// CAOf is the id of the CA of another site in the list of trusted CAs.
func (s *Site) CAOf(t testing.TB, other *Site) (certificateID string) {
	t.Helper()
	issuer := other.localInfo(t).At(t, "certificate", "issuer")
	for _, ca := range s.OK(t, s.AsAdmin(t), "GET", "/api/trusted-cas", nil).List(t, "trustedCAs") {
		if id, ok := ca["certificateId"].(string); ok && ca["subject"] == issuer {
			return id
		}
	}
	t.Fatalf("the CA %v is not in the list", issuer)
	return ""
}

func (s *Site) localInfo(t testing.TB) Answer {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "GET", "/api/trust/local-info", nil)
}

// ca is the certificate of the CA of the site.
func (s *Site) ca(t testing.TB) []byte {
	t.Helper()
	der, err := base64.StdEncoding.DecodeString(s.localInfo(t).Text(t, "chain"))
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.ParseChain(der)
	if err != nil || len(chain.Intermediates) != 1 {
		t.Fatalf("the chain of %d: %v", s.System, err)
	}
	return chain.Intermediates[0].Raw
}
