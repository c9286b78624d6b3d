package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
)

const (
	// filesEvery is how often the files of --tls-cert and --tls-key are looked
	// at. Looking is two small reads, works on every file system, and sees a
	// Secret's swapped directory as it sees a file written in place.
	filesEvery = 5 * time.Second
	// renewEvery is how often the own certificate is looked at. It is renewed
	// when a third of its life is left, which is months.
	renewEvery = time.Hour
	// renewTimeout bounds one renewal.
	renewTimeout = time.Minute
)

// shown answers the certificate for a handshake (tls.Config.GetCertificate).
type shown func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// certificateFiles is the pair of --tls-cert and --tls-key, taken over when
// the files change. A pair that cannot be used changes nothing.
type certificateFiles struct {
	cert, key string
	clock     func() time.Time
	logger    *slog.Logger
	failures  prometheus.Counter

	current atomic.Pointer[tls.Certificate]
	// broken is why the files are not what is shown, empty where they are.
	broken atomic.Pointer[string]
	judged [sha256.Size]byte // content that was judged last; of look alone
}

// newCertificateFiles reads the pair, which has to be usable: only a running
// server has an earlier one to go on with.
func newCertificateFiles(c Config) (*certificateFiles, error) {
	f := &certificateFiles{cert: c.TLSCert, key: c.TLSKey, clock: c.Clock, logger: c.Logger, failures: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "keyserver_tls_certificate_reload_failures_total",
		Help: "Changes of --tls-cert and --tls-key that could not be used; the certificate before them goes on serving.",
	})}
	pair, digest, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key cannot be used: %w", err)
	}
	f.judged = digest
	f.current.Store(pair)
	f.broken.Store(new(string))
	return f, nil
}

func (f *certificateFiles) show(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// run looks at the files again and again until ctx ends.
func (f *certificateFiles) run(ctx context.Context) {
	each(ctx, filesEvery, f.look)
}

// look takes the files over if they changed.
func (f *certificateFiles) look() {
	pair, digest, err := f.read()
	if err == nil && digest == f.judged && *f.broken.Load() == "" {
		return
	}
	if err == nil && !f.clock().Before(pair.Leaf.NotAfter) {
		err = fmt.Errorf("the certificate expired on %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	f.judged = digest
	if err != nil {
		f.refuse(err)
		return
	}
	f.current.Store(pair)
	f.broken.Store(new(string))
	f.logger.Info("the certificate of the API was replaced", "subject", pki.SlashName(pair.Leaf.Subject), "notAfter", pair.Leaf.NotAfter)
}

// refuse goes on with the certificate there is. A lasting failure is one
// record and not one for each look.
func (f *certificateFiles) refuse(err error) {
	why := err.Error()
	if *f.broken.Swap(&why) == why {
		return
	}
	f.failures.Inc()
	f.logger.Warn("--tls-cert and --tls-key cannot be used; the certificate before them goes on serving",
		"error", why, "notAfter", f.current.Load().Leaf.NotAfter)
}

// read reads both files. Whoever replaces them does so one after the other, so
// a pair that does not match is read once more.
func (f *certificateFiles) read() (pair *tls.Certificate, digest [sha256.Size]byte, err error) {
	for range 2 {
		if pair, digest, err = f.readOnce(); err == nil {
			return pair, digest, nil
		}
	}
	return nil, digest, err
}

func (f *certificateFiles) readOnce() (*tls.Certificate, [sha256.Size]byte, error) {
	var digest [sha256.Size]byte
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return nil, digest, err
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return nil, digest, err
	}
	defer clear(key)
	whole := sha256.New()
	for _, part := range [][]byte{cert, key} {
		sum := sha256.Sum256(part)
		whole.Write(sum[:])
	}
	whole.Sum(digest[:0])
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, digest, err
	}
	return &pair, digest, nil
}

// readiness is the part of GET /api/ready. The service is ready either way:
// what it shows is still good, and taking it out would help nobody.
func (f *certificateFiles) readiness() keyserver.Readiness {
	r := keyserver.Readiness{Part: "certificate", Ready: true, Detail: "the API shows the certificate of --tls-cert"}
	if *f.broken.Load() != "" {
		r.Detail = "the files of --tls-cert and --tls-key cannot be used, the log says why; the certificate before them serves until " +
			f.current.Load().Leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	return r
}

// until is when the certificate by the internal CA, or that CA, expires.
func (l leaves) until() time.Time {
	own := l.own()
	until := own.Leaf.NotAfter
	for _, der := range own.Certificate[1:] {
		if ca, err := x509.ParseCertificate(der); err == nil && ca.NotAfter.Before(until) {
			until = ca.NotAfter
		}
	}
	return until
}

// readiness are the parts of GET /api/ready that certificates add.
func (l leaves) readiness() []keyserver.Readiness {
	if l.files == nil {
		return nil
	}
	return []keyserver.Readiness{l.files.readiness()}
}

// observe registers the metrics of the API's certificate.
func (l leaves) observe(r prometheus.Registerer) {
	if l.files != nil {
		r.MustRegister(l.files.failures)
	}
	if l.api == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_tls_certificate_not_after_seconds", Help: "When the certificate that the API shows expires, in seconds since 1970.",
	}, func() float64 {
		c, err := l.api(nil)
		if err != nil {
			return 0
		}
		return float64(c.Leaf.NotAfter.Unix())
	}))
}

// ownCertificate is the certificate by the internal CA, renewed in time.
type ownCertificate struct {
	keep    func(context.Context) (pki.Identity, error)
	ca      []byte // DER
	logger  *slog.Logger
	turn    sync.Mutex // of renewals, or two would each issue a certificate
	current atomic.Pointer[tls.Certificate]
}

func newOwnCertificate(p bootstrap.Prepared, keep func(context.Context) (pki.Identity, error), logger *slog.Logger) *ownCertificate {
	o := &ownCertificate{keep: keep, ca: p.CA.Certificate.Raw, logger: logger}
	o.take(p.Server)
	return o
}

func (o *ownCertificate) take(id pki.Identity) {
	o.current.Store(&tls.Certificate{
		Certificate: [][]byte{id.Certificate.Raw, o.ca}, PrivateKey: id.Key, Leaf: id.Certificate,
	})
}

func (o *ownCertificate) show(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return o.current.Load(), nil
}

// run renews the certificate when it is time, until ctx ends.
func (o *ownCertificate) run(ctx context.Context) {
	each(ctx, renewEvery, func() { o.renew(ctx) })
}

// present is the certificate that handshakes show from here on: that of the
// database, so that whoever asks two replicas is told of one certificate, not of
// an older and a newer one for as long as run takes. Where the database cannot
// be asked, it is what is shown so far.
func (o *ownCertificate) present(ctx context.Context) *x509.Certificate {
	o.renew(ctx)
	return o.current.Load().Leaf
}

// renew takes over what another replica renewed, or renews.
func (o *ownCertificate) renew(ctx context.Context) {
	o.turn.Lock()
	defer o.turn.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	id, err := o.keep(ctx)
	held := o.current.Load().Leaf
	switch {
	case err != nil && errors.Is(err, context.Canceled):
	case err != nil:
		o.logger.Warn("the server certificate could not be kept up to date; trying again", "error", err, "notAfter", held.NotAfter)
	case !held.Equal(id.Certificate):
		o.take(id)
		o.logger.Info("the server certificate was renewed", "notAfter", id.Certificate.NotAfter)
	}
}

// each calls work every period until ctx ends.
func each(ctx context.Context, period time.Duration, work func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			work()
		}
	}
}
