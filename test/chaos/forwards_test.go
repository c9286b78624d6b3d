package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// forwards has the requests of a site's user for keys that the site's peer owns. Both sites have an audit row for each
// response.
type forwards struct {
	owner     *site
	link      schema.HiddenLink
	withdrawn schema.HiddenLink // a key that the user may not use
	material  []byte
	clients   []*client.Client // by process

	mu   sync.Mutex
	sent []*ledger.Call // with a response
}

func newForwards(t testing.TB, asked, owner *site) *forwards {
	t.Helper()
	_, err := asked.admin.CreatePrincipalTrust(t.Context(), schema.CreatePrincipalTrustRequest{
		PrincipalID: hexOf(asked.user.PrincipalID), TrustedServerSystemID: owner.system, Flag: "expose",
	})
	rig.Must(t, err)
	f := &forwards{owner: owner, material: []byte("the material of a key of " + owner.name)}
	made, err := owner.admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384", Material: (*schema.Base64)(&f.material)})
	rig.Must(t, err)
	f.link = made.TTag
	_, err = owner.admin.GrantACL(t.Context(), schema.ACLChangeRequest{TTag: f.link, SystemID: asked.system, PrincipalID: asked.user.PrincipalID, Rights: 1})
	rig.Must(t, err)
	made, err = owner.admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	f.withdrawn = made.TTag
	for _, m := range asked.members {
		f.clients = append(f.clients, program.Client(t, m.over, "user", userPassword, program.NoRetries))
	}
	return f
}

// forwarded uses a key of the peer, or requests a key that the user may not use.
func (w *worker) forwarded(ctx context.Context, r *rand.Rand) error {
	f := w.forwards
	if f == nil {
		return ledger.ErrUnsettled
	}
	c := f.clients[0]
	for i, m := range w.site.members {
		if m == w.at {
			c = f.clients[i]
		}
	}
	if r.IntN(4) == 0 {
		_, err := c.AuthorizeKey(ledger.Unaudited(ctx), schema.AuthorizeKeyRequest{TTag: f.withdrawn})
		var e *client.Error
		switch {
		case err == nil:
			return fmt.Errorf("a peer let somebody use the key %s, on whose list he is not", f.withdrawn)
		case errors.As(err, &e) && e.Status == http.StatusForbidden:
			return nil
		default:
			return err
		}
	}
	sent := &ledger.Call{}
	answer, err := c.HMAC(sent.In(ctx), f.link, strings.NewReader("forwarded"))
	if err != nil {
		return err
	}
	if string(answer.MAC) != string(ledger.MAC(f.material, "forwarded")) {
		return errors.New("a peer's HMAC is not that of its key")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, sent)
	return nil
}

// check looks for the rows of forwarded requests in the audit log of the owner, which was just read. A call whose
// response was lost is repeated, and each attempt has a row.
func (f *forwards) check(log *ledger.AuditLog, disturbed bool) (wrong []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.sent {
		ids := c.IDs()
		id := ids[len(ids)-1]
		if n := log.Allowed(id, "hmacData"); n < 1 || n > 1 && !disturbed {
			wrong = append(wrong, fmt.Sprintf("the forwarded request %s was answered, and its owner's rows are %v", id, log.Entries(id)))
		}
	}
	f.sent = nil
	return wrong
}
