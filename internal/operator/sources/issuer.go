package sources

import (
	"context"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// Issuer knows who issues the tokens of the service accounts of the manager's own
// cluster. It does not change while the API server runs, so that it is asked until
// it has answered once. Nil stands for no cluster, as in a plan of files alone.
type Issuer struct {
	ask func(context.Context) (string, error)

	mu  sync.Mutex
	url string
}

// NewIssuer asks as it is told.
func NewIssuer(ask func(context.Context) (string, error)) *Issuer { return &Issuer{ask: ask} }

// issuerPause is when to ask again who did not answer: no event tells.
const issuerPause = 30 * time.Second

// URL answers the claim iss of the tokens.
func (i *Issuer) URL(ctx context.Context) (string, error) {
	const instead = "give it in spec.serviceAccount.issuer"
	if i == nil {
		return "", connection.NewProblem(v1alpha1.ReasonDependencyNotReady,
			"there is no cluster to ask who issues the tokens of its service accounts; %s", instead)
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
		return "", &connection.Problem{Reason: v1alpha1.ReasonDependencyNotReady, Again: issuerPause,
			Message: "the API server does not say who issues the tokens of its service accounts; " + instead + ": " + err.Error()}
	}
	i.url = url
	return url, nil
}
