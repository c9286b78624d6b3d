// Package status reports the state of objects: conditions
// (status.go), events (events.go) and metrics (metrics.go).
//
// Only this package writes the conditions Ready, Verified, Reconciling and Stalled. Their content follows from one
// reason of the catalogue in api. A patch fails if the object has changed since it was read (resourceVersion). The
// package also decides whether an update event needs a reconciliation (concerns.go).
//
// May import: api, clients/go/shared/brief
package status
