package server

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	kms "k8s.io/kms/apis/v2"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// plugin is a KMS plugin that counts the uses of its key. A test can make it stop responding.
type plugin struct {
	kms.UnimplementedKeyManagementServiceServer
	used   atomic.Int64
	silent atomic.Bool
}

func (p *plugin) Status(ctx context.Context, _ *kms.StatusRequest) (*kms.StatusResponse, error) {
	if p.silent.Load() {
		<-ctx.Done()
	}
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyId: "one"}, ctx.Err()
}

func (p *plugin) Encrypt(_ context.Context, r *kms.EncryptRequest) (*kms.EncryptResponse, error) {
	return &kms.EncryptResponse{KeyId: "one", Ciphertext: turned(r.GetPlaintext())}, nil
}

func (p *plugin) Decrypt(_ context.Context, r *kms.DecryptRequest) (*kms.DecryptResponse, error) {
	p.used.Add(1)
	return &kms.DecryptResponse{Plaintext: turned(r.GetCiphertext())}, nil
}

func turned(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] ^= 0x55
	}
	return b
}

func (p *plugin) listen(t *testing.T, socket string) (kill func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	kms.RegisterKeyManagementServiceServer(s, p)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // until the plugin is stopped
	}()
	kill = func() { s.Stop(); <-ended }
	t.Cleanup(kill)
	return kill
}

// TestAPluginThatIsAwayIsNoticed checks that a plugin that has stopped or does not respond is detected without using
// the key: the clock is stopped, so no use is due. After that, the part is ready again only after a successful use.
func TestAPluginThatIsAwayIsNoticed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := &plugin{}
	kill := p.listen(t, socket)
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	keeper, err := keyring.Open(t.Context(), "kmsv2://"+socket)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	ring, err := keyring.New(t.Context(), keeper, store)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	k := watchKey(ring, Config{Clock: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)})
	well := func(reason string, is bool) {
		t.Helper()
		k.look(t.Context())
		if err := k.trouble(); (err == nil) != is || err != nil && !strings.Contains(err.Error(), "the key-encryption key is not available") {
			t.Fatalf("%s: %v", reason, err)
		}
	}
	used := p.used.Load()
	well("at the start", true)
	if p.used.Load() != used {
		t.Error("each look uses the key, which may cost money")
	}

	kill()
	well("it is gone", false)
	p.listen(t, socket)
	for k.trouble() != nil { // the client reconnects within half a second
		k.look(t.Context())
	}
	if p.used.Load() == used {
		t.Error("it is well again, and nobody has tried whether it still has the key")
	}

	p.silent.Store(true)
	well("it is silent", false)
	p.silent.Store(false)
	well("it speaks again", true)

	used = p.used.Load()
	now = now.Add(keyEvery)
	well("a minute later", true)
	if p.used.Load() == used {
		t.Error("the key is never used")
	}
}
