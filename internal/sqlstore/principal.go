package sqlstore

import (
	"context"
	"database/sql"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// principalQuery reads a principal with its roles and groups in one statement,
// so that all of it is of one moment. Its parameter selects the principal p.
func principalQuery(where string) string {
	return `SELECT 0 AS part, p.id AS id, p.system_id, p.type, p.name, p.flags FROM principals p WHERE ` + where + `
		UNION ALL SELECT 1, r.role_id, 0, '', '', 0 FROM principals p JOIN principal_roles r ON r.principal_id = p.id WHERE ` + where + `
		UNION ALL SELECT 2, g.group_id, 0, '', '', 0 FROM principals p JOIN group_members g ON g.member_id = p.id WHERE ` + where + `
		ORDER BY part, id`
}

var (
	principalByID   = principalQuery(`p.id = $1`)
	principalByName = principalQuery(`p.type = $1 AND p.name = $2`)
)

// Principal reads a principal with its roles and groups, both sorted.
func (r reads) Principal(ctx context.Context, id keyserver.ID) (keyserver.Principal, error) {
	return r.principal(ctx, principalByID, id[:])
}

// PrincipalByName reads the principal of that type and name.
func (r reads) PrincipalByName(ctx context.Context, t keyserver.PrincipalType, name string) (keyserver.Principal, error) {
	return r.principal(ctx, principalByName, string(t), name)
}

func (r reads) principal(ctx context.Context, query string, args ...any) (keyserver.Principal, error) {
	p := keyserver.Principal{Roles: []keyserver.ID{}, Groups: []keyserver.ID{}}
	err := r.each(ctx, query, args, func(row scanner) error {
		var part int
		var id keyserver.ID
		var head keyserver.Principal
		if err := row.Scan(&part, intoID(&id), &head.System, &head.Type, &head.Name, &head.Flags); err != nil {
			return err
		}
		switch part {
		case 0:
			p.ID, p.System, p.Type, p.Name, p.Flags = id, head.System, head.Type, head.Name, head.Flags
		case 1:
			p.Roles = append(p.Roles, id)
		default:
			p.Groups = append(p.Groups, id)
		}
		return nil
	})
	if err == nil && p.ID.IsZero() {
		err = ErrNotFound
	}
	if err != nil {
		return keyserver.Principal{}, err
	}
	return p, nil
}

// PasswordHash reads the hash of a principal's password: ErrNotFound where
// there is no principal, or it has no password.
func (r reads) PasswordHash(ctx context.Context, id keyserver.ID) (string, error) {
	var hash sql.NullString
	err := r.row(ctx, `SELECT password_hash FROM principals WHERE id = $1`, []any{id[:]}, &hash)
	if err == nil && !hash.Valid {
		err = ErrNotFound
	}
	return hash.String, err
}

// InsertPrincipal stores a principal with its roles and groups. An empty
// passwordHash is none. ErrDuplicate where the id, or the name among
// principals of the type, is taken; ErrNotFound where a role or group is missing.
func (tx *Tx) InsertPrincipal(ctx context.Context, p keyserver.Principal, passwordHash string) error {
	_, err := tx.exec(ctx, `INSERT INTO principals (id, system_id, type, name, flags, password_hash)
		VALUES ($1, $2, $3, $4, $5, $6)`, p.ID[:], int64(p.System), string(p.Type), p.Name, int64(p.Flags),
		sql.NullString{String: passwordHash, Valid: passwordHash != ""})
	if err != nil {
		return err
	}
	if err := tx.insertPrincipalRoles(ctx, p.ID, p.Roles); err != nil {
		return err
	}
	for _, group := range p.Groups {
		if err := tx.insertMember(ctx, group, p.ID); err != nil {
			return err
		}
	}
	tx.record(keyserver.ChangePrincipal, p.ID, keyserver.Created)
	return nil
}

// SetPrincipalRoles makes the given roles all that a principal holds.
func (tx *Tx) SetPrincipalRoles(ctx context.Context, id keyserver.ID, roles []keyserver.ID) error {
	if err := tx.exists(ctx, `SELECT 1 FROM principals WHERE id = $1`, id); err != nil {
		return err
	}
	if _, err := tx.exec(ctx, `DELETE FROM principal_roles WHERE principal_id = $1`, id[:]); err != nil {
		return err
	}
	if err := tx.insertPrincipalRoles(ctx, id, roles); err != nil {
		return err
	}
	tx.record(keyserver.ChangePrincipal, id, keyserver.Updated)
	return nil
}

func (tx *Tx) insertPrincipalRoles(ctx context.Context, id keyserver.ID, roles []keyserver.ID) error {
	for _, role := range keyserver.NormalizeIDs(roles) {
		if _, err := tx.exec(ctx, `INSERT INTO principal_roles (principal_id, role_id) VALUES ($1, $2)`, id[:], role[:]); err != nil {
			return err
		}
	}
	return nil
}

// SetPrincipalFlags replaces the flag word of a principal.
func (tx *Tx) SetPrincipalFlags(ctx context.Context, id keyserver.ID, flags keyserver.Flags) error {
	if err := tx.execOne(ctx, `UPDATE principals SET flags = $1 WHERE id = $2`, int64(flags), id[:]); err != nil {
		return err
	}
	tx.record(keyserver.ChangePrincipal, id, keyserver.Updated)
	return nil
}

// AddGroupMember puts a principal into a group: ErrDuplicate where it is in it
// already, ErrNotFound where either does not exist.
func (tx *Tx) AddGroupMember(ctx context.Context, group, member keyserver.ID) error {
	if err := tx.insertMember(ctx, group, member); err != nil {
		return err
	}
	tx.record(keyserver.ChangePrincipal, member, keyserver.Updated)
	return nil
}

func (tx *Tx) insertMember(ctx context.Context, group, member keyserver.ID) error {
	_, err := tx.exec(ctx, `INSERT INTO group_members (group_id, member_id) VALUES ($1, $2)`, group[:], member[:])
	return err
}

// RemoveGroupMember takes a principal out of a group.
func (tx *Tx) RemoveGroupMember(ctx context.Context, group, member keyserver.ID) error {
	if err := tx.execOne(ctx, `DELETE FROM group_members WHERE group_id = $1 AND member_id = $2`, group[:], member[:]); err != nil {
		return err
	}
	tx.record(keyserver.ChangePrincipal, member, keyserver.Updated)
	return nil
}

// exists answers ErrNotFound where the query for an id finds nothing.
func (s statements) exists(ctx context.Context, query string, id keyserver.ID) error {
	var one int
	return s.row(ctx, query, []any{id[:]}, &one)
}
