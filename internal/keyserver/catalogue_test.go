package keyserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"

	"github.com/google/go-cmp/cmp"
)

// permanent maps each id to the operation that it has meant since its first release.
// Databases and manifests refer to operations by id, audit rows by key: add rows here,
// but never change one or give it to another operation.
var permanent = map[uint64]string{
	0x0101: "listOperations",
	0x0102: "listRoles",
	0x0103: "createRole",
	0x0104: "updateRole",
	0x0105: "deleteRole",
	0x0106: "grantAnyOperation",
	0x0111: "readPrincipal",
	0x0112: "createPrincipal",
	0x0113: "listPrincipals",
	0x0114: "updatePrincipalFlags",
	0x0115: "updatePrincipalRoles",
	0x0116: "lookupPrincipals",
	0x0117: "listGroupMembers",
	0x0118: "changeGroupMembers",
	0x0119: "endSessions",
	0x011A: "listSessions",
	0x011B: "deletePrincipal",
	0x011C: "setPassword",
	0x0121: "readVersion",
	0x0122: "watchChanges",
	0x0123: "readAuthority",
	0x0124: "changeAuthority",
	0x0125: "readOwners",
	0x0126: "setOwner",
	0x0131: "issueCertificate",
	0x0132: "renewCertificate",
	0x0133: "enrollCertificate",
	0x0134: "findCertificates",
	0x0135: "resetTransportPrincipal",
	0x0141: "readConfiguration",
	0x0152: "readApprovals",
	0x0153: "setApprovalPolicy",
	0x0161: "readCustody",
	0x0162: "rotateDataKey",
	0x0127: "makeBackup",
	0x0201: "listTrustedCAs",
	0x0202: "addTrustedCA",
	0x0203: "removeTrustedCA",
	0x0211: "listTrustedServers",
	0x0212: "addTrustedServer",
	0x0213: "updateTrustedServer",
	0x0214: "removeTrustedServer",
	0x0215: "readTrustInfo",
	0x0221: "listPrincipalTrusts",
	0x0222: "createPrincipalTrust",
	0x0223: "updatePrincipalTrust",
	0x0224: "deletePrincipalTrust",
	0x0231: "listACLTemplates",
	0x0232: "createACLTemplate",
	0x0233: "updateACLTemplate",
	0x0234: "deleteACLTemplate",
	0x0235: "readACLTemplateMembers",
	0x0236: "changeACLTemplateMembers",
	0x0241: "listTemplatedDirectories",
	0x0242: "createTemplatedDirectory",
	0x0243: "deleteTemplatedDirectory",
	0x0251: "listRevocationIssuers",
	0x0252: "readRevocationPolicy",
	0x0253: "setRevocationPolicy",
	0x0254: "importCRL",
	0x0301: "createKey",
	0x0302: "readKeyMetadata",
	0x0303: "authorizeKey",
	0x0304: "hmacData",
	0x0305: "listKeys",
	0x0306: "changeKeyState",
	0x0307: "rotateKey",
	0x0308: "macData",
	0x0309: "verifyMAC",
	0x030a: "encryptData",
	0x030b: "decryptData",
	0x0311: "readACL",
	0x0312: "amendACL",
	0x0321: "exportKey",
	0x0331: "delegateLogin",
	0x0401: "readAudit",
	0x0402: "explainAccess",
}

func TestOperationsKeepTheirIDs(t *testing.T) {
	got := map[uint64]string{}
	for _, op := range Operations {
		got[op.ID.Uint64()] = op.Key
	}
	if diff := cmp.Diff(permanent, got); diff != "" {
		t.Errorf("an operation changed its id or its key (-released +now):\n%s", diff)
	}
	roles := map[uint64]string{}
	for _, b := range BuiltInRoles(Unified) {
		roles[b.ID.Uint64()] = b.Name
	}
	released := map[uint64]string{1: "Administrator", 2: "Security Officer", 3: "Encryptor", 4: "Exchanger", 5: "Auditor"}
	if diff := cmp.Diff(released, roles); diff != "" {
		t.Errorf("a built-in role changed its id or its name (-released +now):\n%s", diff)
	}
}

