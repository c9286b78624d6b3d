package schema

import "time"

// Witness describes what the key server witnesses for other logs.
type Witness struct {
	Key  string         `json:"key" doc:"What verifies its cosignatures, as C2SP signed-note spells a public key (vkey)."`
	Logs []WitnessedLog `json:"logs" doc:"Those of peers that are witnessed, and those of --witness-client."`
}

// WitnessedLog is the last state of a log that a witness has seen.
type WitnessedLog struct {
	Origin     string    `json:"origin" doc:"The name of the log."`
	Key        string    `json:"key" doc:"What verifies its checkpoints."`
	SystemID   *SystemID `json:"systemId,omitzero" doc:"Of the peer whose log it is; absent where it is no peer's."`
	Size       int64     `json:"size" doc:"Rows of the checkpoint that was cosigned last; 0 before the first."`
	SeenAt     time.Time `json:"seenAt,omitzero" doc:"When it was cosigned."`
	Conflict   string    `json:"conflict,omitzero" enum:"logForked,logRolledBack,logForged,logKeyChanged" doc:"What the log did that no log may, at last; absent where it did nothing. It stays until the peer is removed."`
	ConflictAt time.Time `json:"conflictAt,omitzero" doc:"When it did, at last."`
}
