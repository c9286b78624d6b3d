package keyring

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/gcerrors"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring/kmsv2"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const dataKeySetting = rowmac.DataKeySetting

// A wrapped key consists of a version byte, the id of its data key, a nonce, and the ciphertext with its tag. Version 1
// has no id. Databases of older releases have only one data key and use version 1; the id of that data key counts as
// zero. Keys are wrapped under it in version 1 until it is retired, because older replicas know no other version.
const (
	wrapVersionAlone = 1
	wrapVersion      = 2
	nonceLen         = 12
	tagLen           = 16
	idLen            = 8
)

// ErrWrongKey means that the key-encryption key does not open a data key of the database.
var ErrWrongKey = errors.New("the key-encryption key does not open this database's data key; check --kek; " +
	"if it replaces another key, give that key as --kek-previous; a KMS plugin may have been restarted with another key")

// ErrWrongKeys means that neither the current nor the previous key-encryption key opens a data key.
var ErrWrongKeys = errors.New("neither --kek nor --kek-previous opens this database's data key; nothing was changed")

// ErrDamaged means that a wrapped key cannot be decrypted with its data key: its bytes were changed, or it is stored
// under the id of another key.
var ErrDamaged = errors.New("the stored key is damaged")

// ErrRewrapping means that stored keys are still wrapped under the previous data key.
var ErrRewrapping = errors.New("keys are still being rewrapped")

// Settings stores the wrapped data keys.
type Settings interface {
	// EnsureSetting returns a setting. If there is none, it stores the result of make. Of several replicas, only one
	// stores its result, and all get that result.
	EnsureSetting(ctx context.Context, name string, make func(ctx context.Context) ([]byte, error)) ([]byte, error)
	// ReplaceSetting stores value if the stored value of the setting is equal to was. It reports whether it stored
	// value.
	ReplaceSetting(ctx context.Context, name string, was, value []byte) (bool, error)
	Setting(ctx context.Context, name string) ([]byte, error)
}

// Keyring wraps and unwraps stored keys. It is safe for concurrent use.
type Keyring struct {
	providers providers
	settings  Settings // nil if this process only reads the database
	setting   func(ctx context.Context, name string) ([]byte, error)
	clock     func() time.Time
	rows      *rowmac.Key

	reading        sync.Mutex // serializes reads of the setting
	ring           atomic.Pointer[ring]
	newestKeyError atomic.Pointer[fault.Error] // why the newest data keys in the database cannot be opened
	kekFailed      atomic.Bool                 // the key-encryption key has failed since the last call of Doubted
}

// Options are optional parameters of Start.
type Options struct {
	// Previous is the key-encryption key that the current one replaces, if any.
	Previous *Provider
	Clock    func() time.Time // default: time.Now
}

// New opens the data keys of a database. At the first start it creates the first data key. It returns ErrWrongKey if
// the provider does not open them.
func New(ctx context.Context, provider *Provider, settings Settings) (*Keyring, error) {
	return Start(ctx, provider, settings, Options{})
}

