package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/keyserver-operator/keyserver-operator/internal/operator/sources"
)

// issuerTimeout limits one request. Objects that need the issuer wait for the request one after the other.
const issuerTimeout = 10 * time.Second

// IssuerOf returns an Issuer that reads the cluster's OpenID configuration, with the permissions of the ClusterRole
// system:service-account-issuer-discovery.
func IssuerOf(config *rest.Config, c *http.Client) (*sources.Issuer, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, c)
	if err != nil {
		return nil, fmt.Errorf("create the client that reads the issuer of the cluster: %w", err)
	}
	return sources.NewIssuer(func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
		defer cancel()
		raw, err := d.RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(ctx)
		if err != nil {
			return "", err
		}
		var document struct {
			Issuer string `json:"issuer"`
		}
		if err := json.Unmarshal(raw, &document); err != nil || document.Issuer == "" {
			return "", errors.New("its /.well-known/openid-configuration has no issuer")
		}
		return document.Issuer, nil
	}), nil
}
