package ledger

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Worker is a client that changes its own objects. Each method does one unit of work. An error is a finding,
// unless it is ErrUnsettled or client.IsUnavailable reports true for it.
type Worker struct {
	Client  *client.Client
	Objects *Objects
	MACs    *MACs
	Names   string           // prefix of the names of its roles
	System  schema.SystemID  // of the server
	Grantee schema.DecimalID // gets rights on keys
	CAs     []rig.CA         // CAs to trust and to stop trusting

	made  int // number of roles
	links []schema.HiddenLink
}

// NewCAs creates CAs for a worker.
func NewCAs(t testing.TB, name string) []rig.CA {
	t.Helper()
	list := make([]rig.CA, 6)
	for i := range list {
		list[i] = rig.NewCA(t, fmt.Sprint(name, " ", i))
	}
	return list
}

// Keys mints or imports a key, and grants and revokes rights on it.
func (w *Worker) Keys(ctx context.Context, r *rand.Rand) error {
	in := schema.MintKeyRequest{Algorithm: "HMAC-SHA384"}
	var material []byte
	if r.IntN(2) == 0 {
		material = fmt.Appendf(nil, "material %x", r.Uint64())
		in.Material = (*schema.Base64)(&material)
	}
	link, err := w.mint(ctx, in)
	if err != nil {
		return err
	}
	if err := w.MACs.Compute(ctx, w.Client, link, material, "of a new key"); err != nil {
		return err
	}
	entry := "entry on " + link.String()
	for _, rights := range []schema.Rights{1, 2}[:r.IntN(3)] {
		err := w.Objects.Change(ctx, entry, fmt.Sprint(uint32(rights|1)), func(ctx context.Context) error {
			_, err := w.Client.GrantACL(ctx, schema.ACLChangeRequest{TTag: link, SystemID: w.System, PrincipalID: w.Grantee, Rights: rights})
			return err
		})
		if err != nil {
			return err
		}
	}
	if w.Objects.Value(entry) == "" || r.IntN(2) == 0 {
		return nil
	}
	return w.Objects.Change(ctx, entry, "", func(ctx context.Context) error {
		_, err := w.Client.RevokeACL(ctx, schema.ACLRevokeRequest{TTag: link, SystemID: w.System, PrincipalID: w.Grantee})
		return err
	})
}

func (w *Worker) mint(ctx context.Context, in schema.MintKeyRequest) (schema.HiddenLink, error) {
	made, err := w.Client.MintKey(ctx, in)
	if err == nil {
		w.Objects.Note("key "+made.TTag.String(), "there")
	}
	return made.TTag, err
}

var someOperations = []schema.HexID{{6: 1, 7: 1}, {6: 1, 7: 0x21}, {6: 2, 7: 1}, {6: 3, 7: 4}, {6: 4, 7: 1}}

// Roles creates a role, and changes and deletes it.
func (w *Worker) Roles(ctx context.Context, r *rand.Rand) error {
	w.made++
	name := w.Names + fmt.Sprint(w.made)
	var id schema.HexID
	set := someOperations[:r.IntN(len(someOperations))]
	err := w.Objects.Change(ctx, "role "+name, IDs(set), func(ctx context.Context) error {
		saved, err := w.Client.CreateRole(ctx, schema.CreateRoleRequest{Name: name, Operations: set})
		id = saved.ID
		return err
	})
	if err != nil {
		return err
	}
	for range r.IntN(3) {
		set := someOperations[r.IntN(len(someOperations)):]
		err := w.Objects.Change(ctx, "role "+name, IDs(set), func(ctx context.Context) error {
			_, err := w.Client.UpdateRole(ctx, schema.UpdateRoleRequest{ID: id, Operations: set})
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.IntN(3) == 0 {
		return nil
	}
	return w.Objects.Change(ctx, "role "+name, "", func(ctx context.Context) error {
		_, err := w.Client.DeleteRole(ctx, schema.ByID{ID: id})
		return err
	})
}

// TrustedCAs adds or removes one of the CAs.
func (w *Worker) TrustedCAs(ctx context.Context, r *rand.Rand) error {
	one := w.CAs[r.IntN(len(w.CAs))]
	name := "CA " + one.Fingerprint
	if !w.Objects.Settled(name) {
		return ErrUnsettled
	}
	if w.Objects.Value(name) == "" {
		return w.Objects.Change(ctx, name, "trusted", func(ctx context.Context) error {
			_, err := w.Client.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: one.DER})
			return err
		})
	}
	list, err := w.Client.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list.TrustedCAs, func(row schema.TrustedCA) bool { return fingerprint(row) == one.Fingerprint })
	if at < 0 {
		return fmt.Errorf("%s was acknowledged and is not listed", name)
	}
	return w.Objects.Change(ctx, name, "", func(ctx context.Context) error {
		_, err := w.Client.RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: *list.TrustedCAs[at].CertificateID})
		return err
	})
}

// UseKeys computes MACs of the same messages with the same four keys, repeatedly.
func (w *Worker) UseKeys(ctx context.Context, r *rand.Rand) error {
	if len(w.links) < 4 {
		link, err := w.mint(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		if err != nil {
			return err
		}
		w.links = append(w.links, link)
	}
	message := strings.Repeat(fmt.Sprintf("message %d ", r.IntN(16)), 1+r.IntN(2)*400)
	return w.MACs.Compute(ctx, w.Client, w.links[r.IntN(len(w.links))], nil, message)
}

// IDs formats ids in order.
func IDs(ids []schema.HexID) string {
	sorted := make([]string, len(ids))
	for i, id := range ids {
		sorted[i] = id.String()
	}
	slices.Sort(sorted)
	return "[" + strings.Join(sorted, " ") + "]"
}

func fingerprint(row schema.TrustedCA) string {
	if row.CertHash == nil {
		return "without a hash"
	}
	return hex.EncodeToString(*row.CertHash)
}
