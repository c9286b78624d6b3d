package sqlstore

import (
	"context"
	"database/sql"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// principalsQuery returns a query for principals with their roles, groups, identities and delegates. It is one
// statement, so that all rows are consistent. from selects the principals. order is "name, id" or "id, name"; its
// second column sorts the rows of a principal.
func principalsQuery(from, order string) string {
	return `WITH page AS MATERIALIZED (SELECT p.id, p.system_id, p.type, p.name, p.flags, p.password_hash, p.mac FROM ` + from + `)
		SELECT 0 AS part, id AS owner, id, system_id, type, name, flags, password_hash, mac FROM page
		UNION ALL SELECT 1, r.principal_id, r.role_id, 0, '', '', 0, NULL, NULL FROM page JOIN principal_roles r ON r.principal_id = page.id
		UNION ALL SELECT 2, g.member_id, g.group_id, 0, '', '', 0, NULL, NULL FROM page JOIN group_members g ON g.member_id = page.id
		UNION ALL SELECT 3, x.principal_id, x.principal_id, 0, x.issuer, x.subject, 0, NULL, NULL FROM page JOIN xauth_identities x ON x.principal_id = page.id
		UNION ALL SELECT 4, a.principal_id, a.principal_id, 0, '', a.audience, 0, NULL, NULL FROM page JOIN xauth_audiences a ON a.principal_id = page.id
		UNION ALL SELECT 5, d.principal_id, d.delegate_id, 0, '', '', 0, NULL, NULL FROM page JOIN delegates d ON d.principal_id = page.id
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

// PrincipalByName reads the principal with a type and a name.
func (r reads) PrincipalByName(ctx context.Context, t keyserver.PrincipalType, name string) (keyserver.Principal, error) {
	return r.principal(ctx, principalByName, string(t), name)
}

// PrincipalByIdentity reads the xauth principal with an issuer and a subject.
func (r reads) PrincipalByIdentity(ctx context.Context, issuer, subject string) (keyserver.Principal, error) {
	return r.principal(ctx, principalByIdentity, issuer, subject)
}

func (r reads) principal(ctx context.Context, query string, args ...any) (keyserver.Principal, error) {
	list, err := r.principals(ctx, query, args)
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.Principal{}, err
	}
	return list[0], nil
}

type storedPrincipal struct {
	keyserver.Principal
	hash string // hash of the password, "" if there is none
	mac  []byte
}

func (p storedPrincipal) row() *rowmac.Row { return rowmac.Principal(p.Principal, p.hash) }

func (r reads) principals(ctx context.Context, query string, args []any) ([]keyserver.Principal, error) {
	stored, err := r.storedPrincipals(ctx, query, args)
	list := make([]keyserver.Principal, len(stored))
	for i := range stored {
		list[i] = stored[i].Principal
	}
	return list, err
}

func (r reads) storedPrincipals(ctx context.Context, query string, args []any) ([]storedPrincipal, error) {
	list := []storedPrincipal{}
	at := map[keyserver.ID]int{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var part int
		var owner, id keyserver.ID
		var system keyserver.SystemID
		var flags keyserver.Flags
		var first, second string
		var hash sql.NullString
		var mac []byte
		if err := row.Scan(&part, sqldb.IntoID(&owner), sqldb.IntoID(&id), &system, &first, &second, &flags, &hash, &mac); err != nil {
			return err
		}
		if part == 0 {
			at[id] = len(list)
			list = append(list, storedPrincipal{keyserver.Principal{
				ID: id, System: system, Type: keyserver.PrincipalType(first), Name: second, Flags: flags,
				Roles: []keyserver.ID{}, Groups: []keyserver.ID{},
			}, hash.String, mac})
			return nil
		}
		switch p := &list[at[owner]]; part {
		case 1:
			p.Roles = append(p.Roles, id)
		case 2:
			p.Groups = append(p.Groups, id)
		case 3:
			p.Identity = &keyserver.Identity{Issuer: first, Subject: second, Audiences: []string{}}
		case 5:
			p.Delegates = append(p.Delegates, id)
		default:
			if p.Identity == nil { // another program deleted the row of the identity; the check of the MAC fails
				p.Identity = &keyserver.Identity{}
			}
			p.Identity.Audiences = append(p.Identity.Audiences, second)
		}
		return nil
	})
	for i := 0; i < len(list) && err == nil; i++ {
		err = r.sql.CheckMAC(list[i].row(), list[i].mac)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// PasswordHash reads the hash of a principal's password. It returns ErrNotFound if
// the principal does not exist or has no password.
func (r reads) PasswordHash(ctx context.Context, id keyserver.ID) (string, error) {
	p, err := r.storedPrincipal(ctx, id)
	if err == nil && p.hash == "" {
		err = sqldb.ErrNotFound
	}
	return p.hash, err
}

func (r reads) storedPrincipal(ctx context.Context, id keyserver.ID) (storedPrincipal, error) {
	list, err := r.storedPrincipals(ctx, principalByID, []any{id[:]})
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return storedPrincipal{}, err
	}
	return list[0], nil
}

// SetPassword replaces the hash of a principal's password.
func (tx *Tx) SetPassword(ctx context.Context, id keyserver.ID, hash string) error {
	return tx.changePrincipal(ctx, id, func(p *storedPrincipal) { p.hash = hash })
}

// RenewPasswordHash replaces the hash old by another hash of the same password. It
// returns ErrNotFound if the stored hash differs from old. It records no change,
// because only logins use the hash.
func (tx *Tx) RenewPasswordHash(ctx context.Context, id keyserver.ID, old, renewed string) error {
	p, err := tx.storedPrincipal(ctx, id)
	if err != nil {
		return err
	}
	p.hash = renewed
	return tx.sql.ExecOne(ctx, `UPDATE principals SET password_hash = $1, mac = $2 WHERE id = $3 AND password_hash = $4`,
		renewed, tx.sql.MAC(p.row()), id[:], old)
}

// InsertPrincipal stores a principal with its roles, groups and identity. An empty
// passwordHash means no password. It returns ErrDuplicate if the id, the identity,
// or the name within the type exists already, or ErrNotFound if a role or group does
// not exist.
func (tx *Tx) InsertPrincipal(ctx context.Context, p keyserver.Principal, passwordHash string) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO principals (id, system_id, type, name, flags, password_hash, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, p.ID[:], int64(p.System), string(p.Type), p.Name, int64(p.Flags),
		orNoText(passwordHash), tx.sql.MAC(rowmac.Principal(p, passwordHash)))
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
	tx.changes.Record(keyserver.ChangePrincipal, p.ID, keyserver.Created)
	return nil
}

func orNoText(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// changePrincipal applies change to a principal and stores its row in principals with
// the new MAC. The caller must write roles, groups or identity after that call,
// because changePrincipal reads the principal and checks its old MAC.
func (tx *Tx) changePrincipal(ctx context.Context, id keyserver.ID, change func(p *storedPrincipal)) error {
	p, err := tx.storedPrincipal(ctx, id)
	if err != nil {
		return err
	}
	change(&p)
	err = tx.sql.ExecOne(ctx, `UPDATE principals SET name = $1, flags = $2, password_hash = $3, mac = $4 WHERE id = $5`,
		p.Name, int64(p.Flags), orNoText(p.hash), tx.sql.MAC(p.row()), id[:])
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangePrincipal, id, keyserver.Updated)
	return nil
}

func (tx *Tx) insertIdentity(ctx context.Context, p keyserver.Principal) error {
	if p.Identity == nil {
		return nil
	}
	_, err := tx.sql.Exec(ctx, `INSERT INTO xauth_identities (principal_id, issuer, subject) VALUES ($1, $2, $3)`,
		p.ID[:], p.Identity.Issuer, p.Identity.Subject)
	for _, audience := range p.Identity.Audiences {
		if err != nil {
			return err
		}
		_, err = tx.sql.Exec(ctx, `INSERT INTO xauth_audiences (principal_id, audience) VALUES ($1, $2)`, p.ID[:], audience)
	}
	return err
}

// SetPrincipalRoles replaces all roles of a principal.
func (tx *Tx) SetPrincipalRoles(ctx context.Context, id keyserver.ID, roles []keyserver.ID) error {
	if err := tx.changePrincipal(ctx, id, func(p *storedPrincipal) { p.Roles = roles }); err != nil {
		return err
	}
	if _, err := tx.sql.Exec(ctx, `DELETE FROM principal_roles WHERE principal_id = $1`, id[:]); err != nil {
		return err
	}
	return tx.insertPrincipalRoles(ctx, id, roles)
}

func (tx *Tx) insertPrincipalRoles(ctx context.Context, id keyserver.ID, roles []keyserver.ID) error {
	for _, role := range keyserver.NormalizeIDs(roles) {
		if _, err := tx.sql.Exec(ctx, `INSERT INTO principal_roles (principal_id, role_id) VALUES ($1, $2)`, id[:], role[:]); err != nil {
			return err
		}
	}
	return nil
}

// RenamePrincipal renames a principal. It returns ErrDuplicate if another principal
// of the same type has the name.
func (tx *Tx) RenamePrincipal(ctx context.Context, id keyserver.ID, name string) error {
	return tx.changePrincipal(ctx, id, func(p *storedPrincipal) { p.Name = name })
}

// SetPrincipalFlags replaces the flags of a principal. If they disable the principal,
// its sessions end. They stay ended if the principal is enabled again.
func (tx *Tx) SetPrincipalFlags(ctx context.Context, id keyserver.ID, flags keyserver.Flags) error {
	if err := tx.changePrincipal(ctx, id, func(p *storedPrincipal) { p.Flags = flags }); err != nil {
		return err
	}
	if flags.Disabled() {
		return tx.CloseSessionsOf(ctx, id)
	}
	return nil
}

// AddGroupMember adds a principal to a group. It returns ErrDuplicate if the
// principal is a member already, or ErrNotFound if group or member does not exist.
func (tx *Tx) AddGroupMember(ctx context.Context, group, member keyserver.ID) error {
	if err := tx.changePrincipal(ctx, member, func(p *storedPrincipal) { p.Groups = append(p.Groups, group) }); err != nil {
		return err
	}
	return tx.insertMember(ctx, group, member)
}

func (tx *Tx) insertMember(ctx context.Context, group, member keyserver.ID) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO group_members (group_id, member_id) VALUES ($1, $2)`, group[:], member[:])
	return err
}

// RemoveGroupMember removes a principal from a group.
func (tx *Tx) RemoveGroupMember(ctx context.Context, group, member keyserver.ID) error {
	err := tx.changePrincipal(ctx, member, func(p *storedPrincipal) { p.Groups = without(p.Groups, group) })
	if err != nil {
		return err
	}
	return tx.sql.ExecOne(ctx, `DELETE FROM group_members WHERE group_id = $1 AND member_id = $2`, group[:], member[:])
}

// without returns ids without id. It overwrites ids.
func without(ids []keyserver.ID, id keyserver.ID) []keyserver.ID {
	return slices.DeleteFunc(ids, func(other keyserver.ID) bool { return other == id })
}

// exists returns ErrNotFound if the query for an id finds no row.
func (r reads) exists(ctx context.Context, query string, id keyserver.ID) error {
	var one int
	return r.sql.Row(ctx, query, []any{id[:]}, &one)
}
