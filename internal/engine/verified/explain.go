package verified

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MaxWhoCanPage is the maximum number of principals in a page of WhoCan.
const MaxWhoCanPage = 1000

// Explain returns whether the gate would allow a request, and why.
func (s *Service) Explain(ctx context.Context, by keyserver.Caller, q keyserver.Question) (keyserver.Explanation, error) {
	if err := refuseKeyless(q.Operation, q.Link); err != nil {
		return keyserver.Explanation{}, err
	}
	for _, supposed := range q.With {
		if supposed.Kind == keyserver.SupposeState && q.Link == "" {
			return keyserver.Explanation{}, fault.New(fault.BadRequest, "with: %s requires the key of the question; send hiddenLink", supposed.Kind)
		}
	}
	return s.ks.Explain(ctx, by, q)
}

// WhoCan reads a page of the principals that may do an operation.
func (s *Service) WhoCan(ctx context.Context, by keyserver.Caller, c keyserver.WhoCanQuery) (keyserver.WhoCanPage, error) {
	if err := refuseKeyless(c.Operation, c.Link); err != nil {
		return keyserver.WhoCanPage{}, err
	}
	return s.ks.WhoCan(ctx, by, c)
}

// refuseKeyless returns an error if the question names a key, although the operation concerns no key.
func refuseKeyless(op keyserver.Operation, link keyserver.HiddenLink) error {
	if link == "" || op.AboutKey() {
		return nil
	}
	return fault.New(fault.BadRequest, "hiddenLink: the operation %s concerns no key; omit hiddenLink", op.Name)
}
