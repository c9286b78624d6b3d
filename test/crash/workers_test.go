package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// worker is one client's work. It touches objects of its own only, so that
// what it was answered is what must be there. It ends with errUnanswered, or
// an error for which client.IsUnavailable holds, when the server is gone; any
// other error is a failure.
type worker interface {
	step(ctx context.Context, r *rand.Rand) error
}

func newWorkers(t *testing.T, r *rand.Rand, w *world) []worker {
	t.Helper()
	var all []worker
	for i := range 2 {
		all = append(all,
			&keys{world: w, client: w.client(t, program.Never)},
			&roles{world: w, client: w.client(t, program.Never), prefix: fmt.Sprintf("role-%d-", i)},
			&cas{world: w, client: w.client(t, program.Never), pool: newCertificates(t, fmt.Sprintf("CA %d-%x", i, r.Uint32()), 6)},
			&uses{world: w, client: w.client(t, program.Never)},
		)
	}
	return append(all, &users{world: w, client: w.client(t, program.Never)})
}

// keys mints and imports keys, and gives and takes rights on them.
type keys struct {
	world  *world
	client *client.Client
}

// system is the system id of a server that is given none.
const system schema.SystemID = 1

func (k *keys) step(ctx context.Context, r *rand.Rand) error {
	in := schema.MintKeyRequest{Algorithm: "HMAC-SHA384"}
	var material []byte
	if r.IntN(2) == 0 {
		material = fmt.Appendf(nil, "material %x", r.Uint64())
		in.Material = (*schema.Base64)(&material)
	}
	made, err := k.client.MintKey(ctx, in)
	if err != nil {
		return err
	}
	k.world.ledger.note("key "+made.TTag.String(), "there")
	if err := k.world.macs.compute(ctx, k.client, made.TTag, material, "of a new key"); err != nil {
		return err
	}
	entry := "entry on " + made.TTag.String()
	change := schema.ACLChangeRequest{TTag: made.TTag, SystemID: system, PrincipalID: k.world.other}
	for _, rights := range []schema.Rights{1, 2}[:r.IntN(3)] {
		change.Rights = rights
		err := k.world.ledger.change(entry, fmt.Sprint(rights|1), func() error {
			_, err := k.client.GrantACL(ctx, change)
			return err
		})
		if err != nil {
			return err
		}
	}
	if k.world.ledger.value(entry) == "" || r.IntN(2) == 0 {
		return nil
	}
	return k.world.ledger.change(entry, "", func() error {
		_, err := k.client.RevokeACL(ctx, schema.ACLRevokeRequest{TTag: made.TTag, SystemID: system, PrincipalID: k.world.other})
		return err
	})
}

// roles creates, changes and deletes roles.
type roles struct {
	world  *world
	client *client.Client
	prefix string
	n      int
}

var someOperations = []schema.HexID{{6: 1, 7: 1}, {6: 1, 7: 0x21}, {6: 2, 7: 1}, {6: 3, 7: 4}, {6: 4, 7: 1}}

func (o *roles) step(ctx context.Context, r *rand.Rand) error {
	o.n++
	name := o.prefix + fmt.Sprint(o.n)
	var id schema.HexID
	set := someOperations[:r.IntN(len(someOperations))]
	err := o.world.ledger.change("role "+name, roleValue(set), func() error {
		saved, err := o.client.CreateRole(ctx, schema.CreateRoleRequest{Name: name, Operations: set})
		id = saved.ID
		return err
	})
	if err != nil {
		return err
	}
	for range r.IntN(3) {
		set := someOperations[r.IntN(len(someOperations)):]
		err := o.world.ledger.change("role "+name, roleValue(set), func() error {
			_, err := o.client.UpdateRole(ctx, schema.UpdateRoleRequest{ID: id, Operations: set})
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.IntN(3) == 0 {
		return nil
	}
	return o.world.ledger.change("role "+name, "", func() error {
		_, err := o.client.DeleteRole(ctx, schema.ByID{ID: id})
		return err
	})
}

func roleValue(operations []schema.HexID) string {
	sorted := make([]string, len(operations))
	for i, op := range operations {
		sorted[i] = op.String()
	}
	slices.Sort(sorted)
	return "may [" + strings.Join(sorted, " ") + "]"
}

// cas adds and removes trusted CAs.
type cas struct {
	world  *world
	client *client.Client
	pool   []rig.CA
}

func (c *cas) step(ctx context.Context, r *rand.Rand) error {
	one := c.pool[r.IntN(len(c.pool))]
	name := "CA " + one.Fingerprint
	if c.world.ledger.value(name) == "" {
		return c.world.ledger.change(name, "trusted", func() error {
			_, err := c.client.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: one.DER})
			return err
		})
	}
	list, err := c.client.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
	if err != nil {
		return err
	}
	for _, row := range list.TrustedCAs {
		if fingerprintOf(row) == one.Fingerprint {
			return c.world.ledger.change(name, "", func() error {
				_, err := c.client.RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: *row.CertificateID})
				return err
			})
		}
	}
	return fmt.Errorf("%s was acknowledged and is not listed", name)
}

// uses asks for HMACs under a few keys, again and again.
type uses struct {
	world  *world
	client *client.Client
	links  []schema.HiddenLink
}

func (u *uses) step(ctx context.Context, r *rand.Rand) error {
	if len(u.links) < 4 {
		made, err := u.client.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		if err != nil {
			return err
		}
		u.world.ledger.note("key "+made.TTag.String(), "there")
		u.links = append(u.links, made.TTag)
	}
	message := strings.Repeat(fmt.Sprintf("message %d ", r.IntN(16)), 1+r.IntN(2)*400)
	return u.world.macs.compute(ctx, u.client, u.links[r.IntN(len(u.links))], nil, message)
}

// users creates principals who log in and, some of them, out.
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
	u.world.ledger.note("principal "+made.Principal.ID.String(), name)
	token, err := u.world.login(ctx, name, password)
	if err != nil {
		return err
	}
	u.world.ledger.note("session "+token, "live")
	if r.IntN(2) == 0 {
		return nil
	}
	return u.world.ledger.change("session "+token, "", func() error { return u.world.logout(ctx, token) })
}
