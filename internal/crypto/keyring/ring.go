package keyring

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	// rowsSealed is the first byte of the plaintext of a wrapped data key that is not in a ring (storedRing). It means
	// that each row of the database has a MAC. If rows have no MAC, the plaintext is only the data key.
	rowsSealed = 1
	// ringSealed is the first byte of the plaintext of a wrapped data key in a ring (storedRing). It means that each
	// row has a MAC. The byte is encrypted, so that an attacker without the key-encryption key cannot remove it.
	ringSealed = 2

	dataKeyLen = 32
	labelLen   = 32
	sealedLen  = 1 + 8 + 8 + labelLen + dataKeyLen

	ringVersion = 2
	// keptRetired is the maximum number of retired data keys whose id and times are kept.
	keptRetired = 32

	// ringInfo is the HKDF info for the key of the MAC in storedRing. No other derived key has this info.
	ringInfo = "keyserver-operator data key ring v1"
)

// storedRing is the format of the setting with the data keys. The key-encryption key wraps each data key separately. A
// MAC by the active data key covers the entire setting, so forged data keys are refused. An attacker can only restore a
// complete older setting.
type storedRing struct {
	Version    int         `json:"version"`
	Generation uint64      `json:"generation"` // increases with each change
	Keys       []storedKey `json:"keys"`       // oldest first; exactly one is active
	MAC        []byte      `json:"mac"`
}

type storedKey struct {
	ID        string                 `json:"id"`
	CreatedAt int64                  `json:"createdAt"` // microseconds; 0: unknown
	State     keyserver.DataKeyState `json:"state"`
	RetiredAt int64                  `json:"retiredAt,omitempty"`
	Wrapped   []byte                 `json:"wrapped,omitempty"` // empty if the data key is retired
}

type ring struct {
	stored           []byte // the value of the setting
	generation       uint64
	sealed           bool           // every row has its MAC
	label            [labelLen]byte // key of the MACs from which KEK fingerprints are made
	keys             []*dataKey     // oldest first
	active           *dataKey
	openedByPrevious bool // the previous key-encryption key has opened a data key
	own              bool // the current key-encryption key has opened each stored data key
}

// dataKey is one of the data keys of a database. A retired data key has only its id, times and state.
type dataKey struct {
	id                   keyserver.ID
	createdAt, retiredAt time.Time
	state                keyserver.DataKeyState
	wrapped              []byte

	aead cipher.AEAD
	rows *rowmac.Key
	seal []byte // the key of the ring's MAC
}

// prepare derives the cipher and the MAC keys from a data key. It does not keep the data key.
func (k *dataKey) prepare(key []byte) error {
	block, err := aes.NewCipher(key)
	if err != nil {
		return fmt.Errorf("prepare the data key: %w", err)
	}
	// The cryptographic module creates the nonces itself, as FIPS 140-3 requires.
	if k.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return fmt.Errorf("prepare the data key: %w", err)
	}
	if k.rows, err = rowmac.Derive(key); err != nil {
		return err
	}
	k.seal, err = hkdf.Key(sha256.New, key, nil, ringInfo, sha256.Size)
	return err
}

// sealedKey returns the plaintext that the key-encryption key wraps for a data key.
func sealedKey(id keyserver.ID, createdAt time.Time, label [labelLen]byte, key []byte) []byte {
	plain := make([]byte, 0, sealedLen)
	plain = append(plain, ringSealed)
	plain = append(plain, id[:]...)
	plain = binary.BigEndian.AppendUint64(plain, uint64(keyserver.Micros(createdAt))) //nolint:gosec // its bits
	plain = append(plain, label[:]...)
	return append(plain, key...)
}

// isSealed reports whether plain has the format of sealedKey and the id of the data key.
func isSealed(plain []byte, id keyserver.ID) bool {
	return len(plain) == sealedLen && plain[0] == ringSealed && bytes.Equal(plain[1:1+idLen], id[:])
}

// find returns the data key with that id, or nil if there is none or it is retired.
func (r *ring) find(id keyserver.ID) *dataKey {
	for _, k := range r.keys {
		if k.id == id && k.aead != nil {
			return k
		}
	}
	return nil
}

func (r *ring) retiring() *dataKey {
	for _, k := range r.keys {
		if k.state == keyserver.DataKeyRetiring {
			return k
		}
	}
	return nil
}

// rowKeys returns the keys of the row MACs. The first belongs to the active data key.
func (r *ring) rowKeys() []*rowmac.Key {
	keys := []*rowmac.Key{r.active.rows}
	for _, k := range r.keys {
		if k != r.active && k.rows != nil {
			keys = append(keys, k.rows)
		}
	}
	return keys
}

// encode computes the MAC of the ring and sets r.stored.
func (r *ring) encode() error {
	out := storedRing{Version: ringVersion, Generation: r.generation}
	for _, k := range r.keys {
		out.Keys = append(out.Keys, storedKey{k.id.Hex(), keyserver.Micros(k.createdAt), k.state, keyserver.Micros(k.retiredAt), k.wrapped})
	}
	mac, err := out.sum(r.active.seal)
	if err != nil {
		return err
	}
	out.MAC = mac
	r.stored, err = json.Marshal(out)
	return err
}

func (s storedRing) sum(seal []byte) ([]byte, error) {
	s.MAC = nil
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, seal)
	_, _ = h.Write(text) // never fails
	return h.Sum(nil), nil
}

