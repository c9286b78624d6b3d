package script

import "golang.org/x/sys/unix"

// stopped returns when a child process has stopped or ended. It does not reap the process: "wait"
// checks how it ended.
func stopped(pid int) error {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
}

// obeyModes makes the next program of this thread subject to file modes, even as root.
func obeyModes() error {
	for _, c := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}
