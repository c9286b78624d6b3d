package server_test

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func TestASecondStartIsRefusedAtOnce(t *testing.T) {
	var second server.Config
	testserver.Start(t, func(c *server.Config) { second = *c })
	if s, err := server.Start(t.Context(), second); err == nil || !strings.Contains(err.Error(), "is in use by another process") {
		t.Errorf("two servers have one data directory: %v, %v", s, err)
	}
}

// TestASecondStartWaitsForTheFirst checks that a start with --data-dir-wait waits until the first process ends.
// Requests to the second process wait, too, and are not refused.
func TestASecondStartWaitsForTheFirst(t *testing.T) {
	says := &rig.Output{}
	var second server.Config
	first := testserver.Start(t, func(c *server.Config) { second = *c })
	pool := first.Pool(t)
	second.Listen, second.DataDirWait = rig.FreeAddress(t, "127.0.0.1"), rig.Patience
	second.Logger = slog.New(slog.NewTextHandler(says, nil))
	rig.Must(t, second.Validate())
	type started struct {
		*server.Server
		err error
	}
	start := make(chan started, 1)
	go func() {
		s, err := server.Start(t.Context(), second)
		start <- started{s, err}
	}()
	rig.Soon(t, "it says that it waits", func() bool { return strings.Contains(says.String(), "this process waits until") })
	asked := make(chan error, 1)
	go func() {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true}}
		resp, err := c.Get("https://" + second.Listen + "/api/health")
		if err == nil {
			err = resp.Body.Close()
		}
		asked <- err
	}()
	select {
	case err := <-asked:
		t.Fatalf("the first still serves, and the second has answered: %v", err)
	case s := <-start:
		t.Fatalf("the first still serves, and the second has started: %v", s.err)
	default:
	}
	first.Stop(t)
	s := <-start
	rig.Must(t, s.err)
	rig.Must(t, <-asked)
	rig.Must(t, s.Shutdown(t.Context()))
}

func TestDataDirWaitIsBounded(t *testing.T) {
	var c server.Config
	testserver.Start(t, func(o *server.Config) { c = *o })
	for _, wait := range []time.Duration{-time.Second, 5*time.Minute + time.Second} {
		c.DataDirWait = wait
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--data-dir-wait is "+wait.String()) {
			t.Errorf("%s: %v", wait, err)
		}
	}
}
