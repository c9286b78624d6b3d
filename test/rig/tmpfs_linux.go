package rig

import (
	"syscall"
	"testing"
)

// Tmpfs mounts a small volume on a directory until the test ends. It fails if this machine does not permit mounts.
// options are mount options of tmpfs.
func Tmpfs(t testing.TB, dir, options string) error {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		return err
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return nil
}

// ChangeTmpfs changes the options of a volume that Tmpfs mounted.
func ChangeTmpfs(dir, options string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, options)
}
