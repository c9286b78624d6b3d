package commands

import (
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// bindTracing adds the flags for traces.
func bindTracing(f *pflag.FlagSet, o *tracing.Options) {
	f.StringVar(&o.Endpoint, "otlp-endpoint", "", "https://HOST:PORT of a collector for traces (OTLP over gRPC), or http://HOST:PORT without TLS; default: no traces")
	f.Float64Var(&o.Share, "otlp-sampling", tracing.DefaultShare, "share of new traces to record, from 0 to 1; for the trace of a caller, the decision of the caller applies, for at most 200 spans per second")
}

// asUsage returns err as a usage error, or nil.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return program.Usage(err)
}
