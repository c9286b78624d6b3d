package rig

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Password is the password of every user.
const Password = "a password for tests"

// User is a principal that a test created, with a session.
type User struct {
	Site    *Site
	Session string
	ID      string // 16 hex digits
	Decimal string
}

// User creates a password principal with roles.
func (s *Site) User(t testing.TB, name string, roles ...keyserver.ID) User {
	t.Helper()
	first := roles
	if s.Officer.Name != "" {
		first = nil // otherwise the approver would see the password
	}
	a := s.OK(t, s.AsAdmin(t), "POST", "/api/principals/password", Object{"name": name, "password": Password, "roleIds": hex(first)})
	if !slices.Equal(first, roles) {
		s.GrantRolesByDuty(t, a.Text(t, "principal", "id"), name, roles...)
	}
	return User{Site: s, Session: s.As(t, name, Password), ID: a.Text(t, "principal", "id"), Decimal: a.Text(t, "principal", "principalId")}
}

// withoutTrust returns the roles that the administrator grants in a split deployment; the officer grants the
// rest later. Each of the two may grant only some of an Auditor's operations, so both must grant them.
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
			role, err := values.ParseHexID(id)
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

// Agent enrols a certificate with roles and logs in with it. The HTTP client over must send the certificate. The user's
// site uses this client for each request.
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
	shown := s.WithHTTPClient(over)
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

// Mint creates a key and returns its hidden link. If material is nil, it is random.
func (u User) Mint(t testing.TB, material []byte) (link string) {
	t.Helper()
	body := Object{"algorithm": "HMAC-SHA384"}
	if material != nil {
		body["material"] = base64.StdEncoding.EncodeToString(material)
	}
	return u.Site.OK(t, u.Session, "POST", "/api/keys", body).Text(t, "ttag")
}

// Grant gives another user rights on a key. This user may be at another site.
func (u User) Grant(t testing.TB, link string, to User, rights ...string) {
	t.Helper()
	u.Site.OK(t, u.Session, "POST", "/api/keys/acl/grant", to.Entry(link, rights...))
}

// Entry returns the body of a request that changes the user's ACL entry on a key. Without rights it is the body
// of a removal.
func (u User) Entry(link string, rights ...string) Object {
	o := Object{"ttag": link, "systemId": u.Site.System, "principalId": u.Decimal}
	if len(rights) > 0 {
		o["rights"] = rights
	}
	return o
}

// Expose exposes a principal to a peer, and returns the id of the principal trust.
func (s *Site) Expose(t testing.TB, principal string, peer *Site) (row string) {
	t.Helper()
	return s.TrustPrincipal(t, principal, peer, "expose")
}

// TrustPrincipal sets the flag of a principal for a peer, and returns the id of the principal trust.
func (s *Site) TrustPrincipal(t testing.TB, principal string, peer *Site, flag string) (row string) {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/principal-trusts", Object{
		"principalId": principal, "trustedServerSystemId": peer.System, "flag": flag,
	}).Text(t, "principalTrust", "id")
}

// Blob returns the site's trust blob for registration at another site. A non-empty port replaces the port in the blob.
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

// Register registers another site as a peer. The site must already trust the CA of the peer. A non-empty port replaces
// the port in the trust blob.
func (s *Site) Register(t testing.TB, other *Site, port string) Answer {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-servers", Object{
		"trustBlob": other.Blob(t, port), "friendlyName": fmt.Sprint("site ", other.System), "description": "for tests",
	})
}

// Trust trusts the CA of another site and returns the CA's id in the trust list.
func (s *Site) Trust(t testing.TB, other *Site) (certificateID string) {
	t.Helper()
	return s.TrustCA(t, other.ca(t))
}

// TrustCA trusts a CA certificate and returns its id in the trust list.
func (s *Site) TrustCA(t testing.TB, certificate []byte) (certificateID string) {
	t.Helper()
	return s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-cas", Object{
		"certificate": base64.StdEncoding.EncodeToString(certificate),
	}).Text(t, "trustedCA", "certificateId")
}

// CAOf returns the id of another site's CA in the trust list.
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

// ca returns the certificate of the site's CA.
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
