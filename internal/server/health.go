package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

const (
	// lookEvery is the interval of the checks. GET /api/ready returns the result of the last check and does no work
	// itself, because clients without a session can send this request.
	lookEvery   = time.Second
	lookTimeout = 5 * time.Second
	// lookSoon is the interval while writes to PostgreSQL fail, so that the process is ready soon after they succeed
	// again.
	lookSoon = 150 * time.Millisecond
	// schemaEvery is the interval in which the schema of the database is compared with the schema of the migrations.
	schemaEvery = 30 * time.Second
	// failureTTL is how long the key server is not ready after a failed commit of audit rows, if there is no later
	// commit.
	failureTTL = 4 * time.Second
)

// health checks the parts that operations need, so that a failure is reported before an operation fails.
type health struct {
	cfg   Config
	store *sqlstore.Store
	rows  *audit.Writer
	key   *keyWatch
	own   func() error // returns an error if the process's own certificate or its CA is invalid
	// backups returns the problem of the backups; empty if there is none.
	backups func() string
	// replica returns the problem of the replication; empty if there is none.
	replica func() string

	compared time.Time // when the schema was last compared
	differs  atomic.Pointer[[]sqldb.SchemaFinding]

	seen    atomic.Pointer[[]keyserver.Readiness]
	failing map[string]bool // by part: whether the last check failed
	free    atomic.Uint64
	size    atomic.Uint64
}

func (h *health) run(ctx context.Context) {
	next := time.NewTimer(lookEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-h.key.changed:
		}
		h.look(ctx)
		next.Reset(h.pause())
	}
}

func (h *health) pause() time.Duration {
	if h.cfg.DatabaseURL != "" && (h.failing[writesPart] || h.failing[auditPart]) {
		return lookSoon
	}
	return lookEvery
}

// Names of parts that fail while PostgreSQL is unavailable: the audit log, and other writes to the database.
const (
	auditPart  = "audit"
	writesPart = "writes"
)

func (h *health) parts() []keyserver.Readiness { return *h.seen.Load() }

func (h *health) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	parts := []keyserver.Readiness{
		h.part(auditPart, h.audit(), "audit rows are written"),
		h.part(writesPart, h.store.Writable(ctx), "the database accepts writes"),
		h.part("schema", h.schema(ctx), "the database schema matches the migrations"),
		h.part("key", h.key.trouble(), "the key-encryption key opens the data keys"),
		h.part("chain", h.own(), "this server's own certificate is valid"),
	}
	if h.cfg.DatabaseURL == "" {
		parts = append(parts, h.part("volume", h.volume(), "the volume has enough free space"))
	}
	h.seen.Store(&parts)
}

// part returns the readiness of a part. If the part is not ready, RetryIn is lookEvery in seconds.
func (h *health) part(name string, err error, fine string) keyserver.Readiness {
	h.report(name, err)
	r := engine.Part(name, err, fine)
	if !r.Ready {
		r.RetryIn = int(lookEvery / time.Second)
	}
	return r
}

// report logs when a part begins to fail, and when it works again.
func (h *health) report(name string, err error) {
	failed := h.failing[name]
	switch {
	case err != nil && !failed:
		h.cfg.Logger.Warn("a part of the service is not ready", "part", name, "error", err, "cause", errors.Unwrap(err))
	case err == nil && failed:
		h.cfg.Logger.Info("a part of the service is ready again", "part", name)
	}
	h.failing[name] = err != nil
}

// audit returns an error if the last commit of audit rows failed. It returns the error for failureTTL only, because
// without requests there is no new commit. It returns no error if the database was restarted or replaced after the
// failure.
func (h *health) audit() error {
	if at, failing := h.rows.Failing(); failing && h.cfg.Clock().Sub(at) < failureTTL && !h.store.Replaced().After(at) {
		return fault.New(fault.NotReady, "the last audit rows could not be written, so operations are refused; see the log of the service")
	}
	return nil
}

// schema returns the error of the last comparison of the schema. It ignores a database that does not respond, because
// the part "writes" reports that failure.
func (h *health) schema(ctx context.Context) error {
	if now := h.cfg.Clock(); !h.failing[writesPart] && now.Sub(h.compared).Abs() >= schemaEvery {
		if findings, err := h.store.CheckSchema(ctx); err == nil {
			h.compared = now
			h.differs.Store(&findings)
		}
	}
	if findings := h.differs.Load(); findings != nil {
		if text := sqldb.Severe(*findings); text != "" {
			return fault.New(fault.NotReady, "%s", text)
		}
	}
	return nil
}

// warnings returns the warnings in the response of GET /api/ready. The key server works, but an administrator should
// correct its configuration or installation.
func (h *health) warnings() []string {
	all := h.cfg.warnings()
	if w := h.key.warning(); w != "" {
		all = append(all, w)
	}
	if w := h.store.NewerWarning(); w != "" {
		all = append(all, w)
	}
	if findings := h.differs.Load(); findings != nil && sqldb.Severe(*findings) == "" {
		for _, f := range *findings {
			all = append(all, f.Text)
		}
	}
	for _, late := range []func() string{h.backups, h.replica} {
		if w := late(); w != "" {
			all = append(all, w)
		}
	}
	return all
}

func (h *health) volume() error {
	v, err := datadir.VolumeOf(h.cfg.DataDir)
	if err != nil {
		return fault.New(fault.NotReady, "the volume of --data-dir cannot be read; check that it is mounted").Because(err)
	}
	h.free.Store(v.Free)
	h.size.Store(v.Size)
	if err := v.Check(uint64(h.cfg.MinFreeBytes)); err != nil { //nolint:gosec // validated
		return fault.New(fault.NotReady, "%s", err.Error())
	}
	return nil
}

func (h *health) observe(r prometheus.Registerer) {
	if h.cfg.DatabaseURL == "" {
		r.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_volume_free_bytes", Help: "Free space on the volume of --data-dir."},
				func() float64 { return float64(h.free.Load()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "keyserver_volume_size_bytes", Help: "Size of the volume of --data-dir."},
				func() float64 { return float64(h.size.Load()) }),
		)
	}
}

// readyParts is the collector of a metric with 1 or 0 for each part of GET /api/ready.
type readyParts func(context.Context) []keyserver.Readiness

var readyDesc = prometheus.NewDesc("keyserver_ready", "1 if a part of the service is ready, otherwise 0, as in GET /api/ready.", []string{"part"}, nil)

func (readyParts) Describe(to chan<- *prometheus.Desc) { to <- readyDesc }

func (p readyParts) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	for _, part := range p(ctx) {
		value := 0.0
		if part.Ready {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, value, part.Part)
	}
}
