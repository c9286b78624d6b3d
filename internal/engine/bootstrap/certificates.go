package bootstrap

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/trustrows"
)

// The only CA was among the settings once, its key wrapped under an id of its own.
const (
	formerCACert = "caCertificate"
	formerCAKey  = "caKey"
)

var formerWrapID = keyserver.IDFromUint64(1)

func (c Config) authorities(system keyserver.SystemID) ca.Config {
	return ca.Config{Store: c.Store, Keyring: c.Keyring, System: system, ServerName: c.ServerName, Clock: c.Clock, Random: c.Random}
}

// putCertificates makes the first authority and the server's certificate by it.
func (c Config) putCertificates(ctx context.Context, tx *sqlstore.Tx, system keyserver.SystemID) error {
	ca, err := c.authorities(system).First(ctx, tx)
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
	wrapped, err := c.Keyring.Wrap(wrapIDServer, system, plain)
	if err != nil {
		return err
	}
	if err := tx.PutSetting(ctx, settingServerKey, wrapped); err != nil {
		return err
	}
	return tx.PutSetting(ctx, settingServerCert, server.Certificate.Raw)
}

// adoptAuthority moves the CA of a database from before there could be more than one
// from the settings to the authorities, where its key is wrapped under their id.
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
		if err != nil || len(there) > 0 { // another replica was faster
			return err
		}
		system, err := SystemOf(ctx, tx)
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

// KeepServer answers the server's certificate and key as the database has them,
// issued anew where it is time (pki.Renewal). A running server asks from time to
// time, and whenever an authority has changed: another replica may have done it.
func KeepServer(ctx context.Context, c Config) (pki.Identity, error) {
	system, err := SystemOf(ctx, c.Store)
	if err != nil {
		return pki.Identity{}, err
	}
	server, due, err := c.server(ctx, c.Store, system)
	if err != nil || due == nil {
		return server, err
	}
	err = c.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		// Writes are serial over all replicas: whoever comes second finds it done.
		if server, due, err = c.server(ctx, tx, system); err != nil || due == nil {
			return err
		}
		// The key stays, which peers know the server by.
		hosts := slices.Concat(c.Hosts, hostsOf(server.Certificate))
		slices.Sort(hosts)
		if server, err = due.IssueServer(c.ServerName, slices.Compact(hosts), server.Key, c.Clock(), c.Random); err != nil {
			return err
		}
		return tx.PutSetting(ctx, settingServerCert, server.Certificate.Raw)
	})
	if err != nil {
		return pki.Identity{}, fmt.Errorf("renew the server certificate: %w", err)
	}
	return server, nil
}

// reader is a store, or a transaction on it.
type reader interface {
	Setting(ctx context.Context, name string) ([]byte, error)
	Authorities(ctx context.Context) ([]trustrows.Authority, error)
}

// server reads the server's certificate, and who is to issue it anew; nil for nobody.
func (c Config) server(ctx context.Context, in reader, system keyserver.SystemID) (pki.Identity, *pki.Identity, error) {
	server, err := c.loadIdentity(ctx, in, system, settingServerCert, settingServerKey, wrapIDServer)
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

// SystemOf reads the system id of a key server that was started before.
func SystemOf(ctx context.Context, in interface {
	Setting(ctx context.Context, name string) ([]byte, error)
}) (keyserver.SystemID, error) {
	text, err := in.Setting(ctx, settingSystem)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil {
		return 0, errors.New("the database's system id is not a number; restore the database from a backup")
	}
	return keyserver.SystemID(n), nil
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

// hostsOf returns the names that a certificate covers, so that replicas with
// different hosts do not take each other's names away.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}
