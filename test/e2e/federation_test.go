package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestFederation has one operator make three key servers trust each other, with the unchanged samples. Then it causes
// faults and changes. Each step begins with the state that the previous step left.
func TestFederation(t *testing.T) {
	t.Parallel() // it mostly waits, for its own cluster
	f := newFederation(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the samples make each trust each", f.begins},
		{"one is killed, and comes back", f.killed},
		{"one listens for its peers at another port", f.otherPort},
		{"one is at another address", f.otherAddress},
		{"one that was shut out is elsewhere, too", f.shutOut},
		{"a peer is removed, and declared again", f.peerRemoved},
		{"a CA is removed, and declared again", f.caRemoved},
		{"everything is removed", f.ends},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// samples is the directory with the manifests of the samples.
var samples = filepath.Join("..", "..", "config", "samples", "federation")

// federation is three key servers. The manager reaches them without a proxy, at the addresses that
// they use for each other.
type federation struct {
	*world
	east, west, north *site
	ways              []way
}

// site is one of the three key servers. If its system id is n, its address is 127.0.0.n.
type site struct {
	*installation
	system schema.SystemID
	id     schema.DecimalID // of its administrator
}

func newFederation(t *testing.T) *federation {
	t.Helper()
	f := &federation{world: &world{cluster: startCluster(t)}}
	f.east, f.west, f.north = f.join(t, "east", 2), f.join(t, "west", 3), f.join(t, "north", 4)
	f.startManager(t)
	return f
}

func (f *federation) join(t *testing.T, name string, system schema.SystemID) *site {
	t.Helper()
	host := fmt.Sprintf("127.0.0.%d", system)
	m := &site{system: system, installation: newInstallation(t, name, -1, "--system-id", fmt.Sprint(system), "--server-name", host,
		"--listen", rig.FreeAddress(t, host), "--external-listen", rig.FreeAddress(t, host))}
	m.declare(t, f.cluster)
	session, err := m.admin.GetCurrentSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.id = session.Principal.PrincipalID
	return m
}

func (f *federation) sites() []*site { return []*site{f.east, f.west, f.north} }

// restart stops a key server gracefully and starts it with additional arguments. If a flag occurs twice, the last value
// counts.
func (m *site) restart(t *testing.T, args ...string) {
	t.Helper()
	if err := m.server.Stop(); err != nil {
		t.Fatal(err)
	}
	m.args = append(m.args, args...)
	m.start(t, m.server.DataDir)
}

// record returns a key server's record of a peer, or nil.
func (m *site) record(t *testing.T, peer *site) *schema.TrustedServer {
	t.Helper()
	list, err := m.admin.ListTrustedServers(t.Context(), schema.TrustedServersQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.TrustedServers {
		if s.SystemID != nil && *s.SystemID == peer.system {
			return &s
		}
	}
	return nil
}

// way is a key of one key server that the administrator of another one may use.
type way struct {
	from, to *site
	ttag     schema.HiddenLink
}

// material is the secret of every key.
const material = "the key that stays at home"

func newWay(t *testing.T, from, to *site) way {
	t.Helper()
	bits := schema.Base64(material)
	key, err := to.admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384", Material: &bits})
	if err != nil {
		t.Fatal(err)
	}
	granted, err := to.admin.GrantACL(t.Context(), schema.ACLChangeRequest{
		TTag: key.TTag, SystemID: from.system, PrincipalID: from.id, Rights: schema.Rights(keyserver.Read),
	})
	if err != nil || !granted.Verified {
		t.Fatalf("the entry of %s on a key of %s: %v", from.name, to.name, err)
	}
	return way{from, to, key.TTag}
}

func (y way) String() string { return y.from.name + " to " + y.to.name }

// ask requests a use of the key. It returns "OK" or the error code.
func (y way) ask(t *testing.T) string {
	t.Helper()
	_, err := y.from.admin.AuthorizeKey(t.Context(), schema.AuthorizeKeyRequest{TTag: y.ttag})
	switch {
	case err == nil:
		return "OK"
	case client.CodeOf(err) != "":
		return client.CodeOf(err)
	default:
		return err.Error()
	}
}

// everything calls each operation that one key server forwards to another.
func (y way) everything(t *testing.T) error {
	t.Helper()
	for what, do := range map[string]func(*testing.T) (bool, error){
		"authorize": y.authorize, "a short HMAC": y.hmac(5), "a streamed HMAC": y.hmac(16 << 20), "the list": y.list, "a lookup": y.lookup,
	} {
		if right, err := do(t); err != nil {
			return fmt.Errorf("%s, %s: %w", y, what, err)
		} else if !right {
			return fmt.Errorf("%s, %s: another answer than it should be", y, what)
		}
	}
	return nil
}

func (y way) authorize(t *testing.T) (bool, error) {
	got, err := y.from.admin.AuthorizeKey(t.Context(), schema.AuthorizeKeyRequest{TTag: y.ttag, Filename: "/a/file"})
	return got.Authorized && got.SystemID == y.to.system, err
}

func (y way) hmac(length int) func(*testing.T) (bool, error) {
	return func(t *testing.T) (bool, error) {
		message := bytes.Repeat([]byte{7}, length)
		want := hmac.New(sha512.New384, []byte(material))
		want.Write(message)
		got, err := y.from.admin.HMAC(t.Context(), y.ttag, bytes.NewReader(message))
		return bytes.Equal(got.MAC, want.Sum(nil)), err
	}
}

// list returns true if the ACL has the entries of the owner and of the caller.
func (y way) list(t *testing.T) (bool, error) {
	got, err := y.from.admin.GetACL(t.Context(), schema.KeyRequest{TTag: y.ttag})
	return got.ACL.EntryCount == 2, err
}

func (y way) lookup(t *testing.T) (bool, error) {
	got, err := y.from.admin.LookUpPrincipals(t.Context(), schema.LookupPrincipalsRequest{Principals: []schema.PrincipalPair{{SystemID: y.to.system, PrincipalID: y.to.id}}})
	return len(got.Principals) == 1 && got.Principals[0].Name == "admin", err
}

// entry returns the caller's ACL entry as the owner of the key reads it, or nil.
func (y way) entry(t *testing.T) *schema.ACLEntry {
	t.Helper()
	list, err := y.to.admin.GetACL(t.Context(), schema.KeyRequest{TTag: y.ttag})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.ACL.Entries {
		if e.SystemID == y.from.system {
			return &e
		}
	}
	return nil
}

// way returns the key of the key server to that the administrator of from may use.
func (f *federation) way(from, to *site) way {
	for _, y := range f.ways {
		if y.from == from && y.to == to {
			return y
		}
	}
	panic("no way from " + from.name + " to " + to.name)
}

// beside returns the ways between the key servers other than m.
func (f *federation) beside(m *site) (others []way) {
	for _, y := range f.ways {
		if y.from != m && y.to != m {
			others = append(others, y)
		}
	}
	return others
}

// open checks that each of the ways works.
func (f *federation) open(t *testing.T, ways ...way) {
	t.Helper()
	for _, y := range ways {
		if err := y.everything(t); err != nil {
			t.Error(err)
		}
	}
}

// opens waits until each of the ways works. After a failure, a key server does not use the peer for a moment,
// separately for each connection.
func (f *federation) opens(t *testing.T, ways ...way) {
	t.Helper()
	for _, y := range ways {
		var err error
		defer func() {
			if err != nil {
				t.Error(err)
			}
		}()
		rig.Soon(t, y.String()+" opens", func() bool { err = y.everything(t); return err == nil })
	}
}

// condition is the Ready condition of an object.
type condition struct{ status, reason, message, since string }

// objects returns the Ready conditions of all objects, including KeyServers, by kind and name.
func (f *federation) objects(t *testing.T) map[string]condition {
	t.Helper()
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON([]byte(f.kubectl(t, "", "get", "trust", "-A", "-o", "json"))); err != nil {
		t.Fatal(err)
	}
	all := map[string]condition{}
	for _, o := range list.Items {
		var ready condition
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c, _ := c.(map[string]any); c["type"] == "Ready" && c["observedGeneration"] == o.GetGeneration() {
				ready = condition{fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"]), fmt.Sprint(c["lastTransitionTime"])}
			}
		}
		all[o.GetKind()+" "+o.GetName()] = ready
	}
	return all
}

// declared is the number of objects: three KeyServers, and for each ordered pair a CA, a peer and a principal trust.
const declared = 3 + 6*3

// ready applies the unchanged samples and waits until all objects are Ready.
func (f *federation) ready(t *testing.T) {
	t.Helper()
	f.kubectl(t, "", "apply", "--server-side", "-k", samples)
	f.settles(t)
}

// settles waits until all objects are Ready, without applying anything.
func (f *federation) settles(t *testing.T) {
	t.Helper()
	var all map[string]condition
	defer func() {
		if t.Failed() {
			t.Logf("the objects: %v", all)
		}
	}()
	rig.Soon(t, "everything is Ready", func() bool {
		all = f.objects(t)
		for _, c := range all {
			if c.status != "True" {
				return false
			}
		}
		return len(all) == declared
	})
}

// registrations returns how often the key server received a registration of a peer.
func (m *site) registrations(t *testing.T) int {
	t.Helper()
	return m.operations(t, "addTrustedServer")["addTrustedServer"]
}

func (f *federation) begins(t *testing.T) {
	f.ready(t)
	for _, from := range f.sites() {
		for _, to := range f.sites() {
			if from != to {
				f.ways = append(f.ways, newWay(t, from, to))
			}
		}
		if n := from.registrations(t); n != 2 {
			t.Errorf("%s was asked to register a peer %d times, want once for each", from.name, n)
		}
	}
	f.opens(t, f.ways...)
}

// ofWest lists the objects whose external object is on the key server "west". The objects that make
// it a peer of others are on those.
var ofWest = []string{
	"KeyServer west",
	"TrustedCA east-at-west", "TrustedServer east-at-west", "PrincipalTrust admin-of-west-at-east",
	"TrustedCA north-at-west", "TrustedServer north-at-west", "PrincipalTrust admin-of-west-at-north",
}

// killed kills a key server with SIGKILL. Only requests to that key server fail.
func (f *federation) killed(t *testing.T) {
	before := f.objects(t)
	f.west.server.Kill()
	var now map[string]condition
	rig.Soon(t, "what is declared of the key server that is gone says so", func() bool {
		now = f.objects(t)
		for _, object := range ofWest {
			says := "does not respond"
			if object == "KeyServer west" {
				says = "no response from the key server"
			}
			if c := now[object]; c.status != "False" || c.reason != string(v1beta1.ReasonKeyServerUnavailable) || !strings.Contains(c.message, says) {
				return false
			}
		}
		return true
	})
	others := func(now map[string]condition) {
		t.Helper()
		for object, c := range now {
			if !slices.Contains(ofWest, object) && c != before[object] {
				t.Errorf("%s was %v, and is %v", object, before[object], c)
			}
		}
	}
	others(now)
	for _, y := range f.ways {
		if y.to == f.west {
			if got := y.ask(t); got != "PEER_UNAVAILABLE" {
				t.Errorf("%s, which is gone: %s", y, got)
			}
		}
	}
	f.open(t, f.beside(f.west)...)

	f.west.start(t, f.west.server.DataDir)
	f.settles(t)
	f.opens(t, f.ways...)
	others(f.objects(t))
	for _, m := range f.sites() {
		if n := m.registrations(t); n != 2 {
			t.Errorf("%s was asked to register a peer %d times, and none has changed", m.name, n)
		}
	}
}

func (f *federation) otherPort(t *testing.T) {
	f.follows(t, f.west, "--external-listen", rig.FreeAddress(t, "127.0.0.3"))
	f.opens(t, f.ways...)
}

func (f *federation) otherAddress(t *testing.T) {
	const host = "127.0.0.14"
	f.follows(t, f.north, "--server-name", host, "--external-listen", rig.FreeAddress(t, host))
	f.opens(t, f.ways...)
}

// follows restarts a key server at another address. Its peers find it there, and the rights of its
// principals and of the peers are unchanged.
func (f *federation) follows(t *testing.T, moved *site, args ...string) {
	t.Helper()
	before := make([]*schema.ACLEntry, len(f.ways))
	for i, y := range f.ways {
		before[i] = y.entry(t)
	}
	moved.restart(t, args...)
	info, err := moved.admin.GetLocalTrustInfo(t.Context())
	if err != nil || info.TrustBlob == nil {
		t.Fatalf("%s has no trust blob (%v)", moved.name, err)
	}
	for _, m := range f.sites() {
		if m != moved {
			rig.Soon(t, m.name+" has registered it where it is now", func() bool {
				r := m.record(t, moved)
				return r != nil && r.ServerName != nil && *r.ServerName == info.TrustBlob.ServerName && r.Port != nil && *r.Port == int(info.TrustBlob.Port)
			})
		}
	}
	f.settles(t)
	for i, y := range f.ways {
		if after := y.entry(t); !reflect.DeepEqual(after, before[i]) {
			t.Errorf("%s: the entry was %+v, and is %+v", y, before[i], after)
		}
	}
	for _, m := range f.sites() {
		if n := m.operations(t, "removeTrustedServer")["removeTrustedServer"]; n != 0 {
			t.Errorf("%s was asked to remove a peer %d times, to register it anew", m.name, n)
		}
	}
}

// shutOut disables a peer's transport principal, as an officer would. Requests of the peer from any address are refused
// until the principal is enabled again.
func (f *federation) shutOut(t *testing.T) {
	back := f.way(f.west, f.east)
	disable := func(disabled bool) {
		t.Helper()
		transport := schema.HexID(*f.east.record(t, f.west).TransportPrincipalID)
		_, err := f.east.admin.UpdatePrincipalFlags(t.Context(), schema.UpdatePrincipalFlagsRequest{ID: transport, Disabled: &disabled})
		if err != nil {
			t.Fatal(err)
		}
	}
	disable(true)
	f.follows(t, f.west, "--external-listen", rig.FreeAddress(t, "127.0.0.3"))
	var got string
	rig.Soon(t, "the peer is told that it is shut out", func() bool { got = back.ask(t); return got != "PEER_UNAVAILABLE" })
	if got != "PRINCIPAL_DISABLED" {
		t.Errorf("%s, which has shut it out: %s", back, got)
	}
	f.opens(t, f.way(f.east, f.west), f.way(f.west, f.north), f.way(f.north, f.west))
	disable(false)
	f.opens(t, f.ways...)
}

// peerRemoved deletes the object of a peer and the object that depends on it. Only this peer stops.
func (f *federation) peerRemoved(t *testing.T) {
	asks, back := f.way(f.east, f.west), f.way(f.west, f.east)
	f.kubectl(t, "", "delete", "ptrust/admin-of-east-at-west", "tserver/west-at-east")
	if got := back.ask(t); got != "PEER_UNAVAILABLE" {
		t.Errorf("%s, after its peer has removed it: %s", back, got)
	}
	if got := asks.ask(t); got != "KEY_NOT_FOUND" {
		t.Errorf("%s, which it has removed: %s", asks, got)
	}
	if f.east.record(t, f.west) != nil || back.entry(t) != nil {
		t.Errorf("%s still knows its peer, or lists its principal", f.east.name)
	}
	for _, y := range f.ways {
		if y != asks && y != back {
			f.open(t, y)
		}
	}
	f.ready(t)
	f.opens(t, f.ways...)
}

// retained are the objects that are deleted in this order. Their external objects are kept.
var retained = []string{"ptrust/admin-of-east-at-north", "tserver/north-at-east"}

// caRemoved deletes a TrustedCA. The deletion waits while the peer's object needs the CA. After the deletion, the peer
// is refused, although it stays registered.
func (f *federation) caRemoved(t *testing.T) {
	asks, back := f.way(f.east, f.north), f.way(f.north, f.east)
	f.kubectl(t, "", "delete", "--wait=false", "tca/north-at-east")
	rig.Soon(t, "the CA is held", func() bool { return f.objects(t)["TrustedCA north-at-east"].reason == string(v1beta1.ReasonInUse) })
	f.open(t, asks, back)

	for _, object := range retained {
		f.kubectl(t, "", "patch", object, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Retain"}}`)
		f.kubectl(t, "", "delete", object)
	}
	f.kubectl(t, "", "wait", "--for=delete", "--timeout=120s", "tca/north-at-east")
	for _, y := range []way{asks, back} {
		if got := y.ask(t); got != "PEER_UNAVAILABLE" {
			t.Errorf("%s, whose CA is gone: %s", y, got)
		}
	}
	if f.east.record(t, f.north) == nil || back.entry(t) == nil {
		t.Errorf("%s has lost its peer, or the entry of its principal, with the CA", f.east.name)
	}
	f.open(t, f.beside(f.north)...)
	f.open(t, f.beside(f.east)...)
	f.ready(t)
	f.opens(t, f.ways...)
}

func (f *federation) ends(t *testing.T) {
	for _, object := range retained { // each was adopted when it was declared again
		f.kubectl(t, "", "patch", object, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	}
	f.kubectl(t, "", "delete", "-k", samples)
	for _, m := range f.sites() {
		peers, err := m.admin.ListTrustedServers(t.Context(), schema.TrustedServersQuery{})
		if err != nil || len(peers.TrustedServers) != 0 {
			t.Errorf("%s still has %d peers (%v)", m.name, len(peers.TrustedServers), err)
		}
		cas, err := m.admin.ListTrustedCAs(t.Context(), schema.TrustedCAsQuery{})
		if err != nil || len(cas.TrustedCAs) != 0 {
			t.Errorf("%s still trusts %d CAs (%v)", m.name, len(cas.TrustedCAs), err)
		}
	}
	for _, y := range f.ways {
		if got := y.ask(t); got != "KEY_NOT_FOUND" {
			t.Errorf("%s, which it does not know: %s", y, got)
		}
	}
}
