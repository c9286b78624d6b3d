package archive

import "github.com/prometheus/client_golang/prometheus"

// Observe registers the metrics of the archive.
func (a *Archiver) Observe(r prometheus.Registerer) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_archive_lag_rows", Help: "Rows of the audit log that are not in the archive yet; a segment has 65,536.",
		}, func() float64 { return float64(a.lag.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "keyserver_audit_archived_rows_total", Help: "Rows of the audit log that this process has archived.",
		}, func() float64 { return float64(a.archived.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_archive_works", Help: "0 while rows of the audit log cannot be archived or removed, else 1.",
		}, func() float64 {
			if a.failing.Load() {
				return 0
			}
			return 1
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keyserver_audit_first_row", Help: "The first row of the audit log that the database has; only the archive has the rows before it.",
		}, func() float64 { return float64(a.first.Load()) }),
	)
}
