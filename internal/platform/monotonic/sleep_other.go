//go:build !linux

package monotonic

import "time"

// slept is unknown on this system and returns 0: sleep counts as a step of the clock.
func slept() time.Duration { return 0 }
