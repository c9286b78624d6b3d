//go:build !linux

package bench

import "os"

// syncData writes data to disk as the audit journal does.
func syncData(f *os.File) error { return f.Sync() }
