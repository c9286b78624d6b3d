package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// Bounds of what waits for the collector. What is beyond them is dropped: nobody waits.
const (
	maxQueue     = 2048
	maxBatch     = 512
	batchEvery   = 2 * time.Second
	exportWithin = 5 * time.Second
	// flushWithin bounds what a stop waits for the collector.
	flushWithin = 2 * time.Second
	// maxAsked is how many spans a second are recorded because their senders asked for it,
	// who may be strangers.
	maxAsked = 200
)

// Options say where spans go. They are flags: Validate names them.
type Options struct {
	Endpoint string  // https://HOST:PORT or http://HOST:PORT; empty: there are none
	Share    float64 // of the traces that begin here
}

// DefaultShare is the share of traces that are recorded.
const DefaultShare = 0.01

// Validate refuses what no exporter could be made of.
func (o Options) Validate() error {
	if o.Share < 0 || o.Share > 1 {
		return fmt.Errorf("--otlp-sampling is %v; it must be from 0 to 1, for instance 0.01", o.Share)
	}
	if o.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--otlp-endpoint must be https://HOST:PORT of a collector that takes OTLP over gRPC, or http://HOST:PORT for one without TLS")
	}
	return nil
}

// address is HOST:PORT, with the port that OTLP has.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "4317"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Start begins to send spans of a process to a collector. It speaks to nobody yet, and what
// it answers is nil where there is no endpoint. stop sends what waits, for a moment at most.
func Start(o Options, process, version string, logger *slog.Logger) (t *Tracer, stop func(ctx context.Context), err error) {
	if o.Endpoint == "" {
		return nil, func(context.Context) {}, nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, nil, errors.New("--otlp-endpoint is no URL")
	}
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(address(u)), otlptracegrpc.WithTimeout(exportWithin),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}), // what was not taken is dropped: the next batch waits
	}
	if u.Scheme == "http" {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter := otlptrace.NewUnstarted(otlptracegrpc.NewClient(options...))
	// It makes the connection, which does not wait for the collector.
	if err := exporter.Start(context.Background()); err != nil {
		return nil, nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	t, provider := start(o, process, version, &reporting{SpanExporter: exporter, logger: logger})
	return t, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, flushWithin)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("the last spans could not be sent to the collector of --otlp-endpoint", "error", err)
		}
	}, nil
}

func start(o Options, process, version string, to trace.SpanExporter) (*Tracer, *trace.TracerProvider) {
	provider := trace.NewTracerProvider(
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", process), attribute.String("service.version", version))),
		trace.WithSampler(trace.ParentBased(trace.AlwaysSample(), trace.WithRemoteParentSampled(&asked{rate.NewLimiter(maxAsked, maxAsked)}))),
		trace.WithBatcher(to, trace.WithMaxQueueSize(maxQueue), trace.WithMaxExportBatchSize(maxBatch),
			trace.WithBatchTimeout(batchEvery), trace.WithExportTimeout(exportWithin)),
		trace.WithRawSpanLimits(trace.SpanLimits{
			AttributeCountLimit: 16, AttributeValueLengthLimit: 256, EventCountLimit: 0, LinkCountLimit: 0,
			AttributePerEventCountLimit: 0, AttributePerLinkCountLimit: 0,
		}),
	)
	return &Tracer{provider.Tracer("keyserver"), o.Share}, provider
}

// asked records what senders ask for, up to so many a second.
type asked struct{ limit *rate.Limiter }

// ShouldSample implements trace.Sampler.
func (a *asked) ShouldSample(p trace.SamplingParameters) trace.SamplingResult {
	state := oteltrace.SpanContextFromContext(p.ParentContext).TraceState()
	if !a.limit.Allow() {
		return trace.SamplingResult{Decision: trace.Drop, Tracestate: state}
	}
	return trace.SamplingResult{Decision: trace.RecordAndSample, Tracestate: state}
}

// Description implements trace.Sampler.
func (a *asked) Description() string { return "AskedForBySender" }

// reporting logs the first of a run of failures, and its end.
type reporting struct {
	trace.SpanExporter
	logger  *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements trace.SpanExporter. What failed is dropped, and no error of the
// program's.
func (r *reporting) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch failed := err != nil; {
	case failed && !r.failing.Swap(true):
		r.logger.Warn("the collector of --otlp-endpoint does not take spans, which are dropped", "error", err)
	case !failed && r.failing.Swap(false):
		r.logger.Info("the collector of --otlp-endpoint takes spans again")
	}
	return nil //nolint:nilerr // said above
}

// The library would write to standard error by itself, in lines of its own.
func init() { otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) }
