package clientaddr_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
)

func TestProxiesRefused(t *testing.T) {
	for _, c := range []struct{ in, says string }{
		{"", "neither"},
		{"proxy.example", "neither"},
		{"10.0.0.0/33", "neither"},
		{"fe80::1%eth0", "neither"},
		{"10.0.0.1/8", "use 10.0.0.0/8"},
		{"0.0.0.0/0", "covers all addresses"},
		{"::/0", "covers all addresses"},
	} {
		if _, err := clientaddr.ParseProxies([]string{"192.0.2.0/24", c.in}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.in, err, c.says)
		}
	}
}

func TestClient(t *testing.T) {
	proxies, err := clientaddr.ParseProxies([]string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason, remote string
		header         []string
		want           string
	}{
		{"a stranger's header is not believed", "198.51.100.1", []string{"203.0.113.9"}, "198.51.100.1"},
		{"a proxy without a header", "10.1.1.1", nil, "10.1.1.1"},
		{"a proxy that says nothing readable", "10.1.1.1", []string{"unknown"}, "10.1.1.1"},
		{"a proxy's word", "10.1.1.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"what the client sent before it counts for nothing", "10.1.1.1", []string{"127.0.0.1, 203.0.113.9"}, "203.0.113.9"},
		{"nor in a header of its own", "10.1.1.1", []string{"127.0.0.1", "203.0.113.9"}, "203.0.113.9"},
		{"past proxies", "10.1.1.1", []string{"127.0.0.1, 203.0.113.9, 192.0.2.7 ,10.2.2.2"}, "203.0.113.9"},
		{"past proxies in headers of their own", "10.1.1.1", []string{"203.0.113.9", "192.0.2.7"}, "203.0.113.9"},
		{"proxies all the way", "10.1.1.1", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{"unreadable behind a proxy", "10.1.1.1", []string{"203.0.113.9, , 10.2.2.2"}, "10.2.2.2"},
		{"with a port", "10.1.1.1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"IPv6 in brackets, with a port", "10.1.1.1", []string{"[2001:db9::1]:4711"}, "2001:db9::1"},
		{"IPv4 in IPv6's clothes", "::ffff:10.1.1.1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"a zone is nobody's business", "10.1.1.1", []string{"fe80::1%eth0"}, "fe80::1"},
	} {
		if got := proxies.Client(netip.MustParseAddr(c.remote), c.header); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
}

func TestNetwork(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1":          "192.0.2.1/32",
		"::ffff:192.0.2.1":   "192.0.2.1/32",
		"2001:db8:0:1::5":    "2001:db8:0:1::/64",
		"fe80::1:2:3:4%eth0": "fe80::/64",
	} {
		if got := clientaddr.Network(netip.MustParseAddr(in)).String(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if clientaddr.Network(netip.Addr{}) != (netip.Prefix{}) {
		t.Error("no address has a network")
	}
}

// FuzzClient checks that the client address is the address of the connection, or an address in the header after the
// last proxy's.
func FuzzClient(f *testing.F) {
	f.Add("10.1.1.1", "203.0.113.9, 10.2.2.2")
	f.Add("10.1.1.1", ",,,")
	f.Add("10.1.1.1", "[::1]:80, ::ffff:10.0.0.1")
	f.Add("198.51.100.1", "10.1.1.1")
	proxies, err := clientaddr.ParseProxies([]string{"10.0.0.0/8"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, remote, header string) {
		at, err := netip.ParseAddr(remote)
		if err != nil {
			return
		}
		got := proxies.Client(at, []string{header})
		switch {
		case !got.IsValid():
			t.Fatalf("%q by %s comes from nowhere", header, remote)
		case !proxies.Trusts(at) && got != at.Unmap():
			t.Fatalf("%s, no proxy, made itself %s by %q", remote, got, header)
		case got != at.Unmap() && strings.Count(header, ",") == 0 && proxies.Trusts(at) && !got.Is4() && !got.Is6():
			t.Fatalf("%q by %s gave %s", header, remote, got)
		}
	})
}

func TestSite(t *testing.T) {
	for network, want := range map[string]string{
		"192.0.2.7/32": "192.0.2.7/32", "2001:db8:1:2::/64": "2001:db8:1::/48", "2001:db8:1:ffff::/64": "2001:db8:1::/48", "2001:db8::/32": "2001:db8::/32",
	} {
		if got := clientaddr.Site(netip.MustParsePrefix(network)).String(); got != want {
			t.Errorf("%s: %s, want %s", network, got, want)
		}
	}
	if clientaddr.Site(netip.Prefix{}) != (netip.Prefix{}) {
		t.Error("no network has a site")
	}
}
