package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// databaseUse is how the connections to the database are used.
type databaseUse struct{ *sqlstore.Store }

var (
	databaseInUse = prometheus.NewDesc("keyserver_database_connections_in_use", "Connections to the database that are at work.", []string{"use"}, nil)
	databaseMost  = prometheus.NewDesc("keyserver_database_connections_max", "Connections to the database that there may be.", []string{"use"}, nil)
	databaseWaits = prometheus.NewDesc("keyserver_database_connection_waits_total", "How often a connection to the database was waited for.", []string{"use"}, nil)
	databaseWait  = prometheus.NewDesc("keyserver_database_connection_wait_seconds_total", "How long connections to the database were waited for.", []string{"use"}, nil)
)

func observeDatabase(r prometheus.Registerer, store *sqlstore.Store) {
	r.MustRegister(databaseUse{store}, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "keyserver_database_went_back_total", Help: "How often changes or audit rows that this process had seen were gone from the database.",
	}, func() float64 { return float64(store.Lost()) }))
}

// Describe implements prometheus.Collector.
func (databaseUse) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{databaseInUse, databaseMost, databaseWaits, databaseWait} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (u databaseUse) Collect(to chan<- prometheus.Metric) {
	for _, c := range u.Connections() {
		to <- prometheus.MustNewConstMetric(databaseInUse, prometheus.GaugeValue, float64(c.InUse), c.Use)
		to <- prometheus.MustNewConstMetric(databaseMost, prometheus.GaugeValue, float64(c.Most), c.Use)
		to <- prometheus.MustNewConstMetric(databaseWaits, prometheus.CounterValue, float64(c.Waits), c.Use)
		to <- prometheus.MustNewConstMetric(databaseWait, prometheus.CounterValue, c.Waited.Seconds(), c.Use)
	}
}
