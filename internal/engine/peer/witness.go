package peer

import (
	"context"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Witness has the keys of this key server's audit tree, and cosigns checkpoints of peers.
type Witness interface {
	AuditKeys() keyserver.AuditKeys
	// AddCheckpoint returns a keyserver.StaleCheckpointError if the size that was cosigned last is not the old size in
	// the request.
	AddCheckpoint(ctx context.Context, from keyserver.SystemID, r witness.Request) ([]byte, error)
}

// ReadAuditKeys implements peerpb.KeyServerServer.
func (s *Server) ReadAuditKeys(ctx context.Context, _ *peerpb.AuditKeysRequest) (*peerpb.AuditKeysResponse, error) {
	if _, err := connected(ctx); err != nil {
		return nil, err
	}
	keys := s.witness.AuditKeys()
	return &peerpb.AuditKeysResponse{Origin: keys.Origin, Key: keys.Key, WitnessKey: keys.Witness}, nil
}

// AddCheckpoint implements peerpb.KeyServerServer.
func (s *Server) AddCheckpoint(ctx context.Context, in *peerpb.AddCheckpointRequest) (*peerpb.AddCheckpointResponse, error) {
	from, err := connected(ctx)
	if err != nil {
		return nil, err
	}
	r := witness.Request{Old: in.GetOld(), Checkpoint: in.GetCheckpoint()}
	if r.Old < 0 || len(in.GetProof()) > witness.MaxProof || len(r.Checkpoint) > witness.MaxCheckpoint {
		return nil, malformed("the old size is negative, or the proof or the checkpoint is too long")
	}
	for _, h := range in.GetProof() {
		if len(h) != tlog.HashSize {
			return nil, malformed("each hash of the proof must have %d bytes", tlog.HashSize)
		}
		r.Proof = append(r.Proof, tlog.Hash(h))
	}
	lines, err := s.witness.AddCheckpoint(ctx, from.System, r)
	if stale, ok := keyserver.AsStale(err); ok {
		return &peerpb.AddCheckpointResponse{Cosigned: stale.Size}, nil
	}
	if err != nil {
		return nil, err
	}
	return &peerpb.AddCheckpointResponse{Cosignature: lines, Cosigned: r.Old}, nil
}

// AuditKeys requests the keys that verify the audit tree of a peer and the peer's cosignatures.
func (c *Client) AuditKeys(ctx context.Context, peer keyserver.TrustedServer) (keyserver.AuditKeys, error) {
	r := remote{c, peer}
	out, err := callUnary(ctx, r, reads, &peerpb.AuditKeysRequest{}, peerpb.KeyServerClient.ReadAuditKeys)
	if err != nil {
		return keyserver.AuditKeys{}, err
	}
	return keyserver.AuditKeys{AuditKey: keyserver.AuditKey{Origin: out.GetOrigin(), Key: out.GetKey()}, Witness: out.GetWitnessKey()}, nil
}

// AddCheckpoint asks the peer of a record to cosign a checkpoint.
func (c *Client) AddCheckpoint(ctx context.Context, peer keyserver.TrustedServer, request witness.Request) ([]byte, error) {
	r := remote{c, peer}
	in := &peerpb.AddCheckpointRequest{Old: request.Old, Checkpoint: request.Checkpoint}
	for _, h := range request.Proof {
		in.Proof = append(in.Proof, h[:])
	}
	out, err := callUnary(ctx, r, reads, in, peerpb.KeyServerClient.AddCheckpoint)
	switch {
	case err != nil:
		return nil, err
	case len(out.GetCosignature()) > 0:
		return out.GetCosignature(), nil
	case out.GetCosigned() < 0:
		return nil, r.invalidResponse("the size of an audit tree")
	}
	return nil, keyserver.StaleCheckpointError{Size: out.GetCosigned()}
}
