package tracing

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestNoTracerCostsNothing checks that a nil Tracer allocates nothing.
func TestNoTracerCostsNothing(t *testing.T) {
	var off *Tracer
	ctx, header := t.Context(), propagation.HeaderCarrier(http.Header{"Traceparent": {"00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) + "-01"}})
	if n := testing.AllocsPerRun(100, func() {
		ctx, span := off.StartServerSpan(ctx, "GET /api/ready", header)
		ctx, call := off.StartClientSpan(ctx, "peer HMAC", header)
		_, work := off.Begin(ctx, "reconcile")
		span.Set(Route, "/api/ready")
		work.End("")
		call.End("OP_FAILED")
		span.End("")
		if off.Traced(ctx) || span.Recorded() || span.TraceID() != "" {
			t.Error("without a tracer something is recorded")
		}
	}); n != 0 {
		t.Errorf("without a tracer a request costs %v allocations", n)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		share    float64
		want     string
	}{
		{"", 0, ""}, {"https://collector:4317", 0.01, ""}, {"http://127.0.0.1", 1, ""},
		{"collector:4317", 0, "--otlp-endpoint"}, {"grpc://collector", 0, "--otlp-endpoint"}, {"https://u:p@collector", 0, "--otlp-endpoint"},
		{"https://collector/v1/traces", 0, "--otlp-endpoint"}, {"https://collector?x=1", 0, "--otlp-endpoint"}, {"https://", 0, "--otlp-endpoint"},
		{"", -0.1, "--otlp-sampling"}, {"", 1.1, "--otlp-sampling"},
	} {
		err := Options{c.endpoint, c.share}.Validate()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "u:p")) {
			t.Errorf("%q, %v is answered %v", c.endpoint, c.share, err)
		}
	}
}

// TestStrangersAreBounded checks that traces which clients ask for are recorded only up to the limit per second.
func TestStrangersAreBounded(t *testing.T) {
	into := tracetest.NewInMemoryExporter()
	tracer, provider := start(Options{}, "test", "test", into)
	for range 10 * maxAsked {
		header := propagation.HeaderCarrier(http.Header{"Traceparent": {"00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) + "-01"}})
		_, span := tracer.StartServerSpan(t.Context(), "GET /api/ready", header)
		span.End("")
	}
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(into.GetSpans()); n < maxAsked || n > 5*maxAsked {
		t.Errorf("%d spans are recorded, want about %d", n, maxAsked)
	}
}

type failing struct{ calls int }

func (f *failing) ExportSpans(context.Context, []trace.ReadOnlySpan) error {
	f.calls++
	return errors.New("away")
}
func (f *failing) Shutdown(context.Context) error { return nil }

// BenchmarkSpan measures the cost of a span: without a tracer, not recorded, and recorded.
func BenchmarkSpan(b *testing.B) {
	for name, share := range map[string]float64{"off": -1, "none": 0, "one-in-a-hundred": 0.01, "all": 1} {
		b.Run(name, func(b *testing.B) {
			var tracer *Tracer
			if share >= 0 {
				var provider *trace.TracerProvider
				tracer, provider = start(Options{Share: share}, "test", "test", &failing{})
				defer func() { _ = provider.Shutdown(context.Background()) }()
			}
			header := propagation.HeaderCarrier(http.Header{})
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.StartServerSpan(b.Context(), "POST /api/crypto/hmac", header)
				if span.Recorded() {
					span.Set(Route, "/api/crypto/hmac")
				}
				span.End("")
			}
		})
	}
}
