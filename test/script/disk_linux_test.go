package script

import "golang.org/x/sys/unix"

// stopped returns when a child process has stopped or ended. It does not reap the process:
// "wait" asks how it ended.
func stopped(pid int) error {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
}

// obeyModes makes what this thread executes next obey the modes of files, even as root.
func obeyModes() error {
	for _, c := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}
