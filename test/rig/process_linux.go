package rig

import "syscall"

// EndWithTest makes the kernel send a signal to a process when the test ends, even if the test is killed.
func EndWithTest(signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: signal}
}
