// Package status reports the state of objects: conditions
// (status.go), events (events.go) and metrics (metrics.go).
//
// Only this package writes the conditions Ready, Verified, Reconciling and
// Stalled. Their content follows from one reason of the catalogue in api. Statuses
// are written by patches that are bound to the version that was read. The package
// also decides by the status whether an update requires a pass (concerns.go).
//
// May import: api, clients/go/shared/brief
package status
