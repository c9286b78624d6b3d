package monotonic

import (
	"time"

	"golang.org/x/sys/unix"
)

// slept returns how long the machine has slept since its start.
func slept() time.Duration { return clock(unix.CLOCK_BOOTTIME) - clock(unix.CLOCK_MONOTONIC) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
