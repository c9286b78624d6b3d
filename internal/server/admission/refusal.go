package admission

import "fmt"

// Cause is the reason why no build is admitted.
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
	NotListed    Cause = "notListed" // a manifest of other builds
)

// Refusal is the reason why a build is not admitted. Detail is one sentence that any user may see: it contains
// no path.
type Refusal struct {
	Cause  Cause
	Detail string

	err error
}

func refuse(cause Cause, err error, format string, args ...any) *Refusal {
	return &Refusal{Cause: cause, Detail: fmt.Sprintf(format, args...), err: err}
}

// Error returns the detail with the underlying error, for logs and terminals.
func (r *Refusal) Error() string {
	if r.err == nil {
		return r.Detail
	}
	return r.Detail + ": " + r.err.Error()
}

// Unwrap returns the underlying error.
func (r *Refusal) Unwrap() error { return r.err }
