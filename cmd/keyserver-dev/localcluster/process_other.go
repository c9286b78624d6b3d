//go:build !linux

package localcluster

import "syscall"

// ofOurs returns the attributes of the programs. Ctrl-C does not reach them, because this process ends them in
// order. If this process is killed, they run until the next start kills them.
func ofOurs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
