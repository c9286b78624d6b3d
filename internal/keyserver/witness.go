package keyserver

import (
	"errors"
	"fmt"
	"time"
)

// WitnessedLog is the state of a log that this key server has witnessed.
type WitnessedLog struct {
	Origin string
	Key    string // verifies the checkpoints; in the format of C2SP signed-note
	// System is the peer that owns the log, 0 for a log of no peer.
	System SystemID
	// WitnessKey verifies the peer's cosignatures; empty for a log of no peer.
	WitnessKey string
	Size       int64 // of the last cosigned checkpoint, 0 before the first
	Root       [32]byte
	SeenAt     time.Time
	// Conflict is the forbidden behavior that was detected, empty for none.
	Conflict   LogConflict
	ConflictAt time.Time
}

// LogConflict is behavior that is forbidden for a log.
type LogConflict string

// The conflicts of logs. Each is also the reason of a row of the audit log.
const (
	LogForked     LogConflict = "logForked"     // it does not extend the cosigned checkpoint
	LogRolledBack LogConflict = "logRolledBack" // it has fewer rows than the cosigned checkpoint
	LogForged     LogConflict = "logForged"     // the checkpoint is not signed by the key of the log
	LogKeyChanged LogConflict = "logKeyChanged" // the log claims another key
)

// LogConflicts lists all conflicts.
var LogConflicts = []LogConflict{LogForked, LogRolledBack, LogForged, LogKeyChanged}

// Witness is the state of this key server as a witness of other logs.
type Witness struct {
	Key  string // verifies the witness's cosignatures
	Logs []WitnessedLog
}

// StaleCheckpointError reports that the last checkpoint that a witness cosigned has another size than the log expected.
type StaleCheckpointError struct{ Size int64 }

func (e StaleCheckpointError) Error() string {
	return fmt.Sprintf("the last checkpoint that the witness cosigned has %d rows", e.Size)
}

// AsStale returns the StaleCheckpointError that err wraps.
func AsStale(err error) (StaleCheckpointError, bool) {
	var stale StaleCheckpointError
	return stale, errors.As(err, &stale)
}

// AuditKeys are the public keys of the audit tree that a key server sends to peers.
type AuditKeys struct {
	AuditKey
	Witness string // verifies cosignatures of the key server
}
