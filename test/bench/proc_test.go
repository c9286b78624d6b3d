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

// cpuOf is the CPU time that a process has used, in user and kernel mode, by the
// clock that Linux keeps of each process: what /proc says of it comes in hundredths of
// a second.
func cpuOf(pid int) (time.Duration, error) {
	const clockOfProcess = 2 // CPUCLOCK_SCHED of all threads
	var now unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|clockOfProcess, &now); err != nil {
		return 0, fmt.Errorf("the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(now.Nano()), nil
}

// memoryOf reads a field of /proc/PID/status, for instance VmRSS, in bytes.
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

// resetPeak makes VmHWM of a process start anew at what it holds now.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// cpuPerCall is the CPU time of one call, whatever else the machine does: the
// best of a few runs of this thread's own clock.
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
		panic(err) // the clock is there on every Linux
	}
	return time.Duration(now.Nano())
}
