package trustfiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/rest"
)

// Paths of a kube-apiserver, which do not depend on the issuer. The ClusterRole system:service-account-issuer-discovery
// grants access.
const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/openid/v1/jwks"
)

// Document fetches one document from the cluster's API server.
type Document func(ctx context.Context, path string) ([]byte, error)

// FromCluster fetches with the manager's own credential.
func FromCluster(c rest.Interface) Document {
	return func(ctx context.Context, path string) ([]byte, error) {
		body, err := c.Get().AbsPath(path).SetHeader("Accept", "application/jwk-set+json, application/json").DoRaw(ctx)
		if err == nil && len(body) > maxBytes {
			return nil, fmt.Errorf("the response exceeds %d bytes", maxBytes)
		}
		return body, err
	}
}

// IssuerKeys writes the public keys of the cluster's service account tokens to a file, as a JWK set (RFC 7517). A key
// server reads the file with --oidc-jwks-file.
type IssuerKeys struct {
	Fetch    Document
	File     string
	Issuer   string // the issuer in the key server's configuration; empty if unknown
	Interval time.Duration
	Logger   *slog.Logger
}

// Start implements manager.Runnable.
func (k IssuerKeys) Start(ctx context.Context) error {
	loop{what: "update the cluster's issuer keys", each: k.Interval, logger: k.Logger, step: k.Refresh}.run(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because each Pod has its own file.
func (k IssuerKeys) NeedLeaderElection() bool { return false }

// Refresh updates the file once. If the cluster has another issuer than the key server's configuration, Refresh writes
// the keys nevertheless, and the error names the wrong flag of the key server.
func (k IssuerKeys) Refresh(ctx context.Context) error {
	answer, err := k.Fetch(ctx, keysPath)
	if err != nil {
		return fmt.Errorf("fetch %s of the cluster: %w", keysPath, err)
	}
	keys, err := publicKeys(answer)
	if err != nil {
		return fmt.Errorf("%s of the cluster %w", keysPath, err)
	}
	changed, err := replace(k.File, keys)
	if err != nil {
		return fmt.Errorf("write the cluster's issuer keys: %w", err)
	}
	if changed {
		k.Logger.Info("wrote the cluster's issuer keys", "file", k.File)
	}
	return k.checkIssuer(ctx)
}

func (k IssuerKeys) checkIssuer(ctx context.Context) error {
	if k.Issuer == "" {
		return nil
	}
	issuer, err := k.Fetch.Issuer(ctx)
	if err != nil {
		return err
	}
	if issuer != k.Issuer {
		return fmt.Errorf("--oidc-issuer: %q is not the issuer of the cluster, so service accounts cannot log in; set it to %q in both containers", k.Issuer, issuer)
	}
	return nil
}

// Issuer returns the issuer of service account tokens according to the cluster.
func (d Document) Issuer(ctx context.Context) (string, error) {
	answer, err := d(ctx, discoveryPath)
	if err != nil {
		return "", fmt.Errorf("fetch %s of the cluster: %w", discoveryPath, err)
	}
	var about struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(answer, &about); err != nil {
		return "", fmt.Errorf("%s of the cluster is not JSON: %w", discoveryPath, err)
	}
	return about.Issuer, nil
}

// publicKeys returns a JWK set with the usable public keys of the response. It fails if there is none, so that the
// earlier keys stay.
func publicKeys(answer []byte) ([]byte, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(answer, &set); err != nil {
		return nil, fmt.Errorf("is not a JWK set: %w", err)
	}
	var kept jose.JSONWebKeySet
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); err == nil && key.Valid() && key.IsPublic() {
			kept.Keys = append(kept.Keys, key)
		}
	}
	if len(kept.Keys) == 0 {
		return nil, errors.New("has no usable public key")
	}
	content, err := json.Marshal(kept)
	return append(content, '\n'), err
}
