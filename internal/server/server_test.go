package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
)

func TestOnePathThroughEverything(t *testing.T) {
	databases := map[string]func(*testing.T) testserver.Option{
		"SQLite": func(*testing.T) testserver.Option { return func(*server.Config) {} },
		"PostgreSQL": func(t *testing.T) testserver.Option {
			return func(c *server.Config) { c.DatabaseURL = migrated.Database(t) }
		},
	}
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := testserver.Start(t, database(t))
			admin := s.Admin(t)
			key, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
			if err != nil {
				t.Fatal(err)
			}
			mac, err := admin.HMAC(ctx, key.TTag, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			s.Stop(t)
			s.Restart(t)
			again, err := admin.HMAC(ctx, key.TTag, strings.NewReader("hello"))
			if err != nil {
				t.Fatalf("after a restart, with the session from before it: %v", err)
			}
			if string(again.MAC) != string(mac.MAC) || len(mac.MAC) != 48 {
				t.Errorf("got %x before and %x after a restart", mac.MAC, again.MAC)
			}
		})
	}
}
