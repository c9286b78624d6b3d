package verified_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// roleReads counts the roles that are read from the key server.
type roleReads struct {
	keyserver.Port
	calls, rows int
}

func (c *roleReads) count(roles []keyserver.Role, err error) ([]keyserver.Role, error) {
	c.calls++
	c.rows += len(roles)
	return roles, err
}

func (c *roleReads) Roles(ctx context.Context, by keyserver.Caller) ([]keyserver.Role, error) {
	return c.count(c.Port.Roles(ctx, by))
}

func (c *roleReads) FindRoles(ctx context.Context, by keyserver.Caller, f keyserver.RoleFilter) ([]keyserver.Role, error) {
	return c.count(c.Port.FindRoles(ctx, by, f))
}

// withRoles adds n roles with one operation each.
func withRoles(t testing.TB, f *enginetest.Fixture, n int) {
	t.Helper()
	err := f.Store.Update(context.Background(), func(tx *sqlstore.Tx) error {
		for i := range n {
			id := values.IDFromUint64(1<<40 + uint64(i))
			role := keyserver.Role{ID: id, Name: "one of many " + id.Hex(), Operations: []keyserver.ID{keyserver.OpHMAC.ID}}
			if err := tx.InsertRole(context.Background(), role); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRoleWritesReadNoOtherRoles checks that a write reads only the roles that it concerns, even if there are many
// roles.
func TestRoleWritesReadNoOtherRoles(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		withRoles(t, f, 200)
		reads := &roleReads{Port: f.Engine}
		s := verified.New(reads)
		var id keyserver.ID
		steps := []struct {
			what string
			do   func() error
			rows int
		}{
			{"create", func() error {
				r, err := s.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: "new", Operations: []keyserver.ID{keyserver.OpHMAC.ID}})
				id = r.Requested.ID
				return err
			}, 1},
			{"rename", func() error {
				_, err := s.UpdateRole(ctx, f.Admin, keyserver.RoleChange{ID: id, Name: ptr("newer")})
				return err
			}, 2},
			{"delete", func() error { _, err := s.DeleteRole(ctx, f.Admin, id); return err }, 1},
		}
		for _, step := range steps {
			reads.calls, reads.rows = 0, 0
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			if reads.calls != 2 || reads.rows != step.rows {
				t.Errorf("%s: read %d roles in %d calls, want %d in 2", step.what, reads.rows, reads.calls, step.rows)
			}
		}
	})
}

// BenchmarkCreateRole shows that the cost of a new role does not depend on the number of roles.
func BenchmarkCreateRole(b *testing.B) {
	for name, database := range enginetest.Databases {
		for _, n := range []int{0, 8000} {
			b.Run(fmt.Sprintf("%s/among=%d", name, n), func(b *testing.B) {
				f := enginetest.New(b, database(b))
				withRoles(b, f, n)
				s := verified.New(f.Engine)
				for i := 0; b.Loop(); i++ {
					if _, err := s.CreateRole(ctx, f.Admin, keyserver.NewRole{Name: fmt.Sprintf("new %d", i)}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
