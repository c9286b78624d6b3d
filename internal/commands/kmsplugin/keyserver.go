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

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/certtext"
)

const (
	// pause is between two attempts of one call.
	pause = 100 * time.Millisecond
	// maxCAFile bounds what is read of a file of certificates.
	maxCAFile = 1 << 20
	// dialTime is for a connection, so that an address at which nobody is does not take
	// all of a call.
	dialTime = time.Second
	// A connection on which nothing has come for silence is asked whether there is
	// anybody, and given up when nothing comes for answerTime. Calls would wait on it
	// otherwise, one after the other, for as long as the kernel repeats what it sent.
	silence    = 3 * time.Second
	answerTime = 2 * time.Second
)

// connection is the client of a key server, by files that others replace: the token is
// read at each login, the certificates at each call.
type connection struct {
	options client.Options // but for RootCAs
	caFile  string         // empty: the system's roots

	mu      sync.Mutex
	ca      []byte
	current *client.Client
}

// newConnection speaks to nobody yet, and needs none of the files: they may come later.
func newConnection(c Config, key crypto.Signer) (*connection, error) {
	n := &connection{caFile: c.CAFile, options: client.Options{
		BaseURL: c.Server, ProofURL: c.ExternalURL, UserAgent: c.UserAgent, ProofKey: key,
		Credentials: client.KubernetesCredentials(c.TokenFile),
		Timeout:     maxCall,
		MaxRetries:  -1, // persist repeats, for as long as the caller waits
	}}
	_, err := client.New(n.options)
	return n, err
}

// client is that of the certificates that are in the file now. One that cannot be read
// while it is replaced leaves what was.
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
		n.current.CloseIdleConnections() // its session ends by lying idle
	}
	n.current = made
	return made, nil
}

// transport is how the key server is reached; nil roots are the system's.
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

// close ends the session.
func (n *connection) close(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		_ = n.current.Logout(ctx) // it ends by itself otherwise
		n.current.CloseIdleConnections()
	}
}

// persist repeats a call that got no answer, or one by which the key server says that
// another may help, for as long as ctx lasts. To encrypt or decrypt once more does no
// harm: it may count another use of the key.
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

// once gives an attempt two thirds of the time that is left, so that one which hangs is
// not the only one.
func once[T any](ctx context.Context, at keyServer, ask func(context.Context, keyServer) (T, error)) (T, error) {
	if end, bounded := ctx.Deadline(); bounded {
		attempt, cancel := context.WithTimeout(ctx, time.Until(end)*2/3)
		defer cancel()
		ctx = attempt
	}
	return ask(ctx, at)
}

// mayHelp reports whether another attempt may succeed, and after how long.
func mayHelp(ctx context.Context, err error) (time.Duration, bool) {
	var none *client.NetworkError
	var said *client.Error
	switch {
	case err == nil || ctx.Err() != nil:
		return 0, false
	case errors.As(err, &none), errors.Is(err, context.DeadlineExceeded): // that of the attempt
		return pause, true
	case errors.As(err, &said):
		return max(pause, said.RetryAfter), said.Retryable
	default:
		return 0, false
	}
}

// sleep waits for d, and not where ctx ends before.
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
