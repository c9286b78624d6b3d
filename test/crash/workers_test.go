package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// worker is the work of one client. An error is a failure, unless client.IsUnavailable returns true for it.
type worker struct {
	name string
	step func(ctx context.Context, r *rand.Rand) error
}

// system is the default system id of a server.
const system schema.SystemID = 1

func newWorkers(t *testing.T, r *rand.Rand, w *world) (all []worker) {
	t.Helper()
	for i := range 2 {
		one := func() *ledger.Worker {
			return &ledger.Worker{
				Client: w.client(t, program.NoRetries), Objects: &w.objects, MACs: &w.macs, Names: fmt.Sprintf("role-%d-", i), System: system, Grantee: w.other,
			}
		}
		cas := one()
		cas.CAs = ledger.NewCAs(t, fmt.Sprintf("CA %d-%x", i, r.Uint32()))
		all = append(all, worker{"keys", one().Keys}, worker{"roles", one().Roles}, worker{"CAs", cas.TrustedCAs}, worker{"uses", one().UseKeys})
	}
	return append(all, worker{"users", (&users{world: w, client: w.client(t, program.NoRetries)}).step})
}

// users creates principals that log in, and ends some of their sessions.
type users struct {
	world  *world
	client *client.Client
	n      int
}

func (u *users) step(ctx context.Context, r *rand.Rand) error {
	u.n++
	name := fmt.Sprintf("user-%d", u.n)
	password := "password of " + name
	made, err := u.client.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{Name: name, Password: schema.Secret(password)})
	if err != nil {
		return err
	}
	u.world.objects.Note("principal "+made.Principal.ID.String(), ledger.Principal(name, nil))
	token, err := u.world.sessions.Open(ctx, name, password)
	if err != nil {
		return err
	}
	u.world.objects.Note("session "+token, "live")
	if r.IntN(2) == 0 {
		return nil
	}
	return u.world.objects.Change(ctx, "session "+token, "", func(ctx context.Context) error { return u.world.sessions.End(ctx, token) })
}
