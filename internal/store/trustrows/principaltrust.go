package trustrows

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// PrincipalTrusts reads the principal trusts that a filter selects, in the order of ids.
func (r Reads) PrincipalTrusts(ctx context.Context, f keyserver.PrincipalTrustFilter) ([]keyserver.PrincipalTrust, error) {
	where, args := principalTrustWhere(f)
	limit := int64(math.MaxInt64)
	if f.Limit > 0 {
		limit = int64(f.Limit)
	}
	n := len(args)
	query := `SELECT id, principal_id, system_id, flag, mac FROM principal_trusts` + where +
		` ORDER BY id LIMIT $` + strconv.Itoa(n+1) + ` OFFSET $` + strconv.Itoa(n+2)
	list := []keyserver.PrincipalTrust{}
	err := r.sql.Each(ctx, query, append(args, limit, f.Offset), func(row sqldb.Scanner) error {
		var t keyserver.PrincipalTrust
		var mac []byte
		if err := row.Scan(sqldb.IntoID(&t.ID), sqldb.IntoID(&t.Principal), &t.Server, &t.Flag, &mac); err != nil {
			return err
		}
		list = append(list, t)
		return r.sql.CheckMAC(rowmac.PrincipalTrust(t), mac)
	})
	return list, err
}

// PrincipalTrustCount counts the principal trusts that a filter selects. It ignores
// the limit and offset.
func (r Reads) PrincipalTrustCount(ctx context.Context, f keyserver.PrincipalTrustFilter) (int, error) {
	where, args := principalTrustWhere(f)
	var n int
	err := r.sql.Row(ctx, `SELECT count(*) FROM principal_trusts`+where, args, &n)
	return n, err
}

// principalTrustWhere returns the WHERE clause of a filter, and its arguments. The clause has only the conditions that
// are set, so that the database can use an index for each set of conditions.
func principalTrustWhere(f keyserver.PrincipalTrustFilter) (string, []any) {
	var conditions []string
	var args []any
	add := func(column string, value any) {
		args = append(args, value)
		conditions = append(conditions, column+" = $"+strconv.Itoa(len(args)))
	}
	if f.ID != nil {
		add("id", f.ID[:])
	}
	if f.Principal != nil {
		add("principal_id", f.Principal[:])
	}
	if f.Server != nil {
		add("system_id", int64(*f.Server))
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// InsertPrincipalTrust stores a principal trust. It returns ErrDuplicate if the id
// exists, or if the principal has one for the same peer.
func (tx Writes) InsertPrincipalTrust(ctx context.Context, t keyserver.PrincipalTrust) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO principal_trusts (id, principal_id, system_id, flag, mac) VALUES ($1, $2, $3, $4, $5)`,
		t.ID[:], t.Principal[:], int64(t.Server), int64(t.Flag), tx.sql.MAC(rowmac.PrincipalTrust(t)))
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangePrincipalTrust, t.ID, keyserver.Created)
	return nil
}

// SetPrincipalTrustFlag changes the flag of a principal trust.
func (tx Writes) SetPrincipalTrustFlag(ctx context.Context, change keyserver.PrincipalTrustChange) error {
	rows, err := tx.reads.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{ID: &change.ID})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return sqldb.ErrNotFound
	}
	t := rows[0]
	t.Flag = change.Flag
	err = tx.sql.ExecOne(ctx, `UPDATE principal_trusts SET flag = $1, mac = $2 WHERE id = $3`, int64(t.Flag), tx.sql.MAC(rowmac.PrincipalTrust(t)), t.ID[:])
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangePrincipalTrust, change.ID, keyserver.Updated)
	return nil
}

// DeletePrincipalTrust deletes a principal trust.
func (tx Writes) DeletePrincipalTrust(ctx context.Context, id keyserver.ID) error {
	if err := tx.sql.ExecOne(ctx, `DELETE FROM principal_trusts WHERE id = $1`, id[:]); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangePrincipalTrust, id, keyserver.Deleted)
	return nil
}
