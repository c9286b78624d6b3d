package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// Problem is a failure as the status reports it: a reason of the catalogue in api and a message. The message never
// contains a secret.
type Problem struct {
	Reason  v1beta1.Reason
	Message string
	// RequeueAfter is the pause before the next reconciliation. It is 0 if another event causes the reconciliation.
	RequeueAfter time.Duration
	// Transient problems end within a moment, so the status is not changed.
	Transient bool
	// Outdated means that the cached data of the key server is outdated and must be read again.
	Outdated bool
	// Code is the error code of the key server's response, for metrics.
	Code string
}

// NewProblem returns a problem with a reason and a message.
func NewProblem(reason v1beta1.Reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (p *Problem) Error() string { return string(p.Reason) + ": " + p.Message }

// retryLater is the pause after a failure if no event reports the end of its cause.
const retryLater = 30 * time.Second

// retrySeldom is the pause if a user has to act first.
const retrySeldom = 5 * time.Minute

// meanings maps error codes of a key server to problems. Other codes mean Progressing and a retry.
var meanings = map[string]Problem{
	// The key server accepted the write, but the second read does not show it.
	"NOT_SAVED":       {Reason: v1beta1.ReasonNotVerified},
	"NOT_REMOVED":     {Reason: v1beta1.ReasonNotVerified},
	"NOT_PERSISTED":   {Reason: v1beta1.ReasonNotVerified},
	"NOT_VERIFIED":    {Reason: v1beta1.ReasonNotVerified},
	"READBACK_FAILED": {Reason: v1beta1.ReasonNotVerified},

	// Another client has changed the object on the key server in the meantime.
	"ALREADY_TRUSTED": {Reason: v1beta1.ReasonProgressing, Outdated: true},
	"ALREADY_EXISTS":  {Reason: v1beta1.ReasonConflict, Outdated: true},
	"NOT_TRUSTED":     {Reason: v1beta1.ReasonProgressing, Outdated: true},
	"NOT_FOUND":       {Reason: v1beta1.ReasonProgressing, Outdated: true},
	"KEY_NOT_FOUND":   {Reason: v1beta1.ReasonProgressing, Outdated: true},
	"ACL_NOT_FOUND":   {Reason: v1beta1.ReasonProgressing, Outdated: true},
	"KEY_STATE":       {Reason: v1beta1.ReasonProgressing, Outdated: true},
	"OWNED":           {Reason: v1beta1.ReasonConflict, Outdated: true},
	"DUTIES_CONFLICT": {Reason: v1beta1.ReasonConflict, RequeueAfter: retryLater},
	"BUILT_IN":        {Reason: v1beta1.ReasonConflict, Outdated: true},
	// The manager must not change these principals.
	"BUILT_IN_PRINCIPAL": {Reason: v1beta1.ReasonConflict, Outdated: true},
	"OWN_ACCOUNT":        {Reason: v1beta1.ReasonConflict, RequeueAfter: retryLater},

	// Other objects on the key server use the object.
	"IN_USE":      {Reason: v1beta1.ReasonInUse, RequeueAfter: retryLater},
	"LAST_WRITER": {Reason: v1beta1.ReasonConflict, Outdated: true},

	// The key server rejects the declared values.
	"BAD_REQUEST":      {Reason: v1beta1.ReasonInvalidSpec},
	"INVALID_ARGUMENT": {Reason: v1beta1.ReasonInvalidSpec},

	// The manager is not authorized.
	"ACCESS_DENIED":                 {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"ACL_DENIED":                    {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"PRINCIPAL_DISABLED":            {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"ESCALATION":                    {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"APPROVAL_REQUIRED":             {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retrySeldom},
	"NOT_WRITABLE":                  {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"INVALID_CREDENTIALS":           {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"LOGIN_THROTTLED":               {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"PROOF_URI_MISMATCH":            {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater}, // spec.externalURL
	"SESSION_NOT_FOUND":             {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"SESSION_EXPIRED":               {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"REVOCATION_STATUS_UNAVAILABLE": {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
	"REVOCATION_EVIDENCE_STALE":     {Reason: v1beta1.ReasonAccessDenied, RequeueAfter: retryLater},
}

// AsProblem converts the error of a call. It returns nil, nil for a nil error. The second result is ctx.Err() if ctx
// has ended, and err if err does not come from the key server.
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
		m = Problem{Reason: v1beta1.ReasonUnsupported}
	case known:
	case client.IsUnavailable(err):
		m = Problem{Reason: v1beta1.ReasonKeyServerUnavailable}
	case isAnswer(err):
		m = Problem{Reason: v1beta1.ReasonProgressing, RequeueAfter: retryLater}
	default:
		return nil, err
	}
	m.Code, m.Message = code, StableMessage(err)
	return &m, nil
}

// IsGone reports whether a deletion failed because the object does not exist.
func IsGone(err error) bool {
	code := client.CodeOf(err)
	return !client.IsUnsupported(err) && (code == "NOT_TRUSTED" || code == "NOT_FOUND")
}

func isAnswer(err error) bool {
	var e *client.Error
	return errors.As(err, &e)
}

// StableMessage returns the text of an error without the request id, which the log has. With the id, each message would
// be different and cause a write of the status.
func StableMessage(err error) string {
	var e *client.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	if e.Code == "" {
		return e.Detail
	}
	return e.Code + ": " + e.Detail
}
