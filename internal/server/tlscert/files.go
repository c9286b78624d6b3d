package tlscert

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Files is the certificate of --tls-cert with its key. Look loads it again when the files change. If the new files
// cannot be used, the current certificate stays in use.
type Files struct {
	// Failures counts the changes of the files that could not be used.
	Failures prometheus.Counter

	cert, key string
	clock     func() time.Time
	logger    *slog.Logger

	current atomic.Pointer[tls.Certificate]
	// broken is the reason why the certificate in the current files is not used, or empty if it is used.
	broken atomic.Pointer[string]
	judged [sha256.Size]byte // hash of the files at the last check; only Look uses it
}

// OpenFiles reads the PEM files cert and key. It fails if they cannot be used. If the certificate is expired or not yet
// valid, it only logs a warning.
func OpenFiles(cert, key string, clock func() time.Time, logger *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, clock: clock, logger: logger, Failures: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "keyserver_tls_certificate_reload_failures_total",
		Help: "Changes of --tls-cert and --tls-key that could not be used; the previous certificate stays in use.",
	})}
	pair, digest, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key cannot be used: %w", err)
	}
	f.judged = digest
	f.current.Store(pair)
	f.broken.Store(new(string))
	if err := f.valid(pair); err != nil { // only a warning, because there is no other certificate to use
		logger.Warn("the certificate of --tls-cert is not valid now, so clients reject it; replace the files", "error", err)
	}
	return f, nil
}

// GetCertificate implements tls.Config.GetCertificate.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.current.Load(), nil
}

// Look reads the files and uses their certificate if they changed. Only one goroutine may call it.
func (f *Files) Look() {
	pair, digest, err := f.read()
	if err == nil && digest == f.judged && *f.broken.Load() == "" {
		return
	}
	if err == nil {
		err = f.valid(pair)
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

// valid rejects a certificate that is expired or not yet valid. Each call of Look tries the files again, so a
// certificate that becomes valid later is used from then on.
func (f *Files) valid(pair *tls.Certificate) error {
	if err := pki.CheckValidity(pair.Leaf, f.clock()); err != nil {
		return fmt.Errorf("the certificate cannot be used: %w", err)
	}
	return nil
}

// refuse keeps the current certificate and logs and counts the error, unless it is the same as the last error.
func (f *Files) refuse(err error) {
	why := err.Error()
	if *f.broken.Swap(&why) == why {
		return
	}
	f.Failures.Inc()
	f.logger.Warn("--tls-cert and --tls-key cannot be used; the previous certificate stays in use",
		"error", why, "notAfter", f.current.Load().Leaf.NotAfter)
}

// read reads both files. If this fails, it reads both files once more, because another process may be replacing them
// one after the other.
func (f *Files) read() (pair *tls.Certificate, digest [sha256.Size]byte, err error) {
	for range 2 {
		if pair, digest, err = f.readOnce(); err == nil {
			return pair, digest, nil
		}
	}
	return nil, digest, err
}

func (f *Files) readOnce() (*tls.Certificate, [sha256.Size]byte, error) {
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
	pair, err := certtext.KeyPair(cert, key)
	if err != nil {
		return nil, digest, err
	}
	return &pair, digest, nil
}

// Readiness returns the part of GET /api/ready. It is always ready: the current certificate still works, and removing
// the server from the load balancer would not help.
func (f *Files) Readiness() keyserver.Readiness {
	r := keyserver.Readiness{Part: "certificate", Ready: true, Detail: "the API uses the certificate of --tls-cert"}
	if *f.broken.Load() != "" {
		r.Detail = "the files of --tls-cert and --tls-key cannot be used (see the log); the previous certificate expires on " +
			f.current.Load().Leaf.NotAfter.UTC().Format(time.RFC3339)
	}
	return r
}
