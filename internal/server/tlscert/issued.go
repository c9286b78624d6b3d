package tlscert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const (
	// renewEvery is how often the issued certificate is checked. It is renewed when a third of its validity remains,
	// which is several months.
	renewEvery = time.Hour
	// renewTimeout is the time limit of one renewal.
	renewTimeout = time.Minute
	// issueRetry is the pause after a failed renewal.
	issueRetry = time.Second
)

// Issued is the server certificate that the active CA of this key server issues. It is renewed before it expires, and
// when another CA becomes active.
type Issued struct {
	IssuedConfig
	// OnIssuer is called when the certificate has another issuer than before. It may be nil. Set it before Follow runs.
	OnIssuer func()

	turn    sync.Mutex // held during a renewal, so that concurrent renewals do not issue several certificates
	current atomic.Pointer[servedCertificate]
	failing atomic.Pointer[string] // error of the last renewal; empty if it succeeded
	kick    chan struct{}
}

// IssuedConfig contains the functions that Issued uses.
type IssuedConfig struct {
	// Ensure returns the certificate in the database and the CAs. If a new certificate is due, Ensure first issues it.
	Ensure func(context.Context) (pki.Identity, ca.Authorities, error)
	// Publish makes the trusted CAs available to clients. It is called after each Ensure.
	Publish func([]*x509.Certificate) error
	Clock   func() time.Time
	Logger  *slog.Logger
}

// servedCertificate is a certificate with the chains for the API and for peers.
type servedCertificate struct {
	api, peers  *tls.Certificate
	authorities ca.Authorities
}

// Issue loads or issues the certificate and publishes the CAs. Follow renews it later.
func Issue(ctx context.Context, c IssuedConfig) (*Issued, error) {
	o := &Issued{IssuedConfig: c, kick: make(chan struct{}, 1)}
	o.failing.Store(new(string))
	if err := o.renew(ctx); err != nil {
		return nil, err
	}
	return o, nil
}

func newServed(id pki.Identity, line ca.Authorities, now time.Time) *servedCertificate {
	with := func(path []*x509.Certificate) *tls.Certificate {
		c := &tls.Certificate{Certificate: [][]byte{id.Certificate.Raw}, PrivateKey: id.Key, Leaf: id.Certificate}
		for _, ca := range path {
			c.Certificate = append(c.Certificate, ca.Raw)
		}
		return c
	}
	return &servedCertificate{with(line.Path(now)), with(line.PathForPeers(now)), line}
}

// GetCertificate implements tls.Config.GetCertificate for the API.
func (o *Issued) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return o.current.Load().api, nil
}

// ForPeers returns the certificate with the chain that peers verify.
func (o *Issued) ForPeers() *tls.Certificate { return o.current.Load().peers }

// Follow subscribes to changes of the store and returns a loop. The loop runs until its context ends. It renews the
// certificate before it expires, and loads it again when a CA has changed.
func (o *Issued) Follow(store *sqlstore.Store) func(context.Context) {
	store.OnChange(o.changed)
	return func(ctx context.Context) {
		again := time.NewTimer(0) // the certificate may have changed since Issue loaded it
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-o.kick:
			case <-again.C:
			}
			again.Reset(renewEvery)
			if err := o.renew(ctx); err != nil {
				o.complain(ctx, err)
				again.Reset(issueRetry)
			}
		}
	}
}

