package trustrows

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const trustedServerQuery = `SELECT s.system_id, s.name, s.port, s.friendly_name, s.description, s.transport_id, s.chain,
		s.cert_id, s.cert_status, s.subject, s.issuer, s.key_type, s.serial, s.not_before, s.not_after, s.der, s.witness, s.mac, r.role_id
	FROM trusted_servers s LEFT JOIN principal_roles r ON r.principal_id = s.transport_id`

// TrustedServers reads every peer, in the order of system ids. There are at most
// keyserver.MaxTrustedServers.
func (r Reads) TrustedServers(ctx context.Context) ([]keyserver.TrustedServer, error) {
	return r.trustedServers(ctx, trustedServerQuery+` ORDER BY s.system_id, r.role_id`)
}

// TrustedServer reads one peer.
func (r Reads) TrustedServer(ctx context.Context, system keyserver.SystemID) (keyserver.TrustedServer, error) {
	list, err := r.trustedServers(ctx, trustedServerQuery+` WHERE s.system_id = $1 ORDER BY r.role_id`, int64(system))
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return keyserver.TrustedServer{}, err
	}
	return list[0], nil
}

func (r Reads) trustedServers(ctx context.Context, query string, args ...any) ([]keyserver.TrustedServer, error) {
	list := []keyserver.TrustedServer{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		s := keyserver.TrustedServer{Roles: []keyserver.ID{}}
		c := &s.Certificate
		var witness int64
		var mac, role []byte // NULL for a transport principal without roles
		if err := row.Scan(&s.System, &s.Name, &s.Port, &s.FriendlyName, &s.Description, sqldb.IntoID(&s.Transport), &s.Chain,
			sqldb.IntoID(&c.ID), &c.Status, &c.Subject, &c.Issuer, &c.KeyType, &c.Serial,
			sqldb.IntoTime(&c.NotBefore), sqldb.IntoTime(&c.NotAfter), &c.DER, &witness, &mac, &role); err != nil {
			return err
		}
		s.Witness = witness != 0
		if n := len(list); n == 0 || list[n-1].System != s.System {
			list = append(list, s)
			if err := r.sql.CheckMAC(rowmac.TrustedServer(s), mac); err != nil {
				return err
			}
		}
		if role == nil {
			return nil
		}
		var id keyserver.ID
		if err := sqldb.IntoID(&id).Scan(role); err != nil {
			return err
		}
		last := &list[len(list)-1]
		last.Roles = append(last.Roles, id)
		return nil
	})
	return list, err
}

// IsTrustedServer reports whether a peer is registered.
func (r Reads) IsTrustedServer(ctx context.Context, system keyserver.SystemID) (bool, error) {
	var n int
	err := r.sql.Row(ctx, `SELECT count(*) FROM trusted_servers WHERE system_id = $1`, []any{int64(system)}, &n)
	return n > 0, err
}

// InsertTrustedServer stores a peer. It returns ErrDuplicate if a peer has the
// system id, or ErrNotFound if the transport principal does not exist. It does
// not store the roles, because they belong to the principal.
func (tx Writes) InsertTrustedServer(ctx context.Context, s keyserver.TrustedServer) error {
	c := s.Certificate
	_, err := tx.sql.Exec(ctx, `INSERT INTO trusted_servers (system_id, name, port, friendly_name, description, transport_id, chain,
			cert_id, cert_status, subject, issuer, key_type, serial, not_before, not_after, der, witness, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`,
		int64(s.System), s.Name, int64(s.Port), s.FriendlyName, s.Description, s.Transport[:], sqldb.OrEmpty(s.Chain),
		c.ID[:], int64(c.Status), c.Subject, c.Issuer, c.KeyType, sqldb.OrEmpty(c.Serial), c.NotBefore.UnixMicro(), c.NotAfter.UnixMicro(), sqldb.OrEmpty(c.DER),
		sqldb.Flag(s.Witness), tx.sql.MAC(rowmac.TrustedServer(s)))
	if err != nil {
		return err
	}
	tx.recordTrustedServer(s.System, keyserver.Created)
	return nil
}

