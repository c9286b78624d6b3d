// Package rowmac computes and checks the MACs of database rows. Write access to the database is not enough to compute a
// valid MAC: an attacker also needs the data key (ADR 34).
//
// The encoding of a row consists of its table, its key and every column that affects a decision, each after its type
// and length. So no two rows have the same encoding. Sets that belong to a row, such as the roles of a principal, are
// part of the encoding: if an element is added or removed, the MAC changes.
//
// To cover another table or column, add:
//
//   - a function here that encodes it (rows.go), and the entry of Tables
//   - a column mac in both migrations
//   - in package sqlstore: the MAC at each write of the row, a check at each read, and
//     a line in coveredTables
//
// A row without a MAC is refused at the next read, so a missing step fails in the first test.
package rowmac

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// info is the HKDF info of the row key. No other key that is derived from the data key has this info.
const info = "keyserver-operator row mac v1"

// Key computes and checks MACs with HMAC-SHA-256. It is safe for concurrent use.
type Key struct {
	secrets atomic.Pointer[[][]byte] // Sum uses the first; Check accepts MACs of all of them
	ring    Ring                     // nil if the data keys never change
}

// Ring is a source of data keys that may change.
type Ring interface {
	// Stored returns the value of DataKeySetting from which the current data keys were read.
	Stored() []byte
	// Reload reads the setting again. If the setting has changed, Reload calls Key.Use and returns true.
	Reload(ctx context.Context) (changed bool, err error)
}

// Derive derives a Key from data keys by HKDF-SHA-256. Sum uses the first data key. Check also accepts MACs of the
// other data keys, because a row may not have a new MAC yet.
func Derive(dataKeys ...[]byte) (*Key, error) {
	secrets := make([][]byte, 0, len(dataKeys))
	for _, dataKey := range dataKeys {
		secret, err := hkdf.Key(sha256.New, dataKey, nil, info, sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("derive the key of the rows: %w", err)
		}
		secrets = append(secrets, secret)
	}
	k := &Key{}
	k.secrets.Store(&secrets)
	return k, nil
}

// Of returns a Key whose Sum uses the first of the keys, and whose Check accepts MACs of all of them. When the data
// keys of the ring change, Reload of the ring replaces the keys (Use). Check calls Reload if no key matches.
func Of(ring Ring, keys ...*Key) *Key {
	k := &Key{ring: ring}
	k.Use(keys...)
	return k
}

// Use replaces the secrets of k by the secrets of the given keys.
func (k *Key) Use(keys ...*Key) {
	var secrets [][]byte
	for _, other := range keys {
		secrets = append(secrets, *other.secrets.Load()...)
	}
	k.secrets.Store(&secrets)
}

// Sum returns the MAC of a row.
func (k *Key) Sum(r *Row) []byte { return sum((*k.secrets.Load())[0], r) }

func sum(secret []byte, r *Row) []byte {
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write(r.encoded) // never fails
	return h.Sum(nil)
}

// reloadTimeout is the time limit for reading the data keys again if a MAC does not match.
const reloadTimeout = 5 * time.Second

// ErrMismatch means that the MAC does not match the row with any of the data keys.
var ErrMismatch = errors.New("the row does not agree with its MAC")

