package server

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
)

// countTimeout bounds how long a scrape waits for the database.
const countTimeout = time.Second

// observeApprovals registers the number of pending approvals. All replicas report the same number.
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
