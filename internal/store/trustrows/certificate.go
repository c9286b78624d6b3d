package trustrows

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const certificateQuery = `SELECT id, principal_id, status, subject, issuer, issuer_digest, key_type, serial, not_before, not_after,
	der, request, fingerprint, subject_key, mac FROM certificates`

// subjectPage is the number of rows that a search by subject reads at a time.
const subjectPage = 256

// Certificate reads the certificate whose DER form has the digest.
func (r Reads) Certificate(ctx context.Context, digest keyserver.Digest) (keyserver.Certificate, error) {
	return r.oneCertificate(ctx, certificateQuery+` WHERE fingerprint = $1`, digest[:])
}

// CertificateByID reads one certificate.
func (r Reads) CertificateByID(ctx context.Context, id keyserver.ID) (keyserver.Certificate, error) {
	return r.oneCertificate(ctx, certificateQuery+` WHERE id = $1`, id[:])
}

// CertificatesOf reads up to limit certificates of a transport principal, by id.
func (r Reads) CertificatesOf(ctx context.Context, principal keyserver.ID, limit int) ([]keyserver.Certificate, error) {
	return r.certificates(ctx, certificateQuery+` WHERE principal_id = $1 ORDER BY id LIMIT $2`, principal[:], limit)
}

// EnrolledCertificates reads up to limit certificates that belong to a principal
// and have exactly the subject, in the order of ids.
func (r Reads) EnrolledCertificates(ctx context.Context, subject string, limit int) ([]keyserver.Certificate, error) {
	return r.certificates(ctx, certificateQuery+` WHERE subject_key = $1 AND principal_id IS NOT NULL ORDER BY id LIMIT $2`,
		[]byte(subject), limit)
}

// CertificatesBySubject reads up to limit certificates whose subject matches the
// pattern, in the order of subjects. In the pattern, % stands for any text.
func (r Reads) CertificatesBySubject(ctx context.Context, pattern string, limit int) ([]keyserver.Certificate, error) {
	p := newSubjectPattern(pattern)
	found := []keyserver.Certificate{}
	after, id := []byte(p.prefix()), keyserver.ID{}
	for {
		// LIKE only reduces the number of rows: SQLite ignores case in LIKE. p.matches
		// decides.
		page, err := r.certificates(ctx, certificateQuery+` WHERE (subject_key, id) > ($1, $2) AND subject_key < $3
			AND subject LIKE $4 ESCAPE '\' ORDER BY subject_key, id LIMIT $5`, after, id[:], p.end(), p.like(), subjectPage)
		if err != nil {
			return nil, err
		}
		for _, c := range page {
			if !p.matches(c.Subject) {
				continue
			}
			if found = append(found, c); len(found) == limit {
				return found, nil
			}
		}
		if len(page) < subjectPage {
			return found, nil
		}
		last := page[len(page)-1]
		after, id = []byte(last.Subject), last.ID
	}
}

func (r Reads) oneCertificate(ctx context.Context, query string, args ...any) (keyserver.Certificate, error) {
	list, err := r.certificates(ctx, query, args...)
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.Certificate{}, err
	}
	return list[0], nil
}

func (r Reads) certificates(ctx context.Context, query string, args ...any) ([]keyserver.Certificate, error) {
	list := []keyserver.Certificate{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var c keyserver.Certificate
		var fingerprint, subjectKey, mac []byte
		if err := row.Scan(sqldb.IntoID(&c.ID), sqldb.OptionalID(&c.Principal), &c.Status, &c.Subject, &c.Issuer, &c.IssuerDigest, &c.KeyType,
			&c.Serial, sqldb.IntoTime(&c.NotBefore), sqldb.IntoTime(&c.NotAfter), &c.DER, &c.Request, &fingerprint, &subjectKey, &mac); err != nil {
			return err
		}
		list = append(list, c)
		return r.sql.CheckMAC(rowmac.Certificate(c, fingerprint, subjectKey), mac)
	})
	return list, err
}

