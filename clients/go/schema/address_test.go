package schema

import "testing"

func TestIPAddress(t *testing.T) {
	for _, bad := range []string{"", "nonsense", "192.0.2.1:80", "192.0.2", "[::1]", "192.0.2.0/24"} {
		if err := new(IPAddress).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for spelt, want := range map[string]IPAddress{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:DB8:0::1": "2001:db8::1", "fe80::1%eth0": "fe80::1",
	} {
		var got IPAddress
		if err := got.UnmarshalText([]byte(spelt)); err != nil || got != want {
			t.Errorf("%s: %s, %v", spelt, got, err)
		}
	}
}
