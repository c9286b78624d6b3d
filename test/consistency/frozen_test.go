package consistency

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// A replica is stopped, and a right is revoked at the other one. Requests that are sent later than the staleness
// bound wait at the stopped replica until it resumes. It must not decide any of them by its old state.
func TestAReplicaThatWasFrozenHasForgotten(t *testing.T) {
	t.Parallel() // it mostly waits
	const rounds, questions = 4, 8
	var frozen *program.Server
	w := replicas(t, func(s *program.Server) { frozen = s })
	ctx, owner, mine := t.Context(), w.owners[0], w.entries[0]
	asking := w.users[readers:] // clients of the second replica
	ask := func(c *client.Client) (allowed, decided bool) {
		_, err := c.AuthorizeKey(ctx, schema.AuthorizeKeyRequest{TTag: mine.TTag})
		var e *client.Error
		return err == nil, err == nil || errors.As(err, &e) && e.Code == "ACL_DENIED"
	}
	refused := 0
	for range rounds {
		grant := schema.ACLChangeRequest{TTag: mine.TTag, SystemID: mine.SystemID, PrincipalID: mine.PrincipalID, Rights: 1}
		if _, err := owner.GrantACL(ctx, grant); err != nil {
			t.Fatal(err)
		}
		for _, u := range asking {
			rig.Soon(t, "the right is known", func() bool {
				allowed, _ := ask(u.Client)
				return allowed
			})
		}
		resume := frozen.Freeze(t)
		if _, err := owner.RevokeACL(ctx, mine); err != nil {
			t.Fatal(err)
		}
		sleep(ctx, staleness*6/5)
		var waiting sync.WaitGroup
		var mu sync.Mutex
		for i := range questions {
			waiting.Go(func() {
				allowed, decided := ask(asking[i%len(asking)].Client)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case allowed:
					t.Error("a right was used that had been revoked for longer than an answer may be old")
				case decided:
					refused++
				}
			})
		}
		time.Sleep(200 * time.Millisecond) // so that the requests have arrived
		resume()
		waiting.Wait()
	}
	if refused == 0 {
		t.Error("nothing was decided, so nothing was shown")
	}
}