// next returns a copy of the ring with the next generation number. The caller may change the copy.
func (r *ring) next() *ring {
	n := *r
	n.generation++
	n.keys = nil
	for _, k := range r.keys {
		c := *k
		n.keys = append(n.keys, &c)
		if k == r.active {
			n.active = &c
		}
	}
	return &n
}

// forget removes the oldest retired data keys if there are more than keptRetired.
func (r *ring) forget() {
	retired := 0
	for _, k := range r.keys {
		if k.state == keyserver.DataKeyRetired {
			retired++
		}
	}
	r.keys = slices.DeleteFunc(r.keys, func(k *dataKey) bool {
		drop := k.state == keyserver.DataKeyRetired && retired > keptRetired
		if drop {
			retired--
		}
		return drop
	})
}

// isRing reports whether the setting contains a storedRing. In older databases, the setting is a single wrapped data
// key.
func isRing(stored []byte) bool { return bytes.HasPrefix(stored, []byte(`{"version":`)) }

// errNotOurs means that the stored ring was not written by a key server with these data keys.
var errNotOurs = errors.New("the data keys in the database were not written by this key server; restore the setting dataKey from a backup")

// openRing opens the stored data keys. It does not unwrap data keys that known already contains.
func openRing(ctx context.Context, from providers, stored []byte, known *ring) (*ring, error) {
	if !isRing(stored) {
		return openAlone(ctx, from, stored)
	}
	var in storedRing
	if err := json.Unmarshal(stored, &in); err != nil || in.Version != ringVersion {
		return nil, errNotOurs
	}
	if again, err := json.Marshal(in); err != nil || !bytes.Equal(again, stored) {
		return nil, errNotOurs
	}
	r := &ring{stored: stored, generation: in.Generation, sealed: true, own: true}
	if known != nil {
		r.label = known.label
	}
	for _, entry := range in.Keys {
		k, err := r.openKey(ctx, from, entry, known)
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, k)
		if k.state == keyserver.DataKeyActive {
			if r.active != nil {
				return nil, errNotOurs
			}
			r.active = k
		}
	}
	if r.active == nil {
		return nil, errNotOurs
	}
	if mac, err := in.sum(r.active.seal); err != nil || !hmac.Equal(mac, in.MAC) {
		return nil, errNotOurs
	}
	return r, nil
}

func (r *ring) openKey(ctx context.Context, from providers, entry storedKey, known *ring) (*dataKey, error) {
	k := &dataKey{createdAt: keyserver.FromMicros(entry.CreatedAt), retiredAt: keyserver.FromMicros(entry.RetiredAt), state: entry.State, wrapped: entry.Wrapped}
	id, err := hex.DecodeString(entry.ID)
	if err != nil || copy(k.id[:], id) != len(k.id) {
		return nil, errNotOurs
	}
	switch k.state {
	case keyserver.DataKeyRetired:
		return k, nil
	case keyserver.DataKeyActive, keyserver.DataKeyRetiring:
	default:
		return nil, errNotOurs
	}
	if known != nil && known.label != [labelLen]byte{} {
		if held := known.find(k.id); held != nil {
			k.aead, k.rows, k.seal = held.aead, held.rows, held.seal
			r.own = r.own && known.own && bytes.Equal(held.wrapped, entry.Wrapped)
			return k, nil
		}
	}
	plain, foreign, err := from.unwrap(ctx, entry.Wrapped)
	defer clear(plain)
	if err != nil {
		return nil, err
	}
	if !isSealed(plain, k.id) {
		return nil, ErrWrongKey
	}
	r.openedByPrevious, r.own = r.openedByPrevious || foreign, r.own && !foreign
	copy(r.label[:], plain[17:])
	return k, k.prepare(plain[17+labelLen:])
}

// openAlone opens the only data key of a database without a ring. The id of this data key is zero, and keys that are
// wrapped under it do not contain the id.
func openAlone(ctx context.Context, from providers, stored []byte) (*ring, error) {
	plain, foreign, err := from.unwrap(ctx, stored)
	defer clear(plain)
	if err != nil {
		return nil, err
	}
	key, sealed := plain, len(plain) == 1+dataKeyLen && plain[0] == rowsSealed
	if sealed {
		key = plain[1:]
	}
	if len(key) != dataKeyLen {
		return nil, ErrWrongKey
	}
	first := &dataKey{state: keyserver.DataKeyActive}
	r := &ring{stored: stored, sealed: sealed, keys: []*dataKey{first}, active: first, openedByPrevious: foreign, own: !foreign}
	return r, first.prepare(key)
}

func newRing(ctx context.Context, from providers, now time.Time) (*ring, error) {
	r := &ring{sealed: true} // all rows have a MAC, because there is no row yet
	copy(r.label[:], newKey())
	k, err := from.newDataKey(ctx, r.label, now)
	if err != nil {
		return nil, err
	}
	r.keys, r.active = []*dataKey{k}, k
	return r, r.encode()
}

func (k providers) newDataKey(ctx context.Context, label [labelLen]byte, now time.Time) (*dataKey, error) {
	key := newKey()
	defer clear(key)
	made := &dataKey{id: newDataKeyID(), createdAt: now.UTC().Truncate(time.Microsecond), state: keyserver.DataKeyActive}
	if err := made.prepare(key); err != nil {
		return nil, err
	}
	plain := sealedKey(made.id, made.createdAt, label, key)
	defer clear(plain)
	var err error
	made.wrapped, err = k.wrap(ctx, plain)
	return made, err
}

func newDataKeyID() keyserver.ID {
	var id keyserver.ID
	copy(id[:], newKey())
	return id
}
