// Package bootstrap creates the first state of a key server, or reads and updates the existing state. It runs before
// the engine is created.
package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// DefaultSystem is the system id of a new key server if none is configured.
const DefaultSystem keyserver.SystemID = 1

// AdminName, OfficerName and SystemName are the names of the principals that the first start creates. A service account
// can replace the administrator. The officer exists only if duties are separated.
const (
	AdminName   = "admin"
	OfficerName = "officer"
	SystemName  = "system"
)

// errNotFirst ends the transaction of a first start if another replica has already created the first state.
var errNotFirst = errors.New("another start created the state")

// Config has the parameters of a start.
type Config struct {
	Store   *sqlstore.Store
	Keyring *keyring.Keyring
	// System is the requested system id. 0 means the system id of the database, or DefaultSystem at the first start.
	System     keyserver.SystemID
	Deployment keyserver.Deployment
	ServerName string
	Hosts      []string // host names and addresses that the server certificate must cover
	// AdminPassword is called only at the first start. If it is nil, no administrator with a password is created.
	AdminPassword func() (string, error)
	// ServiceAccount is the identity of an administrator without a password, created at
	// the first start. If it is nil, none is created.
	ServiceAccount *keyserver.Identity
	// OfficerPassword is called only at the first start with separated duties.
	OfficerPassword func() (string, error)
	PasswordCost    password.Cost // of the passwords of administrator and officer
	Clock           func() time.Time
	Random          io.Reader
}

// Prepared is the state of a key server that is ready to start.
type Prepared struct {
	System keyserver.SystemID
	CA     pki.Identity // the active CA
	Server pki.Identity
	First  bool // this call created the first state
	// Sealed is the number of rows that got a MAC in this start, because a version without row MACs wrote them. Their
	// content is assumed to be true.
	Sealed int
}

// Run creates the first state of a new key server. If the key server exists, Run updates the built-in roles and the
// host names of the server certificate. Replicas may call it concurrently.
func Run(ctx context.Context, c Config) (Prepared, error) {
	sealed, err := c.openRows(ctx)
	if err != nil {
		return Prepared{}, fmt.Errorf("add MACs to the rows of the database: %w", err)
	}
	first, err := c.create(ctx)
	if err != nil {
		return Prepared{}, fmt.Errorf("first start: %w", err)
	}
	if err := c.adoptAuthority(ctx); err != nil {
		return Prepared{}, fmt.Errorf("move the internal CA to its table: %w", err)
	}
	var p Prepared
	if p.System, err = sqlstore.SystemOf(ctx, c.Store); err != nil {
		return Prepared{}, err
	}
	p.First, p.Sealed = first, sealed
	if c.System != 0 && c.System != p.System {
		return Prepared{}, fmt.Errorf("--system-id is %d, but this database belongs to system id %d; omit the flag or use another database", c.System, p.System)
	}
	if err := c.refuseUnited(ctx); err != nil {
		return Prepared{}, err
	}
	if err := c.keepAuditKeys(ctx, p.System); err != nil {
		return Prepared{}, fmt.Errorf("create the keys of the audit tree: %w", err)
	}
	if err := c.syncRoles(ctx); err != nil {
		return Prepared{}, fmt.Errorf("update the built-in roles: %w", err)
	}
	line, err := c.authorities(p.System).Load(ctx, c.Store)
	if err != nil {
		return p, fmt.Errorf("read the internal CA: %w", err)
	}
	p.CA = line.Issuer
	p.Server, err = EnsureServerCertificate(ctx, c)
	return p, err
}

// refuseUnited returns an error if duties are separated in the database, but not in the configuration. If an operator
// forgot the flag, the Administrator would get the duty trust on every replica, and operations of this duty would need
// no approval.
func (c Config) refuseUnited(ctx context.Context) error {
	stored, err := c.Store.Setting(ctx, sqlstore.SettingDeployment)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound):
		return fmt.Errorf("the setting %s is missing from the database: it was deleted; restore it from a backup", sqlstore.SettingDeployment)
	case err != nil:
		return err
	case keyserver.Deployment(stored) == keyserver.Split && c.Deployment != keyserver.Split:
		return fmt.Errorf("--deployment is %s, but the duties of this key server are split; start it with --deployment %s", c.Deployment, keyserver.Split)
	}
	return nil
}

// openRows enables the check of row MACs in the store. Rows of a version without row MACs get a MAC once. Their content
// is assumed to be true.
func (c Config) openRows(ctx context.Context) (sealed int, err error) {
	if !c.Keyring.RowsSealed() {
		sealed, err = c.Store.SealRows(ctx, c.Keyring.RowKey(), func(tx *sqlstore.Tx) (bool, error) {
			first, err := c.Keyring.SealRows(ctx, tx.Setting, tx.PutSetting)
			if err != nil || !first {
				return first, err
			}
			// No process of this version is serving yet. If a process of an older version is running, the rows that it
			// writes would have no MAC.
			others, err := tx.ChainsHeld(ctx)
			if err == nil && others > 0 {
				err = fmt.Errorf("%d processes of an older version still use this database, and their rows would be refused; stop them first", others)
			}
			return true, err
		})
	}
	c.Store.UseRowKey(c.Keyring.RowKey())
	return sealed, err
}