// Check compares a row with its MAC, in constant time for each data key. If no data key matches, it reads the data keys
// again, because another process may just have created one. Any error except ErrMismatch means that the data keys could
// not be read.
func (k *Key) Check(r *Row, mac []byte) error {
	switch {
	case k.accepts(r, mac):
		return nil
	case k.ring == nil || len(mac) == 0:
		return ErrMismatch
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
	defer cancel()
	if _, err := k.ring.Reload(ctx); err != nil {
		return err
	}
	if !k.accepts(r, mac) { // even if Reload changed nothing, because another caller may have reloaded the data keys
		return ErrMismatch
	}
	return nil
}

// Matches reports whether Check returns nil.
func (k *Key) Matches(r *Row, mac []byte) bool { return k.Check(r, mac) == nil }

func (k *Key) accepts(r *Row, mac []byte) bool {
	for _, secret := range *k.secrets.Load() {
		if hmac.Equal(sum(secret, r), mac) {
			return true
		}
	}
	return false
}

// MadeByNewest reports whether the MAC of the row was computed with the first data key.
func (k *Key) MadeByNewest(r *Row, mac []byte) bool { return hmac.Equal(k.Sum(r), mac) }

// IsCurrent reports whether the data keys were read from that value of DataKeySetting.
func (k *Key) IsCurrent(stored []byte) bool {
	return k.ring == nil || bytes.Equal(k.ring.Stored(), stored)
}

// Reload reads the data keys again.
func (k *Key) Reload(ctx context.Context) error {
	_, err := k.ring.Reload(ctx)
	return err
}

// Digest returns the SHA-256 of rows, independent of their order. If a login renews a password hash, the digest does
// not change.
func Digest(rows []*Row) [sha256.Size]byte {
	encoded := make([][]byte, len(rows))
	for i, r := range rows {
		if encoded[i] = r.lasting; r.lasting == nil {
			encoded[i] = r.encoded
		}
	}
	slices.SortFunc(encoded, bytes.Compare)
	all := NewRow("", "").List(len(encoded))
	for _, row := range encoded {
		all.Bytes(row)
	}
	return sha256.Sum256(all.encoded)
}

// String returns a text without the key.
func (k *Key) String() string { return "row MAC key" }

// GoString returns a text without the key for %#v.
func (k *Key) GoString() string { return k.String() }

// Row is the encoding of a database row, with its table and id.
type Row struct {
	Table string
	ID    string // names the row in messages

	key     []any // values of the columns Tables[Table].Key
	encoded []byte
	lasting []byte // if set, Digest uses it instead of encoded
}

// Type bytes of encoded values.
const (
	typeNull byte = iota
	typeBytes
	typeText
	typeInt
	typeList // the number of elements follows
)

// NewRow starts the encoding of a row with its table. id identifies the row in messages. key contains the values that
// select the row; the caller must also add them as columns.
func NewRow(table, id string, key ...any) *Row {
	r := &Row{Table: table, ID: id, key: key, encoded: make([]byte, 0, 256)}
	return r.Text(table)
}

// Place returns the columns and values that select the row in its table.
func (r *Row) Place() (columns []string, values []any) { return Tables[r.Table].Key, r.key }

// Bytes adds a binary column. nil means NULL.
func (r *Row) Bytes(b []byte) *Row {
	if b == nil {
		r.encoded = append(r.encoded, typeNull)
		return r
	}
	r.encoded = binary.BigEndian.AppendUint64(append(r.encoded, typeBytes), uint64(len(b)))
	r.encoded = append(r.encoded, b...)
	return r
}

// Text adds a column of text.
func (r *Row) Text(s string) *Row {
	r.encoded = binary.BigEndian.AppendUint64(append(r.encoded, typeText), uint64(len(s)))
	r.encoded = append(r.encoded, s...)
	return r
}

// Int adds a number.
func (r *Row) Int(n int64) *Row {
	r.encoded = binary.BigEndian.AppendUint64(append(r.encoded, typeInt), uint64(n)) //nolint:gosec // its bits
	return r
}

// Key adds an id.
func (r *Row) Key(id keyserver.ID) *Row { return r.Bytes(id[:]) }

// OptionalKey adds an id, or NULL if it is zero.
func (r *Row) OptionalKey(id keyserver.ID) *Row {
	if id.IsZero() {
		return r.Bytes(nil)
	}
	return r.Key(id)
}

// Time adds a time with microsecond precision.
func (r *Row) Time(t time.Time) *Row { return r.Int(t.UnixMicro()) }

// List adds the number of elements of a list. The caller adds the elements.
func (r *Row) List(n int) *Row {
	r.encoded = binary.BigEndian.AppendUint64(append(r.encoded, typeList), uint64(n)) //nolint:gosec // a length
	return r
}

func (r *Row) set(ids []keyserver.ID) *Row {
	ids = keyserver.NormalizeIDs(ids)
	r.List(len(ids))
	for _, id := range ids {
		r.Key(id)
	}
	return r
}

func (r *Row) texts(list []string) {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	r.List(len(list))
	for _, s := range list {
		r.Text(s)
	}
}

// SystemName formats a system id as a row id.
func SystemName(s keyserver.SystemID) string { return strconv.FormatUint(uint64(s), 10) }

// Finding is a row with a wrong MAC.
type Finding struct {
	Table, ID string
	Problem   string
}

// String returns the finding as one line.
func (f Finding) String() string { return f.Table + " " + f.ID + ": " + f.Problem }
