package commands

import (
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// bindTracing adds the flags of a process that creates spans.
func bindTracing(f *pflag.FlagSet, o *tracing.Options) {
	f.StringVar(&o.Endpoint, "otlp-endpoint", "", "https://HOST:PORT of a collector that takes traces by OTLP over gRPC, or http://HOST:PORT for one without TLS; default: none are made")
	f.Float64Var(&o.Share, "otlp-sampling", tracing.DefaultShare, "share of the traces beginning here that are recorded, from 0 to 1; what a caller records is followed")
}

// asUsage returns err as a usage error, or nil.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return program.Usage(err)
}
