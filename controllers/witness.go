package controllers

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
)

const (
	// witnessInterval is the interval between reads of a key server's findings as a witness.
	witnessInterval = time.Minute
	// checkpointEvery is the minimum interval of writing the newest checkpoint.
	checkpointEvery = time.Hour
	// maxConflicts is the maximum number of audit logs that a message lists.
	maxConflicts = 8
)

// recordWitness reports whether the audit logs that the key server witnesses are consistent. It also records the key
// and a checkpoint to verify the key server's own audit log.
func (r *keyServerReconciler) recordWitness(ctx context.Context, ks *v1beta1.KeyServer, conn *connection.Connection) error {
	consistent, say, err := consistency(ctx, conn)
	if err != nil {
		return err
	}
	status.SetCondition(&ks.Status.Conditions, v1beta1.ConditionTrailConsistent, consistent, ks.Generation, status.Stamp(r.Clock.Now()), say)
	if say.Reason == v1beta1.ReasonUnsupported {
		return nil
	}
	now := r.Clock.Now()
	if last := ks.Status.AuditCheckpoint; last != nil && now.Sub(last.ReadAt.Time) < checkpointEvery {
		return nil
	}
	key, err := conn.Admin.GetAuditKey(ctx)
	if err != nil {
		return ignoreAnswer(ctx, err)
	}
	checkpoint, err := conn.Admin.GetAuditCheckpoint(ctx)
	if err != nil {
		return ignoreAnswer(ctx, err)
	}
	ks.Status.AuditKey = key.Key
	ks.Status.AuditCheckpoint = &v1beta1.AuditCheckpoint{Note: string(checkpoint), ReadAt: metav1.NewTime(now).Rfc3339Copy()}
	return nil
}

// ignoreAnswer returns nil for an error of the key server, because the next pass may succeed. It returns other errors.
func ignoreAnswer(ctx context.Context, err error) error {
	_, other := connection.AsProblem(ctx, err)
	return other
}

// consistency returns the status and the content of the condition TrailConsistent.
func consistency(ctx context.Context, conn *connection.Connection) (metav1.ConditionStatus, status.Conclusion, error) {
	w, err := conn.Admin.GetWitness(ctx)
	if why, other := connection.AsProblem(ctx, err); why != nil || other != nil {
		if other != nil {
			return "", status.Conclusion{}, other
		}
		return metav1.ConditionUnknown, status.Conclusion{Reason: why.Reason, Message: "the witnessed audit logs cannot be read: " + why.Message}, nil
	}
	var liars []string
	for _, l := range w.Logs {
		if l.Conflict != "" {
			liars = append(liars, describeConflict(l))
		}
	}
	if len(liars) == 0 {
		message := "the key server witnesses no audit log of another key server"
		if len(w.Logs) > 0 {
			message = plural(len(w.Logs), "audit log") + " witnessed; none was changed, truncated or reset to an earlier state"
		}
		return metav1.ConditionTrue, status.Conclusion{Reason: v1beta1.ReasonVerified, Message: message}, nil
	}
	more := ""
	if n := len(liars) - maxConflicts; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return metav1.ConditionFalse, status.Conclusion{
		Reason: v1beta1.ReasonConflict, Message: strings.Join(liars[:min(len(liars), maxConflicts)], ", ") + more,
	}, nil
}

func describeConflict(l schema.WitnessedLog) string {
	who := "the audit log " + l.Origin
	if l.SystemID != nil {
		who = fmt.Sprintf("the audit log %s of peer %d", l.Origin, *l.SystemID)
	}
	return fmt.Sprintf("%s: %s at %s", who, l.Conflict, l.ConflictAt.UTC().Format(time.RFC3339))
}