// create creates the entire first state in one transaction. It reports false if another replica was faster.
func (c Config) create(ctx context.Context) (bool, error) {
	_, err := c.Store.Setting(ctx, sqlstore.SettingSystem)
	if !errors.Is(err, sqlstore.ErrNotFound) {
		return false, err
	}
	system := c.System
	if system == 0 {
		system = DefaultSystem
	}
	people, err := c.people(ctx)
	if err != nil {
		return false, err
	}
	err = c.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		// Writes of all replicas are serialized, so the second replica finds this setting.
		if _, err := tx.Setting(ctx, sqlstore.SettingSystem); !errors.Is(err, sqlstore.ErrNotFound) {
			return cmp.Or(err, errNotFirst)
		}
		if err := tx.PutSetting(ctx, sqlstore.SettingSystem, []byte(strconv.FormatUint(uint64(system), 10))); err != nil {
			return err
		}
		if err := c.putCertificates(ctx, tx, system); err != nil {
			return err
		}
		if err := c.putRoles(ctx, tx); err != nil {
			return err
		}
		return c.putPrincipals(ctx, tx, system, people)
	})
	if errors.Is(err, errNotFirst) {
		return false, nil
	}
	return err == nil, err
}

// person is a principal that the first start creates. It logs in with a password or with the tokens of an identity.
type person struct {
	name, hash string
	identity   *keyserver.Identity
	roles      []keyserver.ID
}

// people returns the first principals of a new key server. In a unified deployment the administrator also has the role
// Encryptor, and can do everything that a new user tries. In a split deployment the administrator has only the duty
// administration, and an officer has the duty trust. Neither of the two can create the other.
func (c Config) people(ctx context.Context) ([]person, error) {
	administrator := []keyserver.ID{keyserver.RoleAdministrator}
	if c.Deployment != keyserver.Split {
		administrator = append(administrator, keyserver.RoleEncryptor)
	}
	var people []person
	if c.AdminPassword != nil {
		admin, err := c.person(ctx, AdminName, c.AdminPassword, administrator)
		if err != nil {
			return nil, err
		}
		people = append(people, admin)
	}
	if c.ServiceAccount != nil {
		people = append(people, person{name: c.ServiceAccount.Subject, identity: c.ServiceAccount, roles: administrator})
	}
	if c.Deployment != keyserver.Split {
		return people, nil
	}
	officer, err := c.person(ctx, OfficerName, c.OfficerPassword, []keyserver.ID{keyserver.RoleSecurityOfficer})
	return append(people, officer), err
}

func (c Config) person(ctx context.Context, name string, secret func() (string, error), roles []keyserver.ID) (person, error) {
	text, err := secret()
	if err != nil {
		return person{}, err
	}
	hash, err := c.PasswordCost.Hash(ctx, text, c.Random)
	return person{name: name, hash: hash, roles: roles}, err
}

func (c Config) putPrincipals(ctx context.Context, tx *sqlstore.Tx, system keyserver.SystemID, people []person) error {
	for _, p := range people {
		id, err := values.NewID(c.Random)
		if err != nil {
			return err
		}
		kind := keyserver.PasswordPrincipal
		if p.identity != nil {
			kind = keyserver.XAuthPrincipal
		}
		err = tx.InsertPrincipal(ctx, keyserver.Principal{
			ID: id, System: system, Type: kind, Name: p.name, Flags: keyserver.FlagEnable, Roles: p.roles, Identity: p.identity,
		}, p.hash)
		if err != nil {
			return err
		}
	}
	own, err := values.NewID(c.Random)
	if err != nil {
		return err
	}
	return tx.InsertPrincipal(ctx, keyserver.Principal{
		ID: own, System: system, Type: keyserver.CertificatePrincipal, Name: SystemName,
		Flags: keyserver.FlagEnable | keyserver.FlagSystemDefined,
	}, "")
}

func (c Config) putRoles(ctx context.Context, tx *sqlstore.Tx) error {
	for _, b := range keyserver.BuiltInRoles(c.Deployment) {
		if err := tx.InsertRole(ctx, b.Role()); err != nil {
			return err
		}
	}
	return tx.PutSetting(ctx, sqlstore.SettingDeployment, []byte(c.Deployment))
}

// syncRoles updates the stored built-in roles that differ from those of this version and deployment. It does not change
// a role with a wrong row MAC: the key server refuses such a role later, but it must not prevent the start.
func (c Config) syncRoles(ctx context.Context) error {
	var stale, missing []keyserver.Role
	for _, b := range keyserver.BuiltInRoles(c.Deployment) {
		want := b.Role()
		stored, err := c.Store.Role(ctx, want.ID)
		switch {
		case errors.Is(err, sqlstore.ErrNotFound):
			missing = append(missing, want)
		case fault.CodeOf(err) == fault.StoreTampered:
		case err != nil:
			return err
		case stored.Name != want.Name || !slices.Equal(keyserver.NormalizeIDs(stored.Operations), want.Operations):
			stale = append(stale, want)
		}
	}
	if len(stale)+len(missing) == 0 {
		return nil
	}
	return c.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		for _, r := range missing {
			if err := tx.InsertRole(ctx, r); err != nil {
				return err
			}
		}
		for _, r := range stale {
			if err := tx.UpdateRole(ctx, keyserver.RoleChange{ID: r.ID, Name: &r.Name, Operations: r.Operations}); err != nil {
				return err
			}
		}
		return tx.PutSetting(ctx, sqlstore.SettingDeployment, []byte(c.Deployment))
	})
}
