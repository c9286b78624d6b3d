package server

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/sink"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/version"
)

// auditSinks starts a delivery for each --audit-sink.
func (s *Server) auditSinks(store *sqlstore.Store, trail *tree.Tree, registry *prometheus.Registry) error {
	if len(s.cfg.sinks) == 0 {
		return nil
	}
	out, err := separate(s.cfg.Stdout)
	if err != nil {
		return err
	}
	// Nobody else has an embedded database, so that whatever was held there before is
	// this process's.
	holder := make([]byte, 16)
	if s.cfg.DatabaseURL != "" {
		_, _ = rand.Read(holder) // it never fails
	}
	config := sink.Config{
		Store: store, Key: trail.Signer.Verifier, Size: trail.Size, Holder: holder,
		Source: sink.Source{ServerName: s.cfg.ServerName, Version: version.String()},
		Out:    sink.NewStdout(out), Clock: s.cfg.Clock, Logger: s.cfg.Logger, Metrics: sink.NewMetrics(registry),
	}
	for _, target := range s.cfg.sinks {
		s.background(sink.New(config, target).Run)
	}
	return nil
}

func (c *Config) checkSinks() error {
	for _, target := range c.sinks {
		if err := target.Check(); err != nil {
			return fmt.Errorf("--audit-sink: %w", err)
		}
	}
	return nil
}

// separate gives a file a descriptor of its own: a process that writes to standard
// output after its reader has gone is killed, if it does so by descriptor 1.
func separate(out io.Writer) (io.Writer, error) {
	f, ok := out.(*os.File)
	if !ok {
		return out, nil
	}
	descriptor, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("--audit-sink: standard output cannot be used: %w", err)
	}
	return os.NewFile(uintptr(descriptor), f.Name()), nil
}