// Start is New with options. If the previous key-encryption key opens a data key, Start wraps all data keys with the
// current key-encryption key. Only one replica makes this change.
func Start(ctx context.Context, provider *Provider, settings Settings, o Options) (*Keyring, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	c := &Keyring{providers: providers{provider, o.Previous}, settings: settings, setting: settings.Setting, clock: o.Clock}
	stored, err := settings.EnsureSetting(ctx, dataKeySetting, func(ctx context.Context) ([]byte, error) {
		r, err := newRing(ctx, c.providers, o.Clock())
		if err != nil {
			return nil, err
		}
		return r.stored, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the data key: %w", err)
	}
	for {
		r, err := openRing(ctx, c.providers, stored, nil)
		if err != nil {
			return nil, err
		}
		if r.sealed && (!isRing(stored) || r.openedByPrevious) {
			if r, err = c.wrapAnew(ctx, r); err != nil {
				return nil, err
			}
		}
		if r != nil {
			c.begin(r)
			return c, nil
		}
		// Another replica has replaced the setting.
		if stored, err = settings.Setting(ctx, dataKeySetting); err != nil {
			return nil, fmt.Errorf("read the data key: %w", err)
		}
	}
}

// Existing opens the data keys of a database. It does not create any.
func Existing(ctx context.Context, provider *Provider, setting func(ctx context.Context, name string) ([]byte, error)) (*Keyring, error) {
	c := &Keyring{providers: providers{provider, nil}, setting: setting}
	stored, err := setting(ctx, dataKeySetting)
	if err != nil {
		return nil, fmt.Errorf("read the data key: %w", err)
	}
	r, err := openRing(ctx, c.providers, stored, nil)
	if err != nil {
		return nil, err
	}
	c.begin(r)
	return c, nil
}

func (c *Keyring) begin(r *ring) {
	c.ring.Store(r)
	c.rows = rowmac.Of(c, r.rowKeys()...)
}

// wrapAnew wraps every data key of the ring with the current key-encryption key and stores the ring. It returns nil if
// another process has changed the stored ring since r was read.
func (c *Keyring) wrapAnew(ctx context.Context, r *ring) (*ring, error) {
	n, err := c.wrapped(ctx, r)
	if err != nil {
		return nil, err
	}
	stored, err := c.settings.ReplaceSetting(ctx, dataKeySetting, r.stored, n.stored)
	if err != nil || !stored {
		return nil, err
	}
	return n, nil
}

func (c *Keyring) wrapped(ctx context.Context, r *ring) (*ring, error) {
	n := r.next()
	n.sealed, n.openedByPrevious, n.own = true, false, true
	if r.label == [labelLen]byte{} {
		copy(n.label[:], newKey())
	}
	for _, k := range n.keys {
		if k.state == keyserver.DataKeyRetired {
			continue
		}
		key, err := c.providers.key(ctx, k.wrapped, r.stored)
		if err != nil {
			return nil, err
		}
		plain := sealedKey(k.id, k.createdAt, n.label, key)
		clear(key)
		k.wrapped, err = c.providers.wrap(ctx, plain)
		clear(plain)
		if err != nil {
			return nil, err
		}
	}
	return n, n.encode()
}

// RowKey returns the key for the MACs of database rows. It changes when the data keys change.
func (c *Keyring) RowKey() *rowmac.Key { return c.rows }

// RowsSealed reports whether every row has its MAC. In a database of a release without row MACs, it is false until
// SealRows has run and Reload has read the data keys again.
func (c *Keyring) RowsSealed() bool { return c.ring.Load().sealed }

// SealRows stores, together with the data keys, that every row has its MAC. get and put must belong to the transaction
// that computes the MACs. SealRows returns false if another process has already done this.
func (c *Keyring) SealRows(ctx context.Context, get func(ctx context.Context, name string) ([]byte, error),
	put func(ctx context.Context, name string, value []byte) error,
) (bool, error) {
	r := c.ring.Load()
	stored, err := get(ctx, dataKeySetting)
	if err != nil || !bytes.Equal(stored, r.stored) {
		return false, err
	}
	n, err := c.wrapped(ctx, r)
	if err != nil {
		return false, err
	}
	return true, put(ctx, dataKeySetting, n.stored)
}

// Stored implements rowmac.Ring.
func (c *Keyring) Stored() []byte { return c.ring.Load().stored }

// Reload implements rowmac.Ring: it reads the data keys from the database again. If they cannot be opened, it keeps the
// current data keys.
func (c *Keyring) Reload(ctx context.Context) (changed bool, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	stored, err := c.setting(ctx, dataKeySetting)
	if err != nil {
		return false, fmt.Errorf("read the data keys: %w", err)
	}
	held := c.ring.Load()
	if bytes.Equal(stored, held.stored) {
		c.newestKeyError.Store(nil)
		return false, nil
	}
	r, err := openRing(ctx, c.providers, stored, held)
	switch {
	case errors.Is(err, errNotOurs), err == nil && r.generation < held.generation:
		return false, fault.New(fault.StoreTampered, "%s", errNotOurs.Error()).Audited(fault.ReasonStoreTampered).Because(err)
	case err != nil:
		behind := fault.Temporary(fault.NotCurrent, fault.ScopeProcess, time.Second,
			"this replica cannot open the newest data key of the database: the key-encryption key is not available, or differs from that of the other replicas").Because(err)
		c.newestKeyError.Store(behind)
		c.kekFailed.Store(true)
		return false, behind
	}
	c.newestKeyError.Store(nil)
	c.ring.Store(r)
	c.rows.Use(r.rowKeys()...)
	return true, nil
}

// Rotate creates a data key and makes it the active one. Keys under the previous data key must be rewrapped. Rotate
// returns ErrRewrapping if keys of an earlier rotation are not rewrapped yet.
func (c *Keyring) Rotate(ctx context.Context) (keyserver.DataKey, error) {
	for {
		if _, err := c.Reload(ctx); err != nil {
			return keyserver.DataKey{}, err
		}
		r := c.ring.Load()
		if r.retiring() != nil {
			return keyserver.DataKey{}, ErrRewrapping
		}
		n := r.next()
		k, err := c.providers.newDataKey(ctx, n.label, c.clock())
		if err == nil {
			// This check is last. It proves that the key-encryption key that wrapped the new data key also opens all
			// other data keys.
			_, err = c.providers.alone().all(ctx, r)
		}
		if err != nil {
			c.kekFailed.Store(true)
			return keyserver.DataKey{}, refused(err)
		}
		n.active.state = keyserver.DataKeyRetiring
		n.keys, n.active = append(n.keys, k), k
		if err := n.encode(); err != nil {
			return keyserver.DataKey{}, err
		}
		stored, err := c.settings.ReplaceSetting(ctx, dataKeySetting, r.stored, n.stored)
		if err != nil {
			return keyserver.DataKey{}, err
		}
		if !stored {
			continue
		}
		_, err = c.Reload(ctx)
		return k.describe(), err
	}
}

func refused(err error) error {
	detail := "the key-encryption key cannot be used now, so no data key can be created; the log has the response of its KMS provider"
	if saysNo(err) {
		detail = anotherKey + "; nothing was changed"
	}
	return fault.Temporary(fault.NotReady, fault.ScopeProcess, time.Minute, "%s", detail).Because(err)
}

// RewrapFromPrevious wraps all data keys with the current key-encryption key if this key opens only some of them. A
// replica of an earlier version that has only the previous key may have created the data keys that the current key does
// not open. If the current key opens none, another replica has intentionally wrapped all with the previous key; then
// nothing changes.
func (c *Keyring) RewrapFromPrevious(ctx context.Context) error {
	r := c.ring.Load()
	if !r.openedByPrevious {
		return nil
	}
	mixed, err := c.mixed(ctx, r)
	if err != nil {
		return err
	}
	if !mixed {
		meant := *r
		meant.openedByPrevious = false
		c.ring.CompareAndSwap(r, &meant)
		return nil
	}
	n, err := c.wrapAnew(ctx, r)
	if err != nil {
		return err
	}
	if n != nil {
		c.ring.CompareAndSwap(r, n)
	}
	_, err = c.Reload(ctx)
	return err
}

// mixed reports whether the current key-encryption key opens at least one of the data keys.
func (c *Keyring) mixed(ctx context.Context, r *ring) (bool, error) {
	for _, k := range r.keys {
		if k.state == keyserver.DataKeyRetired {
			continue
		}
		if _, err := c.providers.alone().open(ctx, r, k); !saysNo(err) {
			return err == nil, err
		}
	}
	return false, nil
}

// Retire marks a data key as retired and deletes its bytes. get and put must belong to the transaction which has
// verified that no stored key is wrapped under this data key. Call Reload after the transaction.
func (c *Keyring) Retire(ctx context.Context, id keyserver.ID, get func(ctx context.Context, name string) ([]byte, error),
	put func(ctx context.Context, name string, value []byte) error,
) error {
	r := c.ring.Load()
	stored, err := get(ctx, dataKeySetting)
	if err != nil {
		return err
	}
	old := r.retiring()
	if !bytes.Equal(stored, r.stored) || old == nil || old.id != id {
		return nil // another replica has already retired it
	}
	n := r.next()
	for i, k := range n.keys {
		if k.id == id {
			n.keys[i] = &dataKey{id: k.id, createdAt: k.createdAt, retiredAt: c.clock().UTC().Truncate(time.Microsecond), state: keyserver.DataKeyRetired}
		}
	}
	n.forget()
	if err := n.encode(); err != nil {
		return err
	}
	return put(ctx, dataKeySetting, n.stored)
}

// Retiring returns the id of the data key that a rotation has replaced, if keys under it must still be rewrapped.
func (c *Keyring) Retiring() (keyserver.ID, bool) {
	if k := c.ring.Load().retiring(); k != nil {
		return k.id, true
	}
	return keyserver.ID{}, false
}

// DataKeys returns the data keys, oldest first. It does not set the number of keys under each of them.
func (c *Keyring) DataKeys() []keyserver.DataKey {
	var list []keyserver.DataKey
	for _, k := range c.ring.Load().keys {
		list = append(list, k.describe())
	}
	return list
}

func (k *dataKey) describe() keyserver.DataKey {
	return keyserver.DataKey{ID: k.id, CreatedAt: k.createdAt, RetiredAt: k.retiredAt, State: k.state}
}

// String returns a text without the data keys.
func (c *Keyring) String() string { return "keyring" }

// GoString returns a text without the data keys for %#v.
func (c *Keyring) GoString() string { return c.String() }

// boundTo returns the associated data of a wrapped key, so that no part can be exchanged: version, id of the data key,
// system id and id of the wrapped key.
func boundTo(prefix []byte, key keyserver.ID, system keyserver.SystemID) []byte {
	b := append(make([]byte, 0, 1+idLen+4+8), prefix...)
	b = binary.BigEndian.AppendUint32(b, uint32(system))
	return append(b, key[:]...)
}

// isRemote reports whether the KMS provider was unavailable. It returns false if the provider refused the request.
func isRemote(err error) bool {
	switch gcerrors.Code(err) {
	case gcerrors.Canceled, gcerrors.DeadlineExceeded, gcerrors.PermissionDenied, gcerrors.ResourceExhausted, gcerrors.Internal:
		return true
	}
	var said *kmsv2.Error
	return errors.As(err, &said) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// ErrUnavailable means that a KMS provider is unavailable.
var ErrUnavailable = errors.New("the key management service is not available")

// remote returns an error with the code of a provider's error. It does not contain the text of that error, which may
// contain a URL. Errors of the KMS plugin client keep their text.
func remote(err error) error {
	var said *kmsv2.Error
	switch {
	case errors.As(err, &said):
		return fmt.Errorf("%w: %w", ErrUnavailable, said)
	case isRemote(err):
		return fmt.Errorf("%w: it responds with %s", ErrUnavailable, gcerrors.Code(err))
	}
	return fmt.Errorf("the key management service responds with %s", gcerrors.Code(err))
}