// CertificatesInForce counts the certificates of an issuer that are not replaced, and
// not expired at a time.
func (r Reads) CertificatesInForce(ctx context.Context, issuerDigest string, at time.Time) (int, error) {
	var n int
	err := r.sql.Row(ctx, `SELECT count(*) FROM certificates WHERE issuer_digest = $1 AND not_after > $2 AND status <> $3`,
		[]any{issuerDigest, at.UnixMicro(), int64(keyserver.StatusExpired)}, &n)
	return n, err
}

var certificatesOfThese = certificateQuery + ` WHERE principal_id IN (` + sqldb.Numbered() + `) ORDER BY id LIMIT 1025`

// CertificatesOfThese reads the certificates of principals, 64 principals at a time. If 64 principals together have
// more than 1024 certificates, it omits the certificates of these principals.
func (r Reads) CertificatesOfThese(ctx context.Context, ids []keyserver.ID) (list []keyserver.Certificate, err error) {
	for ids := keyserver.NormalizeIDs(ids); len(ids) > 0; ids = ids[min(sqldb.LookupSize, len(ids)):] {
		found, err := r.certificates(ctx, certificatesOfThese, sqldb.Lookup(ids)...)
		if err != nil {
			return nil, err
		}
		if len(found) <= keyserver.MaxCertificates {
			list = append(list, found...)
		}
	}
	return list, nil
}

// InsertCertificate stores a certificate, with or without a principal. It returns
// ErrDuplicate if the certificate is stored already, or ErrNotFound if the principal
// does not exist.
func (tx Writes) InsertCertificate(ctx context.Context, c keyserver.Certificate) error {
	digest := keyserver.DigestOf(c.DER)
	_, err := tx.sql.Exec(ctx, `INSERT INTO certificates (id, fingerprint, principal_id, status, subject, subject_key, issuer, issuer_digest,
			key_type, serial, not_before, not_after, der, request, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`, c.ID[:], digest[:], sqldb.OrNull(c.Principal), int64(c.Status),
		c.Subject, []byte(c.Subject), c.Issuer, c.IssuerDigest, c.KeyType, sqldb.OrEmpty(c.Serial), c.NotBefore.UnixMicro(), c.NotAfter.UnixMicro(),
		sqldb.OrEmpty(c.DER), c.Request, tx.sql.MAC(certificateRow(c)))
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeCertificate, c.ID, keyserver.Created)
	return nil
}

func certificateRow(c keyserver.Certificate) *rowmac.Row {
	digest := keyserver.DigestOf(c.DER)
	return rowmac.Certificate(c, digest[:], []byte(c.Subject))
}

// EnrolCertificate assigns a stored certificate to a transport principal. It returns
// ErrNotFound if the certificate or the principal does not exist.
func (tx Writes) EnrolCertificate(ctx context.Context, id, principal keyserver.ID) error {
	return tx.changeCertificate(ctx, id, func(c *keyserver.Certificate) { c.Principal, c.Status = principal, keyserver.StatusRegular })
}

// ExpireCertificate marks a certificate as replaced.
func (tx Writes) ExpireCertificate(ctx context.Context, id keyserver.ID) error {
	return tx.changeCertificate(ctx, id, func(c *keyserver.Certificate) { c.Status = keyserver.StatusExpired })
}

func (tx Writes) changeCertificate(ctx context.Context, id keyserver.ID, change func(c *keyserver.Certificate)) error {
	c, err := tx.reads.CertificateByID(ctx, id)
	if err != nil {
		return err
	}
	change(&c)
	err = tx.sql.ExecOne(ctx, `UPDATE certificates SET principal_id = $1, status = $2, mac = $3 WHERE id = $4`,
		sqldb.OrNull(c.Principal), int64(c.Status), tx.sql.MAC(certificateRow(c)), id[:])
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeCertificate, id, keyserver.Updated)
	return nil
}

// DeleteCertificatesOf deletes every certificate of a transport principal and returns
// how many.
func (tx Writes) DeleteCertificatesOf(ctx context.Context, principal keyserver.ID) (int, error) {
	gone, err := tx.sql.IDs(ctx, `DELETE FROM certificates WHERE principal_id = $1 RETURNING id`, principal[:])
	for _, id := range gone {
		tx.changes.Record(keyserver.ChangeCertificate, id, keyserver.Deleted)
	}
	return len(gone), err
}
