package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// spans is a collector that counts spans.
type spans struct {
	collector.UnimplementedTraceServiceServer
	taken atomic.Int64
}

// Export implements the service of a collector.
func (s *spans) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, of := range in.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			s.taken.Add(int64(len(scope.GetSpans())))
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// BenchmarkObserved counts HMAC requests to key servers with observation, in windows that alternate with windows of a
// server without it. The first server sends the default share of its traces, the second all traces. The metrics of the
// third are read each second, fifteen times as often as usual. control is a second server without observation.
func BenchmarkObserved(b *testing.B) {
	alone := startService(b, false)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(b, err)
	var taken spans
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, &taken)
	go func() { _ = srv.Serve(listener) }() // until it is stopped
	b.Cleanup(srv.Stop)
	endpoint, metrics := "http://"+listener.Addr().String(), rig.FreeAddress(b, "127.0.0.1")
	for _, watched := range []struct {
		name  string
		args  []string
		begin func(b *testing.B) func() (end func())
	}{
		{"control", nil, nothing},
		{"traces-1%", []string{"--otlp-endpoint", endpoint}, nothing},
		{"traces-all", []string{"--otlp-endpoint", endpoint, "--otlp-sampling", "1"}, nothing},
		{"metrics", []string{"--metrics-listen", metrics}, func(b *testing.B) func() func() { return scrape(b, "http://"+metrics+"/metrics") }},
	} {
		with := startProcess(b, alone.binary, watched.args...)
		for _, conns := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/conns=%d", watched.name, conns), func(b *testing.B) {
				before := taken.taken.Load()
				measureAlternately(b, newWindows(b, alone, conns), newWindows(b, with, conns), watched.begin(b))
				b.ReportMetric(float64(taken.taken.Load()-before), "spans")
			})
		}
	}
}

func nothing(*testing.B) func() func() { return func() func() { return func() {} } }

// scrape reads metrics at the beginning of a window and in each second of it.
func scrape(b *testing.B, url string) func() (end func()) {
	b.Helper()
	read := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("metrics are answered %s", resp.Status)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return func() func() {
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				if err := read(ctx); err != nil && ctx.Err() == nil {
					b.Error(err)
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}()
		return func() { cancel(); <-ended }
	}
}
