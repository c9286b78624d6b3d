package ledger

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// View reads the state of a key server.
type View struct {
	Client   *client.Client
	Sessions Sessions
	Grantee  schema.DecimalID // gets rights from the workers
	// Mine selects the roles and trusted CAs of the workers, by name and subject. nil selects all roles except built-in
	// ones, and all CAs.
	Mine func(name string) bool
}

// Read returns the values of the named objects that exist, and of all roles and trusted CAs that Mine selects, even if
// no worker requested them.
func (v View) Read(ctx context.Context, names []string) (map[string]string, error) {
	var mu sync.Mutex
	now := map[string]string{}
	put := func(name, value string) {
		mu.Lock()
		defer mu.Unlock()
		now[name] = value
	}
	roles, err := v.Client.ListRoles(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range roles.Roles {
		if (r.BuiltIn == nil || !*r.BuiltIn) && v.mine(&r.Name) {
			put("role "+r.Name, IDs(r.Operations))
		}
	}
	cas, err := v.Client.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
	if err != nil {
		return nil, err
	}
	for _, ca := range cas.TrustedCAs {
		if v.mine(ca.Subject) {
			put("CA "+fingerprint(ca), "trusted")
		}
	}
	return now, each(names, func(name string) error {
		switch kind, id, _ := strings.Cut(name, " "); kind {
		case "key":
			return v.readKey(ctx, id, put)
		case "principal":
			return v.readPrincipal(ctx, id, put)
		case "session":
			live, err := v.Sessions.Live(ctx, id)
			if live {
				put(name, "live")
			}
			return err
		}
		return nil
	})
}

func (v View) mine(name *string) bool {
	return v.Mine == nil || name != nil && v.Mine(*name)
}

func (v View) readKey(ctx context.Context, id string, put func(name, value string)) error {
	var link schema.HiddenLink
	if err := link.UnmarshalText([]byte(id)); err != nil {
		return err
	}
	got, err := v.Client.GetACL(ctx, schema.KeyRequest{TTag: link})
	if client.IsCode(err, "ACL_NOT_FOUND") {
		return nil
	}
	if err != nil {
		return err
	}
	put("key "+id, "there")
	for _, e := range got.ACL.Entries {
		if e.PrincipalID == v.Grantee {
			put("entry on "+id, fmt.Sprint(uint32(e.Rights)))
		}
	}
	return nil
}

func (v View) readPrincipal(ctx context.Context, id string, put func(name, value string)) error {
	principal, err := schema.ParseHexID(id)
	if err != nil {
		return err
	}
	p, err := v.Client.GetPrincipal(ctx, schema.ByID{ID: principal})
	if client.IsCode(err, "NOT_FOUND") {
		return nil
	}
	if err != nil {
		return err
	}
	put("principal "+id, Principal(p.Name, p.RoleIDs))
	return nil
}

// Principal returns the value of a principal in Objects.
func Principal(name string, roles []schema.HexID) string { return name + " " + IDs(roles) }
