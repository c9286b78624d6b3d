package sqlstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
)

// UsedProof is the use of a DPoP proof.
type UsedProof struct {
	Digest [32]byte  // digest of the proof's key and jti
	Until  time.Time // the use must be stored until this time, which has microsecond precision
}

// proofsOpen is the name of a setting. The setting is "open" while a process has uses of proofs in memory only.
// ConcludeProofs deletes the setting, or sets it to a time before which unknown proofs may have been used.
const proofsOpen = "proofMemory"

// UseProof durably records the use of a proof. It returns false if a process has recorded a
// use of the proof before. Of concurrent calls, exactly one returns true.
func (s *Store) UseProof(ctx context.Context, p UsedProof) (bool, error) {
	n, err := s.db.ExecCommitted(ctx, `INSERT INTO used_proofs (digest, expires) VALUES ($1, $2)
		ON CONFLICT (digest) DO NOTHING`, p.Digest[:], p.Until.UnixMicro())
	return n == 1, err
}

// ResumeProofs returns the recorded uses that expire after now. all means that these are all uses of proofs that are
// not older than since. all is false if an earlier process ended without ConcludeProofs. The caller must call
// ConcludeProofs before its process ends.
func (s *Store) ResumeProofs(ctx context.Context, now time.Time) (used []UsedProof, since time.Time, all bool, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		left, err := tx.Setting(ctx, proofsOpen)
		if all = errors.Is(err, sqldb.ErrNotFound); err != nil && !all {
			return err
		}
		if micros, err := strconv.ParseInt(string(left), 10, 64); err == nil {
			all, since = true, time.UnixMicro(micros)
		}
		if used, err = tx.usedProofs(ctx, now); err != nil {
			return err
		}
		return tx.PutSetting(ctx, proofsOpen, []byte("open"))
	})
	return used, since, all, err
}

func (r reads) usedProofs(ctx context.Context, now time.Time) ([]UsedProof, error) {
	var used []UsedProof
	err := r.sql.Each(ctx, `SELECT digest, expires FROM used_proofs WHERE expires > $1`, []any{now.UnixMicro()}, func(row sqldb.Scanner) error {
		var p UsedProof
		if err := row.Scan(sqldb.IntoHash(&p.Digest), sqldb.IntoTime(&p.Until)); err != nil {
			return err
		}
		used = append(used, p)
		return nil
	})
	return used, err
}

// ConcludeProofs stores uses of proofs for the next process. used has all uses of proofs that are not older than since.
// A zero since means that used has all uses.
func (s *Store) ConcludeProofs(ctx context.Context, used []UsedProof, since time.Time) error {
	args := make([]any, 0, 2*len(used))
	for _, p := range used {
		args = append(args, p.Digest[:], p.Until.UnixMicro())
	}
	return s.Update(ctx, func(tx *Tx) error {
		if _, err := tx.sql.Exec(ctx, `DELETE FROM used_proofs`); err != nil {
			return err
		}
		if err := s.insertProofs.Run(ctx, tx.sql, args); err != nil {
			return err
		}
		if !since.IsZero() {
			return tx.PutSetting(ctx, proofsOpen, strconv.AppendInt(nil, since.UnixMicro(), 10))
		}
		_, err := tx.sql.Exec(ctx, `DELETE FROM settings WHERE name = $1`, proofsOpen)
		return err
	})
}

// DeleteExpiredProofs removes up to limit uses that have expired at now, and returns how
// many.
func (tx *Tx) DeleteExpiredProofs(ctx context.Context, now time.Time, limit int) (int, error) {
	n, err := tx.sql.Exec(ctx, `DELETE FROM used_proofs WHERE digest IN (
		SELECT digest FROM used_proofs WHERE expires <= $1 LIMIT $2)`, now.UnixMicro(), limit)
	return int(n), err
}
