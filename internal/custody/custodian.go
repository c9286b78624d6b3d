package custody

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"

	"gocloud.dev/gcerrors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/rowmac"
)

// dataKeySetting is where the wrapped data key is kept.
const dataKeySetting = rowmac.DataKeySetting

// rowsSealed begins what is wrapped of a data key whose database has a MAC on
// each of its rows. It is said there because nobody can take it away who has not
// the key-encryption key: a database that says it, and has rows without MACs, was
// tampered with.
const rowsSealed = 1

// A wrapped key is a version byte, a nonce, and the sealed bytes with their tag.
const (
	wrapVersion = 1
	nonceLen    = 12
	tagLen      = 16
	minWrapped  = 1 + nonceLen + tagLen
	dataKeyLen  = 32
)

// ErrWrongKey is wrapped when the key-encryption key is not the one that the
// database was made with.
var ErrWrongKey = errors.New("the key-encryption key does not open this database's data key; check --kek")

// ErrDamaged is wrapped when a wrapped key does not open under the data key:
// its bytes were changed, or it is kept under the id of another key.
var ErrDamaged = errors.New("the stored key is damaged")

// Settings is where the wrapped data key is kept.
type Settings interface {
	// EnsureSetting reads a setting, or stores what make answers where there
	// is none, once and for all replicas.
	EnsureSetting(ctx context.Context, name string, make func(ctx context.Context) ([]byte, error)) ([]byte, error)
}

// Custodian wraps and unwraps keys. It is safe for concurrent use.
type Custodian struct {
	aead   cipher.AEAD
	rows   *rowmac.Key
	keeper *Keeper
	stored []byte // what the setting held
	sealed bool
}

// New opens the data key of a database, or makes it at the first start.
// ErrWrongKey where the keeper is not that of the database.
func New(ctx context.Context, keeper *Keeper, settings Settings) (*Custodian, error) {
	wrapped, err := settings.EnsureSetting(ctx, dataKeySetting, func(ctx context.Context) ([]byte, error) {
		key := newKey()
		defer clear(key)
		return keeper.wrapDataKey(ctx, key) // there is no row yet
	})
	if err != nil {
		return nil, fmt.Errorf("read the data key: %w", err)
	}
	return open(ctx, keeper, wrapped)
}

// Existing opens the data key of a database that has one, and makes none.
func Existing(ctx context.Context, keeper *Keeper, setting func(ctx context.Context, name string) ([]byte, error)) (*Custodian, error) {
	wrapped, err := setting(ctx, dataKeySetting)
	if err != nil {
		return nil, fmt.Errorf("read the data key: %w", err)
	}
	return open(ctx, keeper, wrapped)
}

// wrapDataKey wraps the data key of a database whose rows are sealed.
func (k *Keeper) wrapDataKey(ctx context.Context, key []byte) ([]byte, error) {
	plain := append([]byte{rowsSealed}, key...)
	defer clear(plain)
	wrapped, err := k.keeper.Encrypt(ctx, plain)
	if err != nil {
		return nil, fmt.Errorf("wrap the data key: %w", remote(err))
	}
	return wrapped, nil
}

func open(ctx context.Context, keeper *Keeper, wrapped []byte) (*Custodian, error) {
	plain, err := keeper.keeper.Decrypt(ctx, wrapped)
	defer clear(plain)
	key, sealed := plain, len(plain) == 1+dataKeyLen && plain[0] == rowsSealed
	if sealed {
		key = plain[1:]
	}
	switch {
	case err != nil && isRemote(err):
		return nil, fmt.Errorf("unwrap the data key: %w", remote(err))
	case err != nil, len(key) != dataKeyLen:
		return nil, ErrWrongKey
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("prepare the data key: %w", err)
	}
	// Nonces are drawn inside the cryptographic module, as FIPS 140-3 wants it.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("prepare the data key: %w", err)
	}
	rows, err := rowmac.Derive(key)
	if err != nil {
		return nil, err
	}
	return &Custodian{aead, rows, keeper, wrapped, sealed}, nil
}

// RowKey makes and checks the MACs of the database's rows.
func (c *Custodian) RowKey() *rowmac.Key { return c.rows }

// RowsSealed reports whether every row has its MAC. It has not in a database of
// before there were any, until SealRows.
func (c *Custodian) RowsSealed() bool { return c.sealed }

// SealRows says, where the data key is kept, that every row has its MAC. get and
// put are of the transaction that makes them. It answers false where it was said
// already, by another process.
func (c *Custodian) SealRows(ctx context.Context, get func(ctx context.Context, name string) ([]byte, error),
	put func(ctx context.Context, name string, value []byte) error,
) (bool, error) {
	stored, err := get(ctx, dataKeySetting)
	if err != nil || !bytes.Equal(stored, c.stored) {
		return false, err
	}
	key, err := c.keeper.keeper.Decrypt(ctx, stored)
	defer clear(key)
	if err != nil {
		return false, fmt.Errorf("unwrap the data key: %w", remote(err))
	}
	wrapped, err := c.keeper.wrapDataKey(ctx, key)
	if err != nil {
		return false, err
	}
	return true, put(ctx, dataKeySetting, wrapped)
}

// Wrap seals the bytes of a key for storage. What it answers opens only for
// the same key id on the same system.
func (c *Custodian) Wrap(key keyserver.ID, system keyserver.SystemID, plain []byte) ([]byte, error) {
	wrapped := make([]byte, 1, minWrapped+len(plain))
	wrapped[0] = wrapVersion
	bound := boundTo(key, system)
	return c.aead.Seal(wrapped, nil, plain, bound[:]), nil //nolint:gosec // the AEAD draws the nonce itself and takes none
}

// Unwrap opens a stored key. The caller wipes the answer. ErrDamaged where the
// bytes are not what Wrap answered for this key.
func (c *Custodian) Unwrap(key keyserver.ID, system keyserver.SystemID, wrapped []byte) ([]byte, error) {
	if len(wrapped) < minWrapped || wrapped[0] != wrapVersion {
		return nil, fmt.Errorf("key %s: %w", key, ErrDamaged)
	}
	bound := boundTo(key, system)
	plain, err := c.aead.Open(nil, nil, wrapped[1:], bound[:])
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", key, ErrDamaged)
	}
	return plain, nil
}

// String hides the data key from every formatting verb.
func (c *Custodian) String() string { return "custodian" }

// GoString hides the data key from %#v.
func (c *Custodian) GoString() string { return c.String() }

// boundTo is the associated data: the version, so that none can be passed off
// as another, and whose bytes these are.
func boundTo(key keyserver.ID, system keyserver.SystemID) [1 + 4 + 8]byte {
	var b [1 + 4 + 8]byte
	b[0] = wrapVersion
	binary.BigEndian.PutUint32(b[1:], uint32(system))
	copy(b[5:], key[:])
	return b
}

// isRemote tells a service that could not be asked from one that said no.
func isRemote(err error) bool {
	switch gcerrors.Code(err) {
	case gcerrors.Canceled, gcerrors.DeadlineExceeded, gcerrors.PermissionDenied, gcerrors.ResourceExhausted, gcerrors.Internal:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// remote keeps the kind of a service's error; its text might repeat a URL.
func remote(err error) error {
	return fmt.Errorf("the key management service answers %s", gcerrors.Code(err))
}
