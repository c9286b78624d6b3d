package httpapi

import (
	"math"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// admit refuses what a build that is not admitted must not do. It comes before
// everything else, so that the answer is never another one: not a 401 to a
// request without a session, nor a ceiling.
func (x *exchange) admit() error {
	if x.api.Admission == nil || x.route.Unconditional {
		return nil
	}
	return x.api.Admission()
}

// admission is what readiness says of it: nothing where every build is admitted.
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
