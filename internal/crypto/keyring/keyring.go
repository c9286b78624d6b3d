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

// dataKeySetting is the setting that contains the wrapped data keys.
const dataKeySetting = rowmac.DataKeySetting

// A wrapped key has a version byte, the id of its data key, a nonce, and the sealed bytes
// with their tag. Version 1 stores no id. Databases of older releases use it for
// their only data key, whose id counts as zero. That data key keeps the format until it is
// retired, because older replicas know no other.
const (
	wrapVersionAlone = 1
	wrapVersion      = 2
	nonceLen         = 12
	tagLen           = 16
	idLen            = 8
)

// ErrWrongKey is wrapped when the key-encryption key does not open the data key of the
// database.
var ErrWrongKey = errors.New("the key-encryption key does not open this database's data key; check --kek; " +
	"if it replaces another key, give that key as --kek-previous; a KMS plugin may have been restarted with another key")

// ErrWrongKeys is wrapped when neither of two key-encryption keys opens it.
var ErrWrongKeys = errors.New("neither --kek nor --kek-previous opens this database's data key; nothing was changed")

// ErrDamaged is wrapped when a wrapped key does not open under the data key: its bytes
// were changed, or it is stored under the id of another key.
var ErrDamaged = errors.New("the stored key is damaged")

// ErrRewrapping is returned by Rotate while keys are still wrapped under the previous
// data key.
var ErrRewrapping = errors.New("keys are still being rewrapped")

// Settings stores the wrapped data keys.
type Settings interface {
	// EnsureSetting returns a setting. If there is none, it stores the result of make,
	// once for all replicas.
	EnsureSetting(ctx context.Context, name string, make func(ctx context.Context) ([]byte, error)) ([]byte, error)
	// ReplaceSetting stores value if the setting still equals was, and returns whether it
	// did.
	ReplaceSetting(ctx context.Context, name string, was, value []byte) (bool, error)
	Setting(ctx context.Context, name string) ([]byte, error)
}

// Keyring wraps and unwraps keys. It is safe for concurrent use.
type Keyring struct {
	providers providers
	settings  Settings // nil if the database is only read
	setting   func(ctx context.Context, name string) ([]byte, error)
	clock     func() time.Time
	rows      *rowmac.Key

	reading        sync.Mutex // serializes reads of the setting
	ring           atomic.Pointer[ring]
	newestKeyError atomic.Pointer[fault.Error] // why the newest ring cannot be opened
	doubted        atomic.Bool                 // the key-encryption key has just failed
}

// Options are optional parameters of Start.
type Options struct {
	// Previous is the previous key-encryption key, if the current one replaces it.
	Previous *Provider
	Clock    func() time.Time // default: the system's
}

// New opens the data keys of a database; at the first start it creates the first one. It
// returns ErrWrongKey if the provider does not belong to the database.
func New(ctx context.Context, provider *Provider, settings Settings) (*Keyring, error) {
	return Start(ctx, provider, settings, Options{})
}

// Start is New with options. If the previous key-encryption key opens data keys, they are
// wrapped by the current one in one step, for all replicas.
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
		if r.sealed && (!isRing(stored) || r.foreign) {
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

// Existing opens the data keys of a database, and creates none.
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

// wrapAnew wraps every data key of the ring by the current key-encryption key and stores
// the ring. It returns nil if the setting was changed since r was read.
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
	n.sealed, n.foreign, n.own = true, false, true
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

// RowKey returns the key that makes and checks the MACs of the database's rows. It
// follows changes of the ring.
func (c *Keyring) RowKey() *rowmac.Key { return c.rows }

// RowsSealed reports whether every row has its MAC. This is false for a database from
// before row MACs, until SealRows.
func (c *Keyring) RowsSealed() bool { return c.ring.Load().sealed }

// SealRows records in the setting of the data keys that every row has its MAC. get and
// put belong to the transaction that makes the MACs. It returns false if another process
// has done it already.
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

// Reload implements rowmac.Ring: it reads the data keys from the database again. If they
// cannot be opened, nothing changes.
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
		c.doubted.Store(true)
		return false, behind
	}
	c.newestKeyError.Store(nil)
	c.ring.Store(r)
	c.rows.Use(r.rowKeys()...)
	return true, nil
}

// Rotate creates a data key, which wraps from now on. Keys under the previous one have to
// be rewrapped. It returns ErrRewrapping while that is unfinished for an earlier
// rotation.
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
			// This check comes last, so that the key-encryption key that has just wrapped
			// also opens the others.
			_, err = c.providers.alone().all(ctx, r)
		}
		if err != nil {
			c.doubted.Store(true)
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

// RewrapFromPrevious wraps by the current key-encryption key the data keys that only the previous one
// opens. A replica of an earlier version that runs with only the previous one may have
// created them. If the previous one opens all data keys, another replica has
// intentionally wrapped them by it.
func (c *Keyring) RewrapFromPrevious(ctx context.Context) error {
	r := c.ring.Load()
	if !r.foreign {
		return nil
	}
	mixed, err := c.mixed(ctx, r)
	if err != nil {
		return err
	}
	if !mixed {
		meant := *r
		meant.foreign = false
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

// mixed reports whether the current key-encryption key opens some data key of the ring.
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

// Retire marks a data key as retired and erases it. It must run in the transaction that
// found no keys under it; get and put belong to that transaction. Call Reload after the
// transaction.
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
		return nil // another replica has done it
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

// Retiring returns the data key whose keys have to be rewrapped, if there is one.
func (c *Keyring) Retiring() (keyserver.ID, bool) {
	if k := c.ring.Load().retiring(); k != nil {
		return k.id, true
	}
	return keyserver.ID{}, false
}

// DataKeys returns the data keys, oldest first, without the number of keys under them.
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

// String hides the data key from every formatting verb.
func (c *Keyring) String() string { return "keyring" }

// GoString hides the data key from %#v.
func (c *Keyring) GoString() string { return c.String() }

// boundTo returns the associated data: version and data key, so that they cannot be
// exchanged, and the identity of the wrapped key.
func boundTo(prefix []byte, key keyserver.ID, system keyserver.SystemID) []byte {
	b := append(make([]byte, 0, 1+idLen+4+8), prefix...)
	b = binary.BigEndian.AppendUint32(b, uint32(system))
	return append(b, key[:]...)
}

// isRemote reports whether the KMS provider was unavailable, as opposed to a refusal.
func isRemote(err error) bool {
	switch gcerrors.Code(err) {
	case gcerrors.Canceled, gcerrors.DeadlineExceeded, gcerrors.PermissionDenied, gcerrors.ResourceExhausted, gcerrors.Internal:
		return true
	}
	var said *kmsv2.Error
	return errors.As(err, &said) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// ErrUnavailable is wrapped when a KMS provider is unavailable.
var ErrUnavailable = errors.New("the key management service is not available")

// remote returns an error with the code of a provider's error, without its text, which
// may contain a URL. Errors of the KMS plugin client keep their text.
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
