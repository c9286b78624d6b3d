// Package kmsv2 uses a key-encryption key in a Kubernetes KMS v2 plugin. The plugin is a separate process with a Unix
// socket. Such plugins exist for HSMs, TPMs and clouds.
package kmsv2

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"gocloud.dev/gcerrors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kms/apis/v2"
)

// Scheme is the URL scheme of a key-encryption key in a KMS v2 plugin.
const Scheme = "kmsv2"

const (
	// callTimeout is the time limit of one call to the plugin.
	callTimeout = 5 * time.Second
	// Limits of the plugin's responses according to the protocol.
	maxCiphertext  = 1 << 10
	maxKeyID       = 1 << 10
	maxAnnotations = 32 << 10
	maxMessage     = 64 << 10
)

// envelope is the prefix of data that a plugin has wrapped.
const envelope = "kmsv2:"

type wrapped struct {
	KeyID       string            `json:"keyId"`
	Ciphertext  []byte            `json:"ciphertext"`
	Annotations map[string][]byte `json:"annotations,omitempty"`
}

// Error means that a plugin returned an invalid response or no response. It contains no secrets.
type Error struct{ Sentence string }

func (e *Error) Error() string { return e.Sentence }

// errNotIts is returned if the plugin refuses to unwrap the data.
var errNotIts = errors.New("the KMS plugin cannot unwrap the data key")

// Client is the client of one plugin. It implements the driver of gocloud.dev/secrets.
type Client struct {
	socket string
	conn   *grpc.ClientConn
	client api.KeyManagementServiceClient
}

// Open returns the client of the plugin at a socket. It opens no connection.
func Open(socket string) (*Client, error) {
	if !path.IsAbs(socket) || path.Clean(socket) != socket || strings.ContainsAny(socket, "?#\x00") {
		return nil, errors.New("the URL of a KMS plugin must be kmsv2:// and the absolute path of its socket, for example kmsv2:///run/kms/plugin.sock")
	}
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a local socket; file permissions protect it
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("prepare the client of the KMS plugin: %w", err)
	}
	return &Client{socket, conn, api.NewKeyManagementServiceClient(conn)}, nil
}

// Encrypt lets the plugin wrap plain and then unwrap it again. So a data key that the plugin cannot unwrap is never
// stored.
func (k *Client) Encrypt(ctx context.Context, plain []byte) ([]byte, error) {
	if err := k.Healthy(ctx); err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := k.client.Encrypt(call, &api.EncryptRequest{Plaintext: plain, Uid: newUID()})
	if err != nil {
		return nil, k.failed("wrapping", err)
	}
	w := wrapped{answer.GetKeyId(), answer.GetCiphertext(), answer.GetAnnotations()}
	annotations := 0
	for name, value := range w.Annotations {
		annotations += len(name) + len(value)
	}
	switch {
	case w.KeyID == "" || len(w.KeyID) > maxKeyID:
		return nil, k.said("returns no key id for a wrapped key, or one of more than %d bytes", maxKeyID)
	case len(w.Ciphertext) == 0 || len(w.Ciphertext) > maxCiphertext:
		return nil, k.said("returns %d bytes of ciphertext, but 1 to %d are allowed", len(w.Ciphertext), maxCiphertext)
	case annotations > maxAnnotations:
		return nil, k.said("returns %d bytes of annotations, but at most %d are allowed", annotations, maxAnnotations)
	case bytes.Contains(w.Ciphertext, plain):
		return nil, k.said("returns the data key unencrypted")
	}
	again, err := k.decrypt(ctx, w)
	defer clear(again)
	if errors.Is(err, errNotIts) || err == nil && !bytes.Equal(again, plain) {
		return nil, k.said("cannot unwrap the data key that it has just wrapped")
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(w)
	return slices.Concat([]byte(envelope), text), err
}

// Decrypt lets the plugin unwrap ciphertext.
func (k *Client) Decrypt(ctx context.Context, ciphertext []byte) ([]byte, error) {
	text, found := bytes.CutPrefix(ciphertext, []byte(envelope))
	var w wrapped
	if !found || json.Unmarshal(text, &w) != nil {
		return nil, errNotIts
	}
	return k.decrypt(ctx, w)
}

func (k *Client) decrypt(ctx context.Context, w wrapped) ([]byte, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := k.client.Decrypt(call, &api.DecryptRequest{Ciphertext: w.Ciphertext, Uid: newUID(), KeyId: w.KeyID, Annotations: w.Annotations})
	switch {
	case err == nil:
		return answer.GetPlaintext(), nil
	case unavailableCodes[status.Code(err)]:
		return nil, k.failed("unwrapping", err)
	}
	// The plugin refuses to unwrap the data key. The refusal is final only if the plugin is healthy.
	if err := k.Healthy(ctx); err != nil {
		return nil, err
	}
	return nil, errNotIts
}

// Healthy checks the status of the plugin.
func (k *Client) Healthy(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := k.client.Status(call, &api.StatusRequest{})
	switch {
	case err != nil:
		return k.failed("its status", err)
	case s.GetVersion() != "v2" && s.GetVersion() != "v2beta1":
		return k.said("uses version %.20q of the protocol, but this program requires v2", s.GetVersion())
	case s.GetHealthz() != "ok":
		return k.said("reports that it is not healthy: %.100q", s.GetHealthz())
	case s.GetKeyId() == "" || len(s.GetKeyId()) > maxKeyID:
		return k.said("reports no key id, or a key id of more than %d bytes", maxKeyID)
	}
	return nil
}

// unavailableCodes contains the gRPC codes which mean that the plugin was unavailable.
var unavailableCodes = map[codes.Code]bool{
	codes.Unavailable: true, codes.DeadlineExceeded: true, codes.Canceled: true, codes.ResourceExhausted: true,
	codes.PermissionDenied: true, codes.Unauthenticated: true, codes.Unimplemented: true,
}

func (k *Client) failed(what string, err error) error {
	switch code := status.Code(err); code {
	case codes.Unavailable:
		return k.said("is not running, or has closed the connection")
	case codes.DeadlineExceeded:
		return k.said("does not respond (%s)", what)
	case codes.Canceled:
		return context.Canceled
	default:
		return k.said("fails (%s): %s", what, code)
	}
}

func (k *Client) said(format string, args ...any) error {
	return &Error{"the KMS plugin at " + k.socket + " " + fmt.Sprintf(format, args...)}
}

func newUID() string {
	var uid [16]byte
	_, _ = rand.Read(uid[:]) // never fails
	return hex.EncodeToString(uid[:])
}

// Close closes the connection.
func (k *Client) Close() error { return k.conn.Close() }

// ErrorAs implements driver.Keeper of gocloud.dev/secrets.
func (k *Client) ErrorAs(err error, target any) bool { return errors.As(err, target) }

// ErrorCode implements driver.Keeper of gocloud.dev/secrets.
func (k *Client) ErrorCode(err error) gcerrors.ErrorCode {
	var said *Error
	switch {
	case errors.As(err, &said):
		return gcerrors.Internal
	case errors.Is(err, context.Canceled):
		return gcerrors.Canceled
	}
	return gcerrors.InvalidArgument
}
