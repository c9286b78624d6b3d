package kmsv2_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kms/apis/v2"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// plugin is a fake plugin with configured responses, some of them invalid.
type plugin struct {
	api.UnimplementedKeyManagementServiceServer
	key     byte
	former  byte // another key that it can open; 0: none
	status  func() (*api.StatusResponse, error)
	encrypt func(*api.EncryptResponse) (*api.EncryptResponse, error)
	decrypt func([]byte) ([]byte, error)
}

func (p *plugin) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	if p.status != nil {
		return p.status()
	}
	return &api.StatusResponse{Version: "v2", Healthz: "ok", KeyId: "one"}, nil
}

func turn(b []byte, key byte) []byte {
	b = slices.Clone(b)
	for i := range b {
		b[i] ^= key
	}
	return b
}

func (p *plugin) Encrypt(_ context.Context, r *api.EncryptRequest) (*api.EncryptResponse, error) {
	answer := &api.EncryptResponse{KeyId: "one", Ciphertext: append([]byte{p.key}, turn(r.GetPlaintext(), p.key)...), Annotations: map[string][]byte{"a.example": []byte("b")}}
	if p.encrypt != nil {
		return p.encrypt(answer)
	}
	return answer, nil
}

func (p *plugin) Decrypt(_ context.Context, r *api.DecryptRequest) (*api.DecryptResponse, error) {
	if c := r.GetCiphertext(); len(c) == 0 || c[0] != p.key && (p.former == 0 || c[0] != p.former) || r.GetKeyId() != "one" || string(r.GetAnnotations()["a.example"]) != "b" {
		return nil, errors.New("not mine")
	}
	plain := turn(r.GetCiphertext()[1:], r.GetCiphertext()[0])
	if p.decrypt != nil {
		var err error
		if plain, err = p.decrypt(plain); err != nil {
			return nil, err
		}
	}
	return &api.DecryptResponse{Plaintext: plain}, nil
}

// serve starts the plugin at the socket, until stop is called.
func serve(t *testing.T, socket string, p *plugin) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterKeyManagementServiceServer(s, p)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s.Stop
}

