// Package hsm keeps a key-encryption key on a PKCS#11 token of SoftHSM, with the plugin of hack/kms-pkcs11.
package hsm

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kms "k8s.io/kms/apis/v2"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring/kmsv2"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/hsm"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// An invalid configuration returns one sentence that names the flag.
func TestRefusedStarts(t *testing.T) {
	token := hsm.New(t, "house")
	token.Key(t, "kek")
	socket := filepath.Join(t.TempDir(), "socket")
	wrong, file := filepath.Join(t.TempDir(), "pin"), filepath.Join(t.TempDir(), "file")
	rig.Must(t, os.WriteFile(wrong, []byte("0000"), 0o600))
	rig.Must(t, os.WriteFile(file, []byte("kept"), 0o600))
	serve := func(flags ...string) []string {
		return append([]string{"serve", "--key", "kek", "--listen", socket}, flags...)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"NoKeyNamed":         {serve("--key", ""), "--key is needed"},
		"NoTokenNamed":       {serve("--token", ""), "--token is needed"},
		"NoSuchToken":        {serve("--token", "other"), `the token "other"`},
		"NoSuchKey":          {serve("--key", "other"), `no secret key with the label "other": make one with create-key`},
		"NoSuchLibrary":      {serve("--library", "/nowhere.so"), "--library"},
		"NoLibrary":          {serve("--library", file), `the token "house"`},
		"WrongPIN":           {serve("--pin-file", wrong), "CKR_PIN_INCORRECT"},
		"NoPINFile":          {serve("--pin-file", "/nowhere"), "--pin-file"},
		"RelativeSocket":     {serve("--listen", "socket"), "--listen takes the absolute path"},
		"FileInTheWay":       {serve("--listen", file), "is no socket"},
		"NoDirectory":        {serve("--listen", "/nowhere/socket"), "--listen: listen unix /nowhere/socket"},
		"KeyIsThere":         {[]string{"create-key", "--key", "kek"}, "already: choose another --key"},
		"NoArguments":        {serve("argument"), "argument"},
		"NoKeyNameForNewKey": {[]string{"create-key"}, "--key is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := token.Command(c.args...).CombinedOutput()
			if said := string(out); err == nil || !strings.HasPrefix(said, "error: ") || strings.Count(said, "\n") != 1 || !strings.Contains(said, c.says) {
				t.Errorf("%v: %s, which is not one sentence with %q", err, said, c.says)
			}
			if bytes.Contains(out, []byte(hsm.PIN)) {
				t.Errorf("it shows the PIN: %s", out)
			}
		})
	}
	if kept, err := os.ReadFile(file); string(kept) != "kept" {
		t.Errorf("the file has %q, %v", kept, err)
	}
	token.Serve(t, socket, "kek")
	if out, err := token.Command(serve()...).CombinedOutput(); err == nil || !strings.Contains(string(out), "another process answers there") {
		t.Errorf("a second one: %v, %s", err, out)
	}
}

