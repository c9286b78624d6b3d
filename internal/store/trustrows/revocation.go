package trustrows

import (
	"context"
	"database/sql"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// RevocationState has the stored policy and CRL of one issuer.
type RevocationState struct {
	Policy keyserver.RevocationPolicy // Mode is off if none was set
	CRL    *keyserver.CRLFacts        // nil if none was imported
}

// RevocationStates reads the states of all issuers that have a policy or a CRL. The
// keys are the digests of the issuers. There are about as many as trusted CAs.
func (r Reads) RevocationStates(ctx context.Context) (map[string]RevocationState, error) {
	states := map[string]RevocationState{}
	err := r.sql.Each(ctx, revocationQuery(`NULL`, ``), nil, func(row sqldb.Scanner) error {
		digest, state, _, err := r.scanRevocation(row, false)
		if err == nil {
			states[digest] = state
		}
		return err
	})
	return states, err
}

// Revocation reads the state of one issuer, and the serial numbers in its CRL. Without
// a policy, the mode is off.
func (r Reads) Revocation(ctx context.Context, digest string) (RevocationState, keyserver.SerialSet, error) {
	state := RevocationState{Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationOff}}
	var serials keyserver.SerialSet
	err := r.sql.Each(ctx, revocationQuery(`l.serials`, `WHERE d.issuer_digest = $1`), []any{digest}, func(row sqldb.Scanner) (err error) {
		_, state, serials, err = r.scanRevocation(row, true)
		return err
	})
	return state, serials, err
}

// IssuersWithRevocation selects the digests of the issuers that have a policy or a CRL.
const IssuersWithRevocation = `(SELECT issuer_digest FROM revocation_policies UNION SELECT issuer_digest FROM revocation_lists) d`

// revocationQuery returns a statement that reads policies and CRLs at the same time.
// The policy or the CRL of an issuer may be missing.
func revocationQuery(serials, where string) string {
	return `SELECT d.issuer_digest, p.mode, p.max_age, l.fingerprint, l.number, l.this_update, l.next_update, l.imported_at, l.revoked, ` + serials + `, p.mac, l.mac
		FROM ` + IssuersWithRevocation + `
		LEFT JOIN revocation_policies p ON p.issuer_digest = d.issuer_digest
		LEFT JOIN revocation_lists l ON l.issuer_digest = d.issuer_digest ` + where
}

// scanRevocation scans a row of revocationQuery. It checks the MAC of the CRL only if whole is set, because the MAC
// covers the serial numbers. A CRL without serial numbers is only displayed.
func (r Reads) scanRevocation(row sqldb.Scanner, whole bool) (digest string, state RevocationState, serials keyserver.SerialSet, err error) {
	var mode sql.NullString
	var age, this, next, imported, revoked sql.NullInt64
	var fingerprint, number, set, policyMAC, listMAC []byte
	if err := row.Scan(&digest, &mode, &age, &fingerprint, &number, &this, &next, &imported, &revoked, &set, &policyMAC, &listMAC); err != nil {
		return "", RevocationState{}, nil, err
	}
	state.Policy.Mode = keyserver.RevocationOff
	if mode.Valid {
		state.Policy = keyserver.RevocationPolicy{
			Mode: keyserver.RevocationMode(mode.String), MaxAge: time.Duration(age.Int64) * time.Second,
		}
		if err := r.sql.CheckMAC(rowmac.RevocationPolicy(digest, state.Policy), policyMAC); err != nil {
			return "", RevocationState{}, nil, err
		}
	}
	if fingerprint == nil {
		return digest, state, nil, nil
	}
	state.CRL = &keyserver.CRLFacts{
		Number: number, ThisUpdate: time.UnixMicro(this.Int64).UTC(), NextUpdate: time.UnixMicro(next.Int64).UTC(),
		ImportedAt: time.UnixMicro(imported.Int64).UTC(), Revoked: int(revoked.Int64),
	}
	err = sqldb.Fixed(state.CRL.Digest[:]).Scan(fingerprint)
	if err == nil && whole {
		err = r.sql.CheckMAC(rowmac.RevocationList(digest, *state.CRL, set), listMAC)
	}
	return digest, state, set, err
}

// PutRevocationPolicy stores the policy of an issuer.
func (tx Writes) PutRevocationPolicy(ctx context.Context, digest string, p keyserver.RevocationPolicy) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO revocation_policies (issuer_digest, mode, max_age, mac) VALUES ($1, $2, $3, $4)
		ON CONFLICT (issuer_digest) DO UPDATE SET mode = excluded.mode, max_age = excluded.max_age, mac = excluded.mac`,
		digest, string(p.Mode), int64(p.MaxAge/time.Second), tx.sql.MAC(rowmac.RevocationPolicy(digest, p)))
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeRevocation, keyserver.IssuerID(digest), keyserver.Updated)
	return nil
}

// PutRevocationList stores the CRL of an issuer and replaces an earlier one.
func (tx Writes) PutRevocationList(ctx context.Context, digest string, crl keyserver.CRLFacts, serials keyserver.SerialSet) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO revocation_lists
			(issuer_digest, fingerprint, number, this_update, next_update, imported_at, revoked, serials, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (issuer_digest) DO UPDATE SET fingerprint = excluded.fingerprint, number = excluded.number,
			this_update = excluded.this_update, next_update = excluded.next_update, imported_at = excluded.imported_at,
			revoked = excluded.revoked, serials = excluded.serials, mac = excluded.mac`,
		digest, crl.Digest[:], sqldb.OrEmpty(crl.Number), crl.ThisUpdate.UnixMicro(), crl.NextUpdate.UnixMicro(), crl.ImportedAt.UnixMicro(),
		crl.Revoked, sqldb.OrEmpty(serials), tx.sql.MAC(rowmac.RevocationList(digest, crl, serials)))
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeRevocation, keyserver.IssuerID(digest), keyserver.Updated)
	return nil
}
