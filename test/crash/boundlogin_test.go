package crash

import (
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestCommandsWhereSessionsAreBound checks that audit verify can read from a key server that
// requires bound sessions, and from one behind a forwarded port, which would not accept a proof.
func TestCommandsWhereSessionsAreBound(t *testing.T) {
	s := onSQLite(t)
	for name, tc := range map[string]struct {
		args  []string
		reach func(t *testing.T, address string) string
	}{
		"bound":     {[]string{"--require-proof", "people"}, func(_ *testing.T, address string) string { return address }},
		"forwarded": {nil, forwarded},
	} {
		t.Run(name, func(t *testing.T) {
			at := s
			at.args = append(slices.Clone(s.args), tc.args...)
			server := at.serve(t)
			out, err := binary.Named("keyserverctl").Run("audit", "verify", "--server", "https://"+tc.reach(t, server.Address), "--ca-file", filepath.Join(s.dir, "ca.crt"),
				"--password-file", filepath.Join(s.dir, "bootstrap-password"))
			if err != nil || !strings.HasPrefix(out, "audit log intact") {
				t.Errorf("%v\n%s", err, out)
			}
			rig.Must(t, server.Stop())
		})
	}
}

// forwarded returns an address that forwards connections to another address.
func forwarded(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", address)
			if err != nil {
				_ = from.Close()
				continue
			}
			for a, b := range map[net.Conn]net.Conn{from: to, to: from} {
				go func() {
					_, _ = io.Copy(a, b) // until one side closes the connection
					_ = a.Close()
				}()
			}
		}
	}()
	return l.Addr().String()
}
