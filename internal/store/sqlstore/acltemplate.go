package sqlstore

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const aclTemplateQuery = `SELECT t.id, t.name, (SELECT count(*) FROM acl_template_members m WHERE m.template_id = t.id), t.mac FROM acl_templates t`

// ACLTemplates reads every template without its members, in the order of ids.
// There are at most keyserver.MaxACLTemplates.
func (r reads) ACLTemplates(ctx context.Context, q keyserver.ACLTemplateQuery) ([]keyserver.ACLTemplate, error) {
	list := []keyserver.ACLTemplate{}
	err := r.sql.Each(ctx, aclTemplateQuery+` ORDER BY t.id`, nil, func(row sqldb.Scanner) error {
		var t keyserver.ACLTemplate
		var mac []byte
		if err := row.Scan(sqldb.IntoID(&t.ID), &t.Name, &t.MemberCount, &mac); err != nil {
			return err
		}
		list = append(list, t)
		return r.sql.CheckMAC(rowmac.ACLTemplate(t), mac)
	})
	if err != nil || !q.Digests {
		return list, err
	}
	members, err := r.templateMembers(ctx)
	for i := range list {
		list[i].MembersDigest = r.membersDigest(list[i].ID, members[list[i].ID])
	}
	return list, err
}

func (r reads) templateMembers(ctx context.Context) (map[keyserver.ID][]*rowmac.Row, error) {
	members := map[keyserver.ID][]*rowmac.Row{}
	err := r.sql.Each(ctx, `SELECT template_id, system_id, principal_id, rights, max_usage, start_stamp, end_stamp, mac
		FROM acl_template_members`, nil, func(row sqldb.Scanner) error {
		var id keyserver.ID
		var m keyserver.TemplateMember
		var mac []byte
		if err := row.Scan(sqldb.IntoID(&id), &m.Principal.System, sqldb.IntoID(&m.Principal.ID), &m.Rights, &m.MaxUsage,
			sqldb.IntoStamp(&m.Start), sqldb.IntoStamp(&m.End), &mac); err != nil {
			return err
		}
		covered := rowmac.TemplateMember(id, m)
		members[id] = append(members[id], covered)
		return r.sql.CheckMAC(covered, mac)
	})
	return members, err
}

// membersDigest returns a digest of the members of a template. It is a MAC with the key of the rows, so that a client
// cannot guess members. It changes when the data key is replaced. Clients then read the members again.
func (r reads) membersDigest(template keyserver.ID, members []*rowmac.Row) []byte {
	key := r.sql.Key()
	if key == nil {
		return nil // there is no key yet
	}
	return key.Sum(rowmac.TemplateMembers(template, members))
}

// ACLTemplateCount counts the templates.
func (r reads) ACLTemplateCount(ctx context.Context) (int, error) {
	var n int
	err := r.sql.Row(ctx, `SELECT count(*) FROM acl_templates`, nil, &n)
	return n, err
}

// ACLTemplate reads a template with its members, sorted by principal.
func (r reads) ACLTemplate(ctx context.Context, id keyserver.ID) (keyserver.ACLTemplate, error) {
	t := keyserver.ACLTemplate{Members: []keyserver.TemplateMember{}}
	var members []*rowmac.Row
	// One statement reads the template and its members, so that they are consistent.
	err := r.sql.Each(ctx, `SELECT 0 AS part, t.name AS name, 0 AS system_id, t.id AS principal_id, 0 AS rights, 0 AS max_usage,
			t.id AS start_stamp, t.id AS end_stamp, t.mac AS mac FROM acl_templates t WHERE t.id = $1
		UNION ALL SELECT 1, '', m.system_id, m.principal_id, m.rights, m.max_usage, m.start_stamp, m.end_stamp, m.mac
			FROM acl_template_members m WHERE m.template_id = $1
		ORDER BY part, system_id, principal_id`, []any{id[:]}, func(row sqldb.Scanner) error {
		var part int
		var name string
		var m keyserver.TemplateMember
		var mac []byte
		if err := row.Scan(&part, &name, &m.Principal.System, sqldb.IntoID(&m.Principal.ID), &m.Rights, &m.MaxUsage,
			sqldb.IntoStamp(&m.Start), sqldb.IntoStamp(&m.End), &mac); err != nil {
			return err
		}
		if part == 0 {
			t.ID, t.Name = id, name
			return r.sql.CheckMAC(rowmac.ACLTemplate(t), mac)
		}
		covered := rowmac.TemplateMember(id, m)
		t.Members, members = append(t.Members, m), append(members, covered)
		return r.sql.CheckMAC(covered, mac)
	})
	if err == nil && t.ID.IsZero() {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.ACLTemplate{}, err
	}
	t.MemberCount, t.MembersDigest = len(t.Members), r.membersDigest(id, members)
	return t, nil
}

