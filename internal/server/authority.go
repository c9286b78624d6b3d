package server

import (
	"bytes"
	"context"
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

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const (
	// stepEvery is how often it is looked whether an authority is to be prepared,
	// activated or retired.
	stepEvery = time.Minute
	// issueRetry is how soon the own certificate is looked at again where that
	// failed.
	issueRetry = time.Second
)

// leaves are the certificates of the two listeners.
type leaves struct {
	issued  *ownCertificate
	own     func() *tls.Certificate                     // issued by an authority of this key server, as peers are shown it
	api     shown                                       // the one of --tls-cert, or own; nil for plain HTTP
	files   *certificateFiles                           // those of --tls-cert, nil where the flag is not given
	present func(ctx context.Context) *x509.Certificate // own, once it is what the database has
}

// openLeaves issues or loads the certificates. They are current until Shutdown once follow runs.
func (s *Server) openLeaves(ctx context.Context, files *certificateFiles) (leaves, error) {
	state := s.bootstrap()
	own := &ownCertificate{
		keep: func(ctx context.Context) (pki.Identity, ca.Line, error) {
			leaf, err := bootstrap.KeepServer(ctx, state)
			if err != nil {
				return leaf, ca.Line{}, err
			}
			line, err := s.manager.Line(ctx)
			return leaf, line, err
		},
		publish: s.publishAuthorities, clock: s.cfg.Clock, logger: s.cfg.Logger, kick: make(chan struct{}, 1),
	}
	own.failing.Store(new(string))
	if err := own.renew(ctx); err != nil {
		return leaves{}, err
	}
	l := leaves{issued: own, own: own.forPeers, present: own.present}
	switch {
	case s.cfg.InsecureHTTP:
	case files != nil:
		l.api, l.files = files.show, files
		s.background(files.run)
	default:
		l.api = own.show
	}
	return l, nil
}

// publishAuthorities writes the certificates of the authorities for clients.
func (s *Server) publishAuthorities(trusted []*x509.Certificate) error {
	var bundle []byte
	for _, ca := range trusted {
		bundle = append(bundle, pki.EncodePEM(ca.Raw)...)
	}
	if err := writeBundle(s.CAFile(), bundle, privateFile); err != nil {
		return fmt.Errorf("write the CA certificates: %w", err)
	}
	if s.cfg.CAFile == "" {
		return nil
	}
	// Made to be read by others.
	if err := writeBundle(s.cfg.CAFile, bundle, publicFile); err != nil {
		return fmt.Errorf("--ca-file cannot be written: %w", err)
	}
	return nil
}

func writeBundle(path string, want []byte, mode os.FileMode) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
		return nil
	}
	return writeFile(path, want, mode)
}

// ownCertificate is the certificate by the authority that issues, which follows the
// authorities, and is renewed in time.
type ownCertificate struct {
	keep     func(context.Context) (pki.Identity, ca.Line, error)
	publish  func([]*x509.Certificate) error
	onIssuer func() // called when another authority has issued it; may be nil
	clock    func() time.Time
	logger   *slog.Logger
	turn     sync.Mutex // of renewals, or two would each issue a certificate
	current  atomic.Pointer[shownCertificate]
	failing  atomic.Pointer[string] // why, empty where it did not
	kick     chan struct{}
}

// shownCertificate is one certificate with the ways to it.
type shownCertificate struct {
	api, peers *tls.Certificate
	line       ca.Line
}

func newShown(id pki.Identity, line ca.Line, now time.Time) *shownCertificate {
	with := func(path []*x509.Certificate) *tls.Certificate {
		c := &tls.Certificate{Certificate: [][]byte{id.Certificate.Raw}, PrivateKey: id.Key, Leaf: id.Certificate}
		for _, ca := range path {
			c.Certificate = append(c.Certificate, ca.Raw)
		}
		return c
	}
	return &shownCertificate{with(line.Path(now)), with(line.PathForPeers(now)), line}
}

func (o *ownCertificate) show(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return o.current.Load().api, nil
}

func (o *ownCertificate) forPeers() *tls.Certificate { return o.current.Load().peers }

