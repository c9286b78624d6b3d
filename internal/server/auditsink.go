package server

import (
	"crypto/rand"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/sink"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

// auditSinks starts the delivery of audit rows to each --audit-sink.
func (s *Server) auditSinks() {
	if len(s.cfg.sinks) == 0 {
		return
	}
	// Only one process at a time uses an embedded database. All such processes use the zero holder id, so that this
	// process can continue the claim of an earlier process.
	holder := make([]byte, 16)
	if s.cfg.DatabaseURL != "" {
		_, _ = rand.Read(holder) // rand.Read never returns an error
	}
	config := sink.Config{
		Store: s.store, Key: s.tree.Signer.Verifier, Size: s.tree.Size, Holder: holder,
		Source: sink.Source{ServerName: s.cfg.ServerName, Version: version.String()},
		Out:    sink.NewStdout(s.cfg.Stdout), Clock: s.cfg.Clock, Logger: s.cfg.Logger, Metrics: sink.NewMetrics(s.registry),
	}
	for _, target := range s.cfg.sinks {
		s.background(sink.New(config, target).Run)
	}
}

func (c *Config) checkSinks() error {
	for _, target := range c.sinks {
		if err := target.Check(); err != nil {
			return fmt.Errorf("--audit-sink: %w", err)
		}
	}
	return nil
}
