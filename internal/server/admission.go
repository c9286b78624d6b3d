package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/server/admission"
)

// Values of --admission.
const (
	AdmissionOff      = "off"      // every build may serve
	AdmissionRequired = "required" // only a build that a release manifest lists may serve
)

// Limits of --admission-retry.
const (
	minAdmissionRetry = 100 * time.Millisecond
	maxAdmissionRetry = time.Hour
)

func (c *Config) validateAdmission() error {
	switch {
	case c.Admission == AdmissionOff:
		return nil
	case c.Admission != AdmissionRequired:
		return fmt.Errorf("--admission is %q; it must be %s or %s", c.Admission, AdmissionOff, AdmissionRequired)
	case c.ReleaseKey == "" || c.ReleaseManifest == "":
		return errors.New("--admission required needs both --release-key and --release-manifest")
	case c.AdmissionRetry < minAdmissionRetry || c.AdmissionRetry > maxAdmissionRetry:
		return fmt.Errorf("--admission-retry is %s; it must be from %s to %s", c.AdmissionRetry, minAdmissionRetry, maxAdmissionRetry)
	}
	return nil
}

// admission starts the watch of the release manifest, which runs until Shutdown. It returns the check that the API
// calls for every request, or nil if --admission is off. A rejected manifest does not stop the start, because an
// administrator may replace the manifest later. An unreadable release key stops the start, because the key is read only
// at the start.
func (s *Server) admission() (func() error, error) {
	if s.cfg.Admission == AdmissionOff {
		return nil, nil
	}
	key, err := admission.ReadPublicKey(s.cfg.ReleaseKey)
	if err != nil {
		return nil, fmt.Errorf("--release-key: %w", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the binary of this process: %w", err)
	}
	digest, err := admission.Digest(binary)
	if err != nil {
		return nil, fmt.Errorf("read the binary of this process: %w", err)
	}
	watch := admission.NewWatch(admission.WatchConfig{
		Key: key, Manifest: s.cfg.ReleaseManifest, Digest: digest, Retry: s.cfg.AdmissionRetry,
		Clock: s.cfg.Clock, Logger: s.cfg.Logger,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch.Run(ctx)
	}()
	s.onClose(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
	return watch.Refusal, nil
}
