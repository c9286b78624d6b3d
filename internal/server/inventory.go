package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/rewrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const (
	// inventoryEvery is the minimum pause between two counts. A pause is also at least inventoryShare times as long as
	// the last count, so that a large database is counted less often.
	inventoryEvery = 15 * time.Second
	inventoryShare = 500
	// inventoryTimeout is the time limit of one count.
	inventoryTimeout = time.Minute
)

// expiries contains label values for certificates and the time until expiry that each value stands for.
var expiries = []struct {
	within string
	time.Duration
}{{"expired", 0}, {"7d", 7 * 24 * time.Hour}, {"30d", 30 * 24 * time.Hour}, {"90d", 90 * 24 * time.Hour}}

// laterThan is the label value for certificates that expire after the last of expiries.
const laterThan = "later"

// inventory is the collector of metrics with the numbers of objects in the key server. A scrape returns the result of
// the last count, because a count reads entire tables.
type inventory struct {
	store   *sqlstore.Store
	wrapped *rewrap.Worker
	clock   func() time.Time
	idle    time.Duration
	logger  *slog.Logger

	seen    atomic.Pointer[counted]
	failing bool
}

type counted struct {
	sqlstore.Inventory
	custody keyserver.Custody
}

func (i *inventory) run(ctx context.Context) {
	for {
		began := i.clock()
		i.look(ctx)
		rest := time.NewTimer(max(inventoryEvery, inventoryShare*i.clock().Sub(began)))
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

func (i *inventory) look(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	now := i.clock()
	ends := make([]time.Time, len(expiries))
	for at, e := range expiries {
		ends[at] = now.Add(e.Duration)
	}
	var c counted
	var err error
	if c.Inventory, err = i.store.Inventory(within, now, i.idle, ends); err == nil {
		c.custody, err = i.wrapped.Custody(within)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !i.failing:
		i.logger.Warn("cannot count the objects of the key server; their metrics keep the old values", "error", err)
	case err == nil:
		i.seen.Store(&c)
	}
	i.failing = err != nil
}

var (
	heldKeys         = prometheus.NewDesc("keyserver_keys", "Keys by state, including destroyed keys.", []string{"state"}, nil)
	heldSessions     = prometheus.NewDesc("keyserver_sessions", "Valid sessions of all replicas by login method.", []string{"kind"}, nil)
	heldCertificates = prometheus.NewDesc("keyserver_certificates",
		"Certificates of principals and peers by time until they expire: expired, less than 7, 30 or 90 days, later.", []string{"expires"}, nil)
	heldPeers    = prometheus.NewDesc("keyserver_peers", "Key servers that are registered as peers.", nil, nil)
	heldDataKeys = prometheus.NewDesc("keyserver_data_keys", "Data keys by state.", []string{"state"}, nil)
	heldWrapped  = prometheus.NewDesc("keyserver_data_key_wrapped", "Keys that are encrypted under data keys, by the state of the data key.", []string{"state"}, nil)
	heldRefused  = prometheus.NewDesc("keyserver_rewrap_refused", "Rows that cannot be encrypted under the active data key, because they do not match their MACs.", nil, nil)
)

func (i *inventory) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldKeys, heldSessions, heldCertificates, heldPeers, heldDataKeys, heldWrapped, heldRefused} {
		to <- d
	}
}

func (i *inventory) Collect(to chan<- prometheus.Metric) {
	c := i.seen.Load()
	if c == nil {
		return // there is no count yet
	}
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	for _, state := range keyserver.KeyStates {
		gauge(heldKeys, c.Keys[state], string(state))
	}
	for _, kind := range sessionKinds {
		gauge(heldSessions, c.Sessions[kind], string(kind))
	}
	var before int64
	for at, n := range c.Certificates {
		label := laterThan
		if at < len(expiries) {
			label = expiries[at].within
		}
		gauge(heldCertificates, n-before, label)
		before = n
	}
	gauge(heldPeers, c.Peers)
	of, wrapped := map[keyserver.DataKeyState]int64{}, map[keyserver.DataKeyState]int64{}
	for _, k := range c.custody.DataKeys {
		of[k.State]++
		wrapped[k.State] += k.Wrapped
	}
	for _, state := range []keyserver.DataKeyState{keyserver.DataKeyActive, keyserver.DataKeyRetiring, keyserver.DataKeyRetired} {
		gauge(heldDataKeys, of[state], string(state))
		gauge(heldWrapped, wrapped[state], string(state))
	}
	gauge(heldRefused, c.custody.Rewrap.Refused)
}

// sessionKinds contains the kinds of sessions (contract 19).
var sessionKinds = []keyserver.SessionKind{
	keyserver.PasswordSession, keyserver.KubernetesSession, keyserver.LDAPSession, keyserver.CertificateSession,
	keyserver.DelegatedSession, keyserver.ScopedSession,
}
