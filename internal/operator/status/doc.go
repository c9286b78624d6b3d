// Package status says how objects stand: conditions (status.go), events (events.go) and metrics (metrics.go).
//
// Nothing else writes the conditions Ready, Verified, Reconciling and Stalled. What they say follows from
// one reason of the catalogue in api. Statuses are written by patches that are bound to the version that
// was read. The package also decides by the status whether an update asks for a pass (concerns.go).
//
// May import: api, internal/platform/brief
package status
