//go:build !linux

package journal

import "os"

// writeDurably writes and syncs. On macOS, Sync is F_FULLFSYNC, which also flushes the cache of the disk. This is
// slower than on Linux, but equally durable.
func writeDurably(f *os.File, b []byte, at int64) error {
	if _, err := f.WriteAt(b, at); err != nil {
		return err
	}
	return f.Sync()
}

// reserve does nothing: Create writes each byte of the file, which allocates the disk blocks.
func reserve(*os.File, int64) error { return nil }