// Only the key that wrapped a key can unwrap it, also after another key has become the wrapping key. Unencrypted keys
// do not leave the token.
func TestKeysOfAToken(t *testing.T) {
	token := hsm.New(t, "house")
	first, second := token.Key(t, "first"), token.Key(t, "second")
	socket := filepath.Join(t.TempDir(), "socket")
	plugin := token.Serve(t, socket, "first")
	info, err := os.Stat(socket)
	rig.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %o", info.Mode().Perm())
	}
	ctx := t.Context()
	k := keeper(t, socket)
	plain := bytes.Repeat([]byte{7}, 32)
	wrapped, err := k.Encrypt(ctx, plain)
	rig.Must(t, err)
	raw := dial(t, socket)
	answer, err := raw.Encrypt(ctx, &kms.EncryptRequest{Plaintext: plain})
	rig.Must(t, err)
	again, err := raw.Encrypt(ctx, &kms.EncryptRequest{Plaintext: plain})
	rig.Must(t, err)
	if answer.GetKeyId() != first || bytes.Equal(answer.GetCiphertext(), again.GetCiphertext()) {
		t.Errorf("wrapped by %s, twice the same: %t", answer.GetKeyId(), bytes.Equal(answer.GetCiphertext(), again.GetCiphertext()))
	}

	bent := bytes.Clone(answer.GetCiphertext())
	bent[len(bent)-1] ^= 1
	for name, c := range map[string]struct {
		id     string
		cipher []byte
	}{
		"bent": {first, bent}, "short": {first, bent[:5]}, "none": {first, nil}, "nonce alone": {first, bent[:12]}, "key of another": {second, answer.GetCiphertext()},
		"unknown key": {"0000000000000000", answer.GetCiphertext()}, "no key": {"", answer.GetCiphertext()}, "no hex": {"first", answer.GetCiphertext()},
	} {
		if _, err := raw.Decrypt(ctx, &kms.DecryptRequest{KeyId: c.id, Ciphertext: c.cipher}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, size := range []int{0, 4097} {
		if _, err := raw.Encrypt(ctx, &kms.EncryptRequest{Plaintext: make([]byte, size)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%d bytes: %v", size, err)
		}
	}

	plugin.Kill() // the socket file remains
	token.Serve(t, socket, "second")
	k = keeper(t, socket)
	opened, err := k.Decrypt(ctx, wrapped)
	rig.Must(t, err)
	if !bytes.Equal(opened, plain) {
		t.Error("another key was opened")
	}
	if s, err := dial(t, socket).Status(ctx, &kms.StatusRequest{}); err != nil || s.GetKeyId() != second || s.GetHealthz() != "ok" || s.GetVersion() != "v2" {
		t.Errorf("status: %v, %v", s, err)
	}

	other := hsm.New(t, "other")
	other.Key(t, "first")
	elsewhere := filepath.Join(t.TempDir(), "socket")
	other.Serve(t, elsewhere, "first")
	if opened, err := keeper(t, elsewhere).Decrypt(ctx, wrapped); err == nil {
		t.Errorf("another token opens it: %x", opened)
	}
}

// Concurrent requests all get responses, also those before a stop.
func TestManyAtOnce(t *testing.T) {
	token := hsm.New(t, "house")
	token.Key(t, "kek")
	socket := filepath.Join(t.TempDir(), "socket")
	plugin := token.Serve(t, socket, "kek")
	raw := dial(t, socket)
	failed := make(chan error, 64)
	for i := range 64 {
		go func() {
			plain := bytes.Repeat([]byte{byte(i)}, 32)
			answer, err := raw.Encrypt(t.Context(), &kms.EncryptRequest{Plaintext: plain})
			if err == nil {
				var back *kms.DecryptResponse
				back, err = raw.Decrypt(t.Context(), &kms.DecryptRequest{KeyId: answer.GetKeyId(), Ciphertext: answer.GetCiphertext()})
				if err == nil && !bytes.Equal(back.GetPlaintext(), plain) {
					err = errors.New("opened to something else")
				}
			}
			failed <- err
		}()
	}
	for range 64 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	plugin.Signal(t, syscall.SIGTERM)
	select {
	case <-plugin.Exited():
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its socket is left: %v", err)
	}
}

// A key server switches from the key in its directory to a key of a token. It keeps working and reports the problem
// while the plugin hangs or is not running. After the switch it can only start with the plugin.
func TestKeyServerByAToken(t *testing.T) {
	token := hsm.New(t, "house")
	token.Key(t, "kek")
	socket, dir := filepath.Join(t.TempDir(), "socket"), filepath.Join(t.TempDir(), "data")
	s, err := built.Serve(dir)
	rig.Must(t, err)
	at := func() *client.Client { return s.Admin(t, program.NoRetries) }
	made, err := at().MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	mac := func(c *client.Client) string {
		t.Helper()
		answer, err := c.HMAC(t.Context(), made.TTag, strings.NewReader("data"))
		rig.Must(t, err)
		return string(answer.MAC)
	}
	before := mac(at())
	rig.Must(t, s.Stop())

	plugin := token.Serve(t, socket, "kek")
	kek := "kmsv2://" + socket
	s, err = built.Serve(dir, "--kek", kek, "--kek-previous", "file")
	rig.Must(t, err)
	rig.Must(t, os.Remove(filepath.Join(dir, "kek")))
	c := at()
	if mac(c) != before {
		t.Error("another MAC by the token")
	}
	if _, err := c.RotateDataKey(t.Context()); err != nil {
		t.Errorf("a new data key: %v", err)
	}
	plugin.Signal(t, syscall.SIGSTOP)
	if mac(c) != before {
		t.Error("another MAC while the plugin hangs")
	}
	plugin.Signal(t, syscall.SIGCONT)
	plugin.Kill()
	readiness(t, c, false)
	if mac(c) != before {
		t.Error("another MAC without the plugin")
	}
	if _, err := c.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "AES-256"}); err != nil {
		t.Errorf("a key is made while the plugin is away: %v", err)
	}
	plugin = token.Serve(t, socket, "kek")
	readiness(t, c, true)
	plugin.Kill()
	s.Kill()

	waiting, err := built.Begin(dir, "--kek", kek)
	rig.Must(t, err)
	token.Serve(t, socket, "kek")
	rig.Within(t, 2*time.Minute, "the start that waited goes on", func() bool { return strings.Contains(waiting.Log(), "ready: https://") })
	rig.Must(t, waiting.Stop())
	s, err = built.Serve(dir, "--kek", kek)
	rig.Must(t, err)
	if mac(at()) != before {
		t.Error("another MAC after a start")
	}
	rig.Must(t, s.Stop())
}

// readiness waits until the key server reports that its key-encryption key is available, or not available.
func readiness(t *testing.T, c *client.Client, ready bool) {
	t.Helper()
	rig.Within(t, 2*time.Minute, "readiness", func() bool {
		answer, err := c.GetReadiness(t.Context())
		var refused *client.Error
		switch {
		case err == nil:
			return ready && answer.Ready
		case errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable:
			return !ready && strings.Contains(refused.Detail, "not ready: key")
		}
		t.Fatal(err)
		return false
	})
}

func keeper(t *testing.T, socket string) *kmsv2.Client {
	t.Helper()
	k, err := kmsv2.Open(socket)
	rig.Must(t, err)
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func dial(t *testing.T, socket string) kms.KeyManagementServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return kms.NewKeyManagementServiceClient(conn)
}
