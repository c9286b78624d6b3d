package kmsplugin

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kms "k8s.io/kms/apis/v2"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/unixsocket"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const (
	line   = schema.HiddenLink("the first key")
	second = schema.HiddenLink("the second key")
)

// pretended is a fake key server. encrypt and decrypt can change its responses. Its ciphertext is the key's name, the
// associated data, and the reversed plaintext.
type pretended struct {
	mu      sync.Mutex
	key     schema.HiddenLink
	asked   int // number of encryptions and decryptions
	encrypt func(context.Context, *schema.EncryptResponse) error
	decrypt func(context.Context, *schema.DecryptResponse) error
}

func (k *pretended) Encrypt(ctx context.Context, in schema.EncryptRequest) (schema.EncryptResponse, error) {
	k.mu.Lock()
	k.asked++
	out, change := schema.EncryptResponse{TTag: k.key, Generation: 1}, k.encrypt
	k.mu.Unlock()
	if in.Lineage == nil || *in.Lineage != line || in.TTag != nil {
		return out, errors.New("not by the line")
	}
	out.Ciphertext = []byte(string(k.key) + "|" + string(*in.AssociatedData) + "|" + turned(in.Data))
	if change != nil {
		return out, change(ctx, &out)
	}
	return out, nil
}

func (k *pretended) Decrypt(ctx context.Context, in schema.DecryptRequest) (schema.DecryptResponse, error) {
	k.mu.Lock()
	k.asked++
	change := k.decrypt
	k.mu.Unlock()
	parts := strings.SplitN(string(in.Ciphertext), "|", 3)
	if len(parts) != 3 || parts[1] != string(*in.AssociatedData) || in.Lineage == nil || *in.Lineage != line {
		return schema.DecryptResponse{}, &client.Error{Status: http.StatusBadRequest, Code: "INVALID_ARGUMENT", Detail: "the ciphertext does not open"}
	}
	out := schema.DecryptResponse{TTag: schema.HiddenLink(parts[0]), Data: []byte(turned([]byte(parts[2])))}
	if change != nil {
		return out, change(ctx, &out)
	}
	return out, nil
}

func (k *pretended) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func (k *pretended) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

func turned(b []byte) string {
	b = slices.Clone(b)
	slices.Reverse(b)
	return string(b)
}

// served is a plugin with a client at its socket.
type served struct {
	kms.KeyManagementServiceClient
	log  *rig.Output
	now  atomic.Int64 // seconds
	stop func() error
}

