package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server/tlscert"
)

// filesEvery is how often the files of --tls-cert and --tls-key are read. Periodic reads work on every file system and
// for every way to replace a file; file system notifications do not.
const filesEvery = 5 * time.Second

// certificateFunc returns the certificate for a TLS handshake (tls.Config.GetCertificate).
type certificateFunc func(*tls.ClientHelloInfo) (*tls.Certificate, error)

type leaves struct {
	issued *tlscert.Issued // issued by a CA of this key server
	files  *tlscert.Files  // of --tls-cert; nil without the flag
	api    certificateFunc // from files or issued; nil for plain HTTP
}

// openLeaves issues or loads the certificates. Until Shutdown, a loop reads the files of --tls-cert again, and
// issued.Follow renews the issued certificate.
func (s *Server) openLeaves(ctx context.Context, files *tlscert.Files) (leaves, error) {
	state := s.bootstrap()
	issued, err := tlscert.Issue(ctx, tlscert.IssuedConfig{
		Ensure: func(ctx context.Context) (pki.Identity, ca.Authorities, error) {
			leaf, err := bootstrap.EnsureServerCertificate(ctx, state)
			if err != nil {
				return leaf, ca.Authorities{}, err
			}
			line, err := s.manager.Authorities(ctx)
			return leaf, line, err
		},
		Publish: s.publishAuthorities, Clock: s.cfg.Clock, Logger: s.cfg.Logger,
	})
	if err != nil {
		return leaves{}, err
	}
	l := leaves{issued: issued}
	switch {
	case s.cfg.InsecureHTTP:
	case files != nil:
		l.api, l.files = files.GetCertificate, files
		s.background(func(ctx context.Context) { each(ctx, filesEvery, files.Look) })
	default:
		l.api = issued.GetCertificate
	}
	return l, nil
}

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
	// Other users read this copy, so every user of the machine may read it.
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

// readiness returns the part of GET /api/ready about the files of --tls-cert.
func (l leaves) readiness() []keyserver.Readiness {
	if l.files == nil {
		return nil
	}
	return []keyserver.Readiness{l.files.Readiness()}
}

func (l leaves) observe(r prometheus.Registerer) {
	r.MustRegister(l.issued)
	if l.files != nil {
		r.MustRegister(l.files.Failures)
	}
	if l.api == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_tls_certificate_not_after_seconds", Help: "Expiry of the certificate that the API presents, in seconds since 1970.",
	}, func() float64 {
		c, err := l.api(nil)
		if err != nil {
			return 0
		}
		return float64(c.Leaf.NotAfter.Unix())
	}))
}
