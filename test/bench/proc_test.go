package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf returns the CPU time of a process in user and kernel mode. It reads the CPU clock that
// Linux has for each process, because /proc only has hundredths of a second.
func cpuOf(pid int) (time.Duration, error) {
	const clockOfProcess = 2 // CPUCLOCK_SCHED of all threads
	var now unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|clockOfProcess, &now); err != nil {
		return 0, fmt.Errorf("the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(now.Nano()), nil
}

// memoryOf returns a field of /proc/PID/status, for instance VmRSS, in bytes.
func memoryOf(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

// resetPeak resets VmHWM of a process to its current value.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// cpuPerCall returns the CPU time of one call, unaffected by other load: the best of several runs,
// by this thread's CPU clock.
func cpuPerCall(call func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	call()
	best := time.Duration(0)
	for range 5 {
		n := 0
		start := threadTime()
		for threadTime()-start < 20*time.Millisecond {
			call()
			n++
		}
		if per := (threadTime() - start) / time.Duration(n); best == 0 || per < best {
			best = per
		}
	}
	return best
}

func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err) // every Linux has the clock
	}
	return time.Duration(now.Nano())
}
