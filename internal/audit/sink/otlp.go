package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	logservice "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const exportLogs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

// otlp exports batches as OpenTelemetry log records. A response that rejects no record acknowledges the batch. If the
// response rejects some records, the entire batch counts as not acknowledged.
type otlp struct {
	conn    *grpc.ClientConn
	headers metadata.MD
	source  Source
}

func openOTLP(t Target, source Source) (*otlp, error) {
	headers, err := t.headers()
	if err != nil {
		return nil, err
	}
	credential := insecure.NewCredentials()
	if !t.plaintext {
		config, err := t.tls()
		if err != nil {
			return nil, err
		}
		credential = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient("passthrough:///"+t.address,
		grpc.WithTransportCredentials(credential), grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxAnswer), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	o := &otlp{conn: conn, headers: metadata.MD{}, source: source}
	for name, values := range headers {
		o.headers[strings.ToLower(name)] = values
	}
	return o, nil
}

func (o *otlp) send(ctx context.Context, b *batch) error {
	request, err := o.request(b)
	if err != nil {
		return err
	}
	answer := &logservice.ExportLogsServiceResponse{}
	err = o.conn.Invoke(metadata.NewOutgoingContext(ctx, o.headers), exportLogs, request, answer)
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded:
		return errSlow
	case code == codes.Unavailable:
		return errors.New("it cannot be reached, refuses the connection or reports that it is not available")
	case code == codes.ResourceExhausted: // gRPC's code for a message that is too large
		return fmt.Errorf("it responds with status %s: %w", code, errTooLarge)
	case err != nil:
		return fmt.Errorf("it responds with status %s", code)
	}
	if n := answer.GetPartialSuccess().GetRejectedLogRecords(); n != 0 {
		return fmt.Errorf("it rejects %d of %d records", n, len(b.rows)+1)
	}
	return nil
}

func (o *otlp) close() { _ = o.conn.Close() } // Close fails only if the connection is already closed

func (o *otlp) request(b *batch) (*logservice.ExportLogsServiceRequest, error) {
	list, err := b.messages()
	if err != nil {
		return nil, err
	}
	records := make([]*logs.LogRecord, len(list))
	for i := range list {
		m := &list[i]
		body, err := anyOf(m.json)
		if err != nil {
			return nil, err
		}
		at := uint64(m.micros) * 1000 //nolint:gosec // times are of this century
		records[i] = &logs.LogRecord{
			TimeUnixNano: at, ObservedTimeUnixNano: at, EventName: eventPrefix + m.kind, Body: body,
			SeverityNumber: logs.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
			Attributes: []*common.KeyValue{text("log.record.uid", m.id)},
		}
		if m.SeverityID > 1 {
			records[i].SeverityNumber, records[i].SeverityText = logs.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
		}
	}
	return &logservice.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.name", "keyserver"), text("service.instance.id", o.source.ServerName), text("service.version", o.source.Version),
		}},
		ScopeLogs: []*logs.ScopeLogs{{Scope: &common.InstrumentationScope{Name: "dev.keyserver.audit"}, LogRecords: records}},
	}}}, nil
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(value, "\ufffd")}}}
}

// anyOf converts a JSON event into a structured log body.
func anyOf(event []byte) (*common.AnyValue, error) {
	decoder := json.NewDecoder(strings.NewReader(string(event)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return anyValue(value)
}

func anyValue(value any) (*common.AnyValue, error) {
	switch v := value.(type) {
	case string:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v}}, nil
	case json.Number:
		n, err := v.Int64()
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}, err
	case []any:
		list := &common.ArrayValue{}
		for _, item := range v {
			one, err := anyValue(item)
			if err != nil {
				return nil, err
			}
			list.Values = append(list.Values, one)
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}, nil
	case map[string]any:
		list := &common.KeyValueList{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			one, err := anyValue(v[key])
			if err != nil {
				return nil, err
			}
			list.Values = append(list.Values, &common.KeyValue{Key: key, Value: one})
		}
		return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: list}}, nil
	}
	return nil, fmt.Errorf("an event has a value of the type %T, which OTLP does not allow", value)
}
