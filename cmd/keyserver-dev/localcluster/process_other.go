//go:build !linux

package localcluster

import "syscall"

// ofOurs returns the attributes of the started programs. Ctrl-C does not reach the programs, because this process ends
// them in order. If this process is killed, the programs run until the next start kills them.
func ofOurs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
