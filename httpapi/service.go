package httpapi

import (
	"context"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func health(*API, context.Context, call, nothing) (schema.Health, error) {
	return schema.Health{Status: "ok"}, nil
}

// Readiness returns the state of each part.
func (a *API) Readiness(ctx context.Context) []keyserver.Readiness {
	parts := append(a.admission(), a.Operations.Ready(ctx)...)
	if a.Parts != nil {
		parts = append(parts, a.Parts()...)
	}
	return parts
}

// ready returns the readiness of each part. A draining server is not ready even if all its parts are ready, so that it
// gets no new requests.
func ready(a *API, ctx context.Context, _ call, _ nothing) (schema.Ready, error) {
	out := schema.Ready{Ready: true, Parts: []schema.Part{}, Warnings: []string{}, Detail: "every part is ready"}
	if a.Warnings != nil {
		out.Warnings = append(out.Warnings, a.Warnings()...)
	}
	var failing []string
	for _, p := range a.Readiness(ctx) {
		out.Parts = append(out.Parts, schema.Part{Part: p.Part, Ready: p.Ready, Detail: p.Detail, RetryInSeconds: p.RetryIn})
		if !p.Ready {
			failing = append(failing, p.Part)
		}
	}
	if a.draining.Err() != nil {
		out.Parts = append(out.Parts, schema.Part{Part: "server", Detail: "shutting down"})
		failing = append(failing, "server")
	}
	if len(failing) == 0 {
		return out, nil
	}
	out.Ready = false
	return out, fault.Temporary(fault.NotReady, fault.ScopeProcess, 0, "not ready: %s", strings.Join(failing, ", "))
}
