package program

import (
	"os"
	"time"
)

// SettableClock has files for BuildChanged. With them, the machine clock of the program is ahead by a duration that
// SetClock sets.
var SettableClock = map[string]string{"internal/platform/monotonic/machine.go": `package monotonic

import (
	"os"
	"slices"
	"strings"
	"time"
)

var began = time.Now()

func wall() time.Time {
	now := time.Now().Round(0)
	at := slices.Index(os.Args, "--data-dir")
	if at < 0 {
		return now
	}
	text, err := os.ReadFile(os.Args[at+1] + ".clock")
	if os.IsNotExist(err) {
		return now
	}
	ahead, failed := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil || failed != nil {
		panic("the clock cannot be read")
	}
	return now.Add(ahead)
}

func uptime() time.Duration { return time.Since(began) }
`}

// SetClock sets the machine clock of the server with this data directory. The change is atomic.
func SetClock(dataDir string, ahead time.Duration) error {
	file := dataDir + ".clock"
	if err := os.WriteFile(file+".new", []byte(ahead.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
