package sqlstore

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const settingApprovalPolicy = "approvalPolicy"

// ApprovalPolicy reads the policy. It returns ErrNotFound if no policy was set.
func (r reads) ApprovalPolicy(ctx context.Context) ([]byte, error) {
	return r.Setting(ctx, settingApprovalPolicy)
}

// SetApprovalPolicy stores the policy. It records a change, so that running processes read the policy again.
func (tx *Tx) SetApprovalPolicy(ctx context.Context, policy []byte) error {
	tx.changes.Record(keyserver.ChangeApprovalPolicy, keyserver.ID{}, keyserver.Updated)
	return tx.PutSetting(ctx, settingApprovalPolicy, policy)
}

// ApprovalFilter selects approvals.
type ApprovalFilter struct {
	Asker keyserver.ID // zero selects approvals of all principals
	Open  bool         // only approvals that are neither decided nor expired at Now
	Now   time.Time
	After keyserver.ID // approvals after this id
	Limit int
}

// Approvals reads the approvals that f selects, in the order of ids.
func (r reads) Approvals(ctx context.Context, f ApprovalFilter) ([]keyserver.Approval, error) {
	return r.approvals(ctx, `WHERE a.id > $1 AND ($2 = 0 OR a.asker_id = $3) AND ($4 = 0 OR a.decision = '' AND a.expires_at > $5) ORDER BY a.id LIMIT $6`,
		f.After[:], sqldb.Flag(!f.Asker.IsZero()), f.Asker[:], sqldb.Flag(f.Open), f.Now.UnixMicro(), f.Limit)
}

// Approval reads one approval.
func (r reads) Approval(ctx context.Context, id keyserver.ID) (keyserver.Approval, error) {
	list, err := r.approvals(ctx, `WHERE a.id = $1`, id[:])
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.Approval{}, err
	}
	return list[0], nil
}

