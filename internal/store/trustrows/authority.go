package trustrows

import (
	"context"
	"encoding/asn1"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Authority is an internal CA of this key server with its encrypted private key.
type Authority struct {
	keyserver.Authority
	WrappedKey []byte
}

const authorityQuery = `SELECT id, generation, state, certificate, links, wrapped_key, prepared_at, activated_at, retiring_at, mac FROM authorities`

// Authorities reads every internal CA, in the order of generations.
func (r Reads) Authorities(ctx context.Context) ([]Authority, error) {
	return r.authorities(ctx, authorityQuery+` ORDER BY generation`)
}

// Authority reads one internal CA.
func (r Reads) Authority(ctx context.Context, id keyserver.ID) (Authority, error) {
	list, err := r.authorities(ctx, authorityQuery+` WHERE id = $1`, id[:])
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return Authority{}, err
	}
	return list[0], nil
}

func (r Reads) authorities(ctx context.Context, query string, args ...any) ([]Authority, error) {
	var list []Authority
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var a Authority
		var links, mac []byte
		var prepared, activated, retiring int64
		if err := row.Scan(sqldb.IntoID(&a.ID), &a.Generation, &a.State, &a.Certificate, &links, &a.WrappedKey,
			&prepared, &activated, &retiring, &mac); err != nil {
			return err
		}
		a.PreparedAt, a.ActivatedAt, a.RetiringAt = keyserver.FromMicros(prepared), keyserver.FromMicros(activated), keyserver.FromMicros(retiring)
		a.Links = split(links)
		list = append(list, a)
		return r.sql.CheckMAC(rowmac.Authority(a.Authority, links), mac)
	})
	return list, err
}

// InsertAuthority stores an internal CA. It returns ErrDuplicate if there is one with
// the same generation.
func (tx Writes) InsertAuthority(ctx context.Context, a Authority) error {
	links := slices.Concat(a.Links...)
	_, err := tx.sql.Exec(ctx, `INSERT INTO authorities (id, generation, state, certificate, links, wrapped_key, prepared_at, activated_at, retiring_at, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, a.ID[:], int64(a.Generation), string(a.State), sqldb.OrEmpty(a.Certificate), sqldb.OrEmpty(links), sqldb.OrEmpty(a.WrappedKey),
		keyserver.Micros(a.PreparedAt), keyserver.Micros(a.ActivatedAt), keyserver.Micros(a.RetiringAt), tx.sql.MAC(rowmac.Authority(a.Authority, links)))
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeAuthority, a.ID, keyserver.Created)
	return nil
}

// ChangeAuthority stores the state of an internal CA and the times of the state. It
// returns ErrNotFound if the CA does not exist.
func (tx Writes) ChangeAuthority(ctx context.Context, a keyserver.Authority) error {
	err := tx.sql.ExecOne(ctx, `UPDATE authorities SET state = $1, activated_at = $2, retiring_at = $3, mac = $4 WHERE id = $5`,
		string(a.State), keyserver.Micros(a.ActivatedAt), keyserver.Micros(a.RetiringAt), tx.sql.MAC(rowmac.Authority(a, slices.Concat(a.Links...))), a.ID[:])
	if err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeAuthority, a.ID, keyserver.Updated)
	return nil
}

// SetAuthorityKey stores the rewrapped private key of an internal CA.
func (tx Writes) SetAuthorityKey(ctx context.Context, id keyserver.ID, wrapped []byte) error {
	return tx.sql.ExecOne(ctx, `UPDATE authorities SET wrapped_key = $1 WHERE id = $2`, wrapped, id[:])
}

// DeleteAuthority deletes an internal CA with its private key.
func (tx Writes) DeleteAuthority(ctx context.Context, id keyserver.ID) error {
	if err := tx.sql.ExecOne(ctx, `DELETE FROM authorities WHERE id = $1`, id[:]); err != nil {
		return err
	}
	tx.changes.Record(keyserver.ChangeAuthority, id, keyserver.Deleted)
	return nil
}

const peerAuthorityQuery = `SELECT system_id, certificate, links, anchor, learned_at, fingerprint, mac FROM peer_authorities`

// PeerAuthorities reads the known CAs of all peers, in the order of peers and then of
// the times at which they became known.
func (r Reads) PeerAuthorities(ctx context.Context) ([]keyserver.PeerAuthority, error) {
	return r.peerAuthorities(ctx, peerAuthorityQuery+` ORDER BY system_id, learned_at, fingerprint`)
}

// PeerAuthoritiesOf reads the known CAs of one peer, the earliest known first.
func (r Reads) PeerAuthoritiesOf(ctx context.Context, system keyserver.SystemID) ([]keyserver.PeerAuthority, error) {
	return r.peerAuthorities(ctx, peerAuthorityQuery+` WHERE system_id = $1 ORDER BY learned_at, fingerprint`, int64(system))
}

func (r Reads) peerAuthorities(ctx context.Context, query string, args ...any) ([]keyserver.PeerAuthority, error) {
	var list []keyserver.PeerAuthority
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var a keyserver.PeerAuthority
		var links, fingerprint, mac []byte
		if err := row.Scan(&a.System, &a.Certificate, &links, sqldb.IntoHash((*[32]byte)(&a.Anchor)), sqldb.IntoTime(&a.LearnedAt), &fingerprint, &mac); err != nil {
			return err
		}
		a.Links = split(links)
		list = append(list, a)
		return r.sql.CheckMAC(rowmac.PeerAuthority(a, fingerprint, links), mac)
	})
	return list, err
}

// InsertPeerAuthority stores a CA of a peer. It returns ErrDuplicate if the CA is
// known.
func (tx Writes) InsertPeerAuthority(ctx context.Context, a keyserver.PeerAuthority) error {
	fingerprint, links := keyserver.DigestOf(a.Certificate), slices.Concat(a.Links...)
	_, err := tx.sql.Exec(ctx, `INSERT INTO peer_authorities (system_id, fingerprint, certificate, links, anchor, learned_at, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, int64(a.System), fingerprint[:], sqldb.OrEmpty(a.Certificate), sqldb.OrEmpty(links), a.Anchor[:], a.LearnedAt.UnixMicro(),
		tx.sql.MAC(rowmac.PeerAuthority(a, fingerprint[:], links)))
	if err != nil {
		return err
	}
	tx.recordTrustedServer(a.System, keyserver.Updated)
	return nil
}

// DeletePeerAuthority deletes a CA of a peer.
func (tx Writes) DeletePeerAuthority(ctx context.Context, a keyserver.PeerAuthority) error {
	fingerprint := keyserver.DigestOf(a.Certificate)
	if err := tx.sql.ExecOne(ctx, `DELETE FROM peer_authorities WHERE system_id = $1 AND fingerprint = $2`, int64(a.System), fingerprint[:]); err != nil {
		return err
	}
	tx.recordTrustedServer(a.System, keyserver.Updated)
	return nil
}

// DeletePeerAuthorities deletes all CAs of a peer.
func (tx Writes) DeletePeerAuthorities(ctx context.Context, system keyserver.SystemID) error {
	_, err := tx.sql.Exec(ctx, `DELETE FROM peer_authorities WHERE system_id = $1`, int64(system))
	return err
}

// split separates concatenated DER structures. It stops at bytes that are not a DER structure. The check of the MAC
// then fails for the result.
func split(all []byte) (list [][]byte) {
	for len(all) > 0 {
		var one asn1.RawValue
		rest, err := asn1.Unmarshal(all, &one)
		if err != nil {
			return list
		}
		list, all = append(list, one.FullBytes), rest
	}
	return list
}
