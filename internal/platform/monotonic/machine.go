package monotonic

import "time"

// began is the time from which uptime counts.
var began = time.Now()

// wall returns the machine's clock. Test programs with a settable clock are built with
// another one (test/clock).
func wall() time.Time { return time.Now().Round(0) }

// uptime returns how long the process has run, without the machine's sleep.
func uptime() time.Duration { return time.Since(began) }