// approvals reads approvals with their votes in one statement, so that they are consistent.
func (r reads) approvals(ctx context.Context, where string, args ...any) ([]keyserver.Approval, error) {
	var list []keyserver.Approval
	var macs [][]byte
	err := r.sql.Each(ctx, `WITH picked(id) AS (SELECT a.id FROM approvals a `+where+`)
		SELECT p.id, p.asker_system, p.asker_id, p.asker_name, p.method, p.path, p.body, p.reason, p.digest, p.operations,
			p.created_at, p.expires_at, p.decision, p.decided_at, p.decider_system, p.decider_id,
			COALESCE(v.system_id, 0), v.principal_id, COALESCE(v.name, ''), COALESCE(v.at, 0), p.subjects, p.mac
		FROM approvals p LEFT JOIN approval_votes v ON v.approval_id = p.id
		WHERE p.id IN (SELECT id FROM picked) ORDER BY p.id, v.at, v.principal_id`, args, func(row sqldb.Scanner) error {
		var a keyserver.Approval
		var v keyserver.ApprovalVote
		var operations, subjects string
		var mac []byte
		if err := row.Scan(sqldb.IntoID(&a.ID), &a.Asker.System, sqldb.IntoID(&a.Asker.ID), &a.AskerName, &a.Method, &a.Path, &a.Body, &a.Reason, sqldb.IntoHash(&a.Digest), &operations,
			sqldb.IntoTime(&a.CreatedAt), sqldb.IntoTime(&a.ExpiresAt), &a.Decision, sqldb.IntoTime(&a.DecidedAt), &a.DecidedBy.System, sqldb.OptionalID(&a.DecidedBy.ID),
			&v.Principal.System, sqldb.OptionalID(&v.Principal.ID), &v.Name, sqldb.IntoTime(&v.At), &subjects, &mac); err != nil {
			return err
		}
		if n := len(list); n == 0 || list[n-1].ID != a.ID {
			a.Operations, a.Subjects = strings.Fields(operations), subjectsIn(subjects)
			if a.Decision == "" {
				a.DecidedAt = time.Time{}
			}
			list, macs = append(list, a), append(macs, mac)
		}
		if !v.Principal.ID.IsZero() {
			last := &list[len(list)-1]
			last.Votes = append(last.Votes, v)
		}
		return nil
	})
	for i := 0; i < len(list) && err == nil; i++ {
		err = r.sql.CheckMAC(rowmac.Approval(list[i]), macs[i])
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// PendingApprovals counts the approvals that are neither decided nor expired: all of them, and those that asker
// requested. It ignores approvals whose asker is deleted or disabled, because they cannot be executed.
func (r reads) PendingApprovals(ctx context.Context, asker keyserver.ID, now time.Time) (all, of int, err error) {
	err = r.sql.Row(ctx, `SELECT count(*), COALESCE(sum(CASE WHEN a.asker_id = $1 THEN 1 ELSE 0 END), 0) FROM approvals a
		WHERE a.decision = '' AND a.expires_at > $2 AND EXISTS (SELECT 1 FROM principals p WHERE p.id = a.asker_id AND p.flags & 1 = 1)`,
		[]any{asker[:], now.UnixMicro()}, &all, &of)
	return all, of, err
}

// InsertApproval stores a new approval, without votes.
func (tx *Tx) InsertApproval(ctx context.Context, a keyserver.Approval) error {
	a.Decision, a.Votes = "", nil
	_, err := tx.sql.Exec(ctx, `INSERT INTO approvals (id, asker_system, asker_id, asker_name, method, path, body, reason, digest, operations,
			created_at, expires_at, decision, decided_at, decider_system, subjects, mac) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '', 0, 0, $13, $14)`,
		a.ID[:], int64(a.Asker.System), a.Asker.ID[:], a.AskerName, a.Method, a.Path, a.Body, a.Reason, a.Digest[:], strings.Join(a.Operations, " "),
		a.CreatedAt.UnixMicro(), a.ExpiresAt.UnixMicro(), subjectsText(a.Subjects), tx.sql.MAC(rowmac.Approval(a)))
	return err
}

type storedSubject struct {
	Kind   keyserver.SubjectKind `json:"kind"`
	Key    string                `json:"key"`
	Digest []byte                `json:"digest"`
}

// subjectsText returns the column subjects. It is "" if there are none, as in rows that
// are older than the column.
func subjectsText(list []keyserver.ApprovalSubject) string {
	if len(list) == 0 {
		return ""
	}
	stored := make([]storedSubject, len(list))
	for i, s := range list {
		stored[i] = storedSubject{s.Kind, s.Key, s.Digest[:]}
	}
	text, _ := json.Marshal(stored) //nolint:errchkjson // texts and bytes can always be encoded
	return string(text)
}

// subjectsIn is the inverse of subjectsText. For a text that this program cannot have written, it returns a subject
// with which the check of the row's MAC fails.
func subjectsIn(text string) []keyserver.ApprovalSubject {
	var stored []storedSubject
	_ = json.Unmarshal([]byte(text), &stored) // for an unreadable text, the comparison below fails
	var list []keyserver.ApprovalSubject
	for _, s := range stored {
		subject := keyserver.ApprovalSubject{Subject: keyserver.Subject{Kind: s.Kind, Key: s.Key}}
		copy(subject.Digest[:], s.Digest)
		list = append(list, subject)
	}
	if subjectsText(list) != text {
		return []keyserver.ApprovalSubject{{Subject: keyserver.Subject{Kind: "unreadable", Key: text}}}
	}
	return list
}

// InsertApprovalVote stores the vote of a principal. It returns ErrDuplicate if the
// principal has voted already.
func (tx *Tx) InsertApprovalVote(ctx context.Context, id keyserver.ID, v keyserver.ApprovalVote) error {
	a, err := tx.Approval(ctx, id)
	if err != nil {
		return err
	}
	_, err = tx.sql.Exec(ctx, `INSERT INTO approval_votes (approval_id, system_id, principal_id, name, at) VALUES ($1, $2, $3, $4, $5)`,
		id[:], int64(v.Principal.System), v.Principal.ID[:], v.Name, v.At.UnixMicro())
	if err != nil {
		return err
	}
	a.Votes = append(a.Votes, v)
	return tx.sql.ExecOne(ctx, `UPDATE approvals SET mac = $1 WHERE id = $2`, tx.sql.MAC(rowmac.Approval(a)), id[:])
}

// DeleteApprovalVote deletes the vote of a principal. It returns ErrNotFound if there is
// none.
func (tx *Tx) DeleteApprovalVote(ctx context.Context, id keyserver.ID, of keyserver.PrincipalRef) error {
	a, err := tx.Approval(ctx, id)
	if err != nil {
		return err
	}
	err = tx.sql.ExecOne(ctx, `DELETE FROM approval_votes WHERE approval_id = $1 AND system_id = $2 AND principal_id = $3`, id[:], int64(of.System), of.ID[:])
	if err != nil {
		return err
	}
	a.Votes = slices.DeleteFunc(a.Votes, func(v keyserver.ApprovalVote) bool { return v.Principal == of })
	return tx.sql.ExecOne(ctx, `UPDATE approvals SET mac = $1 WHERE id = $2`, tx.sql.MAC(rowmac.Approval(a)), id[:])
}

// DecideApproval stores the decision on an approval. It returns ErrNotFound if the
// approval is decided already or does not exist.
func (tx *Tx) DecideApproval(ctx context.Context, a keyserver.Approval) error {
	stored, err := tx.Approval(ctx, a.ID)
	if err != nil {
		return err
	}
	stored.Decision, stored.DecidedAt, stored.DecidedBy = a.Decision, a.DecidedAt, a.DecidedBy
	return tx.sql.ExecOne(ctx, `UPDATE approvals SET decision = $2, decided_at = $3, decider_system = $4, decider_id = $5, mac = $6 WHERE id = $1 AND decision = ''`,
		a.ID[:], string(a.Decision), a.DecidedAt.UnixMicro(), int64(a.DecidedBy.System), sqldb.OrNull(a.DecidedBy.ID), tx.sql.MAC(rowmac.Approval(stored)))
}

// DeleteApprovals deletes up to limit approvals that were decided or expired before a
// time.
func (tx *Tx) DeleteApprovals(ctx context.Context, before time.Time, limit int) error {
	gone, err := tx.sql.IDs(ctx, `SELECT id FROM approvals WHERE CASE WHEN decision = '' THEN expires_at ELSE decided_at END < $1 LIMIT $2`,
		before.UnixMicro(), limit)
	return tx.deleteApprovals(ctx, gone, err)
}

// DeleteWithdrawnApprovals deletes the approvals that asker withdrew, except the newest ones. newest is how many it
// keeps.
func (tx *Tx) DeleteWithdrawnApprovals(ctx context.Context, asker keyserver.ID, newest int) error {
	gone, err := tx.sql.IDs(ctx, `SELECT id FROM approvals WHERE asker_id = $1 AND decision = $2 ORDER BY decided_at DESC, id LIMIT 1000 OFFSET $3`,
		asker[:], string(keyserver.ApprovalWithdrawn), newest)
	return tx.deleteApprovals(ctx, gone, err)
}

func (tx *Tx) deleteApprovals(ctx context.Context, gone []keyserver.ID, err error) error {
	for _, id := range gone {
		if err == nil {
			_, err = tx.sql.Exec(ctx, `DELETE FROM approval_votes WHERE approval_id = $1`, id[:])
		}
		if err == nil {
			_, err = tx.sql.Exec(ctx, `DELETE FROM approvals WHERE id = $1`, id[:])
		}
	}
	return err
}
