package schema

import "time"

// Witness describes what the key server witnesses for other logs.
type Witness struct {
	Key  string         `json:"key" doc:"Public key that verifies its cosignatures, in the format of C2SP signed-note (vkey)."`
	Logs []WitnessedLog `json:"logs" doc:"Witnessed logs: those of peers and those of --witness-client."`
}

// WitnessedLog is the last state of a log that a witness has seen.
type WitnessedLog struct {
	Origin     string    `json:"origin" doc:"Name of the log."`
	Key        string    `json:"key" doc:"Public key that verifies its checkpoints."`
	SystemID   *SystemID `json:"systemId,omitzero" doc:"System id of the peer that owns the log; absent if the owner is not a peer."`
	Size       int64     `json:"size" doc:"Number of rows in the last cosigned checkpoint; 0 before the first one."`
	SeenAt     time.Time `json:"seenAt,omitzero" doc:"Time of the last cosignature."`
	Conflict   string    `json:"conflict,omitzero" enum:"WitnessConflict" doc:"Last violation of the rules of a log; absent if there was none. It stays until the peer is removed."`
	ConflictAt time.Time `json:"conflictAt,omitzero" doc:"Time of the last violation."`
}
