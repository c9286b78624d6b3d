package monotonic

import "time"

// began is the moment from which uptime counts.
var began = time.Now()

// wall is the machine's clock. A program that lives on a machine whose clock somebody
// sets is built with another one (test/clock).
func wall() time.Time { return time.Now().Round(0) }

// uptime is how long the process has run while the machine was not asleep.
func uptime() time.Duration { return time.Since(began) }
