//go:build !linux

package bench

import "os"

// syncData syncs as the audit journal does.
func syncData(f *os.File) error { return f.Sync() }
