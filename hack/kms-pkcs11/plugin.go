package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kms "k8s.io/kms/apis/v2"
	"k8s.io/kms/pkg/service"
)

const (
	version = "v2"
	// maxPlain is much more than a data key, which has 32 bytes.
	maxPlain   = 4 << 10
	maxMessage = 64 << 10
	// watchEvery is the interval in which the key is checked.
	watchEvery = 5 * time.Second
	// patience is how long the token may fail before the process ends. Then the next process opens the token again,
	// because a session is lost when its device is lost.
	patience = 30 * time.Second
)

type plugin struct{ token *token }

// Status implements service.Service. It reports ok if the key can wrap and unwrap.
func (p plugin) Status(ctx context.Context) (*service.StatusResponse, error) {
	health := "ok"
	if err := p.try(ctx); err != nil {
		health = err.Error()
	}
	return &service.StatusResponse{Version: version, Healthz: health, KeyID: hex.EncodeToString(p.token.keyID)}, nil
}

// try wraps and unwraps a sample, to check the key.
func (p plugin) try(ctx context.Context) error {
	sample := []byte("sample")
	wrapped, err := p.token.wrap(ctx, sample)
	if err != nil {
		return err
	}
	again, err := p.token.unwrap(ctx, p.token.keyID, wrapped)
	if err == nil && !bytes.Equal(again, sample) {
		err = errors.New("the key does not open what it has just wrapped")
	}
	return err
}

func (p plugin) Encrypt(ctx context.Context, _ string, plain []byte) (*service.EncryptResponse, error) {
	if len(plain) == 0 || len(plain) > maxPlain {
		return nil, status.Errorf(codes.InvalidArgument, "plaintext has %d bytes; 1 to %d are wrapped", len(plain), maxPlain)
	}
	wrapped, err := p.token.wrap(ctx, plain)
	if err != nil {
		return nil, coded(err)
	}
	return &service.EncryptResponse{Ciphertext: wrapped, KeyID: hex.EncodeToString(p.token.keyID)}, nil
}

func (p plugin) Decrypt(ctx context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	id, err := hex.DecodeString(r.KeyID)
	if err != nil {
		return nil, coded(errNotIts)
	}
	plain, err := p.token.unwrap(ctx, id, r.Ciphertext)
	if err != nil {
		return nil, coded(err)
	}
	return plain, nil
}

// coded converts an error to a gRPC status: InvalidArgument for unknown ciphertext, DeadlineExceeded if the library
// hangs, Unavailable for any other error.
func coded(err error) error {
	switch {
	case errors.Is(err, errNotIts):
		return status.Error(codes.InvalidArgument, errNotIts.Error())
	case errors.Is(err, errHangs):
		return status.Error(codes.DeadlineExceeded, err.Error())
	default:
		return status.Error(codes.Unavailable, err.Error())
	}
}

// listen creates a socket to which only this user has access.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := vacate(ctx, socket); err != nil {
		return nil, err
	}
	defer syscall.Umask(syscall.Umask(0o177))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return listener, nil
}

// serve serves requests until ctx ends, or until the token has failed for longer than patience.
func (p plugin) serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.ConnectionTimeout(callTimeout), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(2*places))
	kms.RegisterKeyManagementServiceServer(server, service.NewGRPCService("", callTimeout, p))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	err := p.watch(ctx)
	if err != nil {
		server.Stop() // GracefulStop would wait for a call that hangs
	} else {
		server.GracefulStop()
	}
	return errors.Join(err, <-ended)
}

// watch returns when ctx ends. It returns an error if the key has failed for longer than patience.
func (p plugin) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for well := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := p.try(ctx)
		switch {
		case err == nil:
			well = time.Now()
		case ctx.Err() == nil && time.Since(well) > patience:
			return fmt.Errorf("the key has not worked for %s, so this process ends and the next one opens the token again: %w", patience, err)
		}
	}
}

// vacate removes the socket of a process that does not run any more.
func vacate(ctx context.Context, socket string) error {
	info, err := os.Lstat(socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--listen: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("--listen %s is there and is no socket: name another path", socket)
	}
	if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", socket); err == nil {
		_ = conn.Close()
		return fmt.Errorf("--listen %s: another process answers there", socket)
	}
	return os.Remove(socket)
}