// changed wakes the loop if a CA has changed.
func (o *Issued) changed(changes []keyserver.Change) {
	if keyserver.AnyWanted(changes, func(c keyserver.Change) bool { return c.Kind == keyserver.ChangeAuthority }) {
		select {
		case o.kick <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

// Present loads the certificate from the database, serves it from then on, and returns it. So all replicas report the
// same certificate, even if the renewal loop of one replica is late. If the database cannot be read, Present returns
// the current certificate.
func (o *Issued) Present(ctx context.Context) *x509.Certificate {
	if err := o.renew(ctx); err != nil {
		o.complain(ctx, err)
	}
	return o.current.Load().api.Leaf
}

// complain logs an error, unless it is the same as the last error.
func (o *Issued) complain(ctx context.Context, err error) {
	why := err.Error()
	if ctx.Err() != nil || *o.failing.Swap(&why) == why {
		return
	}
	o.Logger.Warn("cannot renew, load or publish the server certificate; retrying", "error", why, "notAfter", o.current.Load().api.Leaf.NotAfter)
}

// renew loads the certificate from the database. If a new certificate is due, Ensure issues it first.
func (o *Issued) renew(ctx context.Context) error {
	o.turn.Lock()
	defer o.turn.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	id, line, err := o.Ensure(ctx)
	if err != nil {
		return err
	}
	held := o.current.Swap(newServed(id, line, o.Clock()))
	if held != nil && !held.api.Leaf.Equal(id.Certificate) {
		o.Logger.Info("the server certificate was renewed", "notAfter", id.Certificate.NotAfter, "issuer", pki.SlashName(id.Certificate.Issuer))
		if o.OnIssuer != nil && !bytes.Equal(held.api.Leaf.RawIssuer, id.Certificate.RawIssuer) {
			o.OnIssuer()
		}
	}
	if err := o.Publish(line.Trusted()); err != nil {
		return err
	}
	o.failing.Store(new(string))
	return nil
}

// Trouble returns an error if the certificate, or the CA that issued it, is expired or not yet valid.
func (o *Issued) Trouble() error {
	held, now := o.current.Load(), o.Clock()
	if end := held.authorities.End(); !now.Before(end) {
		return fault.New(fault.NotReady, "the internal CA expired on %s, so clients reject its certificates; create and distribute another CA: docs/guides/replace-the-ca.md, \"When the CA has expired\"",
			end.UTC().Format(time.RFC3339))
	}
	if end := held.api.Leaf.NotAfter; !now.Before(end) {
		return fault.New(fault.NotReady, "this server's own certificate expired on %s and could not be renewed; see the log", end.UTC().Format(time.RFC3339))
	}
	if begin := held.authorities.Begin(); now.Before(begin) {
		return fault.New(fault.NotReady, "the internal CA is not valid before %s by this server's clock, so clients reject its certificates; correct the clock, or if it is right, create and distribute another CA: docs/guides/replace-the-ca.md, \"When the CA has yet to begin\"",
			begin.UTC().Format(time.RFC3339))
	}
	if begin := held.api.Leaf.NotBefore; now.Before(begin) {
		return fault.New(fault.NotReady, "this server's own certificate is not valid before %s by this server's clock; correct the clock, or if it is right, wait an hour for a new certificate or restart",
			begin.UTC().Format(time.RFC3339))
	}
	return nil
}

var (
	authorityDesc = prometheus.NewDesc("keyserver_authority_not_after_seconds",
		"Expiry of an internal CA, in seconds since 1970. One CA is always active.", []string{"state"}, nil)
	ownDesc = prometheus.NewDesc("keyserver_server_certificate_not_after_seconds",
		"Expiry of the certificate from the internal CA that peers see, in seconds since 1970.", nil, nil)
)

// Describe implements prometheus.Collector.
func (o *Issued) Describe(to chan<- *prometheus.Desc) {
	to <- authorityDesc
	to <- ownDesc
}

// Collect implements prometheus.Collector. If several CAs have the same state, it reports the earliest expiry.
func (o *Issued) Collect(to chan<- prometheus.Metric) {
	held := o.current.Load()
	ends := map[keyserver.AuthorityState]time.Time{}
	for _, m := range held.authorities.Members {
		if end, ok := ends[m.State]; !ok || m.Parsed.NotAfter.Before(end) {
			ends[m.State] = m.Parsed.NotAfter
		}
	}
	for state, end := range ends {
		to <- prometheus.MustNewConstMetric(authorityDesc, prometheus.GaugeValue, float64(end.Unix()), string(state))
	}
	to <- prometheus.MustNewConstMetric(ownDesc, prometheus.GaugeValue, float64(held.api.Leaf.NotAfter.Unix()))
}