// serve runs a plugin with the key server until the test ends.
func serve(t *testing.T, keys keyServer) *served {
	t.Helper()
	s := &served{log: &rig.Output{}}
	s.now.Store(1_800_000_000)
	p := &plugin{
		keys: func() (keyServer, error) { return keys, nil }, lineage: line, metrics: newMetrics(slog.New(slog.DiscardHandler)), places: make(chan struct{}, maxUnderWay),
		clock: func() time.Time { return time.Unix(s.now.Load(), 0) }, logger: slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := unixsocket.Listen(t.Context(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.serve(ctx, listener, nil) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	s.KeyManagementServiceClient = kms.NewKeyManagementServiceClient(dial(t, socket))
	return s
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestMalformedCalls checks that invalid calls are rejected with the name of the field, and do not reach the
// key server.
func TestMalformedCalls(t *testing.T) {
	k := &pretended{key: line}
	s := serve(t, k)
	if _, err := s.Status(t.Context(), &kms.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	before, sealed := k.count(), []byte("a ciphertext")
	for name, tc := range map[string]struct {
		in   any
		says string
	}{
		"NoPlaintext":    {&kms.EncryptRequest{}, "plaintext has 0 bytes"},
		"MuchPlaintext":  {&kms.EncryptRequest{Plaintext: make([]byte, maxPlain+1)}, "plaintext has 988 bytes"},
		"NoCiphertext":   {&kms.DecryptRequest{KeyId: line.String()}, "ciphertext has 0 bytes"},
		"MuchCiphertext": {&kms.DecryptRequest{KeyId: line.String(), Ciphertext: make([]byte, maxCiphertext+1)}, "ciphertext has 1025 bytes"},
		"NoKey":          {&kms.DecryptRequest{Ciphertext: sealed}, "key_id is not"},
		"NoBase64":       {&kms.DecryptRequest{Ciphertext: sealed, KeyId: "arn:aws:kms"}, "key_id is not"},
		"LongKey":        {&kms.DecryptRequest{Ciphertext: sealed, KeyId: strings.Repeat("A", 4*maxKeyID)}, "key_id is not"},
		"Annotations":    {&kms.DecryptRequest{Ciphertext: sealed, KeyId: line.String(), Annotations: map[string][]byte{"a.example": nil}}, "annotations has 1"},
		"Endless":        {&kms.EncryptRequest{Plaintext: make([]byte, maxMessage+1)}, "larger than max"},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			switch in := tc.in.(type) {
			case *kms.EncryptRequest:
				_, err = s.Encrypt(t.Context(), in)
			case *kms.DecryptRequest:
				_, err = s.Decrypt(t.Context(), in)
			}
			code := codes.InvalidArgument
			if name == "Endless" {
				code = codes.ResourceExhausted
			}
			if status.Code(err) != code || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v; want %s with %q", err, code, tc.says)
			}
		})
	}
	if after := k.count(); after != before {
		t.Errorf("the key server was asked %d times", after-before)
	}
}

// TestLyingKeyServer checks that the plugin rejects wrong responses of the key server.
func TestLyingKeyServer(t *testing.T) {
	encrypts := func(change func(*schema.EncryptResponse)) *pretended {
		return &pretended{key: line, encrypt: func(_ context.Context, out *schema.EncryptResponse) error { change(out); return nil }}
	}
	decrypts := func(change func(*schema.DecryptResponse)) *pretended {
		return &pretended{key: line, decrypt: func(_ context.Context, out *schema.DecryptResponse) error { change(out); return nil }}
	}
	for name, tc := range map[string]struct {
		keys *pretended
		says string
	}{
		"NoKey":             {encrypts(func(out *schema.EncryptResponse) { out.TTag = "" }), "does not name the key"},
		"NoCiphertext":      {encrypts(func(out *schema.EncryptResponse) { out.Ciphertext = nil }), "0 bytes of ciphertext"},
		"MuchCiphertext":    {encrypts(func(out *schema.EncryptResponse) { out.Ciphertext = make([]byte, maxCiphertext+1) }), "1025 bytes of ciphertext"},
		"NotEncrypted":      {encrypts(func(out *schema.EncryptResponse) { out.Ciphertext = []byte("-" + sample) }), "the plaintext in the ciphertext"},
		"AnotherPlaintext":  {decrypts(func(out *schema.DecryptResponse) { out.Data = []byte("another") }), "not to the text"},
		"AnotherKeyDecrypt": {decrypts(func(out *schema.DecryptResponse) { out.TTag = second }), "another key encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tc.keys)
			if answer, err := s.Status(t.Context(), &kms.StatusRequest{}); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("status: %v, %v; want %q", answer, err, tc.says)
			}
		})
	}
}

// TestKeyIDFollowsTheLine checks that the key id is that of the encrypting key, and changes only with it.
func TestKeyIDFollowsTheLine(t *testing.T) {
	k := &pretended{key: line}
	s := serve(t, k)
	look := func() string {
		t.Helper()
		answer, err := s.Status(t.Context(), &kms.StatusRequest{})
		if err != nil || answer.GetHealthz() != "ok" || answer.GetVersion() != "v2" {
			t.Fatalf("%v, %v", answer, err)
		}
		return answer.GetKeyId()
	}
	if got := look(); got != line.String() {
		t.Errorf("the key id is %q", got)
	}
	asked := k.count()
	if look(); k.count() != asked {
		t.Error("a status that is fresh asks the key server again")
	}
	k.set(func() { k.key = second })
	if got := look(); got != line.String() {
		t.Errorf("before it is looked again the key id is %q", got)
	}
	s.now.Add(int64(fresh / time.Second))
	if got := look(); got != second.String() {
		t.Errorf("after the rotation the key id is %q", got)
	}

	// An encryption uses a new key first. A later status must return the id of the new key.
	k.set(func() { k.key = line })
	answer, err := s.Encrypt(t.Context(), &kms.EncryptRequest{Plaintext: []byte("seed"), Uid: "u"})
	if err != nil || answer.GetKeyId() != line.String() || len(answer.GetAnnotations()) != 0 {
		t.Fatalf("%v, %v", answer, err)
	}
	if got := look(); got != line.String() {
		t.Errorf("after an encryption by another key the key id is %q", got)
	}
	plain, err := s.Decrypt(t.Context(), &kms.DecryptRequest{Ciphertext: answer.GetCiphertext(), KeyId: answer.GetKeyId(), Uid: "u"})
	if err != nil || string(plain.GetPlaintext()) != "seed" {
		t.Errorf("%v, %v", plain, err)
	}
	if _, err := s.Decrypt(t.Context(), &kms.DecryptRequest{Ciphertext: answer.GetCiphertext(), KeyId: second.String()}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "another key encrypted the ciphertext: "+line.String()) {
		t.Errorf("under the id of another key: %v", err)
	}
	if _, err := s.Decrypt(t.Context(), &kms.DecryptRequest{Ciphertext: []byte(string(line) + "|" + forStatus + "|x"), KeyId: line.String()}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what was encrypted for something else: %v", err)
	}
}

