package sources

import (
	"context"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// Issuer reads the issuer of service account tokens from the manager's own cluster. The issuer does not change while
// the API server runs, so it is cached after the first success. A nil Issuer means that a plan has no cluster.
type Issuer struct {
	ask func(context.Context) (string, error)

	mu  sync.Mutex
	url string
}

// NewIssuer returns an Issuer that reads the issuer by calling ask.
func NewIssuer(ask func(context.Context) (string, error)) *Issuer { return &Issuer{ask: ask} }

// issuerPause is the pause before a retry after an error, because no event announces the end of its cause.
const issuerPause = 30 * time.Second

// URL returns the issuer: the value of the claim iss in the tokens.
func (i *Issuer) URL(ctx context.Context) (string, error) {
	const instead = "set spec.serviceAccount.issuer"
	if i == nil {
		return "", connection.NewProblem(v1beta1.ReasonDependencyNotReady,
			"the issuer of service account tokens is unknown, because there is no cluster; %s", instead)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.url != "" {
		return i.url, nil
	}
	url, err := i.ask(ctx)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", &connection.Problem{Reason: v1beta1.ReasonDependencyNotReady, RequeueAfter: issuerPause,
			Message: "the issuer of service account tokens cannot be read from the API server; " + instead + ": " + err.Error()}
	}
	i.url = url
	return url, nil
}
