package localcluster

import "syscall"

// ofOurs is how our programs run: Ctrl-C is for us, who end them in order, and
// where we are killed they are, too.
func ofOurs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