// TestCodes checks that the code shows which side has to act, and that the text names the remedy.
func TestCodes(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code codes.Code
	}{
		"NoRole":       {&client.Error{Status: 403, Code: "ACCESS_DENIED", Detail: "why"}, codes.PermissionDenied},
		"NotOnTheList": {&client.Error{Status: 403, Code: "ACL_DENIED", Detail: "why"}, codes.PermissionDenied},
		"OutOfScope":   {&client.Error{Status: 403, Code: "OBJECT_NOT_IN_CREDENTIAL_SCOPE", Detail: "why"}, codes.PermissionDenied},
		"BadToken":     {&client.Error{Status: 401, Code: "INVALID_CREDENTIALS", Detail: "why"}, codes.Unauthenticated},
		"Disabled":     {&client.Error{Status: 403, Code: "KEY_DISABLED", Detail: "why"}, codes.FailedPrecondition},
		"UsedUp":       {&client.Error{Status: 409, Code: "KEY_EXHAUSTED", Detail: "why"}, codes.FailedPrecondition},
		"NoSuchLine":   {&client.Error{Status: 404, Code: "KEY_NOT_FOUND", Detail: "why"}, codes.NotFound},
		"Changed":      {&client.Error{Status: 400, Code: "INVALID_ARGUMENT", Detail: "why"}, codes.InvalidArgument},
		"Throttled":    {&client.Error{Status: 429, Code: "LOGIN_THROTTLED", Detail: "why"}, codes.Unavailable},
		"PeerAway":     {&client.Error{Status: 503, Code: "PEER_UNAVAILABLE", Detail: "why"}, codes.Unavailable},
		"NoContract":   {&client.Error{Status: 200, Detail: "why"}, codes.Internal},
		"FileNotThere": {errors.New("read the service account token: why"), codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := serve(t, &pretended{key: line, encrypt: func(context.Context, *schema.EncryptResponse) error { return tc.err }})
			_, err := s.Encrypt(ctx, &kms.EncryptRequest{Plaintext: []byte("seed"), Uid: "u"})
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), "encrypt with the key lineage "+line.String()) || !strings.Contains(err.Error(), "why") {
				t.Errorf("got %v, want %s", err, tc.code)
			}
			if _, err := s.Status(ctx, &kms.StatusRequest{}); status.Code(err) == codes.OK {
				t.Error("it is well")
			}
		})
	}
	if code := codeOf(&client.NetworkError{Err: errors.New("refused")}); code != codes.Unavailable {
		t.Errorf("no answer: %s", code)
	}
}

// TestRepeats checks that a retryable call is repeated until the caller's deadline, also after an attempt that
// hangs.
func TestRepeats(t *testing.T) {
	k := &pretended{key: line}
	s := serve(t, k)
	away := func(hang bool) func(context.Context, *schema.EncryptResponse) error {
		var attempts atomic.Int64 // the first check makes attempts, too
		return func(ctx context.Context, _ *schema.EncryptResponse) error {
			if attempts.Add(1) > 1 {
				return nil
			}
			if hang {
				<-ctx.Done()
				return &client.NetworkError{Sent: true, Err: ctx.Err()}
			}
			return &client.Error{Status: 503, Code: "OVERLOADED", Retryable: true}
		}
	}
	for _, hang := range []bool{false, true} {
		k.set(func() { k.encrypt = away(hang) })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if _, err := s.Encrypt(ctx, &kms.EncryptRequest{Plaintext: []byte("seed")}); err != nil {
			t.Errorf("it hangs %t: %v", hang, err)
		}
		cancel()
	}
	k.set(func() {
		k.encrypt = func(context.Context, *schema.EncryptResponse) error {
			return &client.Error{Status: 503, Code: "OVERLOADED", Retryable: true, RetryAfter: time.Hour}
		}
	})
	if _, err := s.Encrypt(t.Context(), &kms.EncryptRequest{Plaintext: []byte("seed")}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "OVERLOADED") {
		t.Errorf("a pause that is longer than anybody waits: %v", err)
	}
}

