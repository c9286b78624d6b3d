package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

const maxDocument = 1 << 20

// keep is how long keys are used if they cannot be read again. It is long enough to repair an issuer, and short enough
// that a withdrawn key soon becomes invalid.
const keep = time.Hour

// File is a JWK set in a file that another process updates.
type File string

// Pace implements Source: a replaced file is used within a second.
func (File) Pace() Pace { return Pace{Fresh: time.Second, Retry: time.Second, Keep: keep} }

// Read implements Source. It returns the content of the file.
func (f File) Read(context.Context) ([]byte, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened only for reading
	return readBounded(file)
}

// Discovery reads the keys from the URL that the issuer publishes (OpenID Connect Discovery 1.0).
type Discovery struct {
	Issuer string
	CAFile string // PEM file, read each time; if empty, the system's CAs are trusted
}

// Pace implements Source.
func (Discovery) Pace() Pace {
	return Pace{Fresh: 5 * time.Minute, Retry: 10 * time.Second, Keep: keep}
}

// Validate returns an error if the issuer is not a URL that Read can fetch.
func (d Discovery) Validate() error {
	from, err := fetchable(d.Issuer, true)
	if err == nil && strings.ContainsRune(from, '?') {
		err = errors.New("must not have a query")
	}
	return err
}

// Read implements Source. It reads the discovery document and then the keys, whose URL is in that document. It uses
// HTTPS, or HTTP on the same machine, and follows no redirects.
func (d Discovery) Read(ctx context.Context) ([]byte, error) {
	roots, err := d.roots()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: readTimeout, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	text, err := get(ctx, client, strings.TrimSuffix(d.Issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return nil, errors.New("the configuration of the issuer is not JSON")
	}
	if about.Issuer != d.Issuer {
		return nil, fmt.Errorf("the configuration has the issuer %.200q instead of %q", about.Issuer, d.Issuer)
	}
	from, err := fetchable(about.Keys, strings.HasPrefix(d.Issuer, "http:"))
	if err != nil {
		return nil, fmt.Errorf("jwks_uri in the configuration of the issuer %w", err)
	}
	return get(ctx, client, from)
}

func (d Discovery) roots() (*x509.CertPool, error) {
	if d.CAFile == "" {
		return nil, nil
	}
	text, err := File(d.CAFile).Read(context.Background())
	if err != nil {
		return nil, err
	}
	roots, err := certtext.Pool(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", d.CAFile, err)
	}
	return roots, nil
}

// fetchable returns a URL if it may be fetched: by https or, if loopback is true, by http from this machine.
func fetchable(text string, loopback bool) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return "", errors.New("must be valid, with a host and without user and fragment")
	}
	if u.Scheme == "https" || u.Scheme == "http" && loopback && isLoopback(u.Hostname()) {
		return text, nil
	}
	return "", errors.New("must start with https://")
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

func get(ctx context.Context, client *http.Client, from string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s returned %s", from, resp.Status)
	}
	return readBounded(resp.Body)
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		return nil, fmt.Errorf("longer than %d bytes", maxDocument)
	}
	return text, err
}
