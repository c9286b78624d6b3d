package sqlstore

import (
	"context"
	"database/sql"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// principalsQuery reads principals with all that belongs to them in one
// statement, so that all of it is of one moment. from selects them; order is
// "name, id" or "id, name", of which the other column sorts what belongs to one.
func principalsQuery(from, order string) string {
	return `WITH page AS MATERIALIZED (SELECT p.id, p.system_id, p.type, p.name, p.flags FROM ` + from + `)
		SELECT 0 AS part, id AS owner, id, system_id, type, name, flags FROM page
		UNION ALL SELECT 1, r.principal_id, r.role_id, 0, '', '', 0 FROM page JOIN principal_roles r ON r.principal_id = page.id
		UNION ALL SELECT 2, g.member_id, g.group_id, 0, '', '', 0 FROM page JOIN group_members g ON g.member_id = page.id
		UNION ALL SELECT 3, x.principal_id, x.principal_id, 0, x.issuer, x.subject, 0 FROM page JOIN xauth_identities x ON x.principal_id = page.id
		UNION ALL SELECT 4, a.principal_id, a.principal_id, 0, '', a.audience, 0 FROM page JOIN xauth_audiences a ON a.principal_id = page.id
		ORDER BY part, ` + order
}

var (
	principalByID       = principalsQuery(`principals p WHERE p.id = $1`, `id, name`)
	principalByName     = principalsQuery(`principals p WHERE p.type = $1 AND p.name = $2`, `id, name`)
	principalByIdentity = principalsQuery(`principals p JOIN xauth_identities i ON i.principal_id = p.id
		WHERE i.issuer = $1 AND i.subject = $2`, `id, name`)
)

// Principal reads a principal with its roles and groups, both sorted.
func (r reads) Principal(ctx context.Context, id keyserver.ID) (keyserver.Principal, error) {
	return r.principal(ctx, principalByID, id[:])
}

// PrincipalByName reads the principal of that type and name.
func (r reads) PrincipalByName(ctx context.Context, t keyserver.PrincipalType, name string) (keyserver.Principal, error) {
	return r.principal(ctx, principalByName, string(t), name)
}

// PrincipalByIdentity reads the xauth principal of that issuer and subject.
func (r reads) PrincipalByIdentity(ctx context.Context, issuer, subject string) (keyserver.Principal, error) {
	return r.principal(ctx, principalByIdentity, issuer, subject)
}

func (r reads) principal(ctx context.Context, query string, args ...any) (keyserver.Principal, error) {
	list, err := r.principals(ctx, query, args)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return keyserver.Principal{}, err
	}
	return list[0], nil
}

// principals runs a query that principalsQuery made.
func (r reads) principals(ctx context.Context, query string, args []any) ([]keyserver.Principal, error) {
	list := []keyserver.Principal{}
	at := map[keyserver.ID]int{}
	err := r.each(ctx, query, args, func(row scanner) error {
		var part int
		var owner, id keyserver.ID
		var system keyserver.SystemID
		var flags keyserver.Flags
		var first, second string
		if err := row.Scan(&part, intoID(&owner), intoID(&id), &system, &first, &second, &flags); err != nil {
			return err
		}
		if part == 0 {
			at[id] = len(list)
			list = append(list, keyserver.Principal{
				ID: id, System: system, Type: keyserver.PrincipalType(first), Name: second, Flags: flags,
				Roles: []keyserver.ID{}, Groups: []keyserver.ID{},
			})
			return nil
		}
		switch p := &list[at[owner]]; part {
		case 1:
			p.Roles = append(p.Roles, id)
		case 2:
			p.Groups = append(p.Groups, id)
		case 3:
			p.Identity = &keyserver.Identity{Issuer: first, Subject: second, Audiences: []string{}}
		default:
			p.Identity.Audiences = append(p.Identity.Audiences, second)
		}
		return nil
	})
	return list, err
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

// InsertPrincipal stores a principal with its roles, groups and identity. An
// empty passwordHash is none. ErrDuplicate where the id, the identity, or the
// name among principals of the type, is taken; ErrNotFound where a role or
// group is missing.
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
	if err := tx.insertIdentity(ctx, p); err != nil {
		return err
	}
	tx.record(keyserver.ChangePrincipal, p.ID, keyserver.Created)
	return nil
}

func (tx *Tx) insertIdentity(ctx context.Context, p keyserver.Principal) error {
	if p.Identity == nil {
		return nil
	}
	_, err := tx.exec(ctx, `INSERT INTO xauth_identities (principal_id, issuer, subject) VALUES ($1, $2, $3)`,
		p.ID[:], p.Identity.Issuer, p.Identity.Subject)
	for _, audience := range p.Identity.Audiences {
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, `INSERT INTO xauth_audiences (principal_id, audience) VALUES ($1, $2)`, p.ID[:], audience)
	}
	return err
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

// RenamePrincipal gives a principal another name: ErrDuplicate where another
// one of its type has it.
func (tx *Tx) RenamePrincipal(ctx context.Context, id keyserver.ID, name string) error {
	if err := tx.execOne(ctx, `UPDATE principals SET name = $1 WHERE id = $2`, name, id[:]); err != nil {
		return err
	}
	tx.record(keyserver.ChangePrincipal, id, keyserver.Updated)
	return nil
}

// SetPrincipalFlags replaces the flag word of a principal. Disabling it ends its
// sessions for good.
func (tx *Tx) SetPrincipalFlags(ctx context.Context, id keyserver.ID, flags keyserver.Flags) error {
	if err := tx.execOne(ctx, `UPDATE principals SET flags = $1 WHERE id = $2`, int64(flags), id[:]); err != nil {
		return err
	}
	tx.record(keyserver.ChangePrincipal, id, keyserver.Updated)
	if flags.Disabled() {
		return tx.closeSessionsOf(ctx, id)
	}
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