// Ids, keys and names must be unique; otherwise an audit filter or a manifest would be
// ambiguous.
func TestOperationsCatalogue(t *testing.T) {
	seen := map[string]bool{}
	once := func(what string) {
		if seen[what] {
			t.Errorf("%s is there twice", what)
		}
		seen[what] = true
	}
	for i, op := range Operations {
		once("id " + op.ID.Hex())
		once("key " + op.Key)
		once("name " + op.Name)
		if op.ID.IsZero() || op.Key == "" || op.Name == "" || op.Duty == "" || op.Key[0] < 'a' || op.Key[0] > 'z' {
			t.Errorf("%+v is not complete", op)
		}
		if i > 0 && Operations[i-1].ID.Uint64() >= op.ID.Uint64() {
			t.Errorf("%s is out of order", op.Key)
		}
	}
}

func TestBuiltInRoles(t *testing.T) {
	for _, d := range []Deployment{Unified, Split} {
		granted := map[ID]bool{}
		for _, b := range BuiltInRoles(d) {
			r := b.Role()
			if !r.BuiltIn || r.ID.IsZero() || r.Name == "" || !slices.Equal(r.Operations, NormalizeIDs(r.Operations)) {
				t.Errorf("%s: %+v", d, r)
			}
			for _, id := range r.Operations {
				granted[id] = true
			}
			trust := slices.Contains(r.Operations, OpAddTrustedCA.ID)
			wanted := b.ID == RoleSecurityOfficer || (b.ID == RoleAdministrator && d == Unified)
			if trust != wanted {
				t.Errorf("%s: %s may add a CA: %v", d, r.Name, trust)
			}
		}
		for _, op := range Operations {
			// If duties are split, no principal may grant an operation that it does not hold.
			if wanted := d != Split || op.ID != OpGrantAny.ID; granted[op.ID] != wanted {
				t.Errorf("%s: a built-in role grants %s: %v", d, op.Key, granted[op.ID])
			}
		}
	}
}

func TestNormalizeIDs(t *testing.T) {
	a, b := values.IDFromUint64(1), values.IDFromUint64(2)
	in := []ID{b, a, b}
	if got := NormalizeIDs(in); !slices.Equal(got, []ID{a, b}) || in[0] != b {
		t.Errorf("got %v from %v", got, in)
	}
	if NormalizeIDs(nil) == nil {
		t.Error("no ids are null and not an empty list")
	}
}

func TestFlags(t *testing.T) {
	if !Flags(0).Disabled() || FlagEnable.Disabled() || !FlagDelegation.Delegation() || !FlagSystemDefined.SystemDefined() || FlagEnable.Delegation() {
		t.Error("a flag is read from another's bit")
	}
}

func TestEveryTypeAndStatusHasAWord(t *testing.T) {
	for _, typ := range PrincipalTypes {
		if typ.ClassName() == "" {
			t.Errorf("%s has no class", typ)
		}
	}
	if PrincipalType("x").ClassName() != "" || CertificateStatus(9).Label() != "" {
		t.Error("an unknown type or status has a word")
	}
	for s := StatusCA; s <= StatusExpired; s++ {
		if s.Label() == "" {
			t.Errorf("status %d has no label", s)
		}
	}
}

// No formatting verb shows a secret of a request.
func TestSecretsDoNotPrint(t *testing.T) {
	for _, v := range []any{
		NewKey{Algorithm: AES256, Material: []byte("hunter2")}, &NewKey{Material: []byte("hunter2")},
		NewPasswordPrincipal{Name: "ann", Password: "hunter2"},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X"} {
			out := fmt.Sprintf(verb, v)
			if strings.Contains(out, "hunter2") || strings.Contains(strings.ToLower(out), "68756e74657232") || strings.Contains(out, "104 117") {
				t.Errorf("%s prints %s", verb, out)
			}
		}
	}
}
