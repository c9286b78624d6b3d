package bootstrap

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// Names of the settings of the single CA that older versions had. Its private key is wrapped under formerWrapID.
const (
	formerCACert = "caCertificate"
	formerCAKey  = "caKey"
)

var formerWrapID = values.IDFromUint64(1)

func (c Config) authorities(system keyserver.SystemID) ca.Config {
	return ca.Config{Store: c.Store, Keyring: c.Keyring, System: system, ServerName: c.ServerName, Clock: c.Clock, Random: c.Random}
}

// putCertificates creates the first CA and the server certificate issued by it.
func (c Config) putCertificates(ctx context.Context, tx *sqlstore.Tx, system keyserver.SystemID) error {
	ca, err := c.authorities(system).CreateFirst(ctx, tx)
	if err != nil {
		return err
	}
	server, err := ca.IssueServer(c.ServerName, c.Hosts, nil, c.Clock(), c.Random)
	if err != nil {
		return err
	}
	plain, err := server.MarshalKey()
	if err != nil {
		return err
	}
	defer clear(plain)
	wrapped, err := c.Keyring.Wrap(sqlstore.WrappedSettings[sqlstore.SettingServerKey], system, plain)
	if err != nil {
		return err
	}
	if err := tx.PutSetting(ctx, sqlstore.SettingServerKey, wrapped); err != nil {
		return err
	}
	return tx.PutSetting(ctx, sqlstore.SettingServerCertificate, server.Certificate.Raw)
}

// adoptAuthority moves the CA of an older version from the settings to the authorities, and wraps its key under the new
// id.
func (c Config) adoptAuthority(ctx context.Context) error {
	_, err := c.Store.Setting(ctx, formerCAKey)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		there, err := tx.Authorities(ctx)
		if err != nil || len(there) > 0 { // another replica moved it first
			return err
		}
		system, err := sqlstore.SystemOf(ctx, tx)
		if err != nil {
			return err
		}
		ca, err := c.loadIdentity(ctx, tx, system, formerCACert, formerCAKey, formerWrapID)
		if err != nil {
			return err
		}
		since := ca.Certificate.NotBefore
		if _, err := c.authorities(system).Add(ctx, tx, ca, keyserver.Authority{
			Generation: 1, State: keyserver.AuthorityActive, PreparedAt: since, ActivatedAt: since,
		}); err != nil {
			return err
		}
		if err := tx.RemoveSetting(ctx, formerCACert); err != nil {
			return err
		}
		return tx.RemoveSetting(ctx, formerCAKey)
	})
}

// EnsureServerCertificate returns the server's certificate and key from the database. It renews the certificate if that
// is due (pki.Renewal). A running server calls it periodically and after each change of an authority, because another
// replica may have renewed the certificate.
func EnsureServerCertificate(ctx context.Context, c Config) (pki.Identity, error) {
	system, err := sqlstore.SystemOf(ctx, c.Store)
	if err != nil {
		return pki.Identity{}, err
	}
	server, due, err := c.server(ctx, c.Store, system)
	if err != nil || due == nil {
		return server, err
	}
	err = c.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		// Writes of all replicas are serialized, so the second replica finds the renewed certificate.
		if server, due, err = c.server(ctx, tx, system); err != nil || due == nil {
			return err
		}
		// Keep the key, because peers identify the server by it.
		hosts := slices.Concat(c.Hosts, hostsOf(server.Certificate))
		slices.Sort(hosts)
		if server, err = due.IssueServer(c.ServerName, slices.Compact(hosts), server.Key, c.Clock(), c.Random); err != nil {
			return err
		}
		return tx.PutSetting(ctx, sqlstore.SettingServerCertificate, server.Certificate.Raw)
	})
	if err != nil {
		return pki.Identity{}, fmt.Errorf("renew the server certificate: %w", err)
	}
	return server, nil
}

// reader is a store or a transaction.
type reader interface {
	Setting(ctx context.Context, name string) ([]byte, error)
	Authorities(ctx context.Context) ([]trustrows.Authority, error)
}

// server reads the server's certificate and key. If the certificate is due for renewal, server also returns the CA that
// issues the new one, otherwise nil.
func (c Config) server(ctx context.Context, in reader, system keyserver.SystemID) (pki.Identity, *pki.Identity, error) {
	server, err := c.loadIdentity(ctx, in, system, sqlstore.SettingServerCertificate, sqlstore.SettingServerKey, sqlstore.WrappedSettings[sqlstore.SettingServerKey])
	if err != nil {
		return server, nil, fmt.Errorf("read the server certificate: %w", err)
	}
	line, err := c.authorities(system).Load(ctx, in)
	if err != nil {
		return server, nil, fmt.Errorf("read the internal CA: %w", err)
	}
	if !pki.Renewal(server.Certificate, c.Hosts, line.Issuer.Certificate, c.Clock()) {
		return server, nil, nil
	}
	return server, &line.Issuer, nil
}

func (c Config) loadIdentity(ctx context.Context, in reader, system keyserver.SystemID, cert, key string, wrapID keyserver.ID) (pki.Identity, error) {
	der, err := in.Setting(ctx, cert)
	if err != nil {
		return pki.Identity{}, err
	}
	wrapped, err := in.Setting(ctx, key)
	if err != nil {
		return pki.Identity{}, err
	}
	plain, err := c.Keyring.Unwrap(wrapID, system, wrapped)
	if err != nil {
		return pki.Identity{}, err
	}
	defer clear(plain)
	return pki.ParseIdentity(der, plain)
}

// hostsOf returns the host names and addresses of a certificate. Renewals include them, so that replicas with different
// hosts do not remove each other's names.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}
