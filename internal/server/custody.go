package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
)

const (
	// kekStartTimeout is how long a start waits for the KMS provider. keyPause is the pause between two attempts.
	kekStartTimeout = 2 * time.Minute
	keyPause        = 2 * time.Second

	// fileKey is the value of --kek and --kek-previous for the key file in the data directory.
	fileKey = "file"
)

func (c *Config) validateKEK() error {
	for flag, url := range map[string]string{"--kek": c.KEK, "--kek-previous": c.KEKPrevious} {
		if url == "" || url == fileKey {
			continue
		}
		provider, err := keyring.Open(context.Background(), url) // Open does not connect to the KMS provider
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if err := provider.Close(); err != nil {
			return err
		}
	}
	switch {
	case c.KEK != "" || c.KEKPrevious == "":
		return nil
	case c.KEKPrevious == fileKey:
		return errors.New("--kek-previous file requires --kek with the new key; without --kek, the file is the present key")
	}
	return errors.New("--kek-previous requires --kek with the new key; --kek file is the key file in --data-dir")
}

// openProvider opens the key-encryption key. It runs before the database is opened, because it creates a new key file
// only if there is no database.
func (s *Server) openProvider(ctx context.Context) (*keyring.Provider, error) {
	url := s.cfg.KEK
	if s.cfg.keyInFile() {
		if err := makeDataDir(s.cfg.DataDir); err != nil {
			return nil, err
		}
		var err error
		if url, err = keyring.EnsureFileKey(s.cfg.DataDir); err != nil {
			return nil, err
		}
	}
	provider, err := s.keep(ctx, "--kek", url)
	if err != nil {
		return nil, err
	}
	return provider, makeDataDir(s.cfg.DataDir)
}

func (s *Server) keep(ctx context.Context, flag, url string) (*keyring.Provider, error) {
	provider, err := keyring.Open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	s.onClose(func(context.Context) error { return provider.Close() })
	return provider, nil
}

// openKeyring opens the data keys. If the KMS provider does not respond, it waits for up to kekStartTimeout, so that an
// administrator can restart the programs in any order.
func (s *Server) openKeyring(ctx context.Context, provider *keyring.Provider) (*keyring.Keyring, error) {
	o := keyring.Options{Clock: s.cfg.Clock}
	if url := s.cfg.KEKPrevious; url != "" {
		var err error
		if url == fileKey {
			if url, err = keyring.FileKey(s.cfg.DataDir); err != nil {
				return nil, fmt.Errorf("--kek-previous: %w", err)
			}
		}
		if o.Previous, err = s.keep(ctx, "--kek-previous", url); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kekStartTimeout)
	defer cancel()
	for waiting := false; ; waiting = true {
		ring, err := keyring.Start(ctx, provider, s.store, o)
		switch {
		case err == nil:
			if needed := ring.KEK(ctx).PreviousNeeded; needed != nil && !*needed {
				s.cfg.Logger.Warn("--kek-previous is no longer needed, because --kek opens all data keys of the database; omit it at the next start")
			}
			return ring, nil
		case !errors.Is(err, keyring.ErrUnavailable) || ctx.Err() != nil:
			return nil, err
		case !waiting:
			s.cfg.Logger.Warn("waiting for the key-encryption key", "error", err, "atMost", kekStartTimeout.String())
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(keyPause):
		}
	}
}

func (c *Config) warnings() []string {
	var all []string
	if c.keyNextToDatabase() {
		all = append(all, "the key-encryption key and the database are in one directory (--data-dir), so a copy of the directory contains all keys; see --kek")
	}
	if c.keyInFile() {
		const others = 0o007 // the group may read the file: it may be the group of the volume, as with fsGroup in Kubernetes
		if info, err := os.Stat(filepath.Join(c.DataDir, keyring.KeyFile)); err == nil && info.Mode().Perm()&others != 0 {
			all = append(all, "the file of the key-encryption key ("+keyring.KeyFile+" in --data-dir) can be read by all users of this machine; run chmod 600, and consider a new key")
		}
	}
	return all
}

func (c *Config) keyInFile() bool { return c.KEK == "" || c.KEK == fileKey }

func (c *Config) keyNextToDatabase() bool { return c.keyInFile() && c.DatabaseURL == "" }

// observeKey registers a metric that is 1 if the key-encryption key is next to the database.
func (s *Server) observeKey() {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "keyserver_kek_beside_database", Help: "1 if the key-encryption key and the database are in one directory."})
	s.registry.MustRegister(gauge)
	if s.cfg.keyNextToDatabase() {
		gauge.Set(1)
	}
}
