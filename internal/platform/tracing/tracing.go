// Package tracing follows requests from one process to the next, by OpenTelemetry. A nil
// Tracer makes no spans and costs a comparison.
//
// A span names a route, a method or a kind, a code, and a request id: nothing of what a
// request was about, because whoever reads traces need not be let into the audit trail.
package tracing

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// format is how a span is spelt on its way to another process: W3C Trace Context. Baggage is
// not passed on: it could hold anything.
var format = propagation.TraceContext{}

// Tracer begins spans.
type Tracer struct {
	tracer trace.Tracer
	share  float64 // of the traces that begin here
}

// Span is a part of a trace. The zero Span is none.
type Span struct{ span trace.Span }

// Carrier is where a span is spelt: the header of a request, or what goes with a call.
type Carrier = propagation.TextMapCarrier

// Arrived begins the span of a request that came from elsewhere, in its sender's trace where
// it names one.
func (t *Tracer) Arrived(ctx context.Context, name string, from Carrier) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if from.Get("traceparent") != "" { // or the library takes its time to find that out
		ctx = format.Extract(ctx, from)
	}
	return t.begin(ctx, name, trace.SpanKindServer)
}

// Leaving begins the span of a call to elsewhere, where the work that it is for belongs to a
// trace, and spells it where the other side reads it.
func (t *Tracer) Leaving(ctx context.Context, name string, into Carrier) (context.Context, Span) {
	if !t.Traced(ctx) {
		return ctx, Span{}
	}
	ctx, span := t.begin(ctx, name, trace.SpanKindClient)
	format.Inject(ctx, into)
	return ctx, span
}

// Begin begins the span of work inside of this process.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.begin(ctx, name, trace.SpanKindInternal)
}

// Traced reports whether the work of a context belongs to a trace.
func (t *Tracer) Traced(ctx context.Context) bool {
	return t != nil && trace.SpanContextFromContext(ctx).IsValid()
}

// begin begins no span where nobody records the trace: the library would draw ids for one, which
// costs more than the rest of it.
func (t *Tracer) begin(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	switch in := trace.SpanContextFromContext(ctx); {
	case in.IsValid() && !in.IsSampled():
		return ctx, Span{}
	case !in.IsValid() && rand.Float64() >= t.share: //nolint:gosec // which ones are recorded is no secret
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// Set says something of the span, where somebody records it.
func (s Span) Set(key, value string) {
	if s.Recorded() {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Recorded reports whether somebody records the span.
func (s Span) Recorded() bool { return s.span != nil && s.span.IsRecording() }

// TraceID is the trace's, empty where nobody records the span.
func (s Span) TraceID() string {
	if !s.Recorded() {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// End ends the span. code is that of a refusal or failure, which is all that is told of it;
// empty: it went well.
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

// What is said of spans, in OpenTelemetry's words where it has some.
const (
	Code      = "error.type"
	Method    = "http.request.method"
	Route     = "http.route"
	RequestID = "keyserver.request.id"
	Peer      = "keyserver.peer.system"
)
