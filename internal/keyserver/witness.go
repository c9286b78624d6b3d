package keyserver

import (
	"errors"
	"fmt"
	"time"
)

// WitnessedLog is what this key server, as a witness, has seen of a log.
type WitnessedLog struct {
	Origin string
	Key    string // that signs its checkpoints, as C2SP signed-note spells a public key
	// System is the peer whose log it is, 0 where it is no peer's.
	System SystemID
	// WitnessKey is that by which the peer cosigns; empty where it is no peer.
	WitnessKey string
	Size       int64 // of the checkpoint that was cosigned last, 0 before the first
	Root       [32]byte
	SeenAt     time.Time
	// Conflict is what the log did that no log may, empty while it did nothing.
	Conflict   LogConflict
	ConflictAt time.Time
}

// LogConflict is what a log did that no log may.
type LogConflict string

// The conflicts of logs. Each is also the reason of a row of the audit trail.
const (
	LogForked     LogConflict = "logForked"     // it does not continue what was cosigned
	LogRolledBack LogConflict = "logRolledBack" // it has fewer rows than were cosigned
	LogForged     LogConflict = "logForged"     // its checkpoint is not by its key
	LogKeyChanged LogConflict = "logKeyChanged" // it says that it has another key
)

// LogConflicts lists them.
var LogConflicts = []LogConflict{LogForked, LogRolledBack, LogForged, LogKeyChanged}

// Witness is what the key server does for the logs of others.
type Witness struct {
	Key  string // that verifies its cosignatures
	Logs []WitnessedLog
}

// StaleCheckpointError says that a witness has cosigned another size last than the log
// believes.
type StaleCheckpointError struct{ Size int64 }

func (e StaleCheckpointError) Error() string {
	return fmt.Sprintf("the witness has cosigned %d rows last", e.Size)
}

// AsStale finds one in an error.
func AsStale(err error) (StaleCheckpointError, bool) {
	var stale StaleCheckpointError
	return stale, errors.As(err, &stale)
}

// AuditKeys are what a key server tells peers of its audit tree.
type AuditKeys struct {
	AuditKey
	Witness string // that verifies its cosignatures
}
