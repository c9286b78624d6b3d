package admission

import "fmt"

// Cause is why nothing is admitted.
type Cause string

// The causes, in the order in which they are looked for.
const (
	Unreadable   Cause = "unreadable"   // the file is not there, or not a file, or too long
	NoEnvelope   Cause = "noEnvelope"   // not a DSSE envelope
	OtherType    Cause = "otherType"    // an envelope around something else
	BadSignature Cause = "badSignature" // not signed by the release key
	Malformed    Cause = "malformed"    // signed, and not a manifest
	NotYetValid  Cause = "notYetValid"
	Expired      Cause = "expired"
	NotListed    Cause = "notListed" // a manifest of other builds
)

// Refusal says in one sentence why a build is not admitted. Detail may be
// answered to anybody: it names no path.
type Refusal struct {
	Cause  Cause
	Detail string

	err error
}

func refuse(cause Cause, err error, format string, args ...any) *Refusal {
	return &Refusal{Cause: cause, Detail: fmt.Sprintf(format, args...), err: err}
}

// Error is the detail with what lies beneath, for logs and terminals.
func (r *Refusal) Error() string {
	if r.err == nil {
		return r.Detail
	}
	return r.Detail + ": " + r.err.Error()
}

// Unwrap returns what lies beneath.
func (r *Refusal) Unwrap() error { return r.err }
