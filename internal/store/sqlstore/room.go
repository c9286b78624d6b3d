package sqlstore

import (
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// startRoom is what a start and a stop take at most: rows go from their journal into the
// tables, and SQLite keeps them beside its file for a while.
const startRoom = 32 << 20

// Explain adds to a failure of an embedded database that its volume has no room, where that
// is so: the database itself only knows that it could not write.
func Explain(err error, c Config) error {
	if code := fault.CodeOf(err); c.Dir == "" || code != fault.StoreUnavailable && code != fault.AuditUnavailable {
		return err
	}
	if v, look := datadir.VolumeOf(c.Dir); look == nil && v.Free < startRoom {
		return fmt.Errorf("%w; the volume of --data-dir has %d MiB free: make %d MiB of room, and start again; what was acknowledged is not lost", err, v.Free>>20, startRoom>>20)
	}
	return err
}
