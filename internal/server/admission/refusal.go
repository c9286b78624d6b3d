package admission

import "fmt"

// Cause is the reason why a build may not serve.
type Cause string

// The causes, in the order of the checks.
const (
	Unreadable   Cause = "unreadable"   // the file is missing, not a regular file, or too long
	NoEnvelope   Cause = "noEnvelope"   // not a DSSE envelope
	OtherType    Cause = "otherType"    // an envelope of another type
	BadSignature Cause = "badSignature" // not signed by the release key
	Malformed    Cause = "malformed"    // signed, but not a manifest
	NotYetValid  Cause = "notYetValid"
	Expired      Cause = "expired"
	NotListed    Cause = "notListed" // the manifest does not list this build
)

// Refusal is the reason why a build may not serve. Detail is one sentence without a path, so that any user may see it.
type Refusal struct {
	Cause  Cause
	Detail string

	err error
}

func refuse(cause Cause, err error, format string, args ...any) *Refusal {
	return &Refusal{Cause: cause, Detail: fmt.Sprintf(format, args...), err: err}
}

// Error returns the detail and the underlying error, for logs and terminals.
func (r *Refusal) Error() string {
	if r.err == nil {
		return r.Detail
	}
	return r.Detail + ": " + r.err.Error()
}

func (r *Refusal) Unwrap() error { return r.err }
