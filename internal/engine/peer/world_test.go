package peer

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// patience is much longer than any step of these tests.
const patience = 20 * time.Second

// registry is the registry of client or server.
type registry struct {
	mu      sync.Mutex
	cas     []keyserver.Certificate
	servers []keyserver.TrustedServer
	learned []keyserver.PeerAuthority
	reads   int               // number of reads of servers
	revoked map[string]string // reasons, by the result of named
	failing error             // returned by Revoked
}

func (r *registry) Revoked(_ context.Context, cert, issuer *x509.Certificate) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revoked[named(cert, issuer)], r.failing
}

func (r *registry) PeerAuthorities(context.Context) ([]keyserver.PeerAuthority, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.learned), nil
}

func (r *registry) LearnAuthorities(_ context.Context, _ keyserver.TrustedServer, learned []keyserver.PeerAuthority) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learned = append(r.learned, learned...)
	return nil
}

func (r *registry) TrustedCAs(context.Context) ([]keyserver.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cas, nil
}

func (r *registry) TrustedServers(context.Context) ([]keyserver.TrustedServer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	return slices.Clone(r.servers), nil
}

// named returns the key in revoked for a certificate and its issuer.
func named(cert, issuer *x509.Certificate) string {
	return cert.SerialNumber.String() + " of " + issuer.SerialNumber.String()
}

func (r *registry) forget(what func(*registry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what(r)
}

// identity is a CA with the certificate of a key server.
type identity struct{ ca, own pki.Identity }

func newIdentity(t testing.TB) identity {
	t.Helper()
	ca, err := pki.NewCA("CA", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.IssueServer("key server", nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return identity{ca, own}
}

func (i identity) certificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{i.own.Certificate.Raw, i.ca.Certificate.Raw}, PrivateKey: i.own.Key}
}

// trust registers a key server with its address.
func (r *registry) trust(i identity, system keyserver.SystemID, at netip.AddrPort) keyserver.TrustedServer {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := keyserver.TrustedServer{
		System: system, Name: at.Addr().String(), Port: at.Port(), Transport: values.IDFromUint64(uint64(system) + 1000),
		Certificate: keyserver.Certificate{DER: i.own.Certificate.Raw, Subject: "/CN=key server"},
	}
	r.cas = append(r.cas, keyserver.Certificate{DER: i.ca.Certificate.Raw})
	r.servers = append(r.servers, s)
	return s
}

// listener lets a test break the connections that it accepted.
type listener struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.open = append(l.open, c)
		l.mu.Unlock()
	}
	return c, err
}

// cut breaks every connection, like a network failure.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	l.open = nil
}

// world is a client with system id 1 and a server with system id 2. They are registered as peers of each other.
type world struct {
	client   *Client
	gate     *Gate
	server   *Server
	log      journal // log of the server
	refused  journal // log of the server's gate
	at       *listener
	asked    keyserver.TrustedServer // the client's record of the server
	keys     *keys
	clientID identity
	serverID identity
	known    *registry // registry of the client
	knows    *registry // registry of the server
}

func newWorld(t testing.TB, timeout time.Duration) *world {
	t.Helper()
	w := &world{keys: &keys{}, clientID: newIdentity(t), serverID: newIdentity(t), known: &registry{}, knows: &registry{}}
	w.listen(t, w.serverID)
	w.asked = w.known.trust(w.serverID, 2, netip.MustParseAddrPort(w.at.Addr().String()))
	w.knows.trust(w.clientID, 1, netip.MustParseAddrPort("192.0.2.1:9443"))
	w.client = NewClient(ClientConfig{
		Registry: w.known, Certificate: w.clientID.certificate, Timeout: timeout, Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		if err := w.client.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// listen starts a server with the given identity.
func (w *world) listen(t testing.TB, as identity) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := &listener{Listener: l}
	w.at = at
	gate := NewGate(w.knows, as.certificate, time.Now, slog.New(slog.NewJSONHandler(&w.refused, nil)))
	w.gate = gate
	w.server = NewServer(w.keys, nil, 2, time.Now, slog.New(slog.NewJSONHandler(&w.log, nil)))
	srv := w.server.GRPC(gate)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(gate.Listen(at)) }()
	t.Cleanup(func() { srv.Stop(); <-done; gate.Close() })
}

// ask returns the client's remote key server.
func (w *world) ask() keyserver.Federated { return w.client.At(w.asked) }

// raw returns a connection to the server. A test can send any call on it.
func (w *world) raw(t testing.TB, as identity) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+w.at.Addr().String(), grpc.WithTransportCredentials(key{newEndpointOf(t, w, as), 2}), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// newEndpointOf returns an endpoint with the given identity that connects to the server.
func newEndpointOf(t testing.TB, w *world, as identity) *endpoint {
	t.Helper()
	endpoint := newEndpoint(w.known, as.certificate, w.client.endpoint.usage, time.Now, slog.New(slog.DiscardHandler), func(trust) {})
	t.Cleanup(endpoint.close)
	return endpoint
}

var link = values.NewHiddenLink(2, values.IDFromUint64(42))

// caller returns a principal of the client's key server.
func caller(t testing.TB) keyserver.Caller {
	t.Helper()
	by := keyserver.Caller{
		Principal: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(7)}, Name: "caller", Type: keyserver.CertificatePrincipal,
		Kind: keyserver.PeerSession, RequestID: "request-1", Actor: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(8)},
		Peer: &keyserver.PeerCall{System: 1, Groups: []keyserver.PrincipalRef{{System: 1, ID: values.IDFromUint64(9)}}},
	}
	if _, err := rand.Read(by.Peer.Key[:]); err != nil {
		t.Fatal(err)
	}
	return by
}

