package sqlstore

import (
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// startRoom is the maximum free space in bytes that a start or a stop needs: both write rows from the journal to the
// tables, and SQLite also keeps these rows in its log.
const startRoom = 32 << 20

// Explain adds a remedy to an error of an embedded database if the volume of the database is nearly full.
func Explain(err error, c Config) error {
	if code := fault.CodeOf(err); c.Dir == "" || code != fault.StoreUnavailable && code != fault.AuditUnavailable {
		return err
	}
	if v, look := datadir.VolumeOf(c.Dir); look == nil && v.Free < startRoom {
		return fmt.Errorf("%w; the volume of --data-dir has %d MiB free: free %d MiB, and start again; acknowledged changes are not lost", err, v.Free>>20, startRoom>>20)
	}
	return err
}
