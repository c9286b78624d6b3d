package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	logservice "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/inbox"
)

type export func(ctx context.Context, in *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error)

// collector is a receiver with the OTLP service. A test can replace its response to a request.
type collector struct {
	inbox.Inbox
	url   string
	other atomic.Pointer[export]
	asked atomic.Int64
}

func newCollector(t testing.TB, plaintext bool) *collector {
	t.Helper()
	c := &collector{}
	certificate := newWeb(t)
	_, files, _ := strings.Cut(certificate.url, "?")
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(4 << 20), grpc.Creds(credentials.NewServerTLSFromCert(&certificate.TLS.Certificates[0]))}
	if plaintext {
		_, header, _ := strings.Cut(files, "&")
		files, options = "plaintext=true&"+header, options[:1]
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.logs.v1.LogsService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := &logservice.ExportLogsServiceRequest{}
			if err := decode(in); err != nil {
				return nil, err
			}
			c.asked.Add(1)
			if other := c.other.Load(); other != nil {
				return (*other)(ctx, in)
			}
			if err := c.take(ctx, in); err != nil {
				t.Error(err)
				return nil, status.Error(codes.InvalidArgument, err.Error())
			}
			return &logservice.ExportLogsServiceResponse{}, nil
		}}},
	}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	c.url = "otlp://" + listener.Addr().String() + "?" + files
	return c
}

func (c *collector) answer(e export) { c.other.Store(&e) }

func (c *collector) take(ctx context.Context, in *logservice.ExportLogsServiceRequest) error {
	headers, _ := metadata.FromIncomingContext(ctx)
	if got := headers.Get("authorization"); len(got) != 1 || got[0] != secret {
		return fmt.Errorf("headers %v", headers)
	}
	for _, r := range in.ResourceLogs {
		for _, s := range r.ScopeLogs {
			for i, record := range s.LogRecords {
				if last := i == len(s.LogRecords)-1; last != (record.EventName == "dev.keyserver.audit.seal") || record.TimeUnixNano == 0 {
					return fmt.Errorf("record %d of %d is %s at %d", i, len(s.LogRecords), record.EventName, record.TimeUnixNano)
				}
				text, err := json.Marshal(plainValue(record.Body))
				if err != nil {
					return err
				}
				if err := c.Take(text); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func plainValue(v *common.AnyValue) any {
	switch v := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return v.IntValue
	case *common.AnyValue_ArrayValue:
		list := []any{}
		for _, item := range v.ArrayValue.Values {
			list = append(list, plainValue(item))
		}
		return list
	case *common.AnyValue_KvlistValue:
		object := map[string]any{}
		for _, item := range v.KvlistValue.Values {
			object[item.Key] = plainValue(item.Value)
		}
		return object
	}
	return nil
}

// TestACollectorThatLies checks that a response acknowledges nothing if it rejects some records or is too long.
func TestACollectorThatLies(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	w.write(t, 3)
	b := w.batch(t)
	partial := func(n int64, words string) (*logservice.ExportLogsServiceResponse, error) {
		return &logservice.ExportLogsServiceResponse{PartialSuccess: &logservice.ExportLogsPartialSuccess{RejectedLogRecords: n, ErrorMessage: words}}, nil
	}
	for name, c := range map[string]struct {
		answer export
		says   string
	}{
		"rejects one": {func(context.Context, *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error) {
			return partial(1, "their words")
		}, "rejects 1 of 4"},
		"rejects less": {func(context.Context, *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error) {
			return partial(-1, "their words")
		}, "rejects"},
		"answers a lot": {func(context.Context, *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error) {
			return partial(0, strings.Repeat("their words", 20_000))
		}, "ResourceExhausted"},
		"refuses": {func(context.Context, *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error) {
			return nil, status.Error(codes.PermissionDenied, "their words")
		}, "PermissionDenied"},
		"is away": {func(context.Context, *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error) {
			return nil, status.Error(codes.Unavailable, "their words")
		}, "not available"},
		"does not answer": {func(ctx context.Context, _ *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error) {
			<-ctx.Done()
			return nil, errors.New("their words")
		}, "in time"},
		"warns": {func(context.Context, *logservice.ExportLogsServiceRequest) (*logservice.ExportLogsServiceResponse, error) {
			return partial(0, "their words")
		}, ""},
	} {
		receiver := newCollector(t, false)
		receiver.answer(c.answer)
		open, err := openOTLP(target(t, receiver.url), Source{ServerName: "keys\xff"})
		rig.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err = open.send(ctx, b)
		switch {
		case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "their words")):
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		open.close()
	}
	receiver := newCollector(t, false)
	address, _, _ := strings.Cut(receiver.url, "?")
	for _, url := range []string{address, address + "?plaintext=true"} {
		open, err := openOTLP(target(t, url), Source{})
		rig.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := open.send(ctx, b); err == nil || receiver.asked.Load() > 0 {
			t.Errorf("%s: %v, asked %d times", url, err, receiver.asked.Load())
		}
		cancel()
		open.close()
	}
}

// TestCollectors checks that collectors get every row, over TLS and without TLS
// on the same machine.
func TestCollectors(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	receivers := []*collector{newCollector(t, false), newCollector(t, true)}
	for _, receiver := range receivers {
		background(t, New(w.config(t), target(t, receiver.url)).Run)
	}
	w.write(t, 1500)
	for _, receiver := range receivers {
		awaitProven(t, w.tree.Signer.Verifier, 1500, func() *inbox.Inbox { return &receiver.Inbox })
	}
}
