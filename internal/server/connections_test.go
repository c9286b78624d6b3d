package server

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

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

// TestDelay checks that several delays of a connection delay only its next read, and only once.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, end := net.Pipe()
		defer client.Close()
		conn := &heldConn{Conn: end}
		ctx := withHeld(context.Background(), conn)
		delay(ctx, time.Second)
		delay(ctx, time.Second)
		go func() { _, _ = client.Write([]byte("ab")) }()
		for _, want := range []time.Duration{time.Second, 0} {
			begun := time.Now()
			if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Error(n, err)
			}
			if took := time.Since(begun); took != want {
				t.Errorf("read after %s, want %s", took, want)
			}
		}
	})
}
