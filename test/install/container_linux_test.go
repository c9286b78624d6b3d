package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownMounts gives a process a mount namespace. The process ends with the test.
func ownMounts() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		// The namespace contains only our user: without root, a process cannot change its user.
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// enterContainer turns this process into the process of a container. The environment describes the container. The
// function returns only if it fails.
func enterContainer(about string) error {
	runtime.LockOSThread() // the signal for the parent's end is set for one thread
	var c container
	if err := json.Unmarshal([]byte(about), &c); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	mounts := []mount{{From: c.Root, At: "/", ReadOnly: true}}
	for _, m := range append(mounts, c.Mounts...) {
		if err := m.bind(c.Root); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.From, m.At, err)
		}
	}
	if err := errors.Join(unix.Chroot(c.Root), unix.Chdir("/")); err != nil {
		return err
	}
	if os.Geteuid() == 0 && !inUserNamespace() {
		user, group := accountID, accountID
		if c.User != 0 {
			user, group = c.User, c.Group
		}
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(group), syscall.Setuid(user)); err != nil {
			return fmt.Errorf("become another user: %w", err)
		}
		// Changing the user has reset this signal.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return err
		}
	}
	unix.Umask(0o022)
	return syscall.Exec(c.Path, append([]string{c.Path}, c.Args...), c.Env)
}

func (m mount) bind(root string) error {
	at := filepath.Join(root, m.At)
	if err := unix.Mount(m.From, at, "", unix.MS_BIND, ""); err != nil || !m.ReadOnly {
		return err
	}
	var about unix.Statfs_t
	if err := unix.Statfs(at, &about); err != nil {
		return err
	}
	kept := uintptr(about.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC) // a user namespace may not clear these
	return unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|kept, "")
}

// inUserNamespace reports whether the user is root only in a user namespace.
func inUserNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}
