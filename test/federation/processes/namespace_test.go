package processes

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// peersPort is the port for peers in a separate network.
const peersPort = 9443

// Three key servers, each in a separate network namespace, on one bridge. A pulled cable loses
// every packet and closes no connection. Only root can make namespaces; otherwise TestPartition
// holds the packets back.
func TestPulledCable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	n := newNetwork(t)
	a, b, c := n.site(t, 2), n.site(t, 3), n.site(t, 4)
	registerEachOther(t, a, b, c)
	ab, ba, ac := share(t, a, b, "there", "OWNER"), share(t, b, a, "back", "READ"), share(t, a, c, "beside", "READ")
	for _, p := range []pair{ab, ba, ac} {
		p.works(t)
	}
	guest := a.User(t, "guest", keyserver.RoleExchanger)

	n.ip(t, "link", "set", n.cable(b.System), "down")
	asked := a.begin(t, ab.caller.Session, "/api/keys/authorize", rig.Object{"ttag": ab.ttag})
	change := a.begin(t, ab.caller.Session, "/api/keys/acl/grant", guest.Entry(ab.ttag, "READ"))
	ac.works(t)
	unavailable(t, asked.wait(t))
	unavailable(t, change.wait(t)) // a change reads the ACL first
	n.ip(t, "link", "set", n.cable(b.System), "up")

	ab.works(t)
	ba.works(t)
	got := a.OK(t, ab.caller.Session, "POST", "/api/keys/acl/get", rig.Object{"ttag": ab.ttag})
	if lists(got, guest) {
		t.Errorf("a change that was refused was made: %v", got.Body)
	}
	out := a.OK(t, ab.caller.Session, "POST", "/api/crypto/hmac", hmacOf(ab.ttag, messageOf(largest)))
	if out.Field("mac") != macOf(messageOf(largest)) {
		t.Errorf("answered %v", out.Body)
	}
}

// network is a bridge with its namespaces.
type network struct {
	name   string
	subnet string
}

// newNetwork uses a part of 198.18.0.0/15, which is reserved for tests (RFC 2544).
func newNetwork(t *testing.T) *network {
	t.Helper()
	pid := os.Getpid()
	n := &network{name: "ks" + strconv.Itoa(pid), subnet: fmt.Sprintf("198.18.%d.", pid%256)}
	if out, err := exec.Command("ip", "link", "add", n.name, "type", "bridge").CombinedOutput(); err != nil {
		t.Skipf("no network can be made here: %v %s", err, out)
	}
	t.Cleanup(func() { n.ip(t, "link", "del", n.name) })
	n.ip(t, "addr", "add", n.subnet+"1/24", "dev", n.name)
	n.ip(t, "link", "set", n.name, "up")
	return n
}

func (n *network) ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v %s", strings.Join(args, " "), err, out)
	}
}

// cable returns the name of the bridge's interface to a key server.
func (n *network) cable(system int) string { return n.name + "c" + strconv.Itoa(system) }

// site starts a key server in a new namespace.
func (n *network) site(t *testing.T, system int) *site {
	t.Helper()
	space, host := n.name+"n"+strconv.Itoa(system), n.subnet+strconv.Itoa(system)
	n.ip(t, "netns", "add", space)
	t.Cleanup(func() { n.ip(t, "netns", "del", space) })
	n.ip(t, "link", "add", n.cable(system), "type", "veth", "peer", "name", "eth0", "netns", space)
	n.ip(t, "link", "set", n.cable(system), "master", n.name, "up")
	n.ip(t, "-n", space, "addr", "add", host+"/24", "dev", "eth0")
	n.ip(t, "-n", space, "link", "set", "eth0", "up")
	n.ip(t, "-n", space, "link", "set", "lo", "up")

	script := filepath.Join(t.TempDir(), "serve")
	text := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s \"$@\"\n", space, built.Path)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newSite(system, host, net.JoinHostPort(host, strconv.Itoa(peersPort)))
	s.binary, s.direct = program.At(script), true
	s.enter(t)
	return s
}
