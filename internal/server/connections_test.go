package server

import "testing"

// TestStrangersFitConnections checks that requests without a session get at most a share of the connections.
func TestStrangersFitConnections(t *testing.T) {
	for _, c := range []struct{ connections, strangers, each, wantAll, wantEach int }{
		{4096, 1024, 128, 1024, 128},
		{8192, 1024, 128, 1024, 128},
		{200, 1024, 128, 50, 50},
		{2, 1024, 128, 1, 1},
	} {
		var got Config
		got.MaxConnections, got.MaxStrangers, got.MaxStrangersPerAddress = c.connections, c.strangers, c.each
		got.fitStrangers()
		if got.MaxStrangers != c.wantAll || got.MaxStrangersPerAddress != c.wantEach {
			t.Errorf("with %d connections: %d strangers, %d of one address", c.connections, got.MaxStrangers, got.MaxStrangersPerAddress)
		}
	}
}