// UpdateTrustedServer changes the fields of a peer that are not nil in change.
// It returns ErrNotFound if no peer has the system id.
func (tx Writes) UpdateTrustedServer(ctx context.Context, change keyserver.TrustedServerChange) error {
	s, err := tx.reads.TrustedServer(ctx, change.System)
	if err != nil {
		return err
	}
	if change.FriendlyName != nil {
		s.FriendlyName = *change.FriendlyName
	}
	if change.Description != nil {
		s.Description = *change.Description
	}
	if change.Witness != nil {
		s.Witness = *change.Witness
	}
	err = tx.sql.ExecOne(ctx, `UPDATE trusted_servers SET friendly_name = $1, description = $2, witness = $3, mac = $4 WHERE system_id = $5`,
		s.FriendlyName, s.Description, sqldb.Flag(s.Witness), tx.sql.MAC(rowmac.TrustedServer(s)), int64(s.System))
	if err != nil {
		return err
	}
	tx.recordTrustedServer(change.System, keyserver.Updated)
	return nil
}

// ReplaceTrustedServer replaces all data of a peer except its transport
// principal. It returns ErrNotFound if no peer has the system id.
func (tx Writes) ReplaceTrustedServer(ctx context.Context, s keyserver.TrustedServer) error {
	before, err := tx.reads.TrustedServer(ctx, s.System)
	if err != nil {
		return err
	}
	s.Transport = before.Transport
	c := s.Certificate
	err = tx.sql.ExecOne(ctx, `UPDATE trusted_servers SET name = $2, port = $3, friendly_name = $4, description = $5, chain = $6,
			cert_id = $7, cert_status = $8, subject = $9, issuer = $10, key_type = $11, serial = $12, not_before = $13, not_after = $14, der = $15, witness = $16, mac = $17
		WHERE system_id = $1`,
		int64(s.System), s.Name, int64(s.Port), s.FriendlyName, s.Description, sqldb.OrEmpty(s.Chain),
		c.ID[:], int64(c.Status), c.Subject, c.Issuer, c.KeyType, sqldb.OrEmpty(c.Serial), c.NotBefore.UnixMicro(), c.NotAfter.UnixMicro(), sqldb.OrEmpty(c.DER),
		sqldb.Flag(s.Witness), tx.sql.MAC(rowmac.TrustedServer(s)))
	if err != nil {
		return err
	}
	tx.recordTrustedServer(s.System, keyserver.Updated)
	return nil
}

// DeleteTrustedServer deletes a peer, its transport principal, its CAs, its
// calls and its witnessed logs. It keeps principal trusts for the peer.
func (tx Writes) DeleteTrustedServer(ctx context.Context, system keyserver.SystemID) error {
	var transport keyserver.ID
	err := tx.sql.Row(ctx, `SELECT transport_id FROM trusted_servers WHERE system_id = $1`, []any{int64(system)}, sqldb.IntoID(&transport))
	if err != nil {
		return err
	}
	if err := tx.sql.ExecOne(ctx, `DELETE FROM trusted_servers WHERE system_id = $1`, int64(system)); err != nil {
		return err
	}
	if err := tx.sql.ExecOne(ctx, `DELETE FROM principals WHERE id = $1`, transport[:]); err != nil {
		return err
	}
	if err := errors.Join(tx.DeletePeerAuthorities(ctx, system), tx.deleteWitnessedLogs(ctx, system)); err != nil {
		return err
	}
	if _, err := tx.sql.Exec(ctx, `DELETE FROM peer_calls WHERE system_id = $1`, int64(system)); err != nil {
		return err
	}
	tx.recordTrustedServer(system, keyserver.Deleted)
	tx.changes.Record(keyserver.ChangePrincipal, transport, keyserver.Deleted)
	return nil
}

func (tx Writes) recordTrustedServer(system keyserver.SystemID, action keyserver.ChangeAction) {
	tx.changes.Record(keyserver.ChangeTrustedServer, values.IDFromUint64(uint64(system)), action)
}