// follow is the loop that takes over what changed, and renews the certificate when
// it is time, until its context ends.
func (o *ownCertificate) follow(store *sqlstore.Store) func(context.Context) {
	store.OnChange(o.changed)
	return func(ctx context.Context) {
		again := time.NewTimer(0) // it may have changed since the first look
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

// changed wakes the loop where an authority has changed.
func (o *ownCertificate) changed(changes []keyserver.Change) {
	if keyserver.Concerned(changes, func(c keyserver.Change) bool { return c.Kind == keyserver.ChangeAuthority }) {
		select {
		case o.kick <- struct{}{}:
		default: // somebody has asked already
		}
	}
}

// present is the certificate that handshakes show from here on: that of the
// database, so that whoever asks two replicas is told of one certificate, not of
// an older and a newer one for as long as the loop takes. Where the database cannot
// be asked, it is what is shown so far.
func (o *ownCertificate) present(ctx context.Context) *x509.Certificate {
	if err := o.renew(ctx); err != nil {
		o.complain(ctx, err)
	}
	return o.current.Load().api.Leaf
}

// complain logs a failure once for as long as it lasts.
func (o *ownCertificate) complain(ctx context.Context, err error) {
	why := err.Error()
	if ctx.Err() != nil || *o.failing.Swap(&why) == why {
		return
	}
	o.logger.Warn("the server certificate could not be kept up to date; trying again", "error", why, "notAfter", o.current.Load().api.Leaf.NotAfter)
}

// renew takes over what the database has, after it was issued anew if that is due.
func (o *ownCertificate) renew(ctx context.Context) error {
	o.turn.Lock()
	defer o.turn.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	id, line, err := o.keep(ctx)
	if err != nil {
		return err
	}
	held := o.current.Swap(newShown(id, line, o.clock()))
	if held != nil && !held.api.Leaf.Equal(id.Certificate) {
		o.logger.Info("the server certificate was renewed", "notAfter", id.Certificate.NotAfter, "issuer", pki.SlashName(id.Certificate.Issuer))
		if o.onIssuer != nil && !bytes.Equal(held.api.Leaf.RawIssuer, id.Certificate.RawIssuer) {
			o.onIssuer()
		}
	}
	if err := o.publish(line.Trusted()); err != nil {
		return err
	}
	o.failing.Store(new(string))
	return nil
}

// trouble says what is wrong with the certificate, or with who issued it.
func (o *ownCertificate) trouble() error {
	held, now := o.current.Load(), o.clock()
	if end := held.line.End(); !now.Before(end) {
		return fault.New(fault.NotReady, "this key server's own CA expired on %s, and nobody trusts what it issued: have another one made and hand it out, as docs/operations.md says under \"When the CA has expired\"",
			end.UTC().Format(time.RFC3339))
	}
	if end := held.api.Leaf.NotAfter; !now.Before(end) {
		return fault.New(fault.NotReady, "this server's own certificate expired on %s and could not be renewed; the log says why", end.UTC().Format(time.RFC3339))
	}
	if begin := held.line.Begin(); now.Before(begin) {
		return fault.New(fault.NotReady, "this key server's own CA begins on %s, which is yet to come by this server's clock, and nobody trusts what it issued: set the clock right, or where it is right have another CA made and hand it out, as docs/operations.md says under \"When the CA has yet to begin\"",
			begin.UTC().Format(time.RFC3339))
	}
	if begin := held.api.Leaf.NotBefore; now.Before(begin) {
		return fault.New(fault.NotReady, "this server's own certificate begins on %s, which is yet to come by this server's clock: set the clock right; where it is right, the certificate is issued anew within an hour, or by a restart",
			begin.UTC().Format(time.RFC3339))
	}
	return nil
}

var (
	authorityDesc = prometheus.NewDesc("keyserver_authority_not_after_seconds",
		"When an authority of the key server's own expires, in seconds since 1970. There is always one that is active.", []string{"state"}, nil)
	ownDesc = prometheus.NewDesc("keyserver_server_certificate_not_after_seconds",
		"When the certificate by the key server's own authority expires, which peers are shown, in seconds since 1970.", nil, nil)
)

// Describe implements prometheus.Collector.
func (o *ownCertificate) Describe(to chan<- *prometheus.Desc) {
	to <- authorityDesc
	to <- ownDesc
}

// Collect implements prometheus.Collector. Of several that retire it is the one that
// ends first.
func (o *ownCertificate) Collect(to chan<- prometheus.Metric) {
	held := o.current.Load()
	ends := map[keyserver.AuthorityState]time.Time{}
	for _, m := range held.line.Members {
		if end, ok := ends[m.State]; !ok || m.Parsed.NotAfter.Before(end) {
			ends[m.State] = m.Parsed.NotAfter
		}
	}
	for state, end := range ends {
		to <- prometheus.MustNewConstMetric(authorityDesc, prometheus.GaugeValue, float64(end.Unix()), string(state))
	}
	to <- prometheus.MustNewConstMetric(ownDesc, prometheus.GaugeValue, float64(held.api.Leaf.NotAfter.Unix()))
}

// authorities does what is due without anybody's word.
type authorities struct {
	manager *ca.Manager
	rows    *audit.Writer
	system  keyserver.SystemID
	logger  *slog.Logger
}

func (a authorities) run(ctx context.Context) {
	a.look(ctx)
	each(ctx, stepEvery, func() { a.look(ctx) })
}

// look takes one step, if one is due. Its row is durable before it is taken.
func (a authorities) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	step, err := a.manager.Next(ctx)
	if err == nil && step.Action != "" {
		err = a.take(ctx, step)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		a.logger.Warn("the key server's own CAs could not be looked after; trying again", "error", err)
	}
}

func (a authorities) take(ctx context.Context, step ca.Step) error {
	row := keyserver.AuditEntry{
		Operation: keyserver.OpChangeAuthority.Key, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession,
		Principal: keyserver.PrincipalRef{System: a.system}, Object: string(step.Action),
	}
	if !step.ID.IsZero() {
		row.Object += " " + step.ID.Base64()
	}
	if err := a.rows.Write(ctx, row); err != nil {
		return err
	}
	err := a.manager.Take(ctx, step)
	if err == nil {
		a.logger.Info("the key server's own CAs went on", "action", step.Action)
		return nil
	}
	row.Outcome, row.Reason = keyserver.Failed, string(fault.ReasonOf(err))
	if f := fault.As(err); f != nil && f.Code == fault.AuthorityState {
		return a.rows.Write(ctx, row) // another replica was faster
	}
	return errors.Join(err, a.rows.Write(ctx, row))
}
