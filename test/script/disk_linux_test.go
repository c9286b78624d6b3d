package script

import "golang.org/x/sys/unix"

// stopped waits until a child process has stopped or ended. It does not reap the process: the command "wait" checks the
// exit code.
func stopped(pid int) error {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
}

// obeyModes makes the next program of this thread obey file permissions, even if its user is root.
func obeyModes() error {
	for _, c := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}