// TestDrain checks that a call in progress gets its response while the process stops.
func TestDrain(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	k := &pretended{key: line}
	s := serve(t, k)
	if _, err := s.Status(t.Context(), &kms.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	k.set(func() {
		k.encrypt = func(context.Context, *schema.EncryptResponse) error {
			close(begun)
			<-goOn
			return nil
		}
	})
	answered := make(chan error, 1)
	go func() {
		_, err := s.Encrypt(context.WithoutCancel(t.Context()), &kms.EncryptRequest{Plaintext: []byte("seed")})
		answered <- err
	}()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	close(goOn)
	if err := <-answered; err != nil {
		t.Errorf("the call: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("the end: %v", err)
	}
}

// TestBound checks the limit of concurrent calls. A waiting call gets an error at its deadline.
func TestBound(t *testing.T) {
	k := &pretended{key: line}
	s := serve(t, k)
	if _, err := s.Status(t.Context(), &kms.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan struct{}, maxUnderWay+1), make(chan struct{})
	k.set(func() {
		k.encrypt = func(context.Context, *schema.EncryptResponse) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}
	})
	var calls sync.WaitGroup
	for range maxUnderWay {
		calls.Go(func() {
			if _, err := s.Encrypt(t.Context(), &kms.EncryptRequest{Plaintext: []byte("seed")}); err != nil {
				t.Error(err)
			}
		})
		<-begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Encrypt(ctx, &kms.EncryptRequest{Plaintext: []byte("seed")}); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("one more: %v", err)
	}
	select {
	case <-begun:
		t.Error("one more is worked on")
	default:
	}
	close(goOn)
	calls.Wait()
}

// TestLog checks that the log has the caller's id of each call and no plaintext.
func TestLog(t *testing.T) {
	k := &pretended{key: line}
	s := serve(t, k)
	secret := []byte("a seed that nobody may read")
	answer, err := s.Encrypt(t.Context(), &kms.EncryptRequest{Plaintext: secret, Uid: "call-1\nforged"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decrypt(t.Context(), &kms.DecryptRequest{Ciphertext: answer.GetCiphertext(), KeyId: answer.GetKeyId(), Uid: "call-2"}); err != nil {
		t.Fatal(err)
	}
	k.set(func() { k.encrypt = func(context.Context, *schema.EncryptResponse) error { panic(string(secret)[:3]) } })
	if _, err := s.Encrypt(t.Context(), &kms.EncryptRequest{Plaintext: secret, Uid: "call-3"}); status.Code(err) != codes.Internal {
		t.Errorf("a panic: %v", err)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	log := s.log.String()
	for _, want := range []string{`"uid":"call-1?forged"`, `"uid":"call-2"`, `"uid":"call-3"`, `"key":"` + line.String() + `"`, `"code":"Internal"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if strings.Contains(log, string(secret)) {
		t.Error("the log has the text")
	}
}

// TestCertificatesAreReadAgain checks that changed certificates are loaded, and that an invalid file during a
// replacement changes nothing.
func TestCertificatesAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	n, err := newConnection(Config{Server: "https://keys.example", CAFile: file, TokenFile: "/nowhere"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.client(); err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("no file: %v", err)
	}
	write("nothing")
	if _, err := n.client(); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("no certificate: %v", err)
	}
	one, other := rig.NewCA(t, "one").PEM, rig.NewCA(t, "other").PEM
	write(one)
	first, err := n.client()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"the same": one, "nothing": "nothing", "half of it": one[:len(one)/2] + other} {
		write(text)
		if again, err := n.client(); err != nil || again != first {
			t.Errorf("with %s there is another client, or none: %v", name, err)
		}
	}
	write(other)
	if again, err := n.client(); err != nil || again == first {
		t.Errorf("with other certificates it is the same client: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := n.client(); err != nil {
		t.Errorf("without the file, which was there: %v", err)
	}
}

// TestSilentConnection checks that a connection is closed if the other end has disappeared silently. No later call may
// wait for this connection.
func TestSilentConnection(t *testing.T) {
	t.Parallel() // the test waits for timeouts
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	between, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer between.Close()
	var silent atomic.Bool
	go func() {
		for {
			conn, err := between.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				return
			}
			forward := func(to, from net.Conn) {
				defer to.Close()
				for b := make([]byte, 4<<10); ; {
					n, err := from.Read(b)
					if err != nil {
						return
					}
					if silent.Load() {
						n = 0 // the data is lost
					}
					if _, err := to.Write(b[:n]); err != nil {
						return
					}
				}
			}
			silent.Store(false) // the next connection reaches the server
			go forward(behind, conn)
			go forward(conn, behind)
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c := http.Client{Transport: transport(roots)}
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+between.Addr().String(), http.NoBody)
		if err != nil {
			return err
		}
		answer, err := c.Do(request)
		if err != nil {
			return err
		}
		if answer.ProtoMajor != 2 {
			t.Errorf("it speaks %s", answer.Proto)
		}
		return answer.Body.Close()
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	if err := ask(); err == nil {
		t.Fatal("what was lost is answered")
	}
	rig.Within(t, 30*time.Second, "another connection is made", func() bool { return ask() == nil })
}
