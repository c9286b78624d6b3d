package trustrows

import (
	"context"
	"crypto/sha256"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const trustedCAQuery = `SELECT id, status, subject, issuer, key_type, serial, not_before, not_after, der, mac FROM trusted_cas`

// TrustedCAs reads every trusted CA, in the order of ids.
func (r Reads) TrustedCAs(ctx context.Context) ([]keyserver.Certificate, error) {
	return r.trustedCAs(ctx, trustedCAQuery+` ORDER BY id`)
}

// TrustedCA reads one trusted CA.
func (r Reads) TrustedCA(ctx context.Context, id keyserver.ID) (keyserver.Certificate, error) {
	cas, err := r.trustedCAs(ctx, trustedCAQuery+` WHERE id = $1`, id[:])
	if err == nil && len(cas) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.Certificate{}, err
	}
	return cas[0], nil
}

func (r Reads) trustedCAs(ctx context.Context, query string, args ...any) ([]keyserver.Certificate, error) {
	cas := []keyserver.Certificate{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var c keyserver.Certificate
		var mac []byte
		if err := row.Scan(sqldb.IntoID(&c.ID), &c.Status, &c.Subject, &c.Issuer, &c.KeyType, &c.Serial,
			sqldb.IntoTime(&c.NotBefore), sqldb.IntoTime(&c.NotAfter), &c.DER, &mac); err != nil {
			return err
		}
		cas = append(cas, c)
		return r.sql.CheckMAC(rowmac.TrustedCA(c), mac)
	})
	return cas, err
}

// InsertTrustedCA stores a trusted CA. It returns ErrDuplicate if the id or the
// certificate is stored already.
func (tx Writes) InsertTrustedCA(ctx context.Context, c keyserver.Certificate) error {
	fingerprint := sha256.Sum256(c.DER)
	_, err := tx.sql.Exec(ctx, `INSERT INTO trusted_cas (id, fingerprint, status, subject, issuer, key_type, serial, not_before, not_after, der, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, c.ID[:], fingerprint[:], int64(c.Status), c.Subject, c.Issuer, c.KeyType,
		sqldb.OrEmpty(c.Serial), c.NotBefore.UnixMicro(), c.NotAfter.UnixMicro(), sqldb.OrEmpty(c.DER), tx.sql.MAC(rowmac.TrustedCA(c)))
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeTrustedCA, c.ID, keyserver.Created)
	return nil
}

// DeleteTrustedCA removes a CA.
func (tx Writes) DeleteTrustedCA(ctx context.Context, id keyserver.ID) error {
	if err := tx.sql.ExecOne(ctx, `DELETE FROM trusted_cas WHERE id = $1`, id[:]); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeTrustedCA, id, keyserver.Deleted)
	return nil
}
