//go:build !linux

package localcluster

import "syscall"

// ofOurs is how our programs run: Ctrl-C is for us, who end them in order. Where
// we are killed they stay, until the next start ends them.
func ofOurs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
