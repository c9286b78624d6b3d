package oncall

import (
	"context"
	"crypto/tls"
	"io"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// shareUsedUp lets one principal open more long polls than its share.
func shareUsedUp(t *testing.T) startedEnvironment {
	k := serve(t, built, "--max-waiting", "4")
	admin := k.admin(t)
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			load(t, 2, func(ctx context.Context) {
				page, err := admin.ListChanges(ctx, schema.ChangesQuery{})
				if err != nil {
					return
				}
				wait := 60
				_, _ = admin.ListChanges(ctx, schema.ChangesQuery{After: &page.Cursor, Wait: &wait}) // one of the two is refused
			})
		},
		cure: func(t *testing.T) {
			rig.Soon(t, "the log names the principal", func() bool { return strings.Contains(k.Log(), "OVERLOADED") && strings.Contains(k.Log(), "long polls") })
			k.restart(t, "--max-waiting", "1024")
		},
	}
}

// ceilingReached lets clients without a session send more endless bodies than the server accepts at once.
func ceilingReached(t *testing.T) startedEnvironment {
	k := serve(t, built, "--max-strangers", "2", "--max-strangers-per-address", "2")
	roots, err := program.Roots(k.dataDir)
	rig.Must(t, err)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}}
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			load(t, 4, func(ctx context.Context) {
				conn, err := dialer.DialContext(ctx, "tcp", k.Address)
				if err != nil {
					return
				}
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				_, _ = io.WriteString(conn, "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
				_, _ = io.Copy(io.Discard, conn) // until the server gives the place to another connection
			})
		},
		cure: func(t *testing.T) { k.restart(t, "--max-strangers", "1024", "--max-strangers-per-address", "128") },
	}
}
