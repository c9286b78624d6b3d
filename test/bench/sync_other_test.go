//go:build !linux

package bench

import "os"

// syncData is the sync that the audit journal needs.
func syncData(f *os.File) error { return f.Sync() }