// keys is the key server that the peer server calls. Tests set its results.
type keys struct {
	keyserver.Federated // nil: only the methods below may be called

	mu     sync.Mutex
	calls  []keyserver.Caller
	answer func(ctx context.Context, by keyserver.Caller) error
	heard  []byte // the last message
	choice keyserver.KeyChoice
	mac    [keyserver.MACSize]byte // the MAC to verify
	lie    func(*keyserver.UsedKey)
	acl    keyserver.ACL
	found  []keyserver.Principal
}

func (k *keys) called(ctx context.Context, by keyserver.Caller) error {
	k.mu.Lock()
	k.calls = append(k.calls, by)
	answer := k.answer
	k.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx, by)
}

// set sets the function that returns the error of each operation.
func (k *keys) set(answer func(context.Context, keyserver.Caller) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = answer
}

func (k *keys) seen() []keyserver.Caller {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]keyserver.Caller(nil), k.calls...)
}

func (k *keys) Key(ctx context.Context, by keyserver.Caller, l keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	return keyserver.KeyMetadata{Link: l, Algorithm: keyserver.AES256, KeyBytes: 32}, k.called(ctx, by)
}

func (k *keys) AuthorizeKey(ctx context.Context, by keyserver.Caller, use keyserver.Use) (keyserver.Grant, error) {
	return keyserver.Grant{System: 2, FilenameAudited: use.Filename != ""}, k.called(ctx, by)
}

func (k *keys) HMAC(ctx context.Context, by keyserver.Caller, r keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	if err := k.called(ctx, by); err != nil {
		return mac, err
	}
	var text sink
	if _, err := r.Message.WriteTo(&text); err != nil {
		return mac, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = text
	mac[0] = 1
	return mac, nil
}

// used records the choice of a key, and returns a key for it.
func (k *keys) used(choice keyserver.KeyChoice) keyserver.UsedKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.choice = choice
	used := keyserver.UsedKey{Link: choice.Named(), Generation: 3}
	if k.lie != nil {
		k.lie(&used)
	}
	return used
}

func (k *keys) MAC(ctx context.Context, by keyserver.Caller, r keyserver.MACRequest) (mac keyserver.MAC, err error) {
	mac.UsedKey = k.used(keyserver.KeyChoice{Lineage: r.Lineage})
	mac.Sum, err = k.HMAC(ctx, by, keyserver.HMACRequest{Link: r.Lineage, Message: r.Message})
	return mac, err
}

func (k *keys) VerifyMAC(ctx context.Context, by keyserver.Caller, r keyserver.MACCheck) (keyserver.MACVerdict, error) {
	used := k.used(r.KeyChoice)
	if _, err := k.HMAC(ctx, by, keyserver.HMACRequest{Link: r.Named(), Message: r.Message}); err != nil {
		return keyserver.MACVerdict{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mac = r.MAC()
	return keyserver.MACVerdict{UsedKey: used, Valid: true}, nil
}

func (k *keys) Encrypt(ctx context.Context, by keyserver.Caller, r keyserver.Encryption) (keyserver.Ciphertext, error) {
	sealed := slices.Concat(r.Plain, r.Associated, []byte("sealed"))
	return keyserver.Ciphertext{UsedKey: k.used(r.KeyChoice), Sealed: sealed}, k.called(ctx, by)
}

func (k *keys) Decrypt(ctx context.Context, by keyserver.Caller, r keyserver.Decryption) (keyserver.Plaintext, error) {
	return keyserver.Plaintext{UsedKey: k.used(r.KeyChoice), Plain: slices.Concat(r.Sealed, r.Associated)}, k.called(ctx, by)
}

func (k *keys) ACL(ctx context.Context, by keyserver.Caller, _ keyserver.HiddenLink) (keyserver.ACL, error) {
	return k.acl, k.called(ctx, by)
}

func (k *keys) GrantACL(ctx context.Context, by keyserver.Caller, _ keyserver.ACLChange) error {
	return k.called(ctx, by)
}

func (k *keys) AmendACL(ctx context.Context, by keyserver.Caller, _ keyserver.ACLChange) error {
	return k.called(ctx, by)
}

func (k *keys) RevokeACL(ctx context.Context, by keyserver.Caller, _ keyserver.ACLRevocation) error {
	return k.called(ctx, by)
}

func (k *keys) LookupPrincipals(ctx context.Context, by keyserver.Caller, _ []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	return k.found, k.called(ctx, by)
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text []byte
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, b...)
	return len(b), nil
}

// lines returns the lines that were written until now.
func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Split(strings.TrimSuffix(string(j.text), "\n"), "\n")
}

type sink []byte

func (s *sink) Write(b []byte) (int, error) { *s = append(*s, b...); return len(b), nil }

// message is a message that writes text, and then fails with err.
type message struct {
	text []byte
	err  error
}

func (m message) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(m.text)
	if err == nil {
		err = m.err
	}
	return int64(n), err
}
