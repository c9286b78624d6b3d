// Package rowmac makes the MACs of database rows. An attacker who can write to the
// database but does not have the data key cannot make a valid MAC (ADR 34).
//
// The encoding of a row has its table, its key and every column that affects a decision,
// each after its type and length, so that no two rows have the same encoding. Sets that
// belong to a row, such as the roles of a principal, are part of it: one element more or
// less changes the MAC.
//
// To cover another table or column, add:
//
//   - a function here that encodes it (rows.go), and the entry of Tables
//   - a column mac in both migrations
//   - in package sqlstore: the MAC where the row is written, checks where it is read, and
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

// info separates this use of the data key from every other.
const info = "keyserver-operator row mac v1"

// Key makes and checks MACs, HMAC-SHA-256. It is safe for concurrent use.
type Key struct {
	secrets atomic.Pointer[[][]byte] // the first makes MACs; MACs of all are accepted
	ring    Ring                     // nil if the data keys never change
}

// Ring is the source of data keys that change.
type Ring interface {
	// Stored returns the value of DataKeySetting from which the present keys were read.
	Stored() []byte
	// Reload reads the setting again and calls Use if it has changed. It returns whether
	// it has.
	Reload(ctx context.Context) (changed bool, err error)
}

// Derive derives the row key from data keys, by HKDF-SHA-256. The first one makes MACs.
// MACs of the others are accepted until they are replaced.
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

// Of returns a key that makes MACs with the first of the keys and accepts those of all.
// It follows changes of the ring.
func Of(ring Ring, keys ...*Key) *Key {
	k := &Key{ring: ring}
	k.Use(keys...)
	return k
}

// Use replaces the keys that the key consists of.
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

// reloadTimeout bounds the additional read of the data keys when a MAC does not match.
const reloadTimeout = 5 * time.Second

// ErrMismatch is returned if the MAC matches under none of the data keys.
var ErrMismatch = errors.New("the row does not agree with its MAC")

// Check compares a row with its MAC, in constant time for each key. If no key matches, it
// reads the ring again, because another process may have just made a new data key. Any
// other error than ErrMismatch means that the ring could not be read.
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
	if !k.accepts(r, mac) { // also if nothing changed: another caller may have read the ring
		return ErrMismatch
	}
	return nil
}

// Matches reports whether Check succeeds.
func (k *Key) Matches(r *Row, mac []byte) bool { return k.Check(r, mac) == nil }

func (k *Key) accepts(r *Row, mac []byte) bool {
	for _, secret := range *k.secrets.Load() {
		if hmac.Equal(sum(secret, r), mac) {
			return true
		}
	}
	return false
}

// MadeByNewest reports whether the MAC of the row was made with the first key.
func (k *Key) MadeByNewest(r *Row, mac []byte) bool { return hmac.Equal(k.Sum(r), mac) }

// IsCurrent reports whether the key was read from that value of DataKeySetting.
func (k *Key) IsCurrent(stored []byte) bool {
	return k.ring == nil || bytes.Equal(k.ring.Stored(), stored)
}

// Reload reads the data keys again.
func (k *Key) Reload(ctx context.Context) error {
	_, err := k.ring.Reload(ctx)
	return err
}

// Digest returns the SHA-256 of rows, independent of their order. Renewing a password
// hash at a login does not change it.
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

// String hides the key from every formatting verb.
func (k *Key) String() string { return "row MAC key" }

// GoString hides the key from %#v.
func (k *Key) GoString() string { return k.String() }

// Row is the encoding of a row, with its table and id.
type Row struct {
	Table string
	ID    string // shown to people

	key     []any // values of the Key columns in Tables
	encoded []byte
	lasting []byte // used by Digest instead of encoded, if set
}

// The types of encoded values.
const (
	typeNull byte = iota
	typeBytes
	typeText
	typeInt
	typeList // the number of elements follows
)

// NewRow starts the encoding of a row with its table. id identifies it to people. key are
// the values that select it; they also have to be added like other columns.
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

// List adds the number of the elements that follow.
func (r *Row) List(n int) *Row {
	r.encoded = binary.BigEndian.AppendUint64(append(r.encoded, typeList), uint64(n)) //nolint:gosec // a length
	return r
}

// set adds ids, sorted and without duplicates.
func (r *Row) set(ids []keyserver.ID) *Row {
	ids = keyserver.NormalizeIDs(ids)
	r.List(len(ids))
	for _, id := range ids {
		r.Key(id)
	}
	return r
}

// texts adds texts, sorted and without duplicates.
func (r *Row) texts(list []string) {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	r.List(len(list))
	for _, s := range list {
		r.Text(s)
	}
}

// SystemName formats a system id as a row id.
func SystemName(s keyserver.SystemID) string { return strconv.FormatUint(uint64(s), 10) }

// Finding is a row whose MAC is wrong.
type Finding struct {
	Table, ID string
	Problem   string
}

// String returns the finding as one line.
func (f Finding) String() string { return f.Table + " " + f.ID + ": " + f.Problem }
