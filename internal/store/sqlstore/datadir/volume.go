package datadir

import (
	"errors"
	"fmt"
	"syscall"
)

// The service treats a volume as full before the system does, because an audit row that cannot be written stops
// everything.
const (
	freeShare = 10      // one in freeShare bytes has to be free,
	freeMost  = 5 << 30 // but no more than this, on a large volume
)

// Volume is the state of the volume of a directory.
type Volume struct {
	Free, Size uint64
	ReadOnly   bool
}

// VolumeOf reads the state of the volume of a directory.
func VolumeOf(dir string) (Volume, error) {
	var v syscall.Statfs_t
	if err := syscall.Statfs(dir, &v); err != nil {
		return Volume{}, err
	}
	block := uint64(v.Bsize) //nolint:gosec // a size
	return Volume{Free: v.Bavail * block, Size: v.Blocks * block, ReadOnly: v.Flags&readOnly != 0}, nil
}

// Check returns an error if the volume of a data directory is read-only or has too
// little room. least is the number of bytes that have to be free, 0 for the default.
func (v Volume) Check(least uint64) error {
	if v.ReadOnly {
		return errors.New("the volume of --data-dir is read-only")
	}
	if least == 0 {
		least = min(v.Size/freeShare, freeMost)
	}
	if v.Free < least {
		return fmt.Errorf("the volume of --data-dir has %d MiB free, but needs %d MiB (--min-free-bytes); free some space before audit rows cannot be written",
			v.Free>>20, least>>20)
	}
	return nil
}
