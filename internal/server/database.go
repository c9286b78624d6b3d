package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// databaseUse is the collector of metrics about the connections to the database.
type databaseUse struct{ *sqlstore.Store }

var (
	databaseInUse = prometheus.NewDesc("keyserver_database_connections_in_use", "Connections to the database in use.", []string{"use"}, nil)
	databaseMost  = prometheus.NewDesc("keyserver_database_connections_max", "Maximum number of connections to the database.", []string{"use"}, nil)
	databaseWaits = prometheus.NewDesc("keyserver_database_connection_waits_total", "Number of waits for a connection to the database.", []string{"use"}, nil)
	databaseWait  = prometheus.NewDesc("keyserver_database_connection_wait_seconds_total", "Total time of waits for connections to the database.", []string{"use"}, nil)
)

func observeDatabase(r prometheus.Registerer, store *sqlstore.Store) {
	transactions := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "keyserver_database_transaction_duration_seconds", Buckets: commitBuckets,
		Help: "Duration of write transactions by outcome: committed or undone. Audit rows are not included.",
	}, []string{"outcome"})
	committed, undone := transactions.WithLabelValues("committed"), transactions.WithLabelValues("undone")
	r.MustRegister(transactions)
	store.OnTransaction(func(took time.Duration, err error) {
		if err != nil {
			undone.Observe(took.Seconds())
			return
		}
		committed.Observe(took.Seconds())
	})
	r.MustRegister(databaseUse{store}, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "keyserver_database_went_back_total", Help: "Times that changes or audit rows known to this process were missing from the database.",
	}, func() float64 { return float64(store.Lost()) }))
}

func (databaseUse) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{databaseInUse, databaseMost, databaseWaits, databaseWait} {
		to <- d
	}
}

func (u databaseUse) Collect(to chan<- prometheus.Metric) {
	for _, c := range u.Connections() {
		to <- prometheus.MustNewConstMetric(databaseInUse, prometheus.GaugeValue, float64(c.InUse), c.Use)
		to <- prometheus.MustNewConstMetric(databaseMost, prometheus.GaugeValue, float64(c.Most), c.Use)
		to <- prometheus.MustNewConstMetric(databaseWaits, prometheus.CounterValue, float64(c.Waits), c.Use)
		to <- prometheus.MustNewConstMetric(databaseWait, prometheus.CounterValue, c.Waited.Seconds(), c.Use)
	}
}
