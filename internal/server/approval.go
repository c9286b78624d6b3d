package server

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
)

// countTimeout is the maximum time that a scrape of the metrics waits for the database.
const countTimeout = time.Second

// observeApprovals registers the metric of pending approvals. It is the same on all replicas.
func observeApprovals(r prometheus.Registerer, service *approval.Service) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_approvals_pending",
		Help: "Requests that wait for approval, in all replicas together; NaN if the database cannot be read.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), countTimeout) // a scrape has no context
		defer cancel()
		n, err := service.Pending(ctx)
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	}))
}
