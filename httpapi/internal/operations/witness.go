package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func getWitness(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.Witness, error) {
	w, err := ops.Witness(ctx, by)
	return schema.Witness{Key: w.Key, Logs: Convert(w.Logs, witnessedLogOf)}, err
}

func witnessedLogOf(l keyserver.WitnessedLog) schema.WitnessedLog {
	out := schema.WitnessedLog{
		Origin: l.Origin, Key: l.Key, Size: l.Size, SeenAt: l.SeenAt, Conflict: string(l.Conflict), ConflictAt: l.ConflictAt,
	}
	if l.System != 0 {
		system := schema.SystemID(l.System)
		out.SystemID = &system
	}
	return out
}