func open(t *testing.T, socket string) *keyring.Provider {
	t.Helper()
	k, err := keyring.Open(t.Context(), "kmsv2://"+socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func openStore(t *testing.T) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestPluginHoldsTheKey checks that a database can be opened only with its plugin. An open keyring works without it.
func TestPluginHoldsTheKey(t *testing.T) {
	dir, store := t.TempDir(), openStore(t)
	one := &plugin{key: 1}
	stop := serve(t, filepath.Join(dir, "one"), one)
	serve(t, filepath.Join(dir, "other"), &plugin{key: 2})
	first, err := keyring.New(t.Context(), open(t, filepath.Join(dir, "one")), store)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := first.Wrap([8]byte{1}, 1, []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.New(t.Context(), open(t, filepath.Join(dir, "other")), store); !errors.Is(err, keyring.ErrWrongKey) {
		t.Errorf("by another plugin: %v", err)
	}
	if k := first.KEK(t.Context()); k.Scheme != "kmsv2" {
		t.Errorf("got %+v", k)
	}
	stop()
	if plain, err := first.Unwrap([8]byte{1}, 1, wrapped); err != nil || string(plain) != "key" {
		t.Errorf("without the plugin: %q, %v", plain, err)
	}
	if _, err := first.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be used now") {
		t.Errorf("a new data key without the plugin: %v", err)
	}
	if _, err := keyring.New(t.Context(), open(t, filepath.Join(dir, "one")), store); !errors.Is(err, keyring.ErrUnavailable) || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("a start without the plugin: %v", err)
	}
	serve(t, filepath.Join(dir, "one"), one)
	again, err := keyring.New(t.Context(), open(t, filepath.Join(dir, "one")), store)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := again.Unwrap([8]byte{1}, 1, wrapped); err != nil || string(plain) != "key" {
		t.Errorf("with the plugin again: %q, %v", plain, err)
	}

	// Replace this plugin by the other one, and then by a local key.
	_, err = keyring.Start(t.Context(), open(t, filepath.Join(dir, "other")), store, keyring.Options{Previous: open(t, filepath.Join(dir, "one"))})
	if err != nil {
		t.Fatal(err)
	}
	local, err := keyring.Open(t.Context(), "base64key://"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{3}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	moved, err := keyring.Start(t.Context(), local, store, keyring.Options{Previous: open(t, filepath.Join(dir, "other"))})
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := moved.Unwrap([8]byte{1}, 1, wrapped); err != nil || string(plain) != "key" {
		t.Errorf("under another key-encryption key: %q, %v", plain, err)
	}
}

// TestAnotherKeyComesBack checks that a plugin which cannot open its earlier data keys is not used to wrap, and that
// readiness reports it. A plugin that also has the old key works.
func TestAnotherKeyComesBack(t *testing.T) {
	socket, store := filepath.Join(t.TempDir(), "s"), openStore(t)
	keeper := open(t, socket)
	stop := serve(t, socket, &plugin{key: 1})
	c, err := keyring.New(t.Context(), keeper, store)
	if err != nil {
		t.Fatal(err)
	}
	stored := func() []byte {
		b, err := store.Setting(t.Context(), "dataKey")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	before := stored()
	// back starts another plugin at the socket and waits until the client is connected.
	back := func(p *plugin) error {
		t.Helper()
		stop()
		if _, err := c.CheckKEK(t.Context()); err == nil || !strings.Contains(err.Error(), "is not available") {
			t.Errorf("without a plugin: %v", err)
		}
		if _, err := c.Rotate(t.Context()); err == nil || !c.Doubted() || c.Doubted() {
			t.Errorf("it is not asked again at once: %v", err)
		}
		stop = serve(t, socket, p)
		for range 100 {
			if _, err = c.CheckKEK(t.Context()); err == nil || !strings.Contains(err.Error(), "is not available") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	}
	if err := back(&plugin{key: 2}); fault.CodeOf(err) != fault.NotReady || !strings.Contains(err.Error(), "another key") {
		t.Errorf("with another key: %v", err)
	}
	if _, err := c.Rotate(t.Context()); fault.CodeOf(err) != fault.NotReady || !strings.Contains(err.Error(), "another key") || !bytes.Equal(before, stored()) {
		t.Errorf("a data key by another key: %v", err)
	}
	if _, err := keyring.New(t.Context(), keeper, store); !errors.Is(err, keyring.ErrWrongKey) || !strings.Contains(err.Error(), "KMS plugin") {
		t.Errorf("a start with another key: %v", err)
	}
	if err := back(&plugin{key: 2, former: 1}); err != nil {
		t.Errorf("with the former key besides: %v", err)
	}
	if _, err := c.Rotate(t.Context()); err != nil || bytes.Equal(before, stored()) {
		t.Errorf("a data key by the newer key of a token: %v", err)
	}
}

// TestSettle checks that data keys of two key-encryption keys are all wrapped with the newer one.
func TestSettle(t *testing.T) {
	dir, store := t.TempDir(), openStore(t)
	for name, p := range map[string]*plugin{"old": {key: 1}, "new": {key: 2}, "between": {key: 1, former: 2}} {
		serve(t, filepath.Join(dir, name), p)
	}
	keeper := func(name string) *keyring.Provider { return open(t, filepath.Join(dir, name)) }
	c, err := keyring.Start(t.Context(), keeper("new"), store, keyring.Options{Previous: keeper("old")})
	if err != nil {
		t.Fatal(err)
	}
	between, err := keyring.New(t.Context(), keeper("between"), store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := between.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reload(t.Context()); err != nil || !*c.KEK(t.Context()).PreviousNeeded {
		t.Errorf("it is said that the previous one is not needed: %v", err)
	}
	if err := c.RewrapFromPrevious(t.Context()); err != nil || *c.KEK(t.Context()).PreviousNeeded {
		t.Errorf("it is said that the previous one is still needed: %v", err)
	}
	if _, err := keyring.New(t.Context(), keeper("new"), store); err != nil {
		t.Errorf("the newer one alone: %v", err)
	}
}

// TestLyingPlugins checks that no data is stored that the plugin cannot open, that each error is one sentence, and that
// no call exceeds its time limit.
func TestLyingPlugins(t *testing.T) {
	status0 := func(change func(*api.StatusResponse)) func() (*api.StatusResponse, error) {
		return func() (*api.StatusResponse, error) {
			s := &api.StatusResponse{Version: "v2", Healthz: "ok", KeyId: "one"}
			change(s)
			return s, nil
		}
	}
	changed := func(change func(*api.EncryptResponse)) func(*api.EncryptResponse) (*api.EncryptResponse, error) {
		return func(a *api.EncryptResponse) (*api.EncryptResponse, error) { change(a); return a, nil }
	}
	for reason, tc := range map[string]struct {
		plugin *plugin
		want   string
	}{
		"another protocol":    {&plugin{status: status0(func(s *api.StatusResponse) { s.Version = "v1" })}, `version "v1"`},
		"not well":            {&plugin{status: status0(func(s *api.StatusResponse) { s.Healthz = "token missing" })}, "token missing"},
		"no key":              {&plugin{status: status0(func(s *api.StatusResponse) { s.KeyId = "" })}, "no key id"},
		"no key id":           {&plugin{encrypt: changed(func(a *api.EncryptResponse) { a.KeyId = "" })}, "no key id"},
		"no ciphertext":       {&plugin{encrypt: changed(func(a *api.EncryptResponse) { a.Ciphertext = nil })}, "0 bytes"},
		"much ciphertext":     {&plugin{encrypt: changed(func(a *api.EncryptResponse) { a.Ciphertext = make([]byte, 2000) })}, "2000 bytes"},
		"endless":             {&plugin{encrypt: changed(func(a *api.EncryptResponse) { a.Ciphertext = make([]byte, 1<<20) })}, "ResourceExhausted"},
		"much besides":        {&plugin{encrypt: changed(func(a *api.EncryptResponse) { a.Annotations["b.example"] = make([]byte, 33<<10) })}, "annotations"},
		"wraps nothing":       {&plugin{key: 0}, "data key unencrypted"},
		"another ciphertext":  {&plugin{key: 1, encrypt: changed(func(a *api.EncryptResponse) { a.Ciphertext[0] = 9 })}, "just wrapped"},
		"opens something":     {&plugin{key: 1, decrypt: func(b []byte) ([]byte, error) { return b[1:], nil }}, "just wrapped"},
		"refuses":             {&plugin{encrypt: func(*api.EncryptResponse) (*api.EncryptResponse, error) { return nil, errors.New("secret token") }}, "Unknown"},
		"hangs":               {&plugin{encrypt: func(*api.EncryptResponse) (*api.EncryptResponse, error) { time.Sleep(8 * time.Second); return nil, nil }}, "does not respond"},
		"may not be asked":    {&plugin{decrypt: func([]byte) ([]byte, error) { return nil, status.Error(codes.PermissionDenied, "") }, key: 1}, "PermissionDenied"},
		"hangs at its status": {&plugin{status: func() (*api.StatusResponse, error) { time.Sleep(8 * time.Second); return nil, nil }}, "does not respond"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			socket, store := filepath.Join(t.TempDir(), "s"), openStore(t)
			serve(t, socket, tc.plugin)
			began := time.Now()
			_, err := keyring.New(t.Context(), open(t, socket), store)
			if err == nil || !errors.Is(err, keyring.ErrUnavailable) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret token") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
			if time.Since(began) > 7*time.Second {
				t.Errorf("it took %s", time.Since(began))
			}
			if _, err := store.Setting(t.Context(), "dataKey"); !errors.Is(err, sqlstore.ErrNotFound) {
				t.Errorf("something was kept: %v", err)
			}
		})
	}
}

func TestSocketRefused(t *testing.T) {
	for _, url := range []string{"kmsv2://", "kmsv2://run/plugin.sock", "kmsv2:///run/../plugin.sock", "kmsv2:///run/plugin.sock?x=1"} {
		if _, err := keyring.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), "absolute path") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
