// Package traces checks that an OTLP collector receives one trace for a call of the manager: it has the call, the work
// of the key server, and the call to a peer.
package traces

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// received is an OTLP collector.
type received struct {
	collector.UnimplementedTraceServiceServer
	endpoint string
	mu       sync.Mutex
	spans    []span
}

// span is a span with the process that recorded it.
type span struct {
	*otlp.Span
	process string
}

func collect(t *testing.T) *received {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	r := &received{endpoint: "http://" + l.Addr().String()}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, r)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); <-ended })
	return r
}

// Export implements the service of a collector.
func (r *received) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range in.GetResourceSpans() {
		process := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				process = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, span{s, process})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *received) all() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]span(nil), r.spans...)
}

// find waits for a span of a trace.
func (r *received) find(t *testing.T, name string, trace []byte) (found span) {
	t.Helper()
	rig.Succeeds(t, func() error {
		var names []string
		for _, s := range r.all() {
			if s.GetName() == name && (trace == nil || bytes.Equal(s.GetTraceId(), trace)) {
				found = s
				return nil
			}
			names = append(names, s.GetName())
		}
		return fmt.Errorf("no span %q of the trace; there are %q", name, names)
	})
	return found
}

func start(t *testing.T, system uint32, o tracing.Options, more ...testserver.Option) *testserver.Server {
	t.Helper()
	return testserver.Start(t, append([]testserver.Option{func(c *server.Config) {
		host := fmt.Sprintf("127.0.0.%d", system+1) // a key server cannot be a peer at its own address
		c.ExternalListen, c.SystemID, c.ServerName = rig.FreeAddress(t, host), system, host
		c.Tracing = o
	}}, more...)...)
}

func expose(t *testing.T, who *client.Client) {
	t.Helper()
	session, err := who.GetCurrentSession(t.Context())
	rig.Must(t, err)
	_, err = who.CreatePrincipalTrust(t.Context(), schema.CreatePrincipalTrustRequest{PrincipalID: session.Principal.ID, TrustedServerSystemID: 2, Flag: "expose"})
	rig.Must(t, err)
}

// TestOneTrace records one trace of a pass of the manager, its call, the request at the key server,
// and the call to a peer. Key servers only record requests that the manager traces.
func TestOneTrace(t *testing.T) {
	r := collect(t)
	quiet := tracing.Options{Endpoint: r.endpoint} // records only requests that are part of a trace
	here, there := start(t, 1, quiet), start(t, 2, quiet)
	program.Trust(t, here.Admin(t), there.Admin(t))
	program.Trust(t, there.Admin(t), here.Admin(t))
	expose(t, here.Admin(t))
	foreign, err := there.Admin(t).MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	if spans := r.all(); len(spans) > 0 {
		t.Errorf("%d spans are recorded that nobody asked for, such as %s", len(spans), spans[0].GetName())
	}

	tracer, stop, err := tracing.Start(tracing.Options{Endpoint: r.endpoint, Share: 1}, "keyserver-manager", "test", slog.New(slog.DiscardHandler))
	rig.Must(t, err)
	api, err := connection.DialTraced(tracer)(connection.Endpoint{
		BaseURL: here.URL(), RootCAs: here.Pool(t), Username: testserver.AdminName,
		Password: func(context.Context) (string, error) { return testserver.AdminPassword, nil },
	})
	rig.Must(t, err)
	ctx, pass := tracer.Begin(t.Context(), "reconcile Key")
	_, err = api.GetACL(ctx, schema.KeyRequest{TTag: foreign.TTag}) // denied by the ACL at the peer
	if err == nil {
		t.Fatal("a principal that the peer does not know reads a list there")
	}
	pass.End("")
	stop(t.Context())
	here.Stop(t)
	there.Stop(t)

	root := r.find(t, "reconcile Key", nil)
	call := r.find(t, "call getAcl", root.GetTraceId())
	request := r.find(t, "POST /api/keys/acl/get", root.GetTraceId())
	var asked, answered span
	for _, s := range r.all() {
		if s.GetName() == "peer ReadACL" && bytes.Equal(s.GetTraceId(), root.GetTraceId()) {
			if s.GetKind() == otlp.Span_SPAN_KIND_CLIENT {
				asked = s
			} else {
				answered = s
			}
		}
	}
	for _, step := range []struct {
		what          string
		child, parent span
	}{
		{"the call is part of the pass", call, root}, {"the request is part of the call", request, call},
		{"what is asked of the peer is part of the request", asked, request}, {"what the peer does is part of what it is asked", answered, asked},
	} {
		if step.child.Span == nil || step.parent.Span == nil || !bytes.Equal(step.child.GetParentSpanId(), step.parent.GetSpanId()) {
			t.Errorf("it does not hold that %s: %v of %v", step.what, step.child, step.parent)
		}
	}
	if root.process != "keyserver-manager" || request.process != "keyserver" {
		t.Errorf("the processes are %q and %q", root.process, request.process)
	}
	secrets := []string{testserver.AdminPassword, foreign.TTag.String(), testserver.AdminName, "Bearer"}
	for _, s := range r.all() {
		text := s.String()
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the span %s shows %q: %s", s.GetName(), secret, text)
			}
		}
	}
}

// TestACollectorThatHangsDelaysNothing uses a collector that accepts connections and never responds.
func TestACollectorThatHangsDelaysNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	s := start(t, 1, tracing.Options{Endpoint: "http://" + l.Addr().String(), Share: 1})
	admin := s.Admin(t)
	for range 3000 { // more than the queue can contain
		if _, err := admin.GetVersion(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Stop(t)
}

// TestAForgedTraceparentIsNoRequestOfItsOwn checks that the server records no span for an invalid traceparent, or for a
// traceparent that is not sampled.
func TestAForgedTraceparentIsNoRequestOfItsOwn(t *testing.T) {
	r := collect(t)
	s := start(t, 1, tracing.Options{Endpoint: r.endpoint})
	over := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13}}}
	defer over.CloseIdleConnections()
	for _, sent := range []string{"", "00", "00-00000000000000000000000000000000-0000000000000000-01", strings.Repeat("0", 10_000), "00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) + "-00"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/api/ready", nil)
		rig.Must(t, err)
		req.Header.Set("Traceparent", sent)
		resp, err := over.Do(req)
		rig.Must(t, err)
		rig.Must(t, resp.Body.Close())
		if resp.StatusCode != http.StatusOK {
			t.Errorf("with the traceparent %.20q the answer has status %d", sent, resp.StatusCode)
		}
	}
	s.Stop(t)
	for _, sp := range r.all() {
		t.Errorf("a span %s is recorded that nobody asked for", sp.GetName())
	}
}
