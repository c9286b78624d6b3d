package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ErrNoRowKey is returned by reads and writes of a row with a MAC before UseRowKey
// has set the key.
var ErrNoRowKey = errors.New("the rows cannot be verified yet: their key is loaded with the data key")

// macs has the key of the row MACs, and the function that is called for a wrong MAC.
type macs struct {
	key   atomic.Pointer[rowmac.Key]
	alarm atomic.Pointer[func(rowmac.Finding)]
}

// UseRowKey sets the key of the MACs of rows. Until then, rows with a MAC can be
// neither read nor written.
func (h *Handle) UseRowKey(key *rowmac.Key) { h.macs.key.Store(key) }

// OnTampered sets a function that is called for each row with a wrong MAC. The function
// must neither block nor use the store.
func (h *Handle) OnTampered(alarm func(rowmac.Finding)) { h.macs.alarm.Store(&alarm) }

// Key returns the key of the row MACs, or nil before UseRowKey has set it.
func (s Statements) Key() *rowmac.Key { return s.macs.key.Load() }

// Alarm reports a row that does not agree with its MAC (OnTampered).
func (s Statements) Alarm(finding rowmac.Finding) {
	if alarm := s.macs.alarm.Load(); alarm != nil {
		(*alarm)(finding)
	}
}

// errRingMoved ends a transaction that began with data keys that the database no longer has.
var errRingMoved = errors.New("the data keys have changed")

// followRing returns errRingMoved if the data keys of this process are not those of the database. Otherwise a write
// could encrypt keys, or make MACs, with a data key that no longer exists.
func (db *DB) followRing(ctx context.Context, in Statements) error {
	key := db.Handle.macs.key.Load()
	if key == nil {
		return nil
	}
	var stored []byte
	err := in.Row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{rowmac.DataKeySetting}, &stored)
	switch {
	case errors.Is(err, ErrNotFound): // the setting was removed; the next start and doctor report that
		return nil
	case err == nil && !key.IsCurrent(stored):
		return errRingMoved
	}
	return err
}

// CheckMAC returns a fault if a row does not agree with its MAC.
func (s Statements) CheckMAC(row *rowmac.Row, mac []byte) error {
	if s.visit != nil {
		return s.visit(row, mac)
	}
	key := s.macs.key.Load()
	if key == nil {
		return ErrNoRowKey
	}
	if err := key.Check(row, mac); !errors.Is(err, rowmac.ErrMismatch) {
		return err
	}
	finding := FindingOf(row, mac)
	s.Alarm(finding)
	return fault.New(fault.StoreTampered, "a row of the database was not written by this key server: %s; ask an operator to run doctor", finding).
		Audited(fault.ReasonStoreTampered)
}

// FindingOf describes a row that does not agree with its MAC.
func FindingOf(row *rowmac.Row, mac []byte) rowmac.Finding {
	problem := "it does not agree with its MAC"
	if len(mac) == 0 {
		problem = "it has no MAC"
	}
	return rowmac.Finding{Table: row.Table, ID: row.ID, Problem: problem}
}

// MAC returns the MAC column of a row that is about to be written.
func (s Statements) MAC(row *rowmac.Row) driver.Valuer { return macColumn{s.macs, row} }

type macColumn struct {
	macs *macs
	row  *rowmac.Row
}

// Value implements driver.Valuer.
func (c macColumn) Value() (driver.Value, error) {
	key := c.macs.key.Load()
	if key == nil {
		return nil, ErrNoRowKey
	}
	return key.Sum(c.row), nil
}
