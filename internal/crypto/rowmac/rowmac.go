// Package rowmac makes the MACs by which rows of the database prove themselves:
// whoever can write to the database, but has not the data key, can make none
// that agrees (ADR 34).
//
// A row is encoded with its table, its key and every column that something is
// decided by, each behind its type and length, so that no two rows have one
// encoding. What belongs to a row as a set, such as the roles of a principal, is
// part of it: an element more or less is another row.
//
// To cover another table, or a column of one: a function here that encodes it
// (rows.go), the entry of Tables, a column mac in both migrations, and in package
// sqlstore the MAC where the row is written, checks where it is read, and a line
// in coveredTables. What writes without a MAC is refused at the next read, so its
// first test fails.
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

// info keeps this use of the data key apart from every other one.
const info = "keyserver-operator row mac v1"

// Key makes and checks MACs, HMAC-SHA-256. It is safe for concurrent use.
type Key struct {
	secrets atomic.Pointer[[][]byte] // the first makes MACs, each of them is accepted
	ring    Ring                     // nil where the data keys never change
}

// Ring is what the data keys come from, while they change.
type Ring interface {
	// Stored is the value of DataKeySetting that the keys in use were read from.
	Stored() []byte
	// Again reads it anew and has Use called where it is another one. It answers
	// whether it was.
	Again(ctx context.Context) (changed bool, err error)
}

// Derive makes the key of the rows from data keys, by HKDF-SHA-256. The first makes
// MACs. Those of the others are accepted, until they have been made anew.
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

// Of is a key that makes the MACs of the first of some keys and accepts those of all,
// and that follows the ring they come from.
func Of(ring Ring, keys ...*Key) *Key {
	k := &Key{ring: ring}
	k.Use(keys...)
	return k
}

// Use takes the place of what the key was made of.
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

// againTimeout bounds one more look at the data keys, when a row does not agree.
const againTimeout = 5 * time.Second

// ErrDisagrees is answered for a row that is not by any of the data keys.
var ErrDisagrees = errors.New("the row does not agree with its MAC")

// Check compares a row with its MAC, in constant time for each key. A row may also be
// by a data key that another process made a moment ago, so that the ring is read again
// before one is refused; any other error than ErrDisagrees says that it could not be.
func (k *Key) Check(r *Row, mac []byte) error {
	switch {
	case k.accepts(r, mac):
		return nil
	case k.ring == nil || len(mac) == 0:
		return ErrDisagrees
	}
	ctx, cancel := context.WithTimeout(context.Background(), againTimeout)
	defer cancel()
	if _, err := k.ring.Again(ctx); err != nil {
		return err
	}
	if !k.accepts(r, mac) { // also where nothing changed: another caller may have been before
		return ErrDisagrees
	}
	return nil
}

// Agrees reports whether Check finds nothing.
func (k *Key) Agrees(r *Row, mac []byte) bool { return k.Check(r, mac) == nil }

func (k *Key) accepts(r *Row, mac []byte) bool {
	for _, secret := range *k.secrets.Load() {
		if hmac.Equal(sum(secret, r), mac) {
			return true
		}
	}
	return false
}

// Newest reports whether a MAC of the row is by the key that makes them now.
func (k *Key) Newest(r *Row, mac []byte) bool { return hmac.Equal(k.Sum(r), mac) }

// Follows reports whether the key is that of a value of DataKeySetting.
func (k *Key) Follows(stored []byte) bool {
	return k.ring == nil || bytes.Equal(k.ring.Stored(), stored)
}

// Again reads the data keys anew.
func (k *Key) Again(ctx context.Context) error {
	_, err := k.ring.Again(ctx)
	return err
}

// Digest is SHA-256 over rows, whatever their order. A password hash that a login
// renewed is still the same one.
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
func (k *Key) String() string { return "key of the rows" }

// GoString hides the key from %#v.
func (k *Key) GoString() string { return k.String() }

// Row is the encoding of a row, and its name.
type Row struct {
	Table string
	ID    string // for people

	key     []any // as Tables has its columns
	encoded []byte
	lasting []byte // what Digest takes, if that is not encoded
}

// The types of what is encoded.
const (
	typeNull byte = iota
	typeBytes
	typeText
	typeInt
	typeList // how many elements follow
)

// NewRow begins a row with its table. id names it to people, and key is where it
// lies; its columns have to be added like any other.
func NewRow(table, id string, key ...any) *Row {
	r := &Row{Table: table, ID: id, key: key, encoded: make([]byte, 0, 256)}
	return r.Text(table)
}

// Place are the columns and values that select the row in its table.
func (r *Row) Place() (columns []string, values []any) { return Tables[r.Table].Key, r.key }

// Bytes adds a binary column. nil is NULL.
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

// OptionalKey adds an id that is NULL where it is zero.
func (r *Row) OptionalKey(id keyserver.ID) *Row {
	if id.IsZero() {
		return r.Bytes(nil)
	}
	return r.Key(id)
}

// Time adds a time, to the microsecond.
func (r *Row) Time(t time.Time) *Row { return r.Int(t.UnixMicro()) }

// List says how many elements follow.
func (r *Row) List(n int) *Row {
	r.encoded = binary.BigEndian.AppendUint64(append(r.encoded, typeList), uint64(n)) //nolint:gosec // a length
	return r
}

// set adds ids in an order of their own, each once.
func (r *Row) set(ids []keyserver.ID) *Row {
	ids = keyserver.NormalizeIDs(ids)
	r.List(len(ids))
	for _, id := range ids {
		r.Key(id)
	}
	return r
}

// texts is set for text.
func (r *Row) texts(list []string) {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	r.List(len(list))
	for _, s := range list {
		r.Text(s)
	}
}

// SystemName is how a row that is known by a system id is named.
func SystemName(s keyserver.SystemID) string { return strconv.FormatUint(uint64(s), 10) }

// Finding is a row that does not agree with its MAC.
type Finding struct {
	Table, ID string
	Problem   string
}

// String is one line.
func (f Finding) String() string { return f.Table + " " + f.ID + ": " + f.Problem }
