package rowmac_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func derive(t testing.TB, secret byte) *rowmac.Key {
	t.Helper()
	key, err := rowmac.Derive(bytes.Repeat([]byte{secret}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func id(n uint64) keyserver.ID { return values.IDFromUint64(n) }

var (
	at    = time.UnixMicro(1_800_000_000_000_000)
	cert  = keyserver.Certificate{ID: id(1), Status: 2, Subject: "/CN=a", Issuer: "/CN=b", KeyType: "EC P-256", Serial: []byte{1}, NotBefore: at, NotAfter: at, DER: []byte("der")}
	entry = keyserver.ACLEntry{ID: id(4), ACL: id(3), Principal: keyserver.PrincipalRef{System: 1, ID: id(5)}, Rights: 7, MaxUsage: -1, Used: 9, UserRight: 2}
)

// asked is an approval without subjects, as in older databases.
var asked = keyserver.Approval{
	ID: id(1), Asker: entry.Principal, AskerName: "a", Method: "PUT", Path: "/api/roles", Body: []byte("{}"), Reason: "r", Digest: [32]byte{7},
	Operations: []string{"b", "a"}, CreatedAt: at, ExpiresAt: at.Add(time.Hour), Decision: "rejected", DecidedAt: at, DecidedBy: entry.Principal,
	Votes: []keyserver.ApprovalVote{{Principal: entry.Principal, Name: "v", At: at}},
}

var withSubjects = keyserver.Approval{Subjects: []keyserver.ApprovalSubject{{Subject: keyserver.Subject{Kind: "role", Key: "k"}, Digest: [32]byte{8}}}}

// TestEncodingsStay checks that encodings do not change, because a database keeps MACs for years. With another
// encoding, every row of the kind would be refused: add a version of the encoding instead.
func TestEncodingsStay(t *testing.T) {
	key := derive(t, 7)
	for want, row := range map[string]*rowmac.Row{
		"principal": rowmac.Principal(keyserver.Principal{
			ID: id(1), System: 2, Type: "xauth", Name: "a", Flags: 1, Roles: []keyserver.ID{id(3), id(2), id(2)}, Groups: []keyserver.ID{id(4)},
			Identity: &keyserver.Identity{Issuer: "i", Subject: "s", Audiences: []string{"b", "a"}},
		}, "hash"),
		"role": rowmac.Role(keyserver.Role{ID: id(1), Name: "a", BuiltIn: true, Operations: []keyserver.ID{id(2)}}),
		"key": rowmac.StoredKey(rowmac.KeyRow{
			ID: id(1), Algorithm: "HMAC-SHA384", KeyBytes: 48, Wrapped: []byte{1}, ACL: id(3), CreatedAt: at, Life: keyserver.FirstLife(id(1)),
			Entries: []keyserver.ACLEntry{entry}, Purged: []keyserver.ACLEntry{entry},
		}),
		"aged key": rowmac.StoredKey(rowmac.KeyRow{
			ID: id(2), Algorithm: "HMAC-SHA384", KeyBytes: 48, Wrapped: []byte{1}, ACL: id(3), CreatedAt: at,
			Life: keyserver.KeyLife{State: keyserver.KeyDestroying, Lineage: id(1), Generation: 2, StateAt: at, DestroyAt: at.Add(time.Hour)},
		}),
		"trustedCA":      rowmac.TrustedCA(cert),
		"certificate":    rowmac.Certificate(cert, []byte{1}, []byte("/CN=a")),
		"trustedServer":  rowmac.TrustedServer(keyserver.TrustedServer{System: 2, Name: "a", Port: 3, FriendlyName: "f", Description: "d", Transport: id(4), Certificate: cert, Chain: []byte{5}}),
		"trust":          rowmac.PrincipalTrust(keyserver.PrincipalTrust{ID: id(1), Principal: id(2), Server: 3, Flag: 1}),
		"template":       rowmac.ACLTemplate(keyserver.ACLTemplate{ID: id(1), Name: "a"}),
		"member":         rowmac.TemplateMember(id(1), keyserver.TemplateMember{Principal: entry.Principal, Rights: 7, MaxUsage: -1}),
		"directory":      rowmac.TemplatedDirectory(keyserver.TemplatedDirectory{ID: id(1), Path: "/a", Alias: "b", HostID: "c", Template: id(2), Flag: 3}),
		"policy":         rowmac.RevocationPolicy("AB", keyserver.RevocationPolicy{Mode: keyserver.RevocationRequired, MaxAge: time.Hour}),
		"list":           rowmac.RevocationList("AB", keyserver.CRLFacts{Number: []byte{1}, ThisUpdate: at, NextUpdate: at, ImportedAt: at, Revoked: 1}, keyserver.SerialSet{1, 2}),
		"setting":        rowmac.Setting("name", []byte("value")),
		"authority":      rowmac.Authority(keyserver.Authority{ID: id(1), Generation: 2, State: keyserver.AuthorityActive, Certificate: []byte{3}, PreparedAt: at, ActivatedAt: at}, []byte{4}),
		"peer authority": rowmac.PeerAuthority(keyserver.PeerAuthority{System: 2, Certificate: []byte{3}, Anchor: keyserver.Digest{5}, LearnedAt: at}, []byte{6}, []byte{4}),
		"rotation":       rowmac.KeyRotation(id(1), keyserver.KeyRotation{Every: 90, VerifyOnly: 30, DestroyAfter: 7}, at),
		"approval":       rowmac.Approval(asked),
		"subjects":       rowmac.Approval(withSubjects),
	} {
		if got := hex.EncodeToString(key.Sum(row))[:16]; got != recorded[want] {
			t.Errorf("%s: %s", want, got)
		}
	}
}

// recorded contains the first bytes of each MAC.
var recorded = map[string]string{
	"authority":      "8ce0340db6e57cb9",
	"peer authority": "e04883dd15c310ce",
	"aged key":       "ca8321da027bbfbb",
	"certificate":    "81b13e996765c45b",
	"directory":      "870ac7a0a10c4f6d",
	"key":            "13e4e998549400e2",
	"list":           "dbf8343835301987",
	"member":         "1f4369a2278e810f",
	"policy":         "ac982fd18fd54297",
	"principal":      "cdad6746a8d229e7",
	"role":           "d83227cc03703924",
	"setting":        "0ff8136195ebc9b0",
	"template":       "ca30f917e97fb760",
	"trust":          "285da5f68e4d98bc",
	"trustedCA":      "b3eb8d6a7c167f7c",
	"trustedServer":  "157b194aab5ce1c6",
	"rotation":       "35f42872f705ec89",
	"approval":       "c399df4732f78aca",
	"subjects":       "724a38069bf332b6",
}

// TestNoTwoRowsAreAlike checks that a value cannot move to another column, and that one kind of row cannot replace
// another.
func TestNoTwoRowsAreAlike(t *testing.T) {
	key := derive(t, 7)
	rows := []*rowmac.Row{
		rowmac.NewRow("a", ""), rowmac.NewRow("ab", ""), rowmac.NewRow("a", "").Text("b"), rowmac.NewRow("a", "").Text(""), rowmac.NewRow("a", "").Bytes(nil),
		rowmac.NewRow("a", "").Bytes([]byte{}), rowmac.NewRow("a", "").Text("bc").Text("d"), rowmac.NewRow("a", "").Text("b").Text("cd"), rowmac.NewRow("a", "").Int(0),
		rowmac.NewRow("a", "").List(0), rowmac.NewRow("a", "").List(1).Text("b"), rowmac.NewRow("a", "").Text("b").List(0), rowmac.NewRow("a", "").Bytes([]byte("b")),
		rowmac.NewRow("a", "").Key(keyserver.ID{}), rowmac.NewRow("a", "").Text(string(make([]byte, 8))),
	}
	seen := map[string]int{}
	for i, row := range rows {
		sum := string(key.Sum(row))
		if other, ok := seen[sum]; ok {
			t.Errorf("rows %d and %d are one", other, i)
		}
		seen[sum] = i
	}
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.String(), 2, 2)
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		one, other := rowmac.NewRow("t", "").Text(a[0]).Text(a[1]), rowmac.NewRow("t", "").Text(b[0]).Text(b[1])
		if key.Matches(one, key.Sum(other)) != (a[0] == b[0] && a[1] == b[1]) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

// TestSetsHaveNoOrder checks that the order of sets does not matter, because no database guarantees it.
func TestSetsHaveNoOrder(t *testing.T) {
	key := derive(t, 7)
	role := func(ids ...keyserver.ID) *rowmac.Row { return rowmac.Role(keyserver.Role{Operations: ids}) }
	if !key.Matches(role(id(1), id(2)), key.Sum(role(id(2), id(1), id(2)))) {
		t.Error("the order of operations matters")
	}
	if key.Matches(role(id(1), id(2)), key.Sum(role(id(1)))) {
		t.Error("an operation more does not matter")
	}
	used := entry
	used.Used++
	list := func(e keyserver.ACLEntry) *rowmac.Row {
		return rowmac.StoredKey(rowmac.KeyRow{Entries: []keyserver.ACLEntry{e}})
	}
	if !key.Matches(list(entry), key.Sum(list(used))) {
		t.Error("a use makes it another list")
	}
}

func TestKeysAreApart(t *testing.T) {
	row := rowmac.Setting("name", []byte("value"))
	one, other := derive(t, 1), derive(t, 2)
	for reason, mac := range map[string][]byte{"another key's": other.Sum(row), "none": nil, "a shorter one": one.Sum(row)[:31]} {
		if one.Matches(row, mac) {
			t.Errorf("%s passes", reason)
		}
	}
	secret := bytes.Repeat([]byte{1}, 32)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if shows := fmt.Sprintf(verb, one); shows != "row MAC key" || strings.Contains(shows, string(secret)) {
			t.Errorf("%s shows %s", verb, shows)
		}
	}
}

func BenchmarkAgrees(b *testing.B) {
	key := derive(b, 7)
	p := keyserver.Principal{ID: id(1), System: 1, Type: "password", Name: "somebody", Roles: []keyserver.ID{id(1), id(2)}, Groups: []keyserver.ID{id(3)}}
	mac := key.Sum(rowmac.Principal(p, strings.Repeat("x", 97)))
	b.ReportAllocs()
	for b.Loop() {
		if !key.Matches(rowmac.Principal(p, strings.Repeat("x", 97)), mac) {
			b.Fatal("it does not agree")
		}
	}
}
