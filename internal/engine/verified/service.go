// Package verified adds two checks to a key server. It rejects requests that the key server would accept with another
// meaning. It verifies every write by reading the result back. It uses only the interfaces of package keyserver, no
// HTTP and no SQL. So it can be used for every key server, and tests can use a key server that returns wrong results.
//
// If a method rejects a request, it returns a *fault.Error. If the key server accepted a write, but the result differs
// from the request, the method returns the result as read back, and a fault (NOT_SAVED, NOT_REMOVED or NOT_VERIFIED).
package verified

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Service calls the operations of a key server with these checks. It is safe for concurrent use.
type Service struct {
	ks keyserver.Port
}

// New returns a service for the key server ks.
func New(ks keyserver.Port) *Service { return &Service{ks: ks} }

// Version reads the key server's version.
func (s *Service) Version(ctx context.Context, by keyserver.Caller) (keyserver.Version, error) {
	return s.ks.Version(ctx, by)
}

// Audit reads one page of the audit log.
func (s *Service) Audit(ctx context.Context, by keyserver.Caller, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	return s.ks.Audit(ctx, by, filter)
}

// AuditReceipt returns the proof that a row is in the audit tree.
func (s *Service) AuditReceipt(ctx context.Context, by keyserver.Caller, seq int64) ([]byte, error) {
	return s.ks.AuditReceipt(ctx, by, seq)
}

// AuditCheckpoint returns the latest checkpoint of the audit tree.
func (s *Service) AuditCheckpoint(ctx context.Context) ([]byte, error) {
	return s.ks.AuditCheckpoint(ctx)
}

// AuditKey returns the key that verifies the checkpoints of the audit tree.
func (s *Service) AuditKey(ctx context.Context) (keyserver.AuditKey, error) {
	return s.ks.AuditKey(ctx)
}

// Witness returns the state of the logs of other servers that the key server witnesses.
func (s *Service) Witness(ctx context.Context, by keyserver.Caller) (keyserver.Witness, error) {
	return s.ks.Witness(ctx, by)
}

// AuditTile reads hashes of the audit tree, or the rows of a tile.
func (s *Service) AuditTile(ctx context.Context, by keyserver.Caller, t keyserver.AuditTile) ([]byte, error) {
	return s.ks.AuditTile(ctx, by, t)
}

// Changes reads the change feed. If there is no change, it waits for the next one, at most for the wait time in the
// filter.
func (s *Service) Changes(ctx context.Context, by keyserver.Caller, f keyserver.ChangeFilter) (keyserver.ChangePage, error) {
	return s.ks.Changes(ctx, by, f)
}

// Ready returns the readiness of each part of the key server.
func (s *Service) Ready(ctx context.Context) []keyserver.Readiness { return s.ks.Ready(ctx) }

// ListOperations reads all operations.
func (s *Service) ListOperations(ctx context.Context, by keyserver.Caller) ([]keyserver.Operation, error) {
	return s.ks.Operations(ctx, by)
}
