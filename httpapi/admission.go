package httpapi

import (
	"math"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// admit rejects the request if this build is not admitted (--admission). It runs before all other checks, so that the
// response does not depend on the session (401) or on a limit.
func (x *exchange) admit() error {
	if x.api.Admission == nil || x.route.Unconditional {
		return nil
	}
	return x.api.Admission()
}

// admission returns the part "admission" of readiness, or nothing if every build is
// admitted.
func (a *API) admission() []keyserver.Readiness {
	if a.Admission == nil {
		return nil
	}
	part := keyserver.Readiness{Part: "admission", Ready: true, Detail: "the release manifest admits this build"}
	if err := a.Admission(); err != nil {
		part.Ready, part.Detail, part.RetryIn = false, "the release manifest cannot be checked", 1
		if f := fault.As(err); f != nil {
			part.Detail, part.RetryIn = f.Detail, int(math.Ceil(f.RetryAfter.Seconds()))
		}
	}
	return []keyserver.Readiness{part}
}
