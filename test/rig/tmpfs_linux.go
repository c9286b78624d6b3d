package rig

import (
	"syscall"
	"testing"
)

// Tmpfs mounts a small volume on a directory until the test ends. It fails if this machine
// does not let a test mount one. The options are those of tmpfs.
func Tmpfs(t testing.TB, dir, options string) error {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		return err
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return nil
}

// ChangeTmpfs gives a volume of Tmpfs other options.
func ChangeTmpfs(dir, options string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, options)
}
