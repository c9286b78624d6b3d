package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// Problem is a failure in the terms of the resources: a reason from the
// catalogue and a message for the status. It never holds a secret.
type Problem struct {
	Reason  v1alpha1.Reason
	Message string
	// Again is when to look again; 0 where something else will call.
	Again time.Duration
	// Passing problems are over in a moment, so that what the status says stays.
	Passing bool
	// Outdated: the key server is no longer as it was read; read it anew.
	Outdated bool
	// Code that the service answered, for metrics.
	Code string
}

// NewProblem makes a problem of a reason and a message.
func NewProblem(reason v1alpha1.Reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (p *Problem) Error() string { return string(p.Reason) + ": " + p.Message }

// retryLater is when to look again at a failure that no event will announce
// the end of.
const retryLater = 30 * time.Second

// retrySeldom is when to look again at what waits for people.
const retrySeldom = 5 * time.Minute

// meanings says what a service's code means for a resource. A code that is
// missing here is a failure without further meaning: Progressing, tried again.
var meanings = map[string]Problem{
	// The write was accepted and does not show.
	"NOT_SAVED":       {Reason: v1alpha1.ReasonNotVerified},
	"NOT_REMOVED":     {Reason: v1alpha1.ReasonNotVerified},
	"NOT_PERSISTED":   {Reason: v1alpha1.ReasonNotVerified},
	"NOT_VERIFIED":    {Reason: v1alpha1.ReasonNotVerified},
	"READBACK_FAILED": {Reason: v1alpha1.ReasonNotVerified},

	// Somebody else was faster.
	"ALREADY_TRUSTED": {Reason: v1alpha1.ReasonProgressing, Outdated: true},
	"ALREADY_EXISTS":  {Reason: v1alpha1.ReasonConflict, Outdated: true},
	"NOT_TRUSTED":     {Reason: v1alpha1.ReasonProgressing, Outdated: true},
	"NOT_FOUND":       {Reason: v1alpha1.ReasonProgressing, Outdated: true},
	"KEY_NOT_FOUND":   {Reason: v1alpha1.ReasonProgressing, Outdated: true},
	"ACL_NOT_FOUND":   {Reason: v1alpha1.ReasonProgressing, Outdated: true},
	"KEY_STATE":       {Reason: v1alpha1.ReasonProgressing, Outdated: true},
	"OWNED":           {Reason: v1alpha1.ReasonConflict, Outdated: true},
	"DUTIES_CONFLICT": {Reason: v1alpha1.ReasonConflict, Again: retryLater},
	"BUILT_IN":        {Reason: v1alpha1.ReasonConflict, Outdated: true},
	// A principal that is not the manager's to change.
	"BUILT_IN_PRINCIPAL": {Reason: v1alpha1.ReasonConflict, Outdated: true},
	"OWN_ACCOUNT":        {Reason: v1alpha1.ReasonConflict, Again: retryLater},

	// Others use it.
	"IN_USE":      {Reason: v1alpha1.ReasonInUse, Again: retryLater},
	"LAST_WRITER": {Reason: v1alpha1.ReasonConflict, Outdated: true},

	// The declaration cannot be.
	"BAD_REQUEST":      {Reason: v1alpha1.ReasonInvalidSpec},
	"INVALID_ARGUMENT": {Reason: v1alpha1.ReasonInvalidSpec},

	// The manager may not.
	"ACCESS_DENIED":                 {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"ACL_DENIED":                    {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"PRINCIPAL_DISABLED":            {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"ESCALATION":                    {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"APPROVAL_REQUIRED":             {Reason: v1alpha1.ReasonAccessDenied, Again: retrySeldom},
	"NOT_WRITABLE":                  {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"INVALID_CREDENTIALS":           {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"LOGIN_THROTTLED":               {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"PROOF_URI_MISMATCH":            {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater}, // spec.externalURL
	"SESSION_NOT_FOUND":             {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"SESSION_EXPIRED":               {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"REVOCATION_STATUS_UNAVAILABLE": {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
	"REVOCATION_EVIDENCE_STALE":     {Reason: v1alpha1.ReasonAccessDenied, Again: retryLater},
}

// AsProblem says what a failed call means. It returns nil for nil, and the
// error itself where the pass was cancelled or the failure is the cluster's.
func AsProblem(ctx context.Context, err error) (*Problem, error) {
	if err == nil {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var p *Problem
	if errors.As(err, &p) {
		return p, nil
	}
	code := client.CodeOf(err)
	m, known := meanings[code]
	switch {
	case client.IsUnsupported(err):
		m = Problem{Reason: v1alpha1.ReasonUnsupported}
	case known:
	case client.IsUnavailable(err):
		m = Problem{Reason: v1alpha1.ReasonKeyServerUnavailable}
	case isAnswer(err):
		m = Problem{Reason: v1alpha1.ReasonProgressing, Again: retryLater}
	default:
		return nil, err
	}
	m.Code, m.Message = code, Plain(err)
	return &m, nil
}

// IsGone reports that a deletion found nothing to delete.
func IsGone(err error) bool {
	code := client.CodeOf(err)
	return !client.IsUnsupported(err) && (code == "NOT_TRUSTED" || code == "NOT_FOUND")
}

func isAnswer(err error) bool {
	var e *client.Error
	return errors.As(err, &e)
}

// Plain is the error without the request id, which would make each message
// differ from the one before and cost a write; the log has it.
func Plain(err error) string {
	var e *client.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	if e.Code == "" {
		return e.Detail
	}
	return e.Code + ": " + e.Detail
}
