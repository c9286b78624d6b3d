package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const rolesQuery = `SELECT r.id, r.name, r.built_in, r.mac, o.operation_id
	FROM roles r LEFT JOIN role_operations o ON o.role_id = r.id`

const findRolesQuery = rolesQuery + ` WHERE r.id = $1 OR r.name = $2 ORDER BY r.id, o.operation_id`

// Roles reads every role, in the order of ids. The built-in roles have the lowest ids.
func (r reads) Roles(ctx context.Context) ([]keyserver.Role, error) {
	return r.roles(ctx, rolesQuery+` ORDER BY r.id, o.operation_id`)
}

// FindRoles reads the roles that have f.ID or f.Name, in the order of ids.
func (r reads) FindRoles(ctx context.Context, f keyserver.RoleFilter) ([]keyserver.Role, error) {
	return r.roles(ctx, findRolesQuery, f.ID[:], f.Name)
}

// Role reads one role.
func (r reads) Role(ctx context.Context, id keyserver.ID) (keyserver.Role, error) {
	roles, err := r.roles(ctx, rolesQuery+` WHERE r.id = $1 ORDER BY o.operation_id`, id[:])
	if err == nil && len(roles) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.Role{}, err
	}
	return roles[0], nil
}

func (r reads) roles(ctx context.Context, query string, args ...any) ([]keyserver.Role, error) {
	roles := []keyserver.Role{}
	var macs [][]byte
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		role := keyserver.Role{Operations: []keyserver.ID{}}
		var builtIn int
		var mac, operation []byte // NULL for a role without operations
		if err := row.Scan(sqldb.IntoID(&role.ID), &role.Name, &builtIn, &mac, &operation); err != nil {
			return err
		}
		if n := len(roles); n == 0 || roles[n-1].ID != role.ID {
			role.BuiltIn = builtIn != 0
			roles, macs = append(roles, role), append(macs, mac)
		}
		if operation == nil {
			return nil
		}
		var id keyserver.ID
		if err := sqldb.IntoID(&id).Scan(operation); err != nil {
			return err
		}
		last := &roles[len(roles)-1]
		last.Operations = append(last.Operations, id)
		return nil
	})
	for i := 0; i < len(roles) && err == nil; i++ {
		err = r.sql.CheckMAC(rowmac.Role(roles[i]), macs[i])
	}
	if err != nil {
		return nil, err
	}
	return roles, nil
}

// InsertRole stores a role. It returns ErrDuplicate if the id or the name exists
// already.
func (tx *Tx) InsertRole(ctx context.Context, role keyserver.Role) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO roles (id, name, built_in, mac) VALUES ($1, $2, $3, $4)`, role.ID[:], role.Name, toInt(role.BuiltIn),
		tx.sql.MAC(rowmac.Role(role)))
	if err != nil {
		return err
	}
	if err := tx.insertOperations(ctx, role.ID, role.Operations); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeRole, role.ID, keyserver.Created)
	return nil
}

// UpdateRole changes the fields of a role that are not nil in change. It returns
// ErrNotFound if the role does not exist, or ErrDuplicate if another role has the name.
func (tx *Tx) UpdateRole(ctx context.Context, change keyserver.RoleChange) error {
	role, err := tx.Role(ctx, change.ID)
	if err != nil {
		return err
	}
	if change.Name != nil {
		role.Name = *change.Name
	}
	if change.Operations != nil {
		role.Operations = change.Operations
	}
	if err := tx.sql.ExecOne(ctx, `UPDATE roles SET name = $1, mac = $2 WHERE id = $3`, role.Name, tx.sql.MAC(rowmac.Role(role)), role.ID[:]); err != nil {
		return err
	}
	if change.Operations != nil {
		if _, err := tx.sql.Exec(ctx, `DELETE FROM role_operations WHERE role_id = $1`, change.ID[:]); err != nil {
			return err
		}
		if err := tx.insertOperations(ctx, change.ID, change.Operations); err != nil {
			return err
		}
	}
	tx.changes.Record(keyserver.ChangeRole, change.ID, keyserver.Updated)
	return nil
}

// DeleteRole deletes a role, and removes it from every principal that has it. It
// records a change of each such principal.
func (tx *Tx) DeleteRole(ctx context.Context, id keyserver.ID) error {
	holders, err := tx.sql.IDs(ctx, `SELECT principal_id FROM principal_roles WHERE role_id = $1 ORDER BY principal_id`, id[:])
	if err != nil {
		return err
	}
	if err := tx.exists(ctx, `SELECT 1 FROM roles WHERE id = $1`, id); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeRole, id, keyserver.Deleted)
	for _, holder := range holders {
		if err := tx.changePrincipal(ctx, holder, func(p *storedPrincipal) { p.Roles = without(p.Roles, id) }); err != nil {
			return err
		}
	}
	return tx.sql.ExecOne(ctx, `DELETE FROM roles WHERE id = $1`, id[:])
}

func (tx *Tx) insertOperations(ctx context.Context, role keyserver.ID, operations []keyserver.ID) error {
	for _, op := range keyserver.NormalizeIDs(operations) {
		if _, err := tx.sql.Exec(ctx, `INSERT INTO role_operations (role_id, operation_id) VALUES ($1, $2)`, role[:], op[:]); err != nil {
			return err
		}
	}
	return nil
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
