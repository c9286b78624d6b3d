package localcluster

import "syscall"

// ofOurs returns the attributes of the programs. Ctrl-C does not reach them, because this process ends them in
// order. If this process is killed, the kernel kills them, too.
func ofOurs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
