package faults

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// asker uses a right that another replica revokes.
type asker struct {
	user  *client.Client // at the second replica
	grant schema.ACLChangeRequest
}

func newAsker(t *testing.T, all []*replica) asker {
	t.Helper()
	ctx, admin := t.Context(), all[0].admin
	p, err := admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{
		Name: "user", Password: "user's password", RoleIDs: []schema.HexID{exchanger},
	})
	rig.Must(t, err)
	key, err := admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	a := asker{
		user:  program.Client(t, program.Connect(t, all[1].DataDir, func() string { return all[1].Address }), "user", "user's password", program.NoRetries),
		grant: schema.ACLChangeRequest{TTag: key.TTag, SystemID: p.Principal.SystemID, PrincipalID: p.Principal.PrincipalID, Rights: 1},
	}
	_, err = admin.GrantACL(ctx, a.grant)
	rig.Must(t, err)
	rig.Soon(t, "the right is known", func() bool { allowed, _ := a.ask(t); return allowed })
	return a
}

// ask returns whether the use is allowed, and false for decided if there was no decision.
func (a asker) ask(t *testing.T) (allowed, decided bool) {
	_, err := a.user.AuthorizeKey(t.Context(), schema.AuthorizeKeyRequest{TTag: a.grant.TTag})
	var e *client.Error
	return err == nil, err == nil || errors.As(err, &e) && e.Code == "ACL_DENIED"
}

func (a asker) revoked(t *testing.T, through *replica) {
	t.Helper()
	rig.Soon(t, "the right is revoked", func() bool {
		_, err := through.admin.RevokeACL(t.Context(), schema.ACLRevokeRequest{TTag: a.grant.TTag, SystemID: a.grant.SystemID, PrincipalID: a.grant.PrincipalID})
		var e *client.Error
		return err == nil || errors.As(err, &e) && e.Code == "ACL_NOT_FOUND"
	})
}

// notReady returns the parts that are not ready according to GET /api/ready, or "".
func notReady(t *testing.T, r *replica) string {
	t.Helper()
	_, err := r.admin.GetReadiness(t.Context())
	var e *client.Error
	if err != nil && (!errors.As(err, &e) || e.Code != "NOT_READY") {
		t.Errorf("ready: %v", err)
	}
	if e != nil {
		return e.Detail
	}
	return ""
}

// writer creates roles until end is closed, and records the acknowledged roles.
type writer struct {
	names chan []string
	end   chan struct{}
}

func write(t *testing.T, r *replica, prefix string) writer {
	w := writer{make(chan []string, 1), make(chan struct{})}
	go func() {
		var made []string
		for n := 0; ; n++ {
			select {
			case <-w.end:
				w.names <- made
				return
			default:
			}
			name := fmt.Sprintf("%s %d", prefix, n)
			if _, err := r.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: name}); err == nil {
				made = append(made, name)
			}
			pause(t.Context(), 20*time.Millisecond)
		}
	}()
	return w
}

// stop ends the writer, and checks that all acknowledged roles exist.
func (w writer) stop(t *testing.T, at *replica) {
	t.Helper()
	close(w.end)
	names := <-w.names
	roles, err := at.admin.ListRoles(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, at.Log())
	}
	there := map[string]bool{}
	for _, r := range roles.Roles {
		there[r.Name] = true
	}
	for _, name := range names {
		if !there[name] {
			t.Errorf("%s was acknowledged and is gone", name)
		}
	}
	if len(names) == 0 {
		t.Error("nothing was acknowledged, so nothing was shown")
	}
}

// stopped stops the replicas in order, and verifies the audit log.
func stopped(t *testing.T, url string, all ...*replica) {
	t.Helper()
	for _, r := range all {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	if out, err := built.Run("audit", "verify", "--database-url", url); err != nil {
		t.Errorf("the trail: %v\n%s", err, out)
	}
}

// TestAPartition drops the requests of one replica to the database, the responses, or both. That
// replica decides nothing by its old state, reports the problem, and recovers when the line is
// healed. The other replica works all the time.
func TestAPartition(t *testing.T) {
	for name, hold := range map[string][2]bool{
		"BothWays": {true, true}, "Questions": {true, false}, "Answers": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Start(t)
			url := server.Database(t)
			line, over := server.Proxy(t, url)
			all := replicasEach(t, [][]string{{"--database-url", url}, {"--database-url", over}})
			far := all[1]
			a := newAsker(t, all)
			mine, his := write(t, all[0], "mine"), write(t, far, "his")
			pause(t.Context(), time.Second)

			line.Hold(hold[0], hold[1])
			a.revoked(t, all[0])
			revoked := time.Now()
			time.Sleep(1200 * time.Millisecond) // longer than the staleness bound
			for time.Since(revoked) < 5*time.Second {
				if allowed, _ := a.ask(t); allowed {
					t.Fatal("a right was used that had been revoked for longer than an answer may be old")
				}
			}
			for _, part := range []string{"database", "currency", "writes"} {
				rig.Soon(t, "it is not ready: "+part, func() bool { return strings.Contains(notReady(t, far), part) })
			}
			if detail := notReady(t, all[0]); detail != "" {
				t.Errorf("the other one: %s", detail)
			}
			line.Hold(false, false)
			healed := time.Now()
			rig.Soon(t, "it decides", func() bool {
				allowed, decided := a.ask(t)
				if allowed {
					t.Fatal("a right was used that had been revoked")
				}
				return decided
			})
			t.Logf("it decides %v after the line was healed", time.Since(healed).Round(time.Millisecond))
			rig.Soon(t, "it is ready", func() bool { return notReady(t, far) == "" })
			rig.Soon(t, "it writes", func() bool {
				_, err := far.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: fmt.Sprint("after ", time.Now())})
				return err == nil
			})
			mine.stop(t, all[0])
			his.stop(t, far)
			stopped(t, url, all...)
		})
	}
}
