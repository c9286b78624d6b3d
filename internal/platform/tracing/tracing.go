// Package tracing records requests across processes with OpenTelemetry. A nil Tracer creates no spans and costs only a
// comparison.
//
// A span contains a route, a method or a kind, a code, and a request id. It contains nothing about the content of a
// request, because readers of traces may lack the right to read the audit log.
package tracing

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// format is the propagation format of spans: W3C Trace Context. Baggage is not forwarded, because clients can write any
// text into it.
var format = propagation.TraceContext{}

// Tracer starts spans.
type Tracer struct {
	tracer trace.Tracer
	share  float64 // recorded part of the traces that begin in this process
}

// Span is a part of a trace. The zero Span records nothing.
type Span struct{ span trace.Span }

// Carrier contains a span's context: the header of a request, or the metadata of a call.
type Carrier = propagation.TextMapCarrier

// StartServerSpan starts the span of a received request. If the carrier contains the context of a span, the new span
// belongs to its trace.
func (t *Tracer) StartServerSpan(ctx context.Context, name string, from Carrier) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if from.Get("traceparent") != "" { // without a header, parsing would only cost time
		ctx = format.Extract(ctx, from)
	}
	return t.begin(ctx, name, trace.SpanKindServer)
}

// StartClientSpan starts the span of an outgoing call if ctx belongs to a trace. It writes the span's context into the
// carrier.
func (t *Tracer) StartClientSpan(ctx context.Context, name string, into Carrier) (context.Context, Span) {
	if !t.Traced(ctx) {
		return ctx, Span{}
	}
	ctx, span := t.begin(ctx, name, trace.SpanKindClient)
	format.Inject(ctx, into)
	return ctx, span
}

// Begin starts the span of an internal operation.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.begin(ctx, name, trace.SpanKindInternal)
}

// Traced reports whether the context belongs to a trace.
func (t *Tracer) Traced(ctx context.Context) bool {
	return t != nil && trace.SpanContextFromContext(ctx).IsValid()
}

// begin starts a span if its trace is recorded. For other traces it starts no span, because the library would create
// random ids, which is the most expensive part of a span.
func (t *Tracer) begin(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	switch in := trace.SpanContextFromContext(ctx); {
	case in.IsValid() && !in.IsSampled():
		return ctx, Span{}
	case !in.IsValid() && rand.Float64() >= t.share: //nolint:gosec // the selection of traces is no secret
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// Set sets an attribute of the span if the span is recorded.
func (s Span) Set(key, value string) {
	if s.Recorded() {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Recorded reports whether the span is recorded.
func (s Span) Recorded() bool { return s.span != nil && s.span.IsRecording() }

// TraceID returns the id of the trace, or "" if the span is not recorded.
func (s Span) TraceID() string {
	if !s.Recorded() {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// End ends the span. code is the code of a refusal or failure, and empty after success. The span contains no further
// detail.
func (s Span) End(code string) {
	if s.span == nil {
		return
	}
	if code != "" && s.span.IsRecording() {
		s.span.SetAttributes(attribute.String(Code, code))
		s.span.SetStatus(codes.Error, code)
	}
	s.span.End()
}

// Names of span attributes. They are OpenTelemetry names if such names exist.
const (
	Code      = "error.type"
	Method    = "http.request.method"
	Route     = "http.route"
	RequestID = "keyserver.request.id"
	Peer      = "keyserver.peer.system"
)
