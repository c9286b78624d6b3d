package monotonic

import "time"

// began is the start of the process, from which uptime is measured.
var began = time.Now()

// wall returns the machine's clock. Test programs with an adjustable clock use another implementation (test/clock).
func wall() time.Time { return time.Now().Round(0) }

// uptime returns how long the process has run, without the time in which the machine slept.
func uptime() time.Duration { return time.Since(began) }
