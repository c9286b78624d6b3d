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

// Limits of the queue of spans for the collector. If the queue is full, spans are dropped, so that no request waits.
const (
	maxQueue     = 2048
	maxBatch     = 512
	batchEvery   = 2 * time.Second
	exportWithin = 5 * time.Second
	// flushWithin is the maximum time that a shutdown waits for the collector.
	flushWithin = 2 * time.Second
	// maxAsked is the maximum number of spans per second that are recorded because the header of a request asks for it.
	// Any client can send such a header.
	maxAsked = 200
)

// Options configures the export of spans. Errors of Validate contain the names of the flags.
type Options struct {
	Endpoint string  // https://HOST:PORT or http://HOST:PORT; empty: no export
	Share    float64 // recorded part of the traces that begin in this process, from 0 to 1
}

// DefaultShare is the default of Options.Share.
const DefaultShare = 0.01

// Validate returns an error if the options are invalid.
func (o Options) Validate() error {
	if o.Share < 0 || o.Share > 1 {
		return fmt.Errorf("--otlp-sampling is %v; it must be from 0 to 1, for instance 0.01", o.Share)
	}
	if o.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--otlp-endpoint must be https://HOST:PORT of a collector that accepts OTLP over gRPC, or http://HOST:PORT for one without TLS")
	}
	return nil
}

// address returns HOST:PORT of a URL. The default is the OTLP port.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "4317"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Start starts the export of spans to a collector. It does not wait for the connection. If there is no endpoint, t is
// nil. stop sends the queued spans and waits at most flushWithin.
func Start(o Options, process, version string, logger *slog.Logger) (t *Tracer, stop func(ctx context.Context), err error) {
	if o.Endpoint == "" {
		return nil, func(context.Context) {}, nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, nil, errors.New("--otlp-endpoint is not a URL")
	}
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(address(u)), otlptracegrpc.WithTimeout(exportWithin),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}), // failed batches are dropped
	}
	if u.Scheme == "http" {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter := otlptrace.NewUnstarted(otlptracegrpc.NewClient(options...))
	// Start does not wait for the connection to the collector.
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
		trace.WithSampler(trace.ParentBased(trace.AlwaysSample(), trace.WithRemoteParentSampled(&requestedSampler{rate.NewLimiter(maxAsked, maxAsked)}))),
		trace.WithBatcher(to, trace.WithMaxQueueSize(maxQueue), trace.WithMaxExportBatchSize(maxBatch),
			trace.WithBatchTimeout(batchEvery), trace.WithExportTimeout(exportWithin)),
		trace.WithRawSpanLimits(trace.SpanLimits{
			AttributeCountLimit: 16, AttributeValueLengthLimit: 256, EventCountLimit: 0, LinkCountLimit: 0,
			AttributePerEventCountLimit: 0, AttributePerLinkCountLimit: 0,
		}),
	)
	return &Tracer{provider.Tracer("keyserver"), o.Share}, provider
}

// requestedSampler samples the traces that clients ask for, up to a limit per second.
type requestedSampler struct{ limit *rate.Limiter }

func (a *requestedSampler) ShouldSample(p trace.SamplingParameters) trace.SamplingResult {
	state := oteltrace.SpanContextFromContext(p.ParentContext).TraceState()
	if !a.limit.Allow() {
		return trace.SamplingResult{Decision: trace.Drop, Tracestate: state}
	}
	return trace.SamplingResult{Decision: trace.RecordAndSample, Tracestate: state}
}

func (a *requestedSampler) Description() string { return "AskedForBySender" }

// reporting logs the first of consecutive failed exports, and the first success after them.
type reporting struct {
	trace.SpanExporter
	logger  *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements trace.SpanExporter. If an export fails, it drops the spans and logs the error.
func (r *reporting) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch failed := err != nil; {
	case failed && !r.failing.Swap(true):
		r.logger.Warn("the collector of --otlp-endpoint does not accept spans, so they are dropped", "error", err)
	case !failed && r.failing.Swap(false):
		r.logger.Info("the collector of --otlp-endpoint accepts spans again")
	}
	return nil //nolint:nilerr // logged above
}

// Without this handler, the library writes errors to standard error in its own format.
func init() { otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) }
