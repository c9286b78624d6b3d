package kmsplugin

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

const (
	// pause is the minimum pause between two attempts of one call.
	pause = 100 * time.Millisecond
	// maxCAFile limits the size of a certificate file, in bytes.
	maxCAFile = 1 << 20
	// dialTime bounds a connection attempt, so that an unreachable address leaves time for other attempts.
	dialTime = time.Second
	// A connection without incoming data for the time silence is probed. If there is no response within answerTime, the
	// connection is closed. Otherwise calls would wait for it while the kernel repeats packets.
	silence    = 3 * time.Second
	answerTime = 2 * time.Second
)

// connection is the client of a key server. It reads the token at each login and the certificates at each call, because
// both files may be replaced.
type connection struct {
	options client.Options // without RootCAs
	caFile  string         // empty: the roots of the system

	mu      sync.Mutex
	ca      []byte
	current *client.Client
}

// newConnection reads no file and does not connect, because the files may be created later.
func newConnection(c Config, key crypto.Signer) (*connection, error) {
	n := &connection{caFile: c.CAFile, options: client.Options{
		BaseURL: c.Server, ProofURL: c.ExternalURL, UserAgent: c.UserAgent, ProofKey: key,
		Credentials: client.KubernetesCredentials(c.TokenFile),
		Timeout:     maxCall,
		MaxRetries:  -1, // persist repeats calls instead, until the caller's deadline
	}}
	_, err := client.New(n.options)
	return n, err
}

// client returns a client that trusts the certificates that the file has now. If the file cannot be read, it returns
// the previous client.
func (n *connection) client() (keyServer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	options := n.options
	var roots *x509.CertPool
	if n.caFile != "" {
		ca, err := readCA(n.caFile)
		switch {
		case err != nil && n.current == nil:
			return nil, err
		case err != nil || n.current != nil && bytes.Equal(ca, n.ca):
			return n.current, nil
		}
		if roots, err = certtext.Pool(ca); err != nil {
			if n.current != nil {
				return n.current, nil
			}
			return nil, fmt.Errorf("--ca-file: %s %w", n.caFile, err)
		}
		n.ca = ca
	} else if n.current != nil {
		return n.current, nil
	}
	options.HTTPClient = &http.Client{Transport: transport(roots)}
	made, err := client.New(options)
	if err != nil {
		return nil, err
	}
	if n.current != nil {
		n.current.CloseIdleConnections() // the session of this client expires
	}
	n.current = made
	return made, nil
}

// transport returns the transport to the key server. If roots is nil, the system's certificates are used.
func transport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: maxCall,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: answerTime},
		MaxIdleConnsPerHost: maxUnderWay,
		IdleConnTimeout:     90 * time.Second,
	}
}

func readCA(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	ca, err := io.ReadAll(io.LimitReader(file, maxCAFile+1))
	if err == nil && len(ca) > maxCAFile {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxCAFile)
	}
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	return ca, nil
}

// close ends the session and the connections.
func (n *connection) close(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		_ = n.current.Logout(ctx) // after an error, the session expires
		n.current.CloseIdleConnections()
	}
}

// persist repeats a call until ctx ends, if there was no response or the error is retryable. Repeating an encryption or
// decryption is harmless, but may count one more use of the key.
func persist[T any](ctx context.Context, keys func() (keyServer, error), ask func(context.Context, keyServer) (T, error)) (T, error) {
	for {
		var out T
		at, err := keys()
		if err == nil {
			out, err = once(ctx, at, ask)
		}
		wait, again := mayHelp(ctx, err)
		if !again || !sleep(ctx, wait) {
			return out, err
		}
	}
}

// once runs one attempt with two thirds of the remaining time, so that there is time for another attempt.
func once[T any](ctx context.Context, at keyServer, ask func(context.Context, keyServer) (T, error)) (T, error) {
	if end, bounded := ctx.Deadline(); bounded {
		attempt, cancel := context.WithTimeout(ctx, time.Until(end)*2/3)
		defer cancel()
		ctx = attempt
	}
	return ask(ctx, at)
}

// mayHelp reports whether another attempt may succeed, and returns the pause before it.
func mayHelp(ctx context.Context, err error) (time.Duration, bool) {
	var none *client.NetworkError
	var said *client.Error
	switch {
	case err == nil || ctx.Err() != nil:
		return 0, false
	case errors.As(err, &none), errors.Is(err, context.DeadlineExceeded): // deadline of the attempt, not of the call
		return pause, true
	case errors.As(err, &said):
		return max(pause, said.RetryAfter), said.Retryable
	default:
		return 0, false
	}
}

// sleep waits for d and returns true. It returns false if ctx ends earlier. If the deadline of ctx is earlier, it
// returns false without waiting.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
