package datadir

import (
	"errors"
	"fmt"
	"syscall"
)

// Free space that a volume must have. The limit is above 0, because the key server refuses all requests if it cannot
// write audit rows.
const (
	freeShare = 10      // 1/freeShare of the volume has to be free,
	freeMost  = 5 << 30 // but at most this many bytes
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
// little free space. least is the number of bytes that must be free; 0 is the default.
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