// ACLTemplateMemberships reads the memberships of a principal, by template id.
func (r reads) ACLTemplateMemberships(ctx context.Context, p keyserver.PrincipalRef) (map[keyserver.ID]keyserver.TemplateMember, error) {
	list := map[keyserver.ID]keyserver.TemplateMember{}
	err := r.sql.Each(ctx, `SELECT template_id, rights, max_usage, start_stamp, end_stamp, mac FROM acl_template_members
		WHERE system_id = $1 AND principal_id = $2`, []any{int64(p.System), p.ID[:]}, func(row sqldb.Scanner) error {
		var id keyserver.ID
		var mac []byte
		m := keyserver.TemplateMember{Principal: p}
		if err := row.Scan(sqldb.IntoID(&id), &m.Rights, &m.MaxUsage, sqldb.IntoStamp(&m.Start), sqldb.IntoStamp(&m.End), &mac); err != nil {
			return err
		}
		list[id] = m
		return r.sql.CheckMAC(rowmac.TemplateMember(id, m), mac)
	})
	return list, err
}

// InsertACLTemplate stores a template with its members. It returns ErrDuplicate if the
// id or the name exists already.
func (tx *Tx) InsertACLTemplate(ctx context.Context, t keyserver.ACLTemplate) error {
	if _, err := tx.sql.Exec(ctx, `INSERT INTO acl_templates (id, name, mac) VALUES ($1, $2, $3)`, t.ID[:], t.Name, tx.sql.MAC(rowmac.ACLTemplate(t))); err != nil {
		return err
	}
	for _, m := range t.Members {
		if err := tx.putTemplateMember(ctx, t.ID, m); err != nil {
			return err
		}
	}
	tx.changes.Record(keyserver.ChangeACLTemplate, t.ID, keyserver.Created)
	return nil
}

// RenameACLTemplate renames a template. It returns ErrNotFound if the template does not
// exist, or ErrDuplicate if another template has the name.
func (tx *Tx) RenameACLTemplate(ctx context.Context, change keyserver.ACLTemplateChange) error {
	if err := tx.sql.ExecOne(ctx, `UPDATE acl_templates SET name = $1, mac = $2 WHERE id = $3`, change.Name,
		tx.sql.MAC(rowmac.ACLTemplate(keyserver.ACLTemplate{ID: change.ID, Name: change.Name})), change.ID[:]); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeACLTemplate, change.ID, keyserver.Updated)
	return nil
}

// DeleteACLTemplate deletes a template with its members. It fails if a directory uses
// the template; the caller must check that first.
func (tx *Tx) DeleteACLTemplate(ctx context.Context, id keyserver.ID) error {
	if err := tx.sql.ExecOne(ctx, `DELETE FROM acl_templates WHERE id = $1`, id[:]); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeACLTemplate, id, keyserver.Deleted)
	return nil
}

// PutACLTemplateMember stores or replaces the membership of a principal. It returns
// ErrNotFound if the template does not exist.
func (tx *Tx) PutACLTemplateMember(ctx context.Context, m keyserver.TemplateMembership) error {
	if err := tx.putTemplateMember(ctx, m.Template, m.Member); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeACLTemplate, m.Template, keyserver.Updated)
	return nil
}

func (tx *Tx) putTemplateMember(ctx context.Context, id keyserver.ID, m keyserver.TemplateMember) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO acl_template_members
			(template_id, system_id, principal_id, rights, max_usage, start_stamp, end_stamp, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (template_id, system_id, principal_id) DO UPDATE SET rights = excluded.rights, max_usage = excluded.max_usage,
			start_stamp = excluded.start_stamp, end_stamp = excluded.end_stamp, mac = excluded.mac`,
		id[:], int64(m.Principal.System), m.Principal.ID[:], int64(m.Rights), m.MaxUsage, m.Start[:], m.End[:],
		tx.sql.MAC(rowmac.TemplateMember(id, m)))
	return err
}

// DeleteACLTemplateMember ends a membership. It returns ErrNotFound if there is none.
func (tx *Tx) DeleteACLTemplateMember(ctx context.Context, m keyserver.TemplateMemberRef) error {
	err := tx.sql.ExecOne(ctx, `DELETE FROM acl_template_members WHERE template_id = $1 AND system_id = $2 AND principal_id = $3`,
		m.Template[:], int64(m.Principal.System), m.Principal.ID[:])
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeACLTemplate, m.Template, keyserver.Updated)
	return nil
}
