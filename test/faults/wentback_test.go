package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// exchanger is the id of the built-in role of that name.
var exchanger = schema.HexID{7: 4}

// TestADatabaseThatWentBack lets PostgreSQL fall back to a standby without the newest changes, and then makes more
// changes than were lost. A replica that has seen the lost changes but not the fallback must not use its old state
// after a right is revoked through another replica.
func TestADatabaseThatWentBack(t *testing.T) {
	primary := pgtest.Start(t)
	url := primary.Database(t)
	standby := primary.Standby(t, "second")
	all := replicas(t, 2, "--database-url", pgtest.On(url, primary, standby))
	ctx, admin, second := t.Context(), all[0].admin, all[1]
	p, err := admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{
		Name: "user", Password: "user's password", RoleIDs: []schema.HexID{exchanger},
	})
	rig.Must(t, err)
	key, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	entry := schema.ACLRevokeRequest{TTag: key.TTag, SystemID: p.Principal.SystemID, PrincipalID: p.Principal.PrincipalID}
	grant := schema.ACLChangeRequest{TTag: key.TTag, SystemID: entry.SystemID, PrincipalID: entry.PrincipalID, Rights: 1}
	_, err = admin.GrantACL(ctx, grant)
	rig.Must(t, err)
	user := program.Client(t, program.Connect(t, second.DataDir, func() string { return second.Address }), "user", "user's password", program.NoRetries)
	ask := func() (allowed, decided bool) {
		_, err := user.AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: key.TTag})
		var e *client.Error
		return err == nil, err == nil || errors.As(err, &e) && e.Code == "ACL_DENIED"
	}
	rig.Soon(t, "the right is known", func() bool { allowed, _ := ask(); return allowed })

	change := func() error {
		_, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		return err
	}
	caughtUp(t, url, primary, standby)
	standby.Kill(t)
	for range 5 {
		rig.Must(t, change())
	}
	rig.Soon(t, "the right is known, and what will be gone", func() bool { allowed, _ := ask(); return allowed })
	resume := second.Freeze(t)
	primary.Kill(t)
	standby.Restart(t)
	standby.Promote(t)
	rig.Soon(t, "the right is revoked through the first one", func() bool {
		_, err := admin.RevokeACL(ctx, entry)
		var e *client.Error
		return err == nil || errors.As(err, &e) && e.Code == "ACL_NOT_FOUND"
	})
	for range 20 {
		rig.Must(t, change())
	}
	time.Sleep(1200 * time.Millisecond) // longer than the staleness bound
	resume()
	rig.Soon(t, "the second one decides", func() bool {
		allowed, decided := ask()
		if allowed {
			t.Fatal("a right was used that had been revoked for longer than an answer may be old")
		}
		return decided
	})
	for i, r := range all {
		if !strings.Contains(r.Log(), "the database has gone back") {
			t.Logf("replica %d has not seen what is gone:\n%s", i, r.Log())
		}
	}
	for _, r := range all {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	if out, err := built.Run("audit", "verify", "--database-url", pgtest.On(url, standby)); err != nil {
		t.Errorf("the trail: %v\n%s", err, out)
	}
}

// caughtUp waits until a standby has all the data of its primary.
func caughtUp(t *testing.T, url string, primary, standby *pgtest.Cluster) {
	t.Helper()
	head := func(on *pgtest.Cluster) (n [2]int64) {
		conn, err := pgx.Connect(t.Context(), strings.Replace(pgtest.On(url, on), "read-write", "any", 1))
		if err != nil {
			return n
		}
		defer func() { _ = conn.Close(t.Context()) }()
		_ = conn.QueryRow(t.Context(), `SELECT (SELECT value FROM sequences WHERE name = 'changes'), (SELECT value FROM sequences WHERE name = 'audit')`).Scan(&n[0], &n[1])
		return n
	}
	rig.Soon(t, "the standby has caught up", func() bool { n := head(primary); return n[0] > 0 && head(standby) == n })
}
